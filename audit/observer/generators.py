"""Generators and critics as an adversary runs them: weights from the wire, images in [0, 1].

Implements fedaudit.attacks.attack.GeneratorArchitecture with the networks and the training of fl/families/gan.py,
which whoever
takes part in the federation has. Rates of its own training are its own: 2e-3, which is quick on few
images.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedaudit.attacks.attack import Examples, TrainedPair
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.families import gan
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.runtime.tree import to_numpy
from fedaudit.fl.training.layout import channels_last

Arrays = Mapping[str, NDArray[Any]]


class KnownGenerators:
    """`classes` > 0: the networks are conditional."""

    def __init__(
        self, shape: tuple[int, ...], config: gan.GanConfig, classes: int = 0, device: str = "cpu"
    ) -> None:
        self._shape, self._config, self._classes, self.device = shape, config, classes, device
        self.latent, self.classes = config.latent, classes
        self._trained: dict[tuple[str, int, int], TrainedPair] = {}

    def images(self, weights: Arrays, n: int, rng: np.random.Generator) -> Examples:
        y = rng.integers(0, self._classes or 1, n)
        labels = torch.from_numpy(y) if self._classes else None
        x = gan.sample(_tensors(weights), self._shape, n, self._config, _stream(rng), labels, self._classes)
        return Examples(x=x.numpy(), y=y)

    def maker(self, weights: Arrays) -> Callable[[Tensor, Tensor], Tensor]:
        net, _ = gan.networks(self._shape, self._config, self._classes)
        net.load_state_dict(_tensors(weights))
        net.requires_grad_(False)
        channels_last(net)
        net.to(self.device)

        def make(z: Tensor, y: Tensor) -> Tensor:
            one_hot = torch.nn.functional.one_hot
            out: Tensor = net(z, one_hot(y, self._classes).float() if self._classes else None)
            return (out + 1) / 2

        return make

    def scores(self, weights: Arrays, images: Examples, batch: int = 500) -> NDArray[Any]:
        _, critic = gan.networks(self._shape, self._config, self._classes)
        critic.load_state_dict(_tensors(weights))
        critic.to(self.device)
        x = torch.from_numpy(np.ascontiguousarray(images.x)).to(self.device)
        one_hot = torch.nn.functional.one_hot
        found = []
        with torch.no_grad():
            for i in range(0, len(x), batch):
                y = torch.from_numpy(images.y[i : i + batch]).to(self.device)
                label = one_hot(y, self._classes).float() if self._classes else None
                found.append(critic(2 * x[i : i + batch] - 1, label))
        return np.asarray(torch.cat(found).double().cpu().numpy()) if found else np.zeros(0)

    def train(self, images: Examples, steps: int, rng: np.random.Generator) -> TrainedPair:
        """`steps` of the generator from random weights; 0 leaves them random.

        What was trained before, on the same images with the same seed, is remembered.
        """
        seed = int(rng.integers(2**63))
        content = hashlib.sha256(np.ascontiguousarray(images.x).tobytes() + images.y.tobytes())
        key = content.hexdigest(), steps, seed
        if key not in self._trained:
            self._trained[key] = self._train(images, steps, seed)
        return self._trained[key]

    def _train(self, images: Examples, steps: int, seed: int) -> TrainedPair:
        stream = torch.Generator().manual_seed(seed)
        pair = gan.initial(self._shape, self._config, stream, self._classes)
        if steps:
            config = replace(
                self._config,
                unit="step",
                local=steps,
                lr_generator=2e-3,
                lr_critic=2e-3,
                batch_size=min(64, self._config.batch_size),
            )
            x = 2 * torch.from_numpy(np.ascontiguousarray(images.x)).to(self.device) - 1
            y = torch.from_numpy(images.y).to(self.device)
            pair = gan.train(pair, x, y, config, stream, self._classes).pair
        return TrainedPair(generator=to_numpy(pair.generator), critic=to_numpy(pair.critic))


def known_generators(training: LocalConfig | None, device: str, data: Data) -> KnownGenerators | None:
    """For methods whose settings describe generators; None for all others."""
    config = getattr(training, "gan", None)
    if not isinstance(config, gan.GanConfig):
        return None
    conditional = getattr(training, "labeler", "") == "conditional"
    return _share_generators(tuple(data.shape), config, len(data.classes) if conditional else 0, device)


@lru_cache(maxsize=1)
def _share_generators(
    shape: tuple[int, ...], config: gan.GanConfig, classes: int, device: str
) -> KnownGenerators:
    """The same object for every attack, so that they share what they train."""
    return KnownGenerators(shape, config, classes, device)


def forget() -> None:
    """What attacks trained for each other: the next one trains all of its own."""
    _share_generators.cache_clear()


def _stream(rng: np.random.Generator) -> torch.Generator:
    return torch.Generator().manual_seed(int(rng.integers(2**63)))


def _tensors(weights: Arrays) -> dict[str, torch.Tensor]:
    return {k: torch.from_numpy(np.array(v)) for k, v in weights.items()}
