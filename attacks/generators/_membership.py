"""The attacks that query a generator how near it comes to an image: they differ in `queried`.

Claim: a rule, since any image can be queried. queried [k], objects: Examples to an object with
`distance` [n]; sender and artifact [k]; behind [k], objects: the clients whose images count as members;
reference, untrained, planted [1] as queried; planted_x, planted_y: what the planted generator memorised; rest_x,
rest_y: others like them.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Examples, GeneratorArchitecture, Knowledge, Truth
from fedaudit.attacks.evaluation import membership
from fedaudit.attacks.evaluation.flagging import ScoredPeople, count_flagged
from fedaudit.attacks.evaluation.matching import Matched, halves, match_members, score_pairs
from fedaudit.attacks.evaluation.membership import Scores
from fedaudit.attacks.evidence import Evidence, Series
from fedaudit.attacks.generators._controls import controls, match_planted_pair
from fedaudit.attacks.generators._handed import list_uploads, newest, objects, trained_by
from fedaudit.attacks.modality.images import fingerprints
from fedaudit.attacks.people import PeopleCount
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

Floats = NDArray[np.floating[Any]]
SCORES = ("calibrated", "distance")
CARD = Card(
    title="Membership from generators",
    source="",
    aim=Aim.MEMBERSHIP,
    threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture", "auxiliary_data"})),
    requires=(Kind.GAN_G,),
    also_reads=(Kind.GROUP_MAP,),
    aids=(Kind.GROUP_MAP,),
    learns="whether a given image was among those a group of clients trained its generator on",
    does_not_show="",
    control="",  # planted in measure()
    remedy="train generators on many clients' images, stop before they copy, or clip and noise what "
    "is handed on with a stated epsilon (noise: {mode: accounted})",
    rounds="all",
    effort=Effort(seconds=20, grows=("pixels",)),
)


class Near(Protocol):
    @property
    def distance(self) -> Floats: ...  # [n]


class Queried(Protocol):
    """One generator: how near it comes to each image."""

    def __call__(self, images: Examples) -> Near: ...


Pairs = Sequence[tuple[Any, Matched]]  # Queried of a subclass's own kind


class GeneratorMembership(Attack):
    """Base class. A subclass sets `card` (CARD with its own title and limits) and writes `queried`."""

    @settings
    class Config:
        max_generators: AtLeastOne = Field(default=8, description="generators to attack, at most")
        members: AtLeastOne = Field(default=400, description="members scored for one generator, at most")
        reference_steps: AtLeastOne = Field(
            default=400, description="generator steps on auxiliary images that train the reference generator"
        )
        planted: int = Field(default=20, ge=2, description="images that the planted generator memorises")
        planted_steps: AtLeastOne = Field(
            default=1500, description="generator steps that train the planted generator"
        )

    @abstractmethod
    def prepare_queries(
        self,
        known: GeneratorArchitecture,
        weights: Sequence[Mapping[str, NDArray[Any]]],
        rng: np.random.Generator,
    ) -> list[Any]:
        """How each of these generators is queried."""

    def select_targets(self, view: Sequence[Artifact]) -> list[tuple[Artifact, list[int]]]:
        """The generators to attack, and the clients whose images may be behind each."""
        last = newest(list_uploads(view, Kind.GAN_G))
        return list(zip(last, trained_by(last, view), strict=True))

    def choose_comparisons(self, m: Matched) -> Matched:
        """Fewer images, where a query takes long."""
        return m

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        known, aux, c = knowledge.generators, knowledge.auxiliary, self.config
        assert known is not None and aux is not None, "not_applicable says so before"
        chosen = self.select_targets(view)[: c.max_generators]
        own = controls(known, aux, c.planted, c.planted_steps, c.reference_steps)
        *queried, reference, untrained, planted = self.prepare_queries(
            known,
            [
                *(dict(a.payload) for a, _ in chosen),
                own.reference.generator,
                own.untrained.generator,
                own.planted.generator,
            ],
            rng,
        )
        return {
            "queried": objects(queried),
            "sender": np.array([a.sender.index for a, _ in chosen]),
            "artifact": np.array([a.id for a, _ in chosen]),
            "behind": objects([np.array(clients) for _, clients in chosen]),
            "reference": objects([reference]),
            "untrained": objects([untrained]),
            "planted": objects([planted]),
            **own.images(),
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        reference, untrained = claim["reference"][0], claim["untrained"][0]
        pairs, found = self.pairs(claim, truth), list[Evidence]()
        if any(len(m.members) for _, m in pairs):
            for how in SCORES:
                blind = _scores([(untrained, m) for _, m in pairs], reference, how)
                found += membership.evidence(
                    _scores(pairs, reference, how),
                    {"untrained generator": blind},
                    looks=len(SCORES),
                    condition={"score": how},
                    note=f"{len(pairs)} generators",
                    others=self.against(claim, truth),
                )
        trap = self.trap(claim)
        if len(trap[0][1].members):
            found += membership.evidence(
                _scores(trap, reference, "calibrated"),
                {},
                control="positive",
                condition={"score": "planted"},
                note=f"a generator trained on {self.config.planted} auxiliary images alone",
            )
        non_members = self.non_members(pairs, rng)
        if any(len(m.members) for _, m in non_members):
            found += membership.evidence(
                _scores(non_members, reference, "calibrated"),
                {},
                control="negative",
                note="images that were never trained on in the place of members",
            )[:1]
        return found

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        """Whom the calibrated score flags, of those compared. Nobody is planted through clients' code."""
        recorded, reference = list[ScoredPeople](), claim["reference"][0]
        for (queried, m), clients in zip(self.pairs(claim, truth), claim["behind"], strict=True):
            owned = [(int(k), row) for k in clients for row in truth.client_rows(int(k)).tolist()]
            people = np.array(owned, np.int64).reshape(-1, 2)[m.rows]
            scores = _scores([(queried, m)], reference, "calibrated")
            marks = fingerprints(m.others.x)
            for k in np.unique(people[:, 0]).tolist():
                own = people[:, 0] == k
                recorded.append(
                    ScoredPeople(
                        client=k,
                        rows=people[own, 1].tolist(),
                        scores=scores.members[own],
                        held_out=marks,
                        held_out_scores=scores.others,
                    )
                )
        behind = {int(k) for clients in claim["behind"] for k in clients}
        return count_flagged(recorded, [], behind, truth)

    def curves(self, claim: Claim, truth: Truth) -> list[Series]:
        pairs, reference = self.pairs(claim, truth), claim["reference"][0]
        if not any(len(m.members) for _, m in pairs):
            return []
        return [membership.curve(how, _scores(pairs, reference, how)) for how in SCORES]

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if knowledge.generators is None:
            return "nothing says how the generators' networks are built"
        if len(knowledge.auxiliary or ()) < 3 * self.config.planted:
            return "this attack needs auxiliary examples, and the federation holds too few back"
        if not self.select_targets(view):
            return "no client sent a generator to the server in the recorded rounds"
        return ""

    def pairs(self, claim: Claim, truth: Truth) -> Pairs:
        """Members and non-members of each generator, the same ones at every call."""
        rng, found = np.random.default_rng(0), []
        for queried, clients in zip(claim["queried"], claim["behind"], strict=True):
            unseen = truth.unseen([int(k) for k in clients]).images
            pool = Examples.join([truth.client_examples(int(k)) for k in clients])
            found.append(
                (queried, self.choose_comparisons(match_members(pool, unseen, rng, self.config.members)))
            )
        return found

    def against(self, claim: Claim, truth: Truth) -> str:
        """What the non-members are."""
        return " or ".join(sorted({truth.unseen([int(k) for k in some]).words for some in claim["behind"]}))

    def trap(self, claim: Claim) -> Pairs:
        """The planted generator with what it memorised."""
        return [(claim["planted"][0], self.choose_comparisons(match_planted_pair(claim)))]

    def non_members(self, pairs: Pairs, rng: np.random.Generator) -> Pairs:
        """Half of the non-members in the place of members: none that was not queried before."""
        found = []
        for queried, m in pairs:
            first, second = halves(m.others, rng)
            found.append((queried, match_members(first, second, rng, len(m.members))))
        return found


def _scores(pairs: Pairs, reference: Queried, how: str) -> Scores:
    def score(queried: Queried, images: Examples) -> Floats:
        plain = -queried(images).distance
        if how == "calibrated":
            return np.asarray(plain + reference(images).distance)
        return np.asarray(plain)

    return score_pairs(pairs, score)
