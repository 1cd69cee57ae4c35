"""Uniform: the server asks a fixed number of clients, drawn without replacement (V-U).

FedDC (10 of 50), FedRS (max(int(QK), 1) of K), Seol and Kim (10). All who are selected answer.
"""

from collections.abc import Sequence

from pydantic import Field

from fedaudit.fl.data.participation import Availability, Drawn, Participation
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne, PositiveShare
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.streams import Streams


class Uniform(Availability):
    title = "Uniform sampling"
    source = "McMahan et al., AISTATS 2017, arXiv:1602.05629, Algorithm 1"

    @settings
    class Config:
        count: AtLeastOne | None = Field(
            default=None, description="clients that are selected in a round; not together with fraction"
        )
        fraction: PositiveShare | None = Field(
            default=None,
            description="Q: share of the clients selected in a round; 0.1 where neither it nor count is given",
        )

        def __post_init__(self) -> None:
            if self.count is not None and self.fraction is not None:
                raise UserError(
                    f"availability has both count ({self.count}) and fraction ({self.fraction:g})",
                    hint="keep one of them",
                )

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        order = streams.numpy("participation", round, attempt).permutation(max(candidates, default=-1) + 1)
        allowed, selected = set(candidates), self._count_participants(len(candidates))
        chosen = tuple(sorted([int(k) for k in order if int(k) in allowed][:selected]))
        return Participation(chosen, chosen)

    def _count_participants(self, candidates: int) -> int:
        if self.config.count is not None:
            return int(self.config.count)
        share = 0.1 if self.config.fraction is None else self.config.fraction
        return max(int(share * candidates + 1e-9), 1)  # 0.29 * 100 is a hair below 29

    def sampling(self, client: int | None, clients: int) -> Drawn:
        rate = min(1.0, self._count_participants(clients) / clients)
        return Drawn("fixed_without_replacement", rate) if rate < 1 else Drawn()

    def describe(self) -> str:
        if self.config.count is not None:
            who = f"{self.config.count} clients (all, where there are fewer)"
        else:
            share = 0.1 if self.config.fraction is None else self.config.fraction
            who = f"{share:.3g} of the clients"
        return f"in each round {who} are selected, drawn uniformly without replacement, and answer"
