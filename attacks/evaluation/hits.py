"""Evidence of hits: of so many independent answers so many are right, beside blind adversaries."""

from collections.abc import Mapping, Sequence
from typing import Literal

from fedaudit.attacks import stats
from fedaudit.attacks.evaluation.membership import CONFIDENCE, CONTROL_CONFIDENCE
from fedaudit.attacks.evidence import Baseline, Evidence


def hits_evidence(
    measure: str,
    hits: int,
    trials: int,
    blind: Sequence[Baseline],
    *,
    control: Literal["none", "positive", "negative"] = "none",
    looks: int = 1,
    condition: Mapping[str, int | float | str] | None = None,
    note: str = "",
) -> Evidence:
    """The share of hits with its Clopper-Pearson interval; negative controls have the confidence of controls."""
    confidence = CONTROL_CONFIDENCE if control == "negative" else CONFIDENCE
    return Evidence(
        measure=measure,
        value=hits / trials,
        unit="fraction",
        trials=trials,
        interval=stats.clopper_pearson(hits, trials, stats.corrected(1 - confidence, looks)),
        baselines=tuple(blind),
        confidence=confidence,
        looks=looks,
        control=control,
        condition=condition or {},
        note=note,
    )
