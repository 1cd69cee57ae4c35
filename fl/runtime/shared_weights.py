"""Weights of several names: a layer that a network uses twice, or a weight that two layers have."""

from collections.abc import Mapping
from itertools import chain
from typing import Any, NamedTuple


class SharedNames(NamedTuple):
    """Which names of a network are those of weights that an earlier name has."""

    others: Mapping[str, str] = {}  # name -> the first name of the same weights
    places: Mapping[str, str] = {}  # of them, those in another module than the first

    def spread(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values for `torch.func.functional_call(..., tie_weights=False)`: those of first names, at each place.

        Torch's own way to tie leaves a module that has two names with the values that it was called with.
        """
        firsts = {k: v for k, v in values.items() if k not in self.others}
        return firsts | {place: firsts[first] for place, first in self.places.items() if first in firsts}

    def call(self, module: Any, values: Mapping[str, Any], *inputs: Any) -> Any:
        """What a module with these names makes of inputs by such values."""
        from torch.func import functional_call

        return functional_call(module, self.spread(values), inputs, tie_weights=False)


def find_shared_names(module: Any) -> SharedNames:
    """Those of an nn.Module."""
    every = chain(module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False))
    first, others = dict[int, str](), dict[str, str]()
    for name, value in every:
        if first.setdefault(id(value), name) != name:
            others[name] = first[id(value)]
    own = {
        f"{prefix}.{name}" if prefix else name
        for prefix, part in module.named_modules()
        for name in (*part._parameters, *part._buffers)
    }
    return SharedNames(others, {k: f for k, f in others.items() if k in own})
