"""What a server that knows every device expects a round of FedAvg to take, client by client."""

import numpy as np
from numpy.typing import NDArray

from fedaudit.fl.federation import Federation
from fedaudit.fl.method import RoundMethod
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.tree import Tree, size_bytes


def expected_times(method: RoundMethod, state: Tree, federation: Federation) -> NDArray[np.float64]:
    """[clients] tau_k, without jitter; infinite for clients without data. Raises UserError without a clock."""
    times = federation.clock.model
    if times is None:
        raise UserError(
            f"{method.card.title} chooses clients by their times, and the federation has no clock",
            hint="set federation.time_model, for instance to counted",
            key="federation.time_model",
        )
    size, profile = size_bytes(state["model"]), times.workload
    found = [
        times.task_time(
            k,
            bytes_down=size,
            bytes_up=size,
            examples=len(part),
            cost=method.estimate_cost(k, {}, len(part), profile),
        )
        if len(part)
        else np.inf
        for k, part in enumerate(federation.parts)
    ]
    return np.array(found)
