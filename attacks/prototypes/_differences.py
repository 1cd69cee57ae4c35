"""Evidence on features recovered from two prototypes: how exact, and whether they single out an image.

Whether the image that joined or left is named (evaluation/naming.py) is asked among non-members of its class and
the class mean, by the distance of their features to the recovered ones, whitened with the class's covariance. The
baselines claim in the same trials: the class mean of the auxiliary images, and what was recovered from
another pair of the class.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Claim, Truth
from fedaudit.attacks.evaluation.counting import CountedPeople
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evaluation.naming import NamingGallery, name_people
from fedaudit.attacks.evaluation.trials import (
    CLASS_MEAN,
    LEAST,
    Pools,
    Trial,
    collect_places,
    find_place,
    median_size,
)
from fedaudit.attacks.evidence import REPLAYED, Baseline, Evidence, is_replay
from fedaudit.attacks.modality.images import fingerprints
from fedaudit.attacks.people import PeopleCount
from fedaudit.fl.threats.threat import Harm

Floats = NDArray[np.floating[Any]]
OTHER_PAIR = "another pair of the class"


@dataclass(frozen=True, kw_only=True, eq=False)
class DifferenceTrial(Trial):
    """A pair of prototypes, and the images that joined or left between them; `n`: samples before."""

    error: Mapping[str, float]  # relative, by claimant; "" is the attack
    named: Mapping[str, float]
    silent: float  # the same for an image that nobody has
    stand_in: bytes  # fingerprint of that image
    size: int


def judge_differences(trials: Sequence[DifferenceTrial], rng: np.random.Generator) -> list[Evidence]:
    """Relative error of the recovered features, and whether they name an image, by origin and n; replays are
    controls.
    """
    places = collect_places(trials, find_place)
    result = [e for where in sorted(places) for e in _judge_place(places[where], len(places), rng)]
    every = [t for trials in places.values() for t in trials]
    if every:
        silent = Judge(
            control="negative", note="an image that was never trained on in the place of the one that moved"
        )
        hits = np.array([t.silent for t in every])
        clients = np.array([t.client for t in every])
        result.append(silent.judge_hits("named", hits, groups=clients, chance=_average_chance(every)))
    return result


def count_movers(trials: Sequence[DifferenceTrial], claim: Claim, truth: Truth) -> list[PeopleCount]:
    """Whom the recovered features name of those who joined or left between two prototypes that were sent."""
    means = "named by the features that were added to, or taken from, two successive prototypes"
    found = CountedPeople(means, Harm.RECONSTRUCTION)
    for t in trials:
        if is_replay(t.origin):
            if t.origin == REPLAYED:
                found.plant(t.client, t.named[""], 1)
            continue
        ends = [truth.people(str(claim[end][t.row]), int(claim["label"][t.row])) for end in ("earlier", "later")]
        for client in {*ends[0], *ends[1]}:
            before, after = (set(end.get(client, np.zeros(0, np.int64)).tolist()) for end in ends)
            found.hold(client, before | after)
            found.test(client, before ^ after, before ^ after if t.named[""] == 1 else ())
        found.luck(t.silent, 1, person=t.stand_in, clients={*ends[0], *ends[1]})
    return found.people(truth)


def measure_pairs(claim: Claim, truth: Truth, gallery: int, rng: np.random.Generator) -> list[DifferenceTrial]:
    """A trial of each pair of which as many images moved as are claimed to have."""
    pools, rows = Pools(truth), range(len(claim["label"]))
    moved = [_find_movers(claim, row, truth) for row in rows]
    every = (_measure_pair(claim, row, moved, pools, gallery, rng) for row in rows)
    return [t for t in every if t is not None]


@dataclass(frozen=True, kw_only=True)
class _Moved:
    images: Floats  # that joined or left
    marks: frozenset[bytes]
    class_marks: frozenset[bytes]  # of all images behind the two prototypes


def _find_movers(claim: Claim, row: int, truth: Truth) -> _Moved:
    label = int(claim["label"][row])
    pair = (truth.members(str(claim[end][row]), label) for end in ("earlier", "later"))
    small, large = sorted(pair, key=len)
    marks, known = fingerprints(large), set(fingerprints(small))
    joined = [mark not in known for mark in marks]
    return _Moved(
        images=large[joined],
        class_marks=frozenset(marks),
        marks=frozenset(m for m, new in zip(marks, joined, strict=True) if new),
    )


def _measure_pair(
    claim: Claim, row: int, moved: Sequence[_Moved], pools: Pools, gallery: int, rng: np.random.Generator
) -> DifferenceTrial | None:
    here, model = moved[row], int(claim["model"][row])
    pool = pools.without(int(claim["label"][row]), here.class_marks, str(claim["later"][row]))
    if len(here.images) != abs(int(claim["moved"][row])) or len(pool) < LEAST:
        return None
    extractor = claim["extractors"][model]
    non_members = pool.shuffle(rng)[:gallery]
    non_members = np.roll(non_members, -pool.own, axis=0)  # the last takes the place of whoever moved
    members = extractor.features(here.images).astype(np.float64)
    true = members.mean(0)
    others = extractor.features(non_members).astype(np.float64)
    claimed = {"": claim["feature"][row], CLASS_MEAN: claim["typical"][row]}
    partner = _find_partner(claim, row, moved, rng)
    if partner is not None:
        claimed[OTHER_PAIR] = claim["feature"][partner]
    whiten = claim["whiten"][model]
    beside = NamingGallery(
        members=members @ whiten,
        held_out=others @ whiten,
        class_means=claim["typical"][row][None] @ whiten,
        member_means=(true[None] if len(members) > 1 else members[:0]) @ whiten,
    )
    scale = max(float(np.linalg.norm(true)), 1e-12)
    return DifferenceTrial(
        row=row,
        origin=str(claim["origin"][row]),
        client=int(claim["sender"][row]),
        n=int(claim["n"][row]),
        image_hashes=here.marks,
        error={k: float(np.linalg.norm(f - true)) / scale for k, f in claimed.items()},
        named={k: float(name_people(f[None] @ whiten, beside).hits[0]) for k, f in claimed.items()},
        silent=float(name_people(claimed[""][None] @ whiten, beside.replace_members()).hits[0]),
        stand_in=fingerprints(non_members[-1:])[0],
        size=len(others),
    )


def _find_partner(claim: Claim, row: int, moved: Sequence[_Moved], rng: np.random.Generator) -> int | None:
    """Another pair of the class, about other images; of the same model where there is one."""
    alike = claim["label"] == claim["label"][row]
    alike &= np.array([not m.marks & moved[row].marks for m in moved])
    own = alike & (claim["model"] == claim["model"][row])
    rows = np.flatnonzero(own if own.any() else alike)
    return int(rng.choice(rows)) if len(rows) else None


def _judge_place(trials: Sequence[DifferenceTrial], looks: int, rng: np.random.Generator) -> list[Evidence]:
    origin = trials[0].origin
    hits, errors = np.array([t.named[""] for t in trials]), np.array([t.error[""] for t in trials])
    clients = np.array([t.client for t in trials])
    blind = sorted({k for t in trials for k in t.error} - {""})

    def average(of: str) -> list[Baseline]:
        return [
            Baseline(name=k, value=float(np.mean([v[k] for t in trials if k in (v := getattr(t, of))])))
            for k in blind
        ]

    judge = Judge(
        looks=looks,
        control="positive" if is_replay(origin) else "none",
        condition={"n": median_size(t.n for t in trials), "origin": origin},
        note="had the class grown by one image between two rounds" if is_replay(origin) else "",
    )
    return [
        judge.judge_hits(
            "named", hits, groups=clients, chance=_average_chance(trials), baselines=average("named")
        ),
        judge.state(
            "feature_relative_error",
            float(errors.mean()),
            len(errors),
            judge.bound_mean(errors, rng, groups=clients),
            average("error"),
        ),
    ]


def _average_chance(trials: Sequence[DifferenceTrial]) -> float:
    return float(np.mean([1 / t.size for t in trials]))
