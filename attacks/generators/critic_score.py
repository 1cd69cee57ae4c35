"""Critic score: the next client of a relay queries the critic it was handed whether it knows an image.

Hayes, Melis, Danezis, De Cristofaro. LOGAN: Membership Inference Attacks Against Generative Models.
PoPETs 2019. arXiv:1705.07663, sec. 4.1 (white box). A critic learns to score its training images high;
one that has memorised them scores them above non-members of the same class. The attack is possible
because GANDALF hands the critic on, and who handed it on is known: a critic knows the client that
trained it last best.

Changed: the critic of a WGAN has no scale, so the scores of each are standardised by those of non-members
before several critics are pooled; and the non-members have the members' mix of classes.

Claim: a rule, since any image can be queried. critics [k], objects that score Examples; sender,
before (the client that trained before the sender, -1 unknown), round [k]; untrained, planted [1],
objects; planted_x, planted_y: the images of the planted critic; rest_x, rest_y: others like them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Examples, Knowledge, Truth
from fedaudit.attacks.evaluation import membership
from fedaudit.attacks.evaluation.flagging import count_flagged
from fedaudit.attacks.evaluation.matching import Matched, halves, match_members, score_client
from fedaudit.attacks.evaluation.membership import Scores, score_clusters
from fedaudit.attacks.evidence import Evidence, Series
from fedaudit.attacks.generators._controls import controls, match_planted_pair
from fedaudit.attacks.generators._handed import list_relays, newest, objects
from fedaudit.attacks.people import PeopleCount
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

CriticScorer = Callable[[Examples], NDArray[Any]]
HOPS = {"trained last": "sender", "trained before": "before"}


class CriticScore(Attack):
    card = Card(
        title="Membership from a critic (LOGAN)",
        source="arXiv:1705.07663, sec. 4.1",
        aim=Aim.MEMBERSHIP,
        threat=ThreatModel(position=Position.NEXT_CLIENT, knows=frozenset({"architecture", "auxiliary_data"})),
        requires=(Kind.GAN_D,),
        learns="whether a given image was among those a client trained the critic on",
        does_not_show="what a critic would reveal after more training, or with a score that compares "
        "several critics; it is no proof of privacy",
        control="",  # planted in measure()
        remedy="keep critics at home and hand on generators only, or clip and noise what is handed on "
        "with a stated epsilon (noise: {mode: accounted})",
        rounds="all",
        effort=Effort(seconds=20, grows=("pixels",)),
    )

    @settings
    class Config:
        max_clients: AtLeastOne = Field(
            default=20, description="critics to attack, each sender's newest, at most"
        )
        members: AtLeastOne = Field(default=400, description="members scored for one critic, at most")
        planted: int = Field(default=20, ge=2, description="images that the planted critic memorises")
        planted_steps: AtLeastOne = Field(
            default=1500, description="generator steps of the planted critic's training"
        )

    def select_critics(self, view: Sequence[Artifact]) -> list[Artifact]:
        """The critics that came into the adversary's hands, oldest first."""
        return list_relays(view, Kind.GAN_D)

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        known, aux = knowledge.generators, knowledge.auxiliary
        assert known is not None and aux is not None, "not_applicable says so before"
        handed = self.select_critics(view)
        chosen = sorted(newest(handed), key=lambda a: -a.round)[: self.config.max_clients]
        given_by = {(a.round, r): _index(a) for a in handed for r in _receivers(a)}
        own = controls(known, aux, self.config.planted, self.config.planted_steps)
        return {
            "critics": objects([partial(known.scores, dict(a.payload)) for a in chosen]),
            "sender": np.array([_index(a) for a in chosen]),
            "before": np.array([given_by.get((a.round, _index(a)), -1) for a in chosen]),
            "round": np.array([a.round for a in chosen]),
            "untrained": objects([partial(known.scores, own.untrained.critic)]),
            "planted": objects([partial(known.scores, own.planted.critic)]),
            **own.images(),
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        found: list[Evidence] = []
        for name, whose in HOPS.items():
            own, blind = self._scores(claim, truth, claim[whose], rng)
            if len(own.members):
                found += membership.evidence(
                    own,
                    {"untrained critic": blind},
                    looks=len(HOPS),
                    condition={"client": name},
                    note=f"{(claim[whose] >= 0).sum()} critics",
                    others=" or ".join(sorted({truth.unseen([int(k)]).words for k in claim[whose] if k >= 0})),
                )
        m = match_planted_pair(claim)
        if len(m.members):
            found += membership.evidence(
                standardise_scores([(claim["planted"][0], m)]),
                {},
                control="positive",
                condition={"client": "planted"},
                note=f"a critic trained on {self.config.planted} auxiliary images alone",
            )
        non_members = self._control(claim, truth, rng)
        if len(non_members.members):
            found += membership.evidence(
                non_members,
                {},
                control="negative",
                note="images that were never trained on in the place of members",
            )[:1]
        return found

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        """Of all whose client trained a critic last, or right before. Nobody is planted through clients' code."""
        recorded = [
            score_client(k, truth, rng, critic)
            for whose in HOPS.values()
            for critic, k in zip(claim["critics"], claim[whose].tolist(), strict=True)
            if k >= 0
        ]
        return count_flagged(recorded, [], {s.client for s in recorded}, truth)

    def curves(self, claim: Claim, truth: Truth) -> list[Series]:
        own, blind = self._scores(claim, truth, claim["sender"], np.random.default_rng(0))
        if not len(own.members):
            return []
        return [membership.curve("critic", own), membership.curve("untrained", blind, blind=True)]

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if knowledge.generators is None:
            return "nothing says how the critics' networks are built"
        if len(knowledge.auxiliary or ()) < 3 * self.config.planted:
            return "this attack needs auxiliary examples, and the federation holds too few back"
        if not self.select_critics(view):
            return "no client handed a critic to another in the recorded rounds"
        return ""

    def _scores(
        self, claim: Claim, truth: Truth, whose: NDArray[Any], rng: np.random.Generator
    ) -> tuple[Scores, Scores]:
        """Of the critics, and of the untrained one on the same images."""
        pairs = [
            (
                critic,
                match_members(
                    truth.client_examples(int(k)), truth.unseen([int(k)]).images, rng, self.config.members
                ),
            )
            for critic, k in zip(claim["critics"], whose.tolist(), strict=True)
            if k >= 0
        ]
        blank = claim["untrained"][0]
        return standardise_scores(pairs), standardise_scores([(blank, m) for _, m in pairs])

    def _control(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> Scores:
        pairs = []
        for critic, k in zip(claim["critics"], claim["sender"], strict=True):
            # other halves for each: critics of one relay like the same images
            first, second = halves(truth.reference, rng)
            alike = match_members(truth.client_examples(int(k)), first, rng, self.config.members).others
            pairs.append((critic, match_members(alike, second, rng, self.config.members)))
        return standardise_scores(pairs)


def standardise_scores(pairs: Sequence[tuple[CriticScorer, Matched]]) -> Scores:
    """Scores of several critics in units of each one's deviation over non-members."""
    members, others = [], []
    for critic, m in pairs:
        seen, non_members = critic(m.members), critic(m.others)
        scale = max(float(non_members.std()), 1e-12) if len(non_members) else 1.0
        centre = float(non_members.mean()) if len(non_members) else 0.0
        members.append((seen - centre) / scale)
        others.append((non_members - centre) / scale)
    return score_clusters(members, others)


def _index(artifact: Artifact) -> int:
    return -1 if artifact.sender.index is None else artifact.sender.index


def _receivers(artifact: Artifact) -> list[int]:
    return [int(s.partition("/")[2]) for s in artifact.seen_by if s.startswith("client/")]
