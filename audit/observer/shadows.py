"""Shadow training: many small models side by side, in processes of one thread or as one batch.

Implements fedaudit.attacks.attack.Trainer with the loop and the memory layout that clients train with. Which
process trains which model changes no number: every model has a stream of its own. On an accelerator they train as
one batch, as clients do.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples
from fedaudit.fl.clients.client import Client, evaluate
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.data.scale import normalise
from fedaudit.fl.execution.batched import find_width, train_together
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import Net, State, initialise, state_of
from fedaudit.fl.runtime.side_by_side import collect
from fedaudit.fl.runtime.streams import Streams, seed_networks
from fedaudit.fl.training.layout import channels_last

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
        settings = FedAvg.Config(
            local_epochs=epochs,
            batch_size=self.config.batch_size,
            lr=self.config.lr,
            momentum=self.config.momentum,
            weight_decay=self.config.weight_decay,
            grad_clip=self.config.grad_clip,
        )
        site = ShadowSite(self.make, self.data, settings, images, queries, seed, start, self.device)
        jobs = [*enumerate(subsets)]
        if torch.device(self.device).type == "cpu":
            return np.stack(collect(jobs, site.shadow))
        width = find_width(site, site.x[:2])
        parts = (jobs[i : i + width] for i in range(0, len(jobs), width))
        return np.stack([logits for part in parts for logits in site.shadow_together(part)])


class _Shadow(Client):
    def generator(self, name: str) -> torch.Generator:
        return self.streams.torch("order", self.index)


class ShadowSite:
    """The model and the data that shadow models are trained with."""

    private = None

    def __init__(
        self,
        make: Callable[[], Net],
        data: Data,
        config: FedAvg.Config,
        images: Examples,
        queries: NDArray[Any],
        seed: int,
        start: Mapping[str, NDArray[Any]] | None,
        device: str = "cpu",
    ) -> None:
        self._make, self._streams, self.method, self.device = make, Streams(seed), FedAvg(config), device
        with seed_networks(0):
            self.net = make()
        channels_last(self.net)
        self.net.to(device)
        self.x = normalise(torch.from_numpy(np.ascontiguousarray(images.x)).to(device), data)
        self._y = torch.from_numpy(images.wanted).to(device)
        self._queries = normalise(torch.from_numpy(np.ascontiguousarray(queries)).to(device), data)
        self._augment = data.augment
        self._start: State | None = None
        if start is not None:  # what is never sent is drawn
            sent = {k: torch.from_numpy(np.array(v)) for k, v in start.items()}
            self._start = state_of(initialise(make, self._streams)) | sent

    def shadow(self, job: tuple[int, Index]) -> NDArray[np.float32]:
        """[Q, classes] logits of model `number` after training on these rows."""
        return self._answer(self._client(job).train(self.method, {}).state)

    def shadow_together(self, jobs: Sequence[tuple[int, Index]]) -> list[NDArray[np.float32]]:
        """The same of several models, trained side by side as clients are."""
        replies = train_together(self, [self._client(job) for job in jobs])
        return [self._answer(reply.message[Kind.LOCAL_MODEL]) for reply in replies]

    def _client(self, job: tuple[int, Index]) -> _Shadow:
        number, rows = job
        index, start = torch.from_numpy(rows).to(self.x.device), self._start
        if start is None:
            drawn = Streams(self._streams.key("shadow", number))
            start = state_of(initialise(self._make, drawn))
        return _Shadow(
            index=number,
            round=0,
            x=self.x[index],
            y=self._y[index],
            classes=0,
            message={Kind.GLOBAL_MODEL: start},
            memory={},
            net=self.net,
            streams=self._streams,
            augment=self._augment,
        )

    def _answer(self, state: State) -> NDArray[np.float32]:
        return np.asarray(evaluate(self.net, "forward", state, self._queries).cpu())


def trainer(
    make_net: Callable[[], Net] | None, training: LocalConfig | None, data: Data, device: str
) -> ShadowTrainer | None:
    """Shadow training with the run's model, learning rate and batch size; None where these are not known."""
    make, config = make_net, training
    if make is None or config is None:
        return None
    return ShadowTrainer(make=make, data=data, config=config, device=device)
