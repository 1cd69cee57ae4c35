"""Gradients of single images at the model a client started from, held against what it uploaded."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Architecture, Examples, Floats
from fedaudit.attacks.evaluation.decoder import find_device
from fedaudit.attacks.evaluation.targets import Target
from fedaudit.fl.runtime.shared_weights import find_shared_names

MOST = 2e7  # gradient entries in memory at a time
Values = NDArray[np.float64]


def score_per_image(
    queried: Sequence[Target],
    architecture: Architecture,
    candidates: Examples,
    score: Callable[[Values, Values, Values], Values],
) -> Floats:
    """[k, N]: score(products [t, n], squared gradient norms [n], squared lengths [t]) -> [t, n].

    Products are those of change and descent, <w_k - w, -gradient>, over trainable parameters.
    """
    starts: dict[int, list[int]] = defaultdict(list)
    for row, target in enumerate(queried):  # the broadcast of a round is one object
        starts[id(target.start)].append(row)
    table = np.zeros((len(queried), len(candidates)))
    for rows in starts.values():
        gradients = Gradients(architecture(queried[rows[0]].start).module())
        changes = np.stack([gradients.flatten(queried[r].change()) for r in rows])  # [t, P]
        lengths = (changes.astype(np.float64) ** 2).sum(axis=1)
        each = max(1, min(256, int(MOST / changes.shape[1])))
        for first in range(0, len(candidates), each):
            some = slice(first, first + each)
            found = gradients(candidates.x[some], candidates.y[some])  # [n, P]
            norms = (found.astype(np.float64) ** 2).sum(axis=1)
            table[rows, some] = score((changes @ -found.T).astype(np.float64), norms, lengths)
    return table


class Gradients:
    """Of the cross-entropy of every image by itself, as a model in use has it."""

    def __init__(self, module: Any) -> None:
        self._module, self._shared = module.eval(), find_shared_names(module)
        self._values = {k: p.detach() for k, p in module.named_parameters()}

    def flatten(self, change: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Parameters as one vector, in the order of gradients; names may lack the module's prefix."""
        parts = []
        for name, value in self._values.items():
            known = next((k for k in change if name == k or name.endswith(f".{k}")), None)
            moved = np.zeros(tuple(value.shape)) if known is None else change[known]
            parts.append(np.asarray(moved, np.float32).ravel())
        return np.concatenate(parts)

    def __call__(self, x: Floats, y: NDArray[np.int64]) -> NDArray[np.float32]:
        """[n, C, H, W] and [n] -> [n, P]."""
        import torch
        from torch.func import functional_call, grad, vmap
        from torch.nn.functional import cross_entropy

        def loss(values: Any, image: Any, label: Any) -> Any:
            given = self._shared.spread(values)
            return cross_entropy(
                functional_call(self._module, given, (image[None],), tie_weights=False), label[None]
            )

        many = vmap(grad(loss), in_dims=(None, 0, 0))
        place = find_device(self._module)
        images = torch.from_numpy(np.ascontiguousarray(x)).to(place)
        found = many(self._values, images, torch.from_numpy(y).to(place))
        rows = [found[k].reshape(len(y), -1) for k in self._values]
        return np.asarray(torch.cat(rows, dim=1).cpu().numpy())
