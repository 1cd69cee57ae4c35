"""Evidence on features recovered from two prototypes: how exact, and whether they single out an image.

The image that joined or left is looked for among non-members of its class, by the distance of their
features to the recovered ones, whitened with the class's covariance; so chance is one in the gallery.
The blind adversaries claim in the same trials: the class mean of the auxiliary images, and what was
recovered from another pair of the class.
"""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks import stats
from fedaudit.attacks.attack import Claim, Truth
from fedaudit.attacks.evaluation.membership import CONFIDENCE, CONTROL_CONFIDENCE
from fedaudit.attacks.evaluation.reidentification import Pool, fingerprints
from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.attacks.prototypes._trials import CLASS_MEAN, group

Floats = NDArray[np.floating[Any]]
OTHER_PAIR = "another pair of the class"


@dataclass(frozen=True, kw_only=True)
class _Trial:
    n: int
    error: Mapping[str, float]  # relative, by claimant; "" is the attack
    rank1: Mapping[str, float]
    non_members: float  # the same for an image that nobody has
    size: int


def judged(claim: Claim, truth: Truth, gallery: int, rng: np.random.Generator) -> list[Evidence]:
    """Relative error of the recovered features, and rank 1 in a gallery by origin and n; replays are controls."""
    found: dict[tuple[str, int], list[_Trial]] = defaultdict(list)
    pools = {int(c): Pool(truth.reference.of_class(int(c))) for c in np.unique(claim["label"])}
    moved = [_moved(claim, row, truth) for row in range(len(claim["label"]))]
    for row, label in enumerate(claim["label"]):
        trial = _trial(claim, row, moved, pools[int(label)], gallery, rng)
        if trial is not None:
            origin = str(claim["origin"][row])
            found[origin, group(origin, trial.n)].append(trial)
    alpha = stats.corrected(1 - CONFIDENCE, len(found))
    result = []
    for origin, n in sorted(found):
        result += _evidence(origin, found[origin, n], len(found), alpha, rng)
    every = [t for trials in found.values() for t in trials]
    if every:
        hits = sum(t.non_members for t in every)
        result.append(
            Evidence(
                measure="rank1",
                value=hits / len(every),
                unit="fraction",
                trials=len(every),
                interval=stats.clopper_pearson(hits, len(every), 1 - CONTROL_CONFIDENCE),
                baselines=(Baseline(name="chance", value=_chance(every)),),
                confidence=CONTROL_CONFIDENCE,
                control="negative",
                note="an image that was never trained on in the place of the one that moved",
            )
        )
    return result


@dataclass(frozen=True, kw_only=True)
class _Moved:
    images: Floats  # that joined or left
    marks: frozenset[bytes]
    class_marks: frozenset[bytes]  # of all images behind the two prototypes


def _moved(claim: Claim, row: int, truth: Truth) -> _Moved:
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


def _trial(
    claim: Claim, row: int, moved: Sequence[_Moved], pool: Pool, gallery: int, rng: np.random.Generator
) -> _Trial | None:
    here, model = moved[row], int(claim["model"][row])
    non_members = pool.without(here.class_marks)
    if len(here.images) != abs(int(claim["moved"][row])) or len(non_members) < 3:
        return None
    extractor = claim["extractors"][model]
    non_members = non_members[rng.permutation(len(non_members))[:gallery]]
    true = extractor.features(here.images).astype(np.float64).mean(0)
    others = extractor.features(non_members).astype(np.float64)
    claimed = {"": claim["feature"][row], CLASS_MEAN: claim["typical"][row]}
    partner = _partner(claim, row, moved, rng)
    if partner is not None:
        claimed[OTHER_PAIR] = claim["feature"][partner]
    whiten = claim["whiten"][model]
    scale = max(float(np.linalg.norm(true)), 1e-12)
    return _Trial(
        n=int(claim["n"][row]),
        error={k: float(np.linalg.norm(f - true)) / scale for k, f in claimed.items()},
        rank1={k: _first(f, true, others[:-1], whiten) for k, f in claimed.items()},
        non_members=_first(claimed[""], others[-1], others[:-1], whiten),
        size=len(others),
    )


def _first(claimed: Floats, own: Floats, others: Floats, whiten: Floats) -> float:
    """Probability that `own` [D] is nearest to the claimed features, beside others [m, D]."""
    near = float((((own - claimed) @ whiten) ** 2).sum())
    rest = (((others - claimed) @ whiten) ** 2).sum(axis=1)
    return 0.0 if (rest < near).any() else 1 / (1 + int((rest == near).sum()))


def _partner(claim: Claim, row: int, moved: Sequence[_Moved], rng: np.random.Generator) -> int | None:
    """Another pair of the class, about other images; of the same model where there is one."""
    alike = claim["label"] == claim["label"][row]
    alike &= np.array([not m.marks & moved[row].marks for m in moved])
    own = alike & (claim["model"] == claim["model"][row])
    rows = np.flatnonzero(own if own.any() else alike)
    return int(rng.choice(rows)) if len(rows) else None


def _evidence(
    origin: str, trials: Sequence[_Trial], looks: int, alpha: float, rng: np.random.Generator
) -> list[Evidence]:
    hits, errors = [t.rank1[""] for t in trials], [t.error[""] for t in trials]
    blind = sorted({k for t in trials for k in t.error} - {""})

    def mean(of: str, name: str) -> float:
        return float(np.mean([v[name] for t in trials if name in (v := getattr(t, of))]))

    note = "had the class grown by one image between two rounds" if origin == "replayed" else ""

    def say(
        measure: str,
        values: list[float],
        interval: stats.Interval | None,
        baselines: list[Baseline],
        higher_is_worse: bool,
    ) -> Evidence:
        return Evidence(
            measure=measure,
            value=float(np.mean(values)),
            unit="fraction",
            trials=len(values),
            interval=interval,
            baselines=tuple(baselines),
            confidence=CONFIDENCE,
            looks=looks,
            control="positive" if origin == "replayed" else "none",
            higher_is_worse=higher_is_worse,
            note=note,
            condition={"n": float(statistics.median_high(t.n for t in trials)), "origin": origin},
        )

    return [
        say(
            "rank1",
            hits,
            stats.clopper_pearson(sum(hits), len(hits), alpha),
            [
                Baseline(name="chance", value=_chance(trials)),
                *(Baseline(name=k, value=mean("rank1", k)) for k in blind),
            ],
            True,
        ),
        say(
            "feature_relative_error",
            errors,
            stats.mean_interval(errors, rng, alpha=alpha),
            [Baseline(name=k, value=mean("error", k)) for k in blind],
            False,
        ),
    ]


def _chance(trials: Sequence[_Trial]) -> float:
    return float(np.mean([1 / t.size for t in trials]))
