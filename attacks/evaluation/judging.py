"""From the results of trials to Evidence: a value, its interval, and baselines that took part in the same trials.

Proportions have Clopper-Pearson intervals, since Wilson's is too narrow at a chance of 1 %; ties count in part.
Every interval is corrected for the number of comparisons made at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks import stats
from fedaudit.attacks.evaluation.ranking import First, Present
from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.attacks.measure import named

Values = NDArray[Any]  # numbers, or whether a trial is a hit
Control = Literal["none", "positive", "negative"]
Condition = Mapping[str, int | float | str]

CONFIDENCE = 0.95
CONTROL_CONFIDENCE = 0.99  # an audit has many negative controls, and one that fires spoils a result
LEANING = "any_member_first"
MEMBER_FIRST = "member_first"
OWN_MEAN = "the members' own mean"
PRESENT = "image_present"


@dataclass(frozen=True, kw_only=True)
class Judge:
    """Writes evidence: what is common to all measures of one place, or of one control."""

    looks: int = 1  # comparisons that intervals are corrected for
    control: Control = "none"
    condition: Condition = field(default_factory=dict)
    note: str = ""  # ends every note

    @property
    def confidence(self) -> float:
        """Negative controls have the confidence of controls."""
        return CONTROL_CONFIDENCE if self.control == "negative" else CONFIDENCE

    @property
    def alpha(self) -> float:
        return stats.corrected(1 - self.confidence, self.looks)

    def state(
        self,
        measure: str,
        value: float,
        trials: int,
        interval: stats.Interval | None,
        baselines: Sequence[Baseline] = (),
        note: str = "",
    ) -> Evidence:
        """Evidence of numbers that were computed elsewhere; unit and direction are those of the measure."""
        row = named(measure)
        return Evidence(
            measure=measure,
            value=value,
            unit=row.unit,
            trials=trials,
            interval=interval,
            baselines=tuple(baselines),
            confidence=self.confidence,
            looks=self.looks,
            control=self.control,
            condition=self.condition,
            higher_is_worse=row.higher_is_worse,
            note="; ".join(filter(None, (note, self.note))),
        )

    def judge_hits(
        self,
        measure: str,
        hits: Values,
        blind: Mapping[str, Values],
        *,
        chance: float | None = None,
        baselines: Sequence[Baseline] = (),
        note: str = "",
    ) -> Evidence:
        """The share of hits, [trials] each, beside chance, other baselines and every blind adversary's hits."""
        known = [] if chance is None else [Baseline(name="chance", value=chance)]
        known += baselines
        known += [
            Baseline(name=name, value=float(h.mean()), interval=self._bound(h)) for name, h in blind.items()
        ]
        return self.state(measure, float(hits.mean()), len(hits), self._bound(hits), known, note)

    def judge_values(
        self,
        measure: str,
        values: Values,
        blind: Mapping[str, Values],
        rng: np.random.Generator,
        *,
        bounds: stats.Interval | None = None,
        is_blind_bounded: bool = False,
        note: str = "",
    ) -> Evidence:
        """The mean of values, [trials] each; `is_blind_bounded`: baselines have intervals too."""

        def bound(x: Values) -> stats.Interval | None:
            return stats.mean_interval(x, rng, alpha=self.alpha, bounds=bounds)

        interval = bound(values)
        baselines = [
            Baseline(name=name, value=float(v.mean()), interval=bound(v) if is_blind_bounded else None)
            for name, v in blind.items()
        ]
        return self.state(measure, float(values.mean()), len(values), interval, baselines, note)

    def judge_firsts(self, firsts: Sequence[First], blind: Sequence[First], blind_name: str) -> list[Evidence]:
        """The share of messages for which any member scores highest; nothing without messages."""
        if not firsts:
            return []
        wrong = {blind_name: np.array([f.hit for f in blind])} if blind else {}
        return [
            replace(self, note="").judge_hits(
                MEMBER_FIRST,
                np.array([f.hit for f in firsts]),
                wrong,
                chance=float(np.mean([f.chance for f in firsts])),
                note="messages for which one of the members is ahead of as many non-members",
            )
        ]

    def judge_leaning(self, leaning: Values, rng: np.random.Generator) -> Evidence:
        """How much more often a member is first than for the members' own mean, message by message, [trials]."""
        none = [Baseline(name=OWN_MEAN, value=0.0)]
        interval = stats.mean_interval(leaning, rng, alpha=self.alpha, bounds=(-1, 1))
        note = "messages for which a member is ahead of as many non-members, less those for which the mean's is"
        return self.state(LEANING, float(leaning.mean()), len(leaning), interval, none, note)

    def _bound(self, hits: Values) -> stats.Interval:
        return stats.clopper_pearson(float(hits.sum()), len(hits), self.alpha)


def judge_share(
    measure: str,
    hits: float,
    trials: int,
    blind: Sequence[Baseline],
    *,
    control: Control = "none",
    looks: int = 1,
    condition: Condition | None = None,
    note: str = "",
) -> Evidence:
    """Of so many independent answers so many are right, beside blind adversaries."""
    judge = Judge(looks=looks, control=control, condition=condition or {}, note=note)
    return judge.state(measure, hits / trials, trials, stats.clopper_pearson(hits, trials, judge.alpha), blind)


def judge_present(
    results: Sequence[Present],
    note: str,
    *,
    control: Control = "none",
    looks: int = 1,
    condition: Condition | None = None,
) -> Evidence:
    """The share of messages in which a member stands, beside that in which an image of nobody's does."""
    blind = Baseline(name="an image of nobody's", value=float(np.mean([r.stranger for r in results])))
    hits = sum(r.member for r in results)
    return judge_share(
        PRESENT, hits, len(results), [blind], control=control, looks=looks, condition=condition, note=note
    )
