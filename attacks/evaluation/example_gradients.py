"""Gradients of single images at a model."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Floats
from fedaudit.attacks.evaluation.decoder import find_device
from fedaudit.fl.runtime.shared_weights import find_shared_names


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
        from torch.func import grad, vmap
        from torch.nn.functional import cross_entropy

        def loss(values: Any, image: Any, label: Any) -> Any:
            return cross_entropy(self._shared.call(self._module, values, image[None]), label[None])

        many = vmap(grad(loss), in_dims=(None, 0, 0))
        place = find_device(self._module)
        images = torch.from_numpy(np.ascontiguousarray(x)).to(place)
        found = many(self._values, images, torch.from_numpy(y).to(place))
        rows = [found[k].reshape(len(y), -1) for k in self._values]
        return np.asarray(torch.cat(rows, dim=1).cpu().numpy())
