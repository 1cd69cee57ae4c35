"""What servers that choose clients go by: how long each is expected to take, and how the model does there."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedaudit.fl.clients.selection import Choice
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.tree import size_bytes
from fedaudit.fl.training.local import count_epochs


def expected_times(choice: Choice) -> NDArray[np.float64]:
    """[clients] tau_k of a round of FedAvg with the method's passes, known to the server, without jitter.

    The whole model is sent and trained, whatever the method makes of that. Infinite for clients without data.
    Raises UserError without a clock.
    """
    federation, config = choice.federation, choice.method.config
    times = federation.clock.model
    if times is None:
        raise UserError(
            f"{choice.method.selection.title} chooses clients by their times, and the federation has no clock",
            hint="set federation.time_model, for instance to counted",
            key="federation.time_model",
        )
    size, seconds = size_bytes(federation.initial), times.workload.profile[0]
    found = [
        times.task_time(
            k, bytes_down=size, bytes_up=size, examples=len(part), cost=count_epochs(config, len(part)) * seconds
        )
        if len(part)
        else np.inf
        for k, part in enumerate(federation.parts)
    ]
    return np.array(found)


def ask_losses(choice: Choice, work: str, clients: Sequence[int]) -> dict[int, float]:
    """What each client says of the model that all were sent; raises UserError where all were sent none."""
    if Kind.GLOBAL_MODEL not in choice.message:
        raise UserError(
            f"{choice.method.selection.title} asks clients how the shared model does before they train, and "
            f"{choice.method.card.title} sends all of them none",
            hint="choose a method that broadcasts its model, such as fedavg, or another selection",
            key="federation.selection",
        )
    return {k: float(m[Kind.LOCAL_LOSS]["loss"]) for k, m in choice.ask(work, clients).items()}
