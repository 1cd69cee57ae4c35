"""Shadow training: many small models side by side, in processes of one thread.

Implements fedaudit.attacks.attack.Trainer with the loop and the memory layout that clients train with. Which
process trains which model changes no number: every model has a stream of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples
from fedaudit.fl.clients.client import evaluate
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.data.scale import normalise
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import Net, State, initialise, state_of
from fedaudit.fl.runtime.side_by_side import collect
from fedaudit.fl.runtime.streams import Streams, seed_networks
from fedaudit.fl.training.layout import channels_last
from fedaudit.fl.training.local import train

Index = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ShadowTrainer:
    """Trains with the settings of `config` but for the number of epochs."""

    make: Callable[[], Net]
    data: Data  # for its mean and standard deviation
    config: LocalConfig
    device: str = "cpu"

    def __call__(
        self,
        images: Examples,
        subsets: Sequence[Index],
        queries: NDArray[Any],
        *,
        epochs: int,
        seed: int,
        start: Mapping[str, NDArray[Any]] | None = None,
    ) -> NDArray[np.float32]:
        """Logits [subsets, Q, classes] of queries [Q, C, H, W]; see fedaudit.attacks.attack.Trainer."""
        settings = LocalConfig(
            local_epochs=epochs,
            batch_size=self.config.batch_size,
            lr=self.config.lr,
            momentum=self.config.momentum,
            weight_decay=self.config.weight_decay,
            grad_clip=self.config.grad_clip,
        )
        site = ShadowSite(self.make, self.data, settings, images, queries, seed, start, self.device)
        return np.stack(collect(enumerate(subsets), site.shadow))


class ShadowSite:
    """The model and the data that shadow models are trained with."""

    def __init__(
        self,
        make: Callable[[], Net],
        data: Data,
        config: LocalConfig,
        images: Examples,
        queries: NDArray[Any],
        seed: int,
        start: Mapping[str, NDArray[Any]] | None,
        device: str = "cpu",
    ) -> None:
        self._make, self._streams, self._method = make, Streams(seed), FedAvg(config)
        with seed_networks(0):
            self._net = make()
        channels_last(self._net)
        self._net.to(device)
        self._x = normalise(torch.from_numpy(np.ascontiguousarray(images.x)).to(device), data)
        self._y = torch.from_numpy(images.wanted).to(device)
        self._queries = normalise(torch.from_numpy(np.ascontiguousarray(queries)).to(device), data)
        self._augment = data.augment
        self._start: State | None = None
        if start is not None:  # what is never sent is drawn
            sent = {k: torch.from_numpy(np.array(v)) for k, v in start.items()}
            self._start = state_of(initialise(make, self._streams)) | sent

    def shadow(self, job: tuple[int, Index]) -> NDArray[np.float32]:
        """[Q, classes] logits of model `number` after training on these rows."""
        number, rows = job
        index = torch.from_numpy(rows).to(self._x.device)
        start = self._start
        if start is None:
            drawn = Streams(self._streams.key("shadow", number))
            start = state_of(initialise(self._make, drawn))
        order = self._streams.torch("order", number)
        trained = train(
            self._method, self._net, start, self._x[index], self._y[index], {}, order, augment=self._augment
        )
        return np.asarray(evaluate(self._net, "forward", trained.state, self._queries).cpu())


def trainer(
    make_net: Callable[[], Net] | None, training: LocalConfig | None, data: Data, device: str
) -> ShadowTrainer | None:
    """Shadow training with the run's model, learning rate and batch size; None where these are not known."""
    make, config = make_net, training
    if make is None or config is None:
        return None
    return ShadowTrainer(make=make, data=data, config=config, device=device)
