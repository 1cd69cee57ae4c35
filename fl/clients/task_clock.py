"""The simulated clock of a federation: how long a client's work took."""

from collections.abc import Callable, Mapping
from typing import Any

from fedaudit.fl.clients.attendance import Attendance
from fedaudit.fl.clients.time_model import TimeModel, Workload, round_length
from fedaudit.fl.recording import tap
from fedaudit.fl.recording.sizes import message_bytes
from fedaudit.fl.wire.protection import Message


class TaskClock:
    """Times clients' work by `model`; without one, only delays take time.

    `delay(round, client)` is how late a malicious client chooses to be.
    """

    def __init__(
        self, model: TimeModel | None, attendance: Attendance, delay: Callable[[int, int], float]
    ) -> None:
        self.model = model
        self._attendance, self._delay = attendance, delay

    def measure(
        self,
        round: int,
        client: int,
        down: Message,
        up: Message,
        examples: int,
        cost: Callable[[Workload], float],
    ) -> float:
        """Return the simulated time of one client's download, training, upload and delays.

        `cost` says how many seconds of the profile training on an example takes.
        """
        delay = self._attendance.ask(round, client).time + self._delay(round, client)
        if self.model is None:
            return delay
        taken = self.model.task_time(
            client,
            bytes_down=message_bytes(down),
            bytes_up=message_bytes(up),
            examples=examples,
            cost=cost(self.model.workload),
        )
        return tap.current().measure(round, client, self.model.add_delay(taken, round, client) + delay)

    def describe_round(self, times: Mapping[int, float], waited: float) -> dict[str, Any]:
        """Return what the metrics say of a round's time; nothing where neither a clock nor failures are on."""
        described: dict[str, Any] = {}
        if self.model is not None or self._attendance.failures.any:
            described["round_length"] = max(round_length(times), waited)
        if self.model is not None:
            described |= self.model.shares(times)
        return described
