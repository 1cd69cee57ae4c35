"""People: how many stand behind a finding, and how often an accusation of membership is right."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.measure import named
from fedaudit.audit.verdict.statistics import clear
from fedaudit.reports import format as fmt
from fedaudit.reports.result import Accusation, Exposed

RATES = {"tpr_at_fpr_0.01": 0.01, "tpr_at_fpr_0.001": 0.001}


def exposed(quoted: Evidence, found: Sequence[Evidence], held: NDArray[np.int64]) -> Exposed | None:
    """Of all examples, how many a demonstrated finding concerns; `held` are the examples [clients, classes].

    A measure over n: those in groups (one client's examples of one class) up to the largest n at which the attack
    stays clear of every blind adversary, and how many of them it is expected to get right beyond guessing, at the
    rate of the next larger n that was tried; replays count where clients really sent that n, and they agree. A
    rate of recognised members: that share of all. None for a measure that tells nothing of single examples.
    """
    total = int(held.sum())
    if not total:
        return None
    if "n" in quoted.condition:
        return _in_groups(quoted, found, held, total)
    if quoted.measure in RATES:
        hits = quoted.value * total
        return Exposed(
            examples=total,
            of=total,
            expected=hits,
            text=f"about {hits:,.0f} of {total:,} training examples are expected to be recognised, at one false "
            f"alarm in {1 / RATES[quoted.measure]:,.0f} others",
        )
    small = next((e for e in found if e.measure == "examples_in_small_cells" and e.control == "none"), None)
    if small is None:
        return None
    hits = small.value * small.trials
    return Exposed(
        examples=round(hits),
        of=small.trials,
        expected=hits,
        text=f"{hits:,.0f} of {small.trials:,} examples ({fmt.quantity(small.value, 'fraction')}) are known to "
        f"stand in {small.note}",
    )


def _in_groups(
    quoted: Evidence, found: Sequence[Evidence], held: NDArray[np.int64], total: int
) -> Exposed | None:
    curve = {
        float(e.condition["n"]): e
        for e in found
        if e.measure == quoted.measure
        and isinstance(e.condition.get("n"), int | float)
        and clear(e)
        and e.control == "none"
    }
    cells = held[held > 0]
    largest = max(curve, default=0.0)
    inside = cells[cells <= largest]
    if not len(inside):
        return None
    expected = 0.0
    for size in inside:
        e = curve[min(n for n in curve if n >= size)]
        expected += int(size) * max(0.0, e.value - (e.strongest.value if e.strongest else 0.0))
    share = fmt.quantity(inside.sum() / total, "fraction")
    text = f"{inside.sum():,} of {total:,} examples ({share}) stand in groups of at most {int(largest):,}"
    if named(quoted.measure).unit == "fraction":
        text += f"; about {expected:,.0f} of them are told beyond guessing"
    return Exposed(examples=int(inside.sum()), of=total, expected=expected, text=text)


def accusations(found: Sequence[Evidence], prior: float | None) -> list[Accusation]:
    """For every rate of recognised members: the chance that who is accused of being one is one.

    prior * TPR / (prior * TPR + (1 - prior) * FPR), with the ends of the interval of TPR; nothing without a
    declared prior, the share of members among the adversary's candidates.
    """
    if prior is None:
        return []
    made = []
    for e in found:
        if e.measure in RATES and e.control == "none":
            right = partial(_right, fpr=RATES[e.measure], prior=prior)
            ends = (right(e.interval[0]), right(e.interval[1])) if e.interval else None
            made.append(
                Accusation(measure=e.measure, place=e.place, prior=prior, right=right(e.value), interval=ends)
            )
    return made


def _right(tpr: float, fpr: float, prior: float) -> float:
    return prior * tpr / (prior * tpr + (1 - prior) * fpr)
