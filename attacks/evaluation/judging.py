"""From the results of trials to Evidence: a value, its interval, and baselines that took part in the same trials.

Proportions have Clopper-Pearson intervals, since Wilson's is too narrow at a chance of 1 %; ties count in part.
Every interval is corrected for the number of comparisons made at once, and allows for who depends on whom:
`groups` names of each trial the client that it is about. Of less than five clients an interval is about these
alone: then the trials are independent, and a note says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks import stats
from fedaudit.attacks.evaluation.ranking import First, Present
from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.attacks.measure import find_measure

Values = NDArray[Any]  # numbers, or whether a trial is a hit
Control = Literal["none", "positive", "negative"]
Condition = Mapping[str, int | float | str]

AllGroups = stats.Groups | Mapping[str, stats.Groups]

THESE = "of other clients than these it says nothing"
# Below, Student's t makes of trials less than half as many, whatever is in them; the audit is about these clients
FEW_CLIENTS = 5
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
        return stats.correct_alpha(1 - self.confidence, self.looks)

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
        row = find_measure(measure)
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
        blind: Mapping[str, Values] | None = None,
        *,
        groups: AllGroups,
        chance: float | None = None,
        baselines: Sequence[Baseline] = (),
        note: str = "",
    ) -> Evidence:
        """The share of hits, [trials] each, beside chance, other baselines and the hits in `blind`.

        `groups` are those of the trials; by name, "" the attack's own, where a baseline was in others.
        """
        own = _pick(groups, "")
        known = [] if chance is None else [Baseline(name="chance", value=chance)]
        known += baselines
        known += [
            Baseline(name=name, value=float(h.mean()), interval=self.bound_share(h, _pick(groups, name)))
            for name, h in (blind or {}).items()
        ]
        note = "; ".join(filter(None, (note, THESE * (group_trials(own) is not own))))
        return self.state(measure, float(hits.mean()), len(hits), self.bound_share(hits, own), known, note)

    def judge_values(
        self,
        measure: str,
        values: Values,
        blind: Mapping[str, Values],
        rng: np.random.Generator,
        *,
        groups: AllGroups,
        bounds: stats.Interval | None = None,
        is_blind_bounded: bool = False,
        note: str = "",
    ) -> Evidence:
        """The mean of values, [trials] each; `is_blind_bounded`: baselines have intervals too."""

        def bound(x: Values, name: str = "") -> stats.Interval | None:
            return self.bound_mean(x, rng, groups=_pick(groups, name), bounds=bounds)

        own = _pick(groups, "")
        note = "; ".join(filter(None, (note, THESE * (group_trials(own) is not own))))
        interval = bound(values)
        baselines = [
            Baseline(name=name, value=float(v.mean()), interval=bound(v, name) if is_blind_bounded else None)
            for name, v in blind.items()
        ]
        return self.state(measure, float(values.mean()), len(values), interval, baselines, note)

    def judge_firsts(
        self, firsts: Sequence[First], blind: Sequence[First], blind_name: str, *, groups: AllGroups
    ) -> list[Evidence]:
        """The share of messages for which any member scores highest; nothing without messages."""
        if not firsts:
            return []
        wrong = {blind_name: np.array([f.hit for f in blind])} if blind else {}
        return [
            replace(self, note="").judge_hits(
                MEMBER_FIRST,
                np.array([f.hit for f in firsts]),
                wrong,
                groups=groups,
                chance=float(np.mean([f.chance for f in firsts])),
                note="messages for which one of the members is ahead of as many non-members",
            )
        ]

    def judge_present(self, results: Sequence[Present], *, groups: stats.Groups) -> Evidence:
        """The share of messages in which a member stands, beside that in which an image of nobody's does."""
        blind = Baseline(name="an image of nobody's", value=float(np.mean([r.stranger for r in results])))
        hits = np.array([r.member for r in results], np.float64)
        return self.judge_hits(PRESENT, hits, groups=groups, baselines=[blind])

    def judge_leaning(self, leaning: Values, rng: np.random.Generator, *, groups: stats.Groups) -> Evidence:
        """How much more often a member is first than for the members' own mean, message by message, [trials]."""
        none = [Baseline(name=OWN_MEAN, value=0.0)]
        interval = self.bound_mean(leaning, rng, groups=groups, bounds=(-1, 1))
        note = "messages for which a member is ahead of as many non-members, less those for which the mean's is"
        return self.state(LEANING, float(leaning.mean()), len(leaning), interval, none, note)

    def bound_share(self, hits: Values, groups: stats.Groups) -> stats.Interval:
        return stats.bound_share(hits, group_trials(groups), self.alpha)

    def bound_mean(
        self,
        values: Values,
        rng: np.random.Generator,
        *,
        groups: stats.Groups,
        bounds: stats.Interval | None = None,
    ) -> stats.Interval | None:
        return stats.mean_interval(values, rng, groups=group_trials(groups), alpha=self.alpha, bounds=bounds)


def group_trials(groups: stats.Groups) -> stats.Groups:
    """The groups; INDEPENDENT where they are less than five, of which an interval is about these alone."""
    if isinstance(groups, stats.Grouping) or len(np.unique(np.asarray(groups))) >= FEW_CLIENTS:
        return groups
    return stats.INDEPENDENT


def _pick(groups: AllGroups, name: str) -> stats.Groups:
    """Of the attack's own trials, or of those of a baseline."""
    return groups.get(name, groups[""]) if isinstance(groups, Mapping) else groups
