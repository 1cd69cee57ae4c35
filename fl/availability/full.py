"""Full: everybody is selected and everybody answers, every round."""

from collections.abc import Sequence

from fedaudit.fl.data.participation import Availability, Drawn, Participation
from fedaudit.fl.runtime.streams import Streams


class Full(Availability):
    title = "Full participation"
    source = ""

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        return Participation(tuple(candidates), tuple(candidates))

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn()

    def describe(self) -> str:
        return "every client is selected and answers in every round"
