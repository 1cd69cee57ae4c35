"""TiFL: clients in tiers of like speed; each round is trained by one tier, and tiers that lag are drawn more
often.

Chai, Ali, Zawad, Truex, Anwar, Baracaldo, Zhou, Ludwig, Yan, Cheng. TiFL: A Tier-based Federated Learning System.
HPDC 2020. arXiv:2001.09249, Algorithm 2. Differs from FedAvg in who trains:

    clients are sorted by their times into `tiers` groups of equal size
    a tier is drawn, and of it `chosen` clients train; drawing costs the tier one of its credits
    every `interval` rounds all clients score the global model, tiers are sorted by accuracy, the worst first, and
    the i-th of the n with credit left (i = 0, ...) is drawn with probability (n - i) / (n (n + 1) / 2)

Before the first scores all tiers are drawn alike. One tier of which everybody trains is FedAvg. Times are
granted to the server, as in FedCS. Clients score with their own examples and send the share of wrong answers, a
loss; the server takes a tier's mean. Credits are ceil(rounds / tiers), and scores are taken and used every
`interval` rounds, as in a third party's code (bacox/fltk); the paper has the probabilities change only where
the accuracy of the last tier fell (`change: fallen`). Tiers are no message: the server makes them of what it
has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.families.expected import expected_times
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Chosen, LocalConfig
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.wire.protection import Message

Values = NDArray[np.float64]


class TiFL(FedAvg):
    card = replace(
        FedAvg.card,
        title="TiFL",
        source="arXiv:2001.09249, Alg. 2",
        text="FedAvg in which one tier of clients of like speed trains at a time, and tiers that the model "
        "serves badly are drawn more often.",
        uplink=(Kind.LOCAL_MODEL, Kind.NUM_EXAMPLES, Kind.LOCAL_LOSS),
        timed=True,
    )

    @settings
    class Config(LocalConfig):
        tiers: AtLeastOne = Field(default=5, description="groups of clients of like speed")
        chosen: AtLeastOne = Field(default=5, description="clients of a tier that train in a round, at most")
        interval: AtLeastOne = Field(default=10, description="I: rounds between scores of the global model")
        change: Literal["always", "fallen"] = Field(
            default="always",
            description="whether probabilities follow every score, or only one that fell for the last tier",
        )

    # Server ------------------------------------------------------------------------------

    def start(self, federation: Federation) -> Tree:
        state = super().start(federation)
        times, count = expected_times(self, state, federation), self.config.tiers
        order = [int(k) for k in np.argsort(times, kind="stable") if np.isfinite(times[k])]
        tiers = [sorted(part.tolist()) for part in np.array_split(np.array(order), min(count, len(order)))]
        credit = -(-self.config.rounds // len(tiers))
        return state | {
            "tiers": tiers,
            "credits": [credit] * len(tiers),
            "chances": [1 / len(tiers)] * len(tiers),
            "scores": [],
            "last": -1,
        }

    def choose_candidates(self, state: Tree, round: int, federation: Federation) -> Sequence[int]:
        """Everybody where the model is scored; otherwise the tier that is drawn."""
        if self._is_scored(round):
            return super().choose_candidates(state, round, federation)
        tier = self._draw(state["chances"], round, federation)
        return self._pick(state["tiers"][tier], round, federation)

    def select(
        self, state: Tree, answering: Sequence[int], round: int, message: Message, federation: Federation
    ) -> Chosen:
        if not self._is_scored(round):
            return Chosen(answering, {"drawn": self._draw(state["chances"], round, federation)})
        wrong: dict[int, float] = {}
        replies = federation.workers.map("work", [("score", (k, Tree(), Message())) for k in answering])
        for k, reply in zip(answering, replies, strict=True):
            heard = federation.wire.uplink(round, reply.message, k, message)
            if heard is not None:
                wrong[k] = float(heard[Kind.LOCAL_LOSS]["loss"])
        scores = [_mean_accuracy(wrong, tier) for tier in state["tiers"]]
        before, last = state["scores"], state["last"]
        fallen = not before or last < 0 or scores[last] < before[last]
        chances = state["chances"]
        if self.config.change == "always" or fallen:
            chances = share_chances(scores, state["credits"]).tolist()
        tier = self._draw(chances, round, federation)
        picked = self._pick(state["tiers"][tier], round, federation)
        learnt = {"drawn": tier, "new_scores": scores, "new_chances": chances}
        return Chosen([k for k in answering if k in picked], learnt)

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        averaged, drawn = super().combine(state, deliveries, round), state["drawn"]
        credits = list(state["credits"])
        credits[drawn] -= 1
        chances: list[float] = state["new_chances"] if "new_chances" in state else state["chances"]
        if not credits[drawn]:  # no more of it: the others keep their order
            left = np.where(np.array(credits) > 0, chances, 0.0)
            chances = (left / left.sum()).tolist() if left.sum() else [1 / len(left)] * len(left)
        scores = state.get("new_scores", state["scores"])
        return averaged | {"credits": credits, "chances": chances, "scores": scores, "last": drawn}

    def _is_scored(self, round: int) -> bool:
        return round > 0 and round % self.config.interval == 0

    def _draw(self, chances: Sequence[float], round: int, federation: Federation) -> int:
        """The round's tier."""
        p = np.array(chances)
        return int(federation.streams.numpy("tifl", round).choice(len(p), p=p / p.sum()))

    def _pick(self, tier: Sequence[int], round: int, federation: Federation) -> list[int]:
        """Whom of a tier the server would ask."""
        rng = federation.streams.numpy("tifl_clients", round)
        return sorted(rng.permutation(np.array(tier))[: self.config.chosen].tolist())

    # Client ------------------------------------------------------------------------------

    def score(self, client: Client) -> Reply:
        """The share of a client's examples that the received model gets wrong."""
        right = client.net.task.scores(client.run("forward", client.start), client.y).double()
        wrong = (1 - right).mean()
        return Reply(message={Kind.LOCAL_LOSS: {"loss": wrong.cpu()}}, examples=len(client.y))


def share_chances(accuracies: Sequence[float], credits: Sequence[int]) -> Values:
    """[tiers] how likely each is drawn: of the n with credit left, (n - i) / (n (n + 1) / 2), the worst first."""
    found = np.zeros(len(accuracies))
    able = [t for t in np.argsort(accuracies, kind="stable").tolist() if credits[t] > 0]
    n = len(able)
    for i, tier in enumerate(able):
        found[tier] = (n - i) / (n * (n + 1) / 2)
    return found if n else np.full(len(found), 1 / len(found))


def _mean_accuracy(wrong: Mapping[int, float], tier: Sequence[int]) -> float:
    """Of the clients of a tier that were heard; 1 where none was: nothing is known of it."""
    heard = [1 - wrong[k] for k in tier if k in wrong]
    return float(np.mean(heard)) if heard else 1.0
