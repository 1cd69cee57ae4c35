"""Optimisers of torch that step without loading torch.compile's front end, which costs a process a second.

torch wraps `add_param_group`, `zero_grad` and `step` of its optimisers so that torch.compile leaves them alone,
and the wrappers import torch._dynamo when they are first called. Nothing here is compiled, so the plain methods
do: the same operations in the same order, equal to the bit (tests/fl/test_eager.py).
"""

from functools import cache
from inspect import unwrap
from typing import Any, TypeVar, cast

import torch

O = TypeVar("O", bound=torch.optim.Optimizer)  # noqa: E741
WRAPPED = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def eager(optimiser: type[O]) -> type[O]:
    """The same class of torch.optim for steps that are not compiled: `eager(torch.optim.SGD)(params, lr=0.1)`."""
    return cast(type[O], _derive(cast(Any, optimiser)))


@cache
def _derive(optimiser: Any) -> Any:
    members: dict[str, Any] = {name: unwrap(getattr(optimiser, name)) for name in WRAPPED}
    if optimiser is not torch.optim.LBFGS:  # whose step is not wrapped, and evaluates the loss with gradients
        members["step"] = torch.no_grad()(unwrap(optimiser.step))  # a closure turns gradients on again by itself
    return type(optimiser.__name__, (optimiser,), members)
