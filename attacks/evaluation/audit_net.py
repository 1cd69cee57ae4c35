"""The audit net: an independent classifier that says how alike two images look, and of which class.

Distances in its features agree with people better than pixels do; it must not be the attacked model,
whose features an attack may have matched by construction. It has another architecture and another
seed, and learns from the attacker's auxiliary images, so that a baseline could own it too.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Hashable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Truth
from fedaudit.attacks.evaluation.decoder import DecoderTraining, Fit, Lesson, fit, hold_out, initialise, tensor

if TYPE_CHECKING:
    from torch import nn

Floats = NDArray[np.floating[Any]]

MOST = 10_000  # auxiliary images to learn from
FEATURES = 96
KEPT = 8  # nets of some hundred kilobytes, by digests of their images
TRAINING = DecoderTraining(epochs=5, least_steps=400, batch=64, lr=2e-3)

_trained: OrderedDict[bytes, "AuditNet"] = OrderedDict()


class AuditNet:
    """A trained classifier; `accuracy` is that on reference images, which it never saw."""

    def __init__(self, truth: Truth) -> None:
        import torch

        rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
        aux, non_members = truth.auxiliary, truth.reference
        chosen = rng.permutation(len(aux))[:MOST]
        images, labels = tensor(aux.x[chosen], "cpu"), torch.from_numpy(aux.y[chosen])
        classes = int(max(aux.y.max(), non_members.y.max(initial=0))) + 1
        self._body, self._head = _layers(aux.x.shape[1:], classes, generator)
        whole = torch.nn.Sequential(self._body, self._head)
        lesson = Lesson(
            targets=labels,
            rows=hold_out(len(labels), generator),
            loss=lambda net, x, y: torch.nn.functional.cross_entropy(net(x), y),
        )
        fit([Fit(networks=whole, inputs=images, generator=generator)], lesson, TRAINING)
        self._spread = self._raw(aux.x[chosen]).std(axis=0) + 1e-3
        sample = rng.permutation(len(non_members))[:MOST]
        right = self.classes(non_members.x[sample]) == non_members.y[sample]
        self.accuracy = float(right.mean()) if len(right) else float("nan")

    def features(self, images: Floats) -> NDArray[np.float64]:
        """[k, C, H, W] in [0, 1] -> [k, 96], each of deviation 1 over the auxiliary images."""
        found: NDArray[np.float64] = self._raw(images) / self._spread
        return found

    def classes(self, images: Floats) -> NDArray[np.int64]:
        """[k, C, H, W] in [0, 1] -> [k]."""
        import torch

        with torch.no_grad():
            features = torch.from_numpy(self._raw(images)).float()
            found: NDArray[np.int64] = self._head(features).argmax(1).numpy()
        return found

    def distance(self, a: Floats, b: Floats) -> NDArray[np.float64]:
        """Mean squared distance of features, image by image; 2 for unrelated images."""
        gap = self.features(a) - self.features(b)
        return np.asarray((gap**2).mean(axis=1))

    def _raw(self, images: Floats) -> NDArray[np.float64]:
        import torch

        with torch.no_grad():
            batches = torch.split(tensor(images, "cpu"), 500)
            return np.concatenate([self._body(b).double().numpy() for b in batches] or [np.zeros((0, FEATURES))])


def audit_net(truth: Truth) -> AuditNet:
    """The audit net of these auxiliary images; trained once, so every attack and variant has the same judge."""
    return _recall(cast(Hashable, truth))


@lru_cache(maxsize=1)
def _recall(truth: Hashable) -> AuditNet:
    """The net that was trained on equal images, whoever asked for it."""
    key = hashlib.sha256()
    for images in (cast(Truth, truth).auxiliary, cast(Truth, truth).reference):
        for values in (images.x, images.y):
            key.update(repr((values.shape, values.dtype)).encode())
            key.update(values.tobytes())
    if key.digest() not in _trained:
        _trained[key.digest()] = AuditNet(cast(Truth, truth))
        while len(_trained) > KEPT:
            _trained.popitem(last=False)
    return _trained[key.digest()]


def _layers(shape: Any, classes: int, generator: Any) -> "tuple[nn.Module, nn.Module]":
    from torch import nn

    channels, height, width = shape
    flat = 48 * -(-height // 4) * -(-width // 4)

    def make() -> nn.Module:
        return nn.Sequential(
            nn.Sequential(
                nn.Conv2d(channels, 24, 3, 2, 1),
                nn.GELU(),
                nn.Conv2d(24, 48, 3, 2, 1),
                nn.GELU(),
                nn.Flatten(),
                nn.Linear(flat, FEATURES),
                nn.Tanh(),
            ),
            nn.Linear(FEATURES, classes),
        )

    whole: Any = initialise(make, generator)
    return whole[0], whole[1]
