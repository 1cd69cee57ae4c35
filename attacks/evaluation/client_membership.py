"""Membership in what each client sent: images that it holds, and as many of each class that nobody trained on.

Attacks differ in how well an image fits what a client sent (`UploadScorer`). Classes are matched, since messages
show which classes a client has: among others they would pass for membership. Blind adversaries score with what
another client sent. The planted leak is what `PLANTED` held-out images would have made in each client's place;
the negative control has held-out images in the place of members.

Claim: scorers [k], objects, from images to scores; client [k]; artifact and kind [k] as text.
"""

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Card, Claim, Examples, Knowledge, Truth
from fedaudit.attacks.evaluation.built import BuiltOnce
from fedaudit.attacks.evaluation.flagging import count_flagged
from fedaudit.attacks.evaluation.matching import score_client
from fedaudit.attacks.evaluation.membership import Scores, curve, evidence, halves, score_clusters
from fedaudit.attacks.evaluation.sums import find_kind
from fedaudit.attacks.evidence import Evidence, Series
from fedaudit.attacks.people import PeopleCount
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

PLANTED = 4  # images behind a planted message
AGAINST = "held-out examples of the same classes"
Values = NDArray[np.float64]
Pair = tuple[Values, Values]  # scores of members, and of non-members


CARD = Card(
    title="Membership in what a client sent",
    source="",
    aim=Aim.MEMBERSHIP,
    threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture"})),
    requires=(),
    learns="whether a given example was in one client's training data",
    does_not_show="",
    control="",  # planted in measure()
    remedy="",
)


class UploadScorer(Protocol):
    """How well images fit what one client sent."""

    def __call__(self, images: Examples) -> Values:
        """[n], higher for members."""

    def plant(self, images: Examples) -> "UploadScorer":
        """The same with what these images would have made in the place of the client's."""


class Asked(NamedTuple):
    """Scores of each client's members and non-members."""

    real: list[Pair]
    blind: list[Pair]  # by what another client sent
    planted: list[Pair]
    silent: list[Pair]


class ClientMembership(Attack):
    """Base class. A subclass completes CARD, sets `sent` and writes `build_scorers`."""

    sent = ""  # what a client sent, in the words of its notes

    @settings
    class Config:
        members: AtLeastOne = Field(default=100, description="examples of a client that are judged, at most")
        held_out: AtLeastOne = Field(
            default=400, description="examples that nobody trained on, beside all of each client's, at most"
        )

    @abstractmethod
    def build_scorers(
        self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator
    ) -> list[tuple[Artifact, UploadScorer]]:
        """A client's message and the rule by which images are held against it, client by client."""

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        found = self.build_scorers(view, knowledge, rng)
        scorers = np.empty(len(found), object)
        scorers[:] = [scorer for _, scorer in found]
        return {
            "scorers": scorers,
            "client": np.array([a.sender.index for a, _ in found]),
            "artifact": np.array([a.id for a, _ in found]),
            "kind": np.array([find_kind(a).value for a, _ in found]),
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        asked = self._queries(claim, truth, rng)
        beside = {f"another client's {self.sent}": _pool(asked.blind)} if asked.blind else {}
        found = evidence(_pool(asked.real), beside, others=AGAINST)
        note = f"the {self.sent} of {PLANTED} held-out examples in each client's place"
        found += evidence(_pool(asked.planted), {}, note=note, control="positive", others=AGAINST)[:1]
        note = "held-out examples in the place of members"
        return [*found, *evidence(_pool(asked.silent), {}, note=note, control="negative")[:1]]

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        """Whom the scores flag, of all whose client sent a message. Nobody is planted through clients' code."""
        found = list[PeopleCount]()
        for kind in dict.fromkeys(claim["kind"].tolist()):
            rows = np.flatnonzero(claim["kind"] == kind)
            clients = claim["client"][rows].tolist()
            recorded = [
                score_client(client, truth, rng, claim["scorers"][row], self.config.held_out)
                for row, client in zip(rows, clients, strict=True)
            ]
            found += count_flagged(recorded, [], clients, truth, Kind(kind))
        return found

    def curves(self, claim: Claim, truth: Truth) -> list[Series]:
        real = self._queries(claim, truth).real
        return [curve(self.sent, _pool(real))] if real else []

    @cached_property
    def _queries(self) -> BuiltOnce[Asked]:
        return BuiltOnce(self._ask)

    def _ask(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> Asked:
        asked = Asked([], [], [], [])
        scorers: list[UploadScorer] = claim["scorers"].tolist()
        for place, client in enumerate(claim["client"].tolist()):
            scorer = scorers[place]
            own, others = self._draw_images(truth, client, rng)
            if not len(own):
                continue
            ins, outs = scorer(own), scorer(others)
            asked.real.append((ins, outs))
            if len(scorers) > 1:
                other = scorers[(place + 1) % len(scorers)]
                asked.blind.append((other(own), other(others)))
            asked.silent.append(halves(outs, rng))
            few = others.only(np.arange(min(PLANTED, len(others) // 2)))
            after = np.arange(len(few), len(others))
            rest = others.only(after[np.isin(others.y[after], few.y)])  # a message shows which classes it is of
            if len(rest):
                leaky = scorer.plant(few)
                asked.planted.append((leaky(few), leaky(rest)))
        return asked

    def _draw_images(self, truth: Truth, client: int, rng: np.random.Generator) -> tuple[Examples, Examples]:
        """Images of a client and as many held-out ones of each class, both in random order."""
        own, unseen = truth.client_examples(client), truth.unseen([client]).images
        share = min(1.0, self.config.members / max(1, len(own)))
        members, others = list[int](), list[int]()
        for c in np.unique(own.y):
            mine, theirs = (rng.permutation(np.flatnonzero(side.y == c)) for side in (own, unseen))
            many = min(round(share * len(mine)), len(theirs))
            members += mine[:many].tolist()
            others += theirs[:many].tolist()
        picked = np.array(members, np.int64), rng.permutation(np.array(others, np.int64))
        return own.only(picked[0]), unseen.only(picked[1])


def _pool(pairs: Sequence[Pair]) -> Scores:
    return score_clusters([ins for ins, _ in pairs], [outs for _, outs in pairs])
