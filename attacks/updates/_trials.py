"""Images claimed from updates: matched to the members, then judged beside blind adversaries.

An attack on a batch gives its images in no order, so they are matched to the members by least squared
error (Hungarian method) before anything is measured. To choose the best of many matchings favours the
attack, so a gallery consists of whole batches: G - 1 sets of non-members of the same classes, each
matched in the same way. Chance is then exactly 1/G, for any batch. With one image it is the gallery of
reidentification.py.

An upload is one trial however many images it holds: those of one batch stand and fall together. Of what
clients sent, which may be one image's among many, it is also asked whether any member comes first (anyone.py).
Blind adversaries are told the classes: the class mean, a random image of the class, and the images
that the same attack made of another update, that of another client where there is one.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks import stats
from fedaudit.attacks.attack import Claim, Truth
from fedaudit.attacks.evaluation import anyone, images
from fedaudit.attacks.evaluation.distances import distances
from fedaudit.attacks.evaluation.membership import CONFIDENCE, CONTROL_CONFIDENCE
from fedaudit.attacks.evaluation.reidentification import Pool, fingerprints
from fedaudit.attacks.evidence import Baseline, Evidence

Floats = NDArray[np.floating[Any]]
Values = NDArray[np.float64]
Condition = Mapping[str, float | str]

CLASS_MEAN = "class mean of auxiliary data"
RANDOM = "random auxiliary image of the class"
WRONG = "update of other images"


@dataclass(kw_only=True)
class Trial:
    """One update: its claimed images and as many members, all [B, C, H, W]."""

    claimed: Floats
    members: Floats
    labels: NDArray[np.int64]
    everyone: Floats  # [n, C, H, W] all images behind the update, [n] their labels
    classes: NDArray[np.int64]
    others: Floats  # [m, C, H, W] of each class as many non-members, where there are; [m] their labels
    other_classes: NDArray[np.int64]
    marks: frozenset[bytes]  # fingerprints of all images behind the update
    client: int
    decoys: Floats  # [G, B, C, H, W] of non-members; the first G - 1 are the gallery
    origin: str
    batch: int  # examples in a step
    steps: int
    blind: dict[str, Floats] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Updates that are judged together."""

    condition: Condition
    trials: list[Trial]
    control: Literal["none", "positive"]
    note: str = ""


def matched(claimed: Floats, members: Floats) -> tuple[NDArray[np.int64], Values]:
    """Which claimed image each member is given, [B], and their mean squared errors, [B]."""
    from scipy.optimize import linear_sum_assignment

    apart = np.asarray(members, np.float64)[:, None] - np.asarray(claimed, np.float64)[None]
    errors = (apart**2).reshape(len(members), len(claimed), -1).mean(axis=2)
    rows, columns = linear_sum_assignment(errors)
    return columns, errors[rows, columns]


def rank1(claimed: Floats, members: Floats, decoys: Floats) -> float:
    """Share of members nearer to their claimed images than any decoy; ties are shared out."""
    own = matched(claimed, members)[1]
    others = np.stack([matched(claimed, d)[1] for d in decoys])  # [G - 1, B]
    before, tied = (others < own).sum(axis=0), (others == own).sum(axis=0)
    return float(np.clip((1 - before) / (tied + 1), 0, 1).mean())


def groups(claim: Claim, truth: Truth, gallery: int, rng: np.random.Generator) -> list[Group]:
    """The trials of a claim by origin, batch and steps; `claim` as UpdateInversion.run gives it.

    Updates whose classes have too few non-members for a gallery of three are left out.
    """
    pools = _Pools(truth)
    rows: dict[str, list[int]] = defaultdict(list)
    for i, artifact in enumerate(claim["artifact"]):
        rows[str(artifact)].append(i)
    found: dict[tuple[str, int, int], list[Trial]] = defaultdict(list)
    for artifact, own in rows.items():
        trial = _trial(artifact, claim, own, truth, pools, gallery, rng)
        if trial is not None:
            alike = (0, 0) if trial.origin == "recorded" else (trial.batch, trial.steps)
            found[trial.origin, *alike].append(trial)
    return [_group(trials, truth, rng) for _, trials in sorted(found.items())]


def _group(trials: list[Trial], truth: Truth, rng: np.random.Generator) -> Group:
    size = min(len(t.decoys) for t in trials)  # so that chance is one number
    for t in trials:
        t.decoys = t.decoys[:size]
        t.blind |= _blind(t, trials, truth, rng)
    first, replayed = trials[0], trials[0].origin == "replayed"
    return Group(
        condition={
            "n": float(statistics.median_high(t.batch for t in trials)),
            "steps": float(statistics.median_high(t.steps for t in trials)),
            "origin": first.origin,
        },
        trials=trials,
        control="positive" if replayed else "none",
        note="made by the auditor: what the attack can do"
        if replayed
        else f"{len(first.claimed)} images claimed of each update",
    )


class _Pools:
    """Non-members by class."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._pools: dict[int, Pool] = {}

    def without(self, label: int, marks: frozenset[bytes]) -> Floats:
        if label not in self._pools:
            self._pools[label] = Pool(self._truth.reference.of_class(label))
        return self._pools[label].without(marks)


def _trial(
    artifact: str,
    claim: Claim,
    rows: list[int],
    truth: Truth,
    pools: _Pools,
    gallery: int,
    rng: np.random.Generator,
) -> Trial | None:
    """None where the images behind it are unknown, or too few non-members exist."""
    everyone = [truth.members(artifact, c) for c in range(int(claim["classes"]))]
    behind = np.concatenate([m for m in everyone if len(m)]) if any(map(len, everyone)) else None
    if behind is None:
        return None
    label = np.repeat(np.arange(len(everyone)), [len(m) for m in everyone])
    number = min(len(rows), len(behind))
    chosen = np.sort(rng.choice(len(behind), number, replace=False))
    marks = frozenset(fingerprints(behind))
    counts = {int(c): int((label[chosen] == c).sum()) for c in np.unique(label[chosen])}
    non_members = {c: pools.without(c, marks) for c in counts}
    size = min(gallery, *(len(non_members[c]) // counts[c] for c in counts))
    if size < 3:
        return None
    sets = np.empty((size, number, *behind.shape[1:]), behind.dtype)
    for c, some in non_members.items():  # no image is in two sets
        drawn = rng.permutation(len(some))[: size * counts[c]]
        sets[:, label[chosen] == c] = some[drawn].reshape(size, counts[c], *some.shape[1:])
    first = rows[0]
    beside = {c: pools.without(c, marks) for c in np.unique(label).tolist()}
    beside = {c: x[rng.permutation(len(x))[: int((label == c).sum())]] for c, x in beside.items()}
    return Trial(
        claimed=claim["images"][rows[:number]],
        members=behind[chosen],
        labels=label[chosen],
        everyone=behind,
        classes=label,
        others=np.concatenate(list(beside.values())),
        other_classes=np.repeat(list(beside), [len(x) for x in beside.values()]),
        marks=marks,
        client=int(claim["sender"][first]),
        decoys=sets,
        origin=str(claim["origin"][first]),
        batch=int(claim["batch"][first]),
        steps=int(claim["steps"][first]),
    )


def _blind(t: Trial, trials: list[Trial], truth: Truth, rng: np.random.Generator) -> dict[str, Floats]:
    aux = truth.auxiliary
    found = {}
    if len(aux):
        known = {c: aux.of_class(c) if (aux.y == c).any() else aux.x for c in np.unique(t.labels)}
        found[CLASS_MEAN] = np.stack([known[c].mean(axis=0) for c in t.labels])
        found[RANDOM] = np.stack([known[c][rng.integers(len(known[c]))] for c in t.labels])
    others = [o for o in trials if not o.marks & t.marks and len(o.claimed) == len(t.claimed)]
    others = [o for o in others if o.client != t.client] or others
    if others:
        found[WRONG] = others[rng.integers(len(others))].claimed
    return found


def evidence(found: list[Group], rng: np.random.Generator) -> list[Evidence]:
    """Rank 1, PSNR, SSIM and what SSIM gains over a wrong update, by group; and a negative control."""
    result = [e for g in found for e in _judged(g, len(found), rng)]
    return [*result, negative(found)] if found else []


def _judged(g: Group, looks: int, rng: np.random.Generator) -> list[Evidence]:
    alpha = stats.corrected(1 - CONFIDENCE, looks)
    names = set.intersection(*({*t.blind} for t in g.trials))

    def over(score: Callable[[Trial, Floats], float]) -> dict[str, Values]:
        """The attack's ("") and every blind adversary's score, an update a number."""
        found = {"": np.array([score(t, t.claimed) for t in g.trials])}
        for n in (CLASS_MEAN, RANDOM, WRONG):
            if n in names:
                found[n] = np.array([score(t, t.blind[n]) for t in g.trials])
        return found

    def like(measure: Callable[[Floats, Floats], Values]) -> dict[str, Values]:
        return over(lambda t, x: float(measure(x[matched(x, t.members)[0]], t.members).mean()))

    def say(measure: str, unit: str, values: dict[str, Values], bounds: stats.Interval | None) -> Evidence:
        own = values[""]
        return Evidence(
            measure=measure,
            value=float(own.mean()),
            unit=unit,
            trials=len(own),
            interval=stats.mean_interval(own, rng, alpha=alpha, bounds=bounds),
            baselines=tuple(
                Baseline(
                    name=n,
                    value=float(v.mean()),
                    interval=stats.mean_interval(v, rng, alpha=alpha, bounds=bounds),
                )
                for n, v in values.items()
                if n
            ),
            confidence=CONFIDENCE,
            looks=looks,
            control=g.control,
            condition=g.condition,
            note=g.note,
        )

    found = [
        _rank1(over(lambda t, x: rank1(x, t.members, t.decoys[:-1])), g, alpha, looks),
        say("ssim", "index", like(images.ssim), (-1, 1)),
        say("psnr", "dB", like(images.psnr), None),
    ]
    if g.control == "none":
        blind = [_first(t, t.blind[WRONG]) for t in g.trials if WRONG in t.blind]
        found += anyone.evidence([_first(t, t.claimed) for t in g.trials], blind, WRONG, found[0])
        gaps = {"": np.array([anyone.gap(t.claimed, t.everyone, t.others) for t in g.trials])}
        if WRONG in names:
            gaps[WRONG] = np.array([anyone.gap(t.blind[WRONG], t.everyone, t.others) for t in g.trials])
        found.append(say("best_of_n_gap", "index", gaps, (-2, 2)))
    return found


def _first(t: Trial, claimed: Floats) -> anyone.First:
    """Whether the image nearest to a claimed one is a member; by chance as often as its class has members."""
    apart = [distances(claimed, x).min(axis=0) for x in (t.everyone, t.others)]
    best = min(float(a.min()) for a in apart)
    own, tied = (int((a == best).sum()) for a in apart)
    label = t.classes[apart[0].argmin()] if own else t.other_classes[apart[1].argmin()]
    of = [int((y == label).sum()) for y in (t.classes, t.other_classes)]
    return anyone.First(own / (own + tied), of[0] / sum(of))


def _rank1(values: dict[str, Values], g: Group, alpha: float, looks: int) -> Evidence:
    size = len(g.trials[0].decoys)

    def bounds(v: Values) -> stats.Interval:
        return stats.clopper_pearson(float(v.sum()), len(v), alpha)

    own = values[""]
    return Evidence(
        measure="rank1",
        value=float(own.mean()),
        unit="fraction",
        trials=len(own),
        interval=bounds(own),
        baselines=(
            Baseline(name="chance", value=1 / size),
            *(Baseline(name=n, value=float(v.mean()), interval=bounds(v)) for n, v in values.items() if n),
        ),
        confidence=CONFIDENCE,
        looks=looks,
        control=g.control,
        condition=g.condition,
        note=f"galleries of {size} sets of images of the same classes; {g.note}",
    )


def negative(found: list[Group]) -> Evidence:
    """What the update of other images tells of these members; else non-members in their place."""
    hits, chances = [], []
    for t in (t for g in found for t in g.trials):
        if WRONG in t.blind:
            hits.append(rank1(t.blind[WRONG], t.members, t.decoys[:-1]))
        else:
            hits.append(rank1(t.claimed, t.decoys[-1], t.decoys[:-1]))
        chances.append(1 / len(t.decoys))
    return Evidence(
        measure="rank1",
        value=float(np.mean(hits)),
        unit="fraction",
        trials=len(hits),
        interval=stats.clopper_pearson(sum(hits), len(hits), 1 - CONTROL_CONFIDENCE),
        baselines=(Baseline(name="chance", value=float(np.mean(chances))),),
        confidence=CONTROL_CONFIDENCE,
        control="negative",
        note="images reconstructed from updates that other images made",
    )
