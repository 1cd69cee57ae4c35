"""Wrong: who takes part, or when it ends, is not drawn as the ledger is told."""

from collections.abc import Sequence

from fedaudit.fl.clients.selection import Choice, Selection
from fedaudit.fl.data.participation import Availability, Drawn, Participation
from fedaudit.fl.federation import Federation
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import State
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import Tree


class OneCoinForAll(Availability):
    """Declares a coin of its own for each client and round; one coin in round 0 decides for all rounds."""

    title = "Half of the clients, they say each round"

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        u = streams.numpy("participation", 0, attempt).random(max(candidates, default=-1) + 1)
        return Participation(tuple(candidates), tuple(k for k in candidates if u[k] < 0.5))

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("poisson", 0.5)

    def describe(self) -> str:
        return "each client answers with probability 0.5"


class RateTooLow(Availability):
    """Declares one client in ten and draws four in five."""

    title = "One client in ten, they say"

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        u = streams.numpy("participation", round, attempt).random(max(candidates, default=-1) + 1)
        return Participation(tuple(candidates), tuple(k for k in candidates if u[k] < 0.8))

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("poisson", 0.1)

    def describe(self) -> str:
        return "each client answers with probability 0.1"


class LargestFirst(Selection):
    """The server asks the half of the clients with the most examples and says that no data decide it."""

    is_blind = True

    def choose_candidates(self, choice: Choice) -> Sequence[int]:
        parts = choice.federation.parts
        order = sorted(range(len(parts)), key=lambda k: -len(parts[k]))
        return sorted(order[: max(1, len(order) // 2)])


class LargestFirstLater(LargestFirst):
    """The same where there are no rounds: everybody is asked once a place is free, and nobody is chosen."""


class StopsWhenGood(FedAvg):
    """Training ends once the clients' own loss, which never had noise, is low: the end tells of it."""

    @settings
    class Config(FedAvg.Config):
        enough: float = 10.0

    def run(self, federation: Federation) -> State:
        self.open(federation)
        state: Tree = self.start(federation)
        memory: dict[int, Tree] = {}
        for t in range(self.config.rounds):
            state = self.round(t, state, memory, federation)
            federation.end_round(t, self.config.rounds, self.get_model(state), state, memory)
            if federation.history and federation.history[-1].get("train_loss", 0.0) < self.config.enough:
                break
        return federation.finish(self.config.rounds, self.card, self.get_model(state), state, memory)
