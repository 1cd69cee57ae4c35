"""Models as an adversary runs them: weights from the wire, images in [0, 1].

Implements fedaudit.attacks.attack.Architecture and Extractor. Normalisation happens inside, as it would for
anyone who has the published architecture.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedaudit.attacks.evaluation.decoder import find_device
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.data.scale import normalise
from fedaudit.fl.families.cutting import cut_network
from fedaudit.fl.model import Net, unwrap
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import seed_networks
from fedaudit.fl.training.layout import channels_last


class Runner(nn.Module):
    """A model that takes images in [0, 1]."""

    def __init__(self, net: Net, data: Data) -> None:
        super().__init__()
        self.net, self._whole, self._data = unwrap(net), (net,), data

    def features(self, x: Tensor) -> Tensor:
        return self._whole[0].features(normalise(x, self._data))

    def grade(self, x: Tensor) -> Tensor:
        return self._whole[0].grade(x)

    def head(self, h: Tensor) -> Tensor:
        out: Tensor = self._whole[0].head(h)
        return out

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self._whole[0](normalise(x, self._data))
        return out

    def cut_after(self, layers: int) -> nn.Module:
        """The first so many layers, as clients of split learning hold them."""
        return _FirstLayers(cut_network(self._whole[0], layers).body.module, self._data)


class _FirstLayers(nn.Module):
    def __init__(self, body: nn.Module, data: Data) -> None:
        super().__init__()
        self.body, self._data = body, data

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(normalise(x, self._data))
        return out


class BoundExtractor:
    """One set of weights, ready to run in batches without gradients."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner.eval()

    def features(self, images: NDArray[Any]) -> NDArray[Any]:
        return self._run(self._runner.features, images)

    def logits(self, images: NDArray[Any]) -> NDArray[Any]:
        return self._run(self._runner, images)

    def grade(self, texts: NDArray[Any]) -> NDArray[Any]:
        """[N, 3] of a language model: summed loss of a text's tokens, how many are the likeliest, how many."""
        return self._run(self._runner.grade, texts, batch=32)

    def module(self) -> Runner:
        return self._runner

    def first_layers(self, layers: int) -> nn.Module:
        """Images [N, C, H, W] in [0, 1] to what the first so many layers make of them."""
        return self._runner.cut_after(layers)

    def _run(self, part: Callable[[Tensor], Tensor], images: NDArray[Any], batch: int = 500) -> NDArray[Any]:
        with torch.no_grad():
            x = torch.from_numpy(np.ascontiguousarray(images))
            place = find_device(self._runner)
            return np.asarray(torch.cat([part(b.to(place)) for b in torch.split(x, batch)]).cpu().numpy())


class KnownArchitecture:
    """Callable with weights as they crossed the wire; those that did not are the same in every process."""

    def __init__(self, make: Callable[[], Net], data: Data, device: str = "cpu") -> None:
        self._make, self._data, self._device = make, data, device

    def __call__(self, weights: Mapping[str, NDArray[Any]]) -> BoundExtractor:
        with seed_networks(0):
            net = self._make()
        own = net.state_dict()
        for name, value in weights.items():
            if name not in own or tuple(own[name].shape) != np.shape(value):
                expected = tuple(own[name].shape) if name in own else "no such parameter"
                raise UserError(
                    f"artifact holds {name!r} of shape {np.shape(value)}, the model has {expected}",
                    hint="federation.model in the config must be the model that was trained",
                )
            own[name] = torch.from_numpy(np.array(value))
        net.load_state_dict(own)
        channels_last(net)
        for p in net.parameters():
            p.requires_grad_(False)
        return BoundExtractor(Runner(net.to(self._device), self._data))
