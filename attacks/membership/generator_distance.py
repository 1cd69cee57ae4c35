"""Generator distance: pictures that a generator comes closest to were among its training pictures.

Chen, Yu, Zhang, Fritz. GAN-Leaks: A Taxonomy of Membership Inference Attacks against Generative Models.
CCS 2020. arXiv:1909.03935, sec. 4.2 (full black box) and 4.5 (calibration). With G(z_1) .. G(z_n) what the
generator makes, R what a reference generator trained on auxiliary pictures makes, in pixels,

    distance     -min_i ||x - G(z_i)||              calibrated   -(min_i ||x - G(z_i)|| - min_j ||x - R_j||)

Calibration takes out that plain pictures are near to everything. Besides, the share of generated pictures
that are nearer to a training picture than to any of equally many held-out ones (distance to closest
record): half, where the generator copies nothing. Members and held-out have the same mix of classes.

Claim: made [k], objects: float32 [n, C, H, W] of each generator; sender [k]; behind [k], objects: the
clients that trained it, as far as a group map tells; reference, untrained, planted [1] as made;
planted_x, planted_y: what the planted generator memorised; rest_x, rest_y: others like them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attacks import stats
from attacks.attack import (
    Attack,
    Baseline,
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
from attacks.measures import membership
from attacks.measures.distances import nearest
from attacks.measures.matched import Matched, halves, joined, matched, scored
from attacks.measures.membership import CONFIDENCE, CONTROL_CONFIDENCE, Scores
from fl.artifact import Artifact, Kind
from fl.errors import UserError

Floats = NDArray[np.floating[Any]]
SCORES = ("calibrated", "distance")


class GeneratorDistance(Attack):
    card = Card(
        title="Membership from generated pictures (GAN-Leaks)",
        source="arXiv:1909.03935, sec. 4.2 and 4.5",
        goal=Goal.MEMBERSHIP,
        threat=ThreatModel(
            position=Position.SERVER, knows=frozenset({"architecture", "auxiliary_data"})
        ),
        requires=(Kind.GAN_G,),
        also_reads=(Kind.GROUP_MAP,),
        learns="whether a given picture was among those a group of clients trained its generator on",
        does_not_show="what the weights of the generator tell beyond the pictures it makes; it is no "
        "proof of privacy",
        remedy="train generators on many clients' pictures, stop before they copy, or clip and noise what "
        "is handed on with a stated epsilon (noise: {mode: accounted})",
        rounds="all",
    )

    @dataclass(frozen=True, kw_only=True)
    class Config:
        max_generators: int = 8
        pictures: int = 4000  # generated for each; the paper takes up to 20,000
        members: int = 400  # members to score for one generator, at most
        reference_steps: int = 400  # generator steps on auxiliary pictures
        planted: int = 20  # pictures the planted generator memorises
        planted_steps: int = 600

        def __post_init__(self) -> None:
            for name in ("max_generators", "pictures", "members", "reference_steps", "planted",
                         "planted_steps"):  # fmt: skip
                if getattr(self, name) < 1:
                    raise UserError(
                        f"generator_distance.{name} must be at least 1, got {getattr(self, name)}",
                        hint="leave it out for the default",
                    )

    def run(
        self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator
    ) -> Claim:
        known, aux = knowledge.generators, knowledge.auxiliary
        assert known is not None and aux is not None, "not_applicable says so before"
        n, chosen = self.config.pictures, uploaded(view)[: self.config.max_generators]
        order = rng.permutation(len(aux))
        mine, rest = np.split(order, [self.config.planted])
        own = Images(x=aux.x[mine], y=aux.y[mine])
        other = Images(x=aux.x[rest], y=aux.y[rest])
        made = {
            "reference": known.trained(other, self.config.reference_steps, rng),
            "planted": known.trained(own, self.config.planted_steps, rng),
            "untrained": known.trained(own, 0, rng),
        }
        return {
            "made": objects([known.pictures(a.payload, n, rng).x for a in chosen]),
            "sender": np.array([a.sender.index for a in chosen]),
            "behind": objects([np.array(trained_by(a, view)) for a in chosen]),
            **{name: objects([known.pictures(pair.generator, n, rng).x]) for name, pair in made.items()},
            "planted_x": own.x, "planted_y": own.y, "rest_x": other.x, "rest_y": other.y,
        }  # fmt: skip

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        reference, untrained = claim["reference"][0], claim["untrained"][0]
        pairs = [(made, self._matched(behind, truth, rng)) for made, behind in _each(claim)]
        found: list[Evidence] = []
        for how in SCORES:
            found += membership.evidence(
                _scores(pairs, reference, how),
                {"untrained generator": _scores([(untrained, m) for _, m in pairs], reference, how)},
                looks=len(SCORES), condition={"score": how},
                note=f"{len(pairs)} generators; unseen pictures of the same classes",
            )  # fmt: skip
        found += [_copies(pairs, rng, "none")]
        planted = Images(x=claim["planted_x"], y=claim["planted_y"])
        m = matched(planted, Images(x=claim["rest_x"], y=claim["rest_y"]), rng, len(planted))
        trap = [(claim["planted"][0], m)]
        found += membership.evidence(
            _scores(trap, reference, "calibrated"), {}, control="positive",
            condition={"score": "planted"},
            note=f"a generator trained on {len(planted)} auxiliary pictures alone",
        )  # fmt: skip
        unseen = [(made, self._unseen(m, truth, rng)) for made, m in pairs]
        found += membership.evidence(
            _scores(unseen, reference, "calibrated"), {}, control="negative",
            note="pictures that were never trained on in the place of members",
        )[:1]  # fmt: skip
        found += [_copies(unseen, rng, "negative")]
        return found

    def curves(self, claim: Claim, truth: Truth) -> list[Curve]:
        rng, reference = np.random.default_rng(0), claim["reference"][0]
        pairs = [(made, self._matched(behind, truth, rng)) for made, behind in _each(claim)]
        return [membership.curve(how, _scores(pairs, reference, how)) for how in SCORES]

    def galleries(self, claim: Claim, truth: Truth) -> list[Gallery]:
        """The generated pictures that are nearest to a training picture, beside their neighbours."""
        shown = []
        for made, behind in _each(claim):
            m, few = self._matched(behind, truth, np.random.default_rng(0)), made[:1000]
            held_out = m.equally_many.x
            seen, unseen = nearest(few, m.members.x), nearest(few, held_out)
            worst = np.argsort(seen.distance / np.maximum(unseen.distance, 1e-9))[:8]
            shown.append(Gallery(
                title="Generated pictures nearest to training pictures",
                caption=f"A generator of {len(behind)} clients: the 8 of {len(few)} generated pictures that "
                "come nearest to a training picture, measured against the nearest of as many held-out ones. "
                "A copy would look like its training picture and unlike the held-out one.",
                rows={"generated": few[worst], "nearest training picture": m.members.x[seen.index[worst]],
                      "nearest held-out picture": held_out[unseen.index[worst]]},
            ))  # fmt: skip
        return shown[:2]

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if knowledge.generators is None:
            return "nothing says how the generators' networks are built"
        if len(knowledge.auxiliary or ()) < 2 * self.config.planted:
            return "this attack needs auxiliary pictures, and the federation holds too few back"
        if not uploaded(view):
            return "no client sent a generator to the server in the recorded rounds"
        return ""

    def _matched(self, behind: NDArray[Any], truth: Truth, rng: np.random.Generator) -> Matched:
        pool = joined([truth.client_images(int(k)) for k in behind])
        return matched(pool, truth.reference, rng, self.config.members)

    def _unseen(self, m: Matched, truth: Truth, rng: np.random.Generator) -> Matched:
        first, second = halves(truth.reference, rng)
        alike = matched(m.members, first, rng, self.config.members).others
        return matched(alike, second, rng, self.config.members)


def _scores(pairs: Sequence[tuple[Floats, Matched]], reference: Floats, how: str) -> Scores:
    def score(made: Floats, images: Images) -> Floats:
        plain = -nearest(images.x, made).distance
        if how == "calibrated":
            return np.asarray(plain + nearest(images.x, reference).distance)
        return np.asarray(plain)

    return scored(pairs, score)


def _copies(
    pairs: Sequence[tuple[Floats, Matched]],
    rng: np.random.Generator,
    control: Literal["none", "negative"],
) -> Evidence:
    """Share of generated pictures nearer to members than to equally many others."""
    hits, whom = [], []
    for g, (made, m) in enumerate(pairs):
        n = len(m.members)
        both = nearest(made[:1000], np.concatenate([m.members.x, m.equally_many.x]))
        hits.append(both.index < n)
        whom.append(both.index + g * 10**6)
    confidence = CONTROL_CONFIDENCE if control == "negative" else CONFIDENCE
    values = np.concatenate(hits).astype(float)
    interval = stats.mean_interval(
        values, rng, alpha=1 - confidence, groups=np.concatenate(whom), bounds=(0, 1)
    )
    return Evidence(
        measure="copied_share", value=float(values.mean()), unit="fraction", trials=len(values),
        interval=interval, baselines=(Baseline(name="no copying", value=0.5),),
        confidence=confidence, control=control, condition={"score": "closest record"},
        note="generated pictures nearer to a training picture than to any of equally many held-out ones",
    )  # fmt: skip


def _each(claim: Claim) -> list[tuple[Floats, NDArray[Any]]]:
    return list(zip(claim["made"], claim["behind"], strict=True))
