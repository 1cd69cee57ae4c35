"""Accusations of membership: how often whoever is accused of being a member is one."""

from collections.abc import Sequence

from fedaudit.attacks.evidence import Evidence
from fedaudit.reports.result import Accusation

RATES = {"tpr_at_fpr_0.01": 0.01, "tpr_at_fpr_0.001": 0.001}


def compute_accusations(evidence: Sequence[Evidence], prior: float | None) -> list[Accusation]:
    """For every rate of recognised members: the chance that who is accused of being one is one.

    prior * TPR / (prior * TPR + (1 - prior) * FPR), with the ends of the interval of TPR; nothing without a
    declared prior, the share of members among the adversary's candidates.
    """
    if prior is None:
        return []
    accusations = []
    for e in evidence:
        if e.measure in RATES and e.control == "none":
            fpr = RATES[e.measure]
            low, high = e.interval or (0.0, 0.0)
            ends = (_apply_bayes(low, fpr, prior), _apply_bayes(high, fpr, prior)) if e.interval else None
            right = _apply_bayes(e.value, fpr, prior)
            accusations.append(
                Accusation(measure=e.measure, place=e.place, prior=prior, right=right, interval=ends)
            )
    return accusations


def _apply_bayes(tpr: float, fpr: float, prior: float) -> float:
    return prior * tpr / (prior * tpr + (1 - prior) * fpr)
