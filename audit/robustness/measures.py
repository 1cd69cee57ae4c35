"""Measures: what an attack did to a model, beside the same rule and seed with nobody malicious.

With one seed the intervals are over test images, paired, because both models answer the same ones; they do not
cover the choice of the seed. With several they are Student's over the seeds. `looks` is how many
comparisons of one finding share its confidence.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks import stats
from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.attacks.poisoning.backdoors import Backdoors
from fedaudit.audit.robustness.finished_runs import FinishedRun, Labels, RunHistory, score_classes
from fedaudit.fl.runtime.streams import Streams

Answers = NDArray[np.bool_]
Counts = NDArray[np.int64]
TENTH = 10  # percentile
DRAWS = 2000
DOING_NOTHING = "the same clients doing nothing"  # baseline
ONE_SEED = "one seed; the interval is over test images alone"


class Scored(Protocol):
    """A model and what it answers on examples; those of one comparison answer the same."""

    @property
    def labels(self) -> Labels: ...

    @property
    def right(self) -> Answers: ...


def difference(
    measure: str, before: Sequence[Scored], after: Sequence[Scored], looks: int, beside: Baseline | None = None
) -> Evidence:
    """Accuracy of `before` minus that of `after`, run by run (the same seeds in the same order)."""
    alpha = stats.correct_alpha(stats.ALPHA, looks)
    pairs = [_compare_pairs(b.right, a.right, alpha) for b, a in zip(before, after, strict=True)]
    return _average_seeds(measure, pairs, len(before[0].labels), looks, _list_baselines(measure, beside))


def _list_baselines(measure: str, beside: Baseline | None) -> list[Baseline]:
    nothing = Baseline(name="mean" if measure.startswith("cost_") else "nobody malicious", value=0.0)
    return [nothing, *([beside] if beside else [])]


def worst_class_difference(
    measure: str, before: Sequence[Scored], after: Sequence[Scored], looks: int, beside: Baseline | None = None
) -> Evidence:
    """How much lower the accuracy of the worst class is; which class it is may change."""
    alpha = stats.correct_alpha(stats.ALPHA, looks)
    found = [_compare_worst_class(b.right, a.right, b.labels, alpha) for b, a in zip(before, after, strict=True)]
    return _average_seeds(measure, found, len(before[0].labels), looks, _list_baselines(measure, beside))


def measure_drops(
    before: Sequence[Scored], after: Sequence[Scored], looks: int, idle: Sequence[Scored] = ()
) -> list[Evidence]:
    """Drops of accuracy and of the worst class; `idle` are runs in which the same clients do nothing."""
    drops = []
    for name, measure in (("accuracy_drop", difference), ("worst_class_drop", worst_class_difference)):
        beside = None
        if idle:
            lost = measure(name, before, idle, looks)
            beside = Baseline(name=DOING_NOTHING, value=lost.value, interval=lost.interval)
        drops.append(measure(name, before, after, looks, beside))
    return drops


def measure_costs(mean: Sequence[Scored], runs: Sequence[Scored], looks: int) -> list[Evidence]:
    """What a rule costs beside the plain mean where nobody is malicious; nothing without the mean's runs."""
    if not mean:
        return []
    return [
        difference("cost_of_defence", mean, runs, looks),
        worst_class_difference("cost_of_worst_class", mean, runs, looks),
    ]


def worst_client_drop(before: Sequence[FinishedRun], after: Sequence[FinishedRun], looks: int) -> list[Evidence]:
    """How much lower the tenth percentile of honest clients' accuracy is, each on its own mix of classes.

    With one seed the interval is a paired bootstrap of the test images, class by class. Nothing where no honest
    client holds a class that is tested.
    """
    if not all(r.mixes[:, np.unique(r.labels)].any() for r in after):
        return []
    alpha = stats.correct_alpha(stats.ALPHA, looks)
    found = [
        _compare_worst_client(b.right, a.right, b.labels, a.mixes, alpha)
        for b, a in zip(before, after, strict=True)
    ]
    nothing = Baseline(name="nobody malicious", value=0.0)
    return [_average_seeds("worst_client_drop", found, len(before[0].labels), looks, [nothing])]


def asr(
    adversary: Backdoors, before: Sequence[FinishedRun], after: Sequence[FinishedRun], looks: int
) -> Evidence:
    """Triggered test images of other classes that are taken for the target.

    Beside it: what the clean model answers to them, and what the attacked one does to a trigger that nobody
    trained on.
    """
    alpha = stats.correct_alpha(stats.ALPHA, looks)

    def exact(found: Sequence[Answers]) -> stats.Interval:
        return stats.clopper_pearson(float(sum(f.sum() for f in found)), sum(map(len, found)), alpha)

    own, clean = ([_find_hits(adversary, r) for r in runs] for runs in (after, before))
    other = [_find_hits(adversary, r, elsewhere=True) for r in after]
    single = len(own) == 1
    interval = exact(own) if single else _clip_interval(stats.t_interval([f.mean() for f in own], alpha))
    named = (("clean model, same trigger", clean), ("trigger never trained on", other))
    return Evidence(
        measure="asr",
        value=float(np.mean([f.mean() for f in own])),
        unit="fraction",
        trials=len(own[0]) if single else len(own),
        interval=interval,
        confidence=1 - stats.ALPHA,
        looks=looks,
        baselines=tuple(
            Baseline(name=n, value=float(np.mean([f.mean() for f in found])), interval=exact(found))
            for n, found in named
        ),
        note=ONE_SEED if single else "trials are seeds",
    )


def stealth(after: Sequence[RunHistory]) -> list[Evidence]:
    """Where forged changes stood among the honest, means over rounds and seeds; an honest client is at 0.5.

    Intervals reach from the lowest seed to the highest.
    """
    found = []
    for name in ("norm_rank", "cosine_rank"):
        each = [float(np.mean(ranks)) for r in after if (ranks := r.list_ranks(name))]
        if each and len(each) == len(after):
            found.append(
                Evidence(
                    measure=name,
                    value=float(np.mean(each)),
                    unit="index",
                    trials=len(each),
                    interval=(min(each), max(each)),
                    baselines=(Baseline(name="an honest client", value=0.5),),
                    note="over rounds; lowest to highest seed",
                )
            )
    return found


def durability(after: Sequence[RunHistory], leaves: int | None) -> list[Evidence]:
    """Rounds after the attackers left until the backdoor works half as often as when they did.

    A run that ends before counts with the rounds it had, and the note says how many of them did. Nothing where
    nobody leaves, or where it never worked.
    """
    found = [find_half_life(r.successes, leaves) for r in after] if leaves else []
    known = [f for f in found if f is not None]
    if not known or len(known) < len(after):
        return []
    rounds, ended = [float(n) for n, _ in known], sum(over for _, over in known)
    return [
        Evidence(
            measure="durability",
            value=float(np.mean(rounds)),
            unit="rounds",
            trials=len(rounds),
            interval=(min(rounds), max(rounds)),
            note=f"attackers leave in round {leaves}; "
            + (f"still above half at the end in {ended} of {len(rounds)}" if ended else "lowest to highest seed"),
        )
    ]


def find_half_life(successes: Mapping[int, float], leaves: int) -> tuple[int, bool] | None:
    """(rounds until half of the success at leaving, whether the run ended before); None where there was none."""
    last = successes.get(leaves - 1, 0.0)
    later = sorted(t for t in successes if t >= leaves)
    if not last or not later:
        return None
    gone = next((t for t in later if successes[t] <= last / 2), None)
    return (later[-1] - leaves + 1, True) if gone is None else (gone - leaves + 1, False)


def success(adversary: Backdoors, run: FinishedRun) -> float:
    """Share of triggered test images of other classes that this model takes for the target."""
    return float(_find_hits(adversary, run).mean())


def _find_hits(adversary: Backdoors, run: FinishedRun, elsewhere: bool = False) -> Answers:
    """Of test images of other classes, with the trigger, which are taken for the target."""
    target = int(adversary.config.target)
    found: Answers = (run.classify_triggered(adversary, elsewhere) == target)[run.labels != target]
    return found


def changed_by_counts(before: Sequence[FinishedRun], after: Sequence[FinishedRun], looks: int) -> Evidence:
    """Test images whose answer differs: whether a claimed count moved anything."""
    moved = [b.answers != a.answers for b, a in zip(before, after, strict=True)]
    total, size = float(sum(m.sum() for m in moved)), sum(map(len, moved))
    return Evidence(
        measure="changed_by_counts",
        value=total / size,
        unit="share",
        trials=size,
        interval=stats.clopper_pearson(total, size, stats.correct_alpha(stats.ALPHA, looks)),
        looks=looks,
    )


def measure_detection(after: Sequence[RunHistory], looks: int) -> list[Evidence]:
    """Of the malicious who were heard, those the rule dropped or weighed below half; and of the honest.

    The baseline drops as many at random.
    """
    found = [s for r in after if (s := r.count_sorted()) is not None]
    if len(found) < len(after):
        return []
    caught, malicious, dropped, honest = (sum(f[i] for f in found) for i in range(4))
    if not malicious or not honest:
        return []
    alpha, blind = stats.correct_alpha(stats.ALPHA, looks), (caught + dropped) / (malicious + honest)
    return [
        Evidence(
            measure=name,
            value=hits / trials,
            unit="fraction",
            trials=trials,
            interval=stats.clopper_pearson(hits, trials, alpha),
            looks=looks,
            higher_is_worse=name == "honest_dropped",
            baselines=(Baseline(name="dropping as many at random", value=blind),),
            note="trials are clients heard, round by round",
        )
        for name, hits, trials in (("malicious_found", caught, malicious), ("honest_dropped", dropped, honest))
    ]


def rounds_too_few(runs: Sequence[RunHistory]) -> list[Evidence]:
    """The share of rounds in which too few clients were heard for the rule; nothing where there is none."""
    short, rounds = (sum(counts) for counts in zip(*(r.count_short() for r in runs), strict=True))
    return [exactly("rounds_too_few", short / rounds)] if short else []


def exactly(measure: str, value: float) -> Evidence:
    """A known number, as conditions of a policy read it."""
    return Evidence(measure=measure, value=value, unit="fraction", trials=1, interval=(value, value))


def _compare_pairs(before: Answers, after: Answers, alpha: float) -> stats.Estimate:
    both, first = int((before & after).sum()), int((before & ~after).sum())
    second = int((after & ~before).sum())
    return stats.paired_difference(both, first, second, len(before) - both - first - second, alpha)


def _compare_worst_class(before: Answers, after: Answers, labels: Labels, alpha: float) -> stats.Estimate:
    """The worst class before minus the worst after, which may be another; paired where it is the same."""
    classes = np.unique(labels)
    first, second = (labels == classes[int(np.argmin(score_classes(right, labels)))] for right in (before, after))
    if (first == second).all():
        return _compare_pairs(before[first], after[first], alpha)
    hits = int(before[first].sum()), int(first.sum()), int(after[second].sum()), int(second.sum())
    return stats.difference(*hits, alpha)


def _compare_worst_client(
    before: Answers, after: Answers, labels: Labels, mixes: NDArray[np.float64], alpha: float
) -> stats.Estimate:
    """mixes [K, C]: each client's share of every class."""
    classes = np.unique(labels)
    own = mixes[mixes[:, classes].any(1)][:, classes]
    own /= own.sum(1, keepdims=True)
    here = [labels == c for c in classes]
    both, first, second = (
        np.array([(m & x).sum() for m in here]) for x in (before & after, before & ~after, after & ~before)
    )
    total = np.array([m.sum() for m in here])

    def drop(both: Counts, first: Counts, second: Counts) -> NDArray[np.float64]:
        """[..., C] to [...]"""
        low, high = (np.percentile((x / total) @ own.T, TENTH, axis=-1) for x in (both + second, both + first))
        return np.asarray(high - low)

    rng, shares = (
        Streams(0).numpy("bootstrap", "worst_client"),
        np.stack([both, first, second], 1) / total[:, None],
    )
    chances = np.column_stack([shares, 1 - shares.sum(1)]).clip(0, 1)
    drawn = np.stack([rng.multinomial(n, p, DRAWS) for n, p in zip(total, chances, strict=True)], 1)
    low, high = np.quantile(drop(*np.moveaxis(drawn[..., :3], -1, 0)), [alpha / 2, 1 - alpha / 2])
    return stats.Estimate(value=float(drop(both, first, second)), interval=(float(low), float(high)))


def _average_seeds(
    measure: str, runs: Sequence[stats.Estimate], images: int, looks: int, baselines: Sequence[Baseline]
) -> Evidence:
    single, values = len(runs) == 1, [r.value for r in runs]
    found = runs[0].interval if single else stats.t_interval(values, stats.correct_alpha(stats.ALPHA, looks))
    return Evidence(
        measure=measure,
        value=float(np.mean(values)),
        unit="fraction",
        trials=images if single else len(runs),
        interval=found if single else (max(-1.0, found[0]), min(1.0, found[1])),
        looks=looks,
        baselines=tuple(baselines),
        note=ONE_SEED if single else "trials are seeds",
    )


def _clip_interval(interval: stats.Interval) -> stats.Interval:
    return max(0.0, interval[0]), min(1.0, interval[1])
