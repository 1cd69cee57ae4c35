"""Latent inversion: a generator can be made to draw its training pictures more exactly than others.

Chen, Yu, Zhang, Fritz. GAN-Leaks: A Taxonomy of Membership Inference Attacks against Generative Models.
CCS 2020. arXiv:1909.03935, sec. 4.4 (full white box) and 4.5 (calibration). With R_G(x) the nearest picture
that a search over z finds in the generator, R_ref(x) in a reference trained on auxiliary pictures,

    distance     -||x - R_G(x)||              calibrated   -(||x - R_G(x)|| - ||x - R_ref(x)||)

Calibration takes out that plain pictures are easy to draw. attacks/latent_search.py has the search and
what is changed in it. Members and unseen pictures have the same mix of classes.

Claim: a rule, since any picture can be asked about. searches [k], objects that find Images in a
generator; sender [k]; behind [k], objects: the clients that trained it, as far as a group map tells;
reference, untrained, planted [1] as searches; planted_x, planted_y: what the planted generator
memorised; rest_x, rest_y: others like them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.attack import (
    Attack,
    Card,
    Claim,
    Curve,
    Evidence,
    Gallery,
    Goal,
    Images,
    Knowledge,
    Position,
    ThreatModel,
    Truth,
)
from attacks.generators import objects, trained_by, uploaded
from attacks.latent_search import LatentSearch, Settings
from attacks.measures import membership
from attacks.measures.matched import Matched, halves, joined, matched, scored
from attacks.measures.membership import Scores
from fl.artifact import Artifact, Kind
from fl.errors import UserError

Pairs = Sequence[tuple[LatentSearch, Matched]]
SCORES = ("calibrated", "distance")


class LatentInversion(Attack):
    card = Card(
        title="Membership from a generator's latent space (GAN-Leaks, white box)",
        source="arXiv:1909.03935, sec. 4.4 and 4.5",
        goal=Goal.MEMBERSHIP,
        threat=ThreatModel(
            position=Position.SERVER, knows=frozenset({"architecture", "auxiliary_data"})
        ),
        requires=(Kind.GAN_G,),
        also_reads=(Kind.GROUP_MAP,),
        learns="whether a given picture was among those a group of clients trained its generator on",
        does_not_show="what a longer search, another starting point or a perceptual distance would find; "
        "it is no proof of privacy",
        remedy="train generators on many clients' pictures, stop before they copy, or clip and noise what "
        "is handed on with a stated epsilon (noise: {mode: accounted})",
        rounds="all",
    )

    @dataclass(frozen=True, kw_only=True)
    class Config:
        max_generators: int = 4
        members: int = 100  # members to search for in one generator, at most
        unseen: int = 500  # unseen pictures to search for in one generator, about
        steps: int = 40  # of Adam, for each picture
        starts: int = 3  # z to start from, for each picture
        reference_steps: int = 400  # generator steps on auxiliary pictures
        planted: int = 20  # pictures the planted generator memorises
        planted_steps: int = 600

        def __post_init__(self) -> None:
            least = {"unseen": 2, "planted": 2, "steps": 4}
            for name in ("max_generators", "members", "unseen", "steps", "starts",
                         "reference_steps", "planted", "planted_steps"):  # fmt: skip
                if getattr(self, name) < (low := least.get(name, 1)):
                    raise UserError(
                        f"latent_inversion.{name} must be at least {low}, got {getattr(self, name)}",
                        hint="leave it out for the default",
                    )

    def run(
        self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator
    ) -> Claim:
        known, aux = knowledge.generators, knowledge.auxiliary
        assert known is not None and aux is not None, "not_applicable says so before"
        chosen = uploaded(view)[: self.config.max_generators]
        settings = Settings(steps=self.config.steps, starts=self.config.starts)
        order, n = rng.permutation(len(aux)), self.config.planted
        # what the reference was trained on must not be what the planted one is compared on
        half = n + (len(aux) - n) // 2
        own, rest, other = (Images(x=aux.x[rows], y=aux.y[rows])
                            for rows in np.split(order, [n, half]))  # fmt: skip
        made = {
            "reference": known.trained(other, self.config.reference_steps, rng).generator,
            "planted": known.trained(own, self.config.planted_steps, rng).generator,
            "untrained": known.trained(own, 0, rng).generator,
        }
        search = partial(LatentSearch, known, settings=settings, seed=int(rng.integers(2**63)))
        return {
            "searches": objects([search(dict(a.payload)) for a in chosen]),
            "sender": np.array([a.sender.index for a in chosen]),
            "behind": objects([np.array(trained_by(a, view)) for a in chosen]),
            **{name: objects([search(weights)]) for name, weights in made.items()},
            "planted_x": own.x, "planted_y": own.y, "rest_x": rest.x, "rest_y": rest.y,
        }  # fmt: skip

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        reference, untrained = claim["reference"][0], claim["untrained"][0]
        pairs, found = self._pairs(claim, truth), list[Evidence]()
        if any(len(m.members) for _, m in pairs):
            for how in SCORES:
                blind = _scores([(untrained, m) for _, m in pairs], reference, how)
                found += membership.evidence(
                    _scores(pairs, reference, how), {"untrained generator": blind},
                    looks=len(SCORES), condition={"score": how},
                    note=f"{len(pairs)} generators; unseen pictures of the same classes",
                )  # fmt: skip
        planted = Images(x=claim["planted_x"], y=claim["planted_y"])
        rest = Images(x=claim["rest_x"], y=claim["rest_y"])
        trap = _fewer(matched(planted, rest, rng, len(planted)), self.config.unseen)
        if len(trap.members):
            found += membership.evidence(
                _scores([(claim["planted"][0], trap)], reference, "calibrated"), {},
                control="positive", condition={"score": "planted"},
                note=f"a generator trained on {len(planted)} auxiliary pictures alone",
            )  # fmt: skip
        unseen = [(search, _among_unseen(m, rng)) for search, m in pairs]
        if any(len(m.members) for _, m in unseen):
            found += membership.evidence(
                _scores(unseen, reference, "calibrated"), {}, control="negative",
                note="pictures that were never trained on in the place of members",
            )[:1]  # fmt: skip
        return found

    def curves(self, claim: Claim, truth: Truth) -> list[Curve]:
        pairs, reference = self._pairs(claim, truth), claim["reference"][0]
        if not any(len(m.members) for _, m in pairs):
            return []
        return [membership.curve(how, _scores(pairs, reference, how)) for how in SCORES]

    def galleries(self, claim: Claim, truth: Truth) -> list[Gallery]:
        """The members that a generator draws best, measured against the reference generator."""
        reference, shown = claim["reference"][0], []
        for search, m in self._pairs(claim, truth):
            if not len(m.members):
                continue
            own, other = search(m.members), reference(m.members)
            best = np.argsort(own.distance - other.distance)[:8]
            shown.append(Gallery(
                title="Training pictures searched for in the generator",
                caption=f"The 8 of {len(m.members)} training pictures that the search comes nearest to, "
                "measured against the same search in a generator that never saw them. Memory would show "
                "as details that the second row has and the third has not.",
                rows={"training picture": m.members.x[best], "found in the generator": own.picture[best],
                      "found in the reference": other.picture[best]},
            ))  # fmt: skip
        return shown[:2]

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if knowledge.generators is None:
            return "nothing says how the generators' networks are built"
        if len(knowledge.auxiliary or ()) < 3 * self.config.planted:
            return "this attack needs auxiliary pictures, and the federation holds too few back"
        if not uploaded(view):
            return "no client sent a generator to the server in the recorded rounds"
        return ""

    def _pairs(self, claim: Claim, truth: Truth) -> list[tuple[LatentSearch, Matched]]:
        """The same pictures at every call, since searches remember theirs."""
        rng, pairs = np.random.default_rng(0), []
        for search, clients in zip(claim["searches"], claim["behind"], strict=True):
            pool = joined([truth.client_images(int(k)) for k in clients])
            m = matched(pool, truth.reference, rng, self.config.members)
            pairs.append((search, _fewer(m, self.config.unseen)))
        return pairs


def _fewer(m: Matched, most: int) -> Matched:
    """About `most` of the others, with the same classes: they come class by class."""
    ratio = len(m.others) // max(1, len(m.members))
    kept = max(1, min(ratio, most // max(1, len(m.members))))
    rows = np.flatnonzero(np.arange(len(m.others)) % max(1, ratio) < kept)
    return Matched(members=m.members, others=Images(x=m.others.x[rows], y=m.others.y[rows]))


def _among_unseen(m: Matched, rng: np.random.Generator) -> Matched:
    """Half of the others in the place of members: no picture is searched for anew."""
    first, second = halves(m.others, rng)
    return matched(first, second, rng, len(m.members))


def _scores(pairs: Pairs, reference: LatentSearch, how: str) -> Scores:
    def score(search: LatentSearch, images: Images) -> NDArray[Any]:
        plain = -search(images).distance
        return plain + reference(images).distance if how == "calibrated" else plain

    return scored(pairs, score)
