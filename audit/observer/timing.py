"""What is published of how long devices take, for an adversary who knows the network."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedaudit.attacks.attack import Timing
from fedaudit.audit.case.case import ClientCode
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import RoundMethod


def timing(case: ClientCode) -> Timing | None:
    """The clock's constants and the cost of a client's training by what it said; None without a clock."""
    times, method = case.time_model, case.method
    if times is None or not isinstance(method, RoundMethod):
        return None

    def cost(said: Mapping[Kind, Mapping[str, NDArray[Any]]]) -> float:
        message = {kind: {k: torch.from_numpy(np.array(v)) for k, v in p.items()} for kind, p in said.items()}
        examples = int(message[Kind.NUM_EXAMPLES]["count"]) if Kind.NUM_EXAMPLES in message else 1
        return method.estimate_cost(-1, message, examples, times.workload)

    return Timing(
        bandwidth=times.workload.bandwidth,
        compute=times.workload.compute,
        tiers=np.unique(times.capability),
        cost=cost,
    )
