"""TiFL: clients in tiers of like speed; each round is trained by one tier, and tiers that lag are drawn more
often.

Chai, Ali, Zawad, Truex, Anwar, Baracaldo, Zhou, Ludwig, Yan, Cheng. TiFL: A Tier-based Federated Learning System.
HPDC 2020. arXiv:2001.09249, Algorithm 2.

    clients are sorted by their times into `tiers` groups of equal size
    a tier is drawn, and of it `chosen` clients train; drawing costs the tier one of its credits
    every `interval` rounds all clients score the global model, tiers are sorted by accuracy, the worst first, and
    the i-th of the n with credit left (i = 0, ...) is drawn with probability (n - i) / (n (n + 1) / 2)

Before the first scores all tiers are drawn alike. One tier of which everybody trains is no choice. Times are
granted to the server, as in FedCS. Clients score with their own examples and send the share of wrong answers, a
loss; the server takes a tier's mean. Credits are ceil(rounds / tiers), and scores are taken and used every
`interval` rounds, as in a third party's code (bacox/fltk); the paper has the probabilities change only where
the accuracy of the last tier fell (`change: fallen`). Tiers are no message: the server makes them of what it
has.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.selection import Choice, Chosen, Selection
from fedaudit.fl.families.choosing import ask_losses, expected_times
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree

Values = NDArray[np.float64]


class TiFL(Selection):
    title, source, timed, asks = "TiFL", "arXiv:2001.09249, Alg. 2", True, (Kind.LOCAL_LOSS,)
    text = (
        "FedAvg in which one tier of clients of like speed trains at a time, and tiers that the model "
        "serves badly are drawn more often."
    )

    @settings
    class Config:
        tiers: AtLeastOne = Field(default=5, description="groups of clients of like speed")
        chosen: AtLeastOne = Field(default=5, description="clients of a tier that train in a round, at most")
        interval: AtLeastOne = Field(default=10, description="I: rounds between scores of the global model")
        change: Literal["always", "fallen"] = Field(
            default="always",
            description="whether probabilities follow every score, or only one that fell for the last tier",
        )

    def describe(self) -> str:
        many = f"at most {self.config.chosen} of one of {self.config.tiers} groups of clients of like speed"
        return f"{many} train in a round, and groups that the model serves badly are drawn more often"

    # Server ------------------------------------------------------------------------------

    def start(self, choice: Choice) -> Tree:
        times, count = expected_times(choice), self.config.tiers
        order = [int(k) for k in np.argsort(times, kind="stable") if np.isfinite(times[k])]
        tiers = [sorted(part.tolist()) for part in np.array_split(np.array(order), min(count, len(order)))]
        return {
            "tiers": tiers,
            "credits": [-(-choice.method.config.rounds // len(tiers))] * len(tiers),
            "chances": [1 / len(tiers)] * len(tiers),
            "scores": [],
            "last": -1,
        }

    def choose_candidates(self, choice: Choice) -> Sequence[int]:
        """Everybody where the model is scored; otherwise the tier that is drawn."""
        if self._is_scored(choice.round):
            return super().choose_candidates(choice)
        own = choice.state["selection"]
        return self._pick(own["tiers"][self._draw(own["chances"], choice)], choice)

    def select(self, choice: Choice, answering: Sequence[int]) -> Chosen:
        own = choice.state["selection"]
        chances = own["chances"]
        if not self._is_scored(choice.round):
            return Chosen(answering, {"drawn": self._draw(chances, choice)})
        wrong = ask_losses(choice, "selection.score", answering)
        scores = [_mean_accuracy(wrong, tier) for tier in own["tiers"]]
        before, last = own["scores"], own["last"]
        fallen = not before or last < 0 or scores[last] < before[last]
        if self.config.change == "always" or fallen:
            chances = share_chances(scores, own["credits"]).tolist()
        tier = self._draw(chances, choice)
        picked = self._pick(own["tiers"][tier], choice)
        learnt = {"drawn": tier, "new_scores": scores, "new_chances": chances}
        return Chosen([k for k in answering if k in picked], learnt)

    def remember(self, choice: Choice, candidates: Sequence[int], heard: Collection[int]) -> Tree:
        """A round in which nobody was heard costs no credit, and what it learnt is forgotten."""
        state, own = choice.state, super().remember(choice, candidates, heard)
        if not heard:
            return own
        drawn, credits = state["drawn"], list(own["credits"])
        credits[drawn] -= 1
        chances: list[float] = state["new_chances"] if "new_chances" in state else own["chances"]
        if not credits[drawn]:  # no more of it: the others keep their order
            left = np.where(np.array(credits) > 0, chances, 0.0)
            chances = (left / left.sum()).tolist() if left.sum() else [1 / len(left)] * len(left)
        scores = state.get("new_scores", own["scores"])
        return own | {"credits": credits, "chances": chances, "scores": scores, "last": drawn}

    def _is_scored(self, round: int) -> bool:
        return round > 0 and round % self.config.interval == 0

    def _draw(self, chances: Sequence[float], choice: Choice) -> int:
        """The round's tier."""
        p = np.array(chances)
        return int(choice.federation.streams.numpy("tifl", choice.round).choice(len(p), p=p / p.sum()))

    def _pick(self, tier: Sequence[int], choice: Choice) -> list[int]:
        """Whom of a tier the server would ask."""
        rng = choice.federation.streams.numpy("tifl_clients", choice.round)
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
