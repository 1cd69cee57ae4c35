"""Findings about client dropout: what a method loses where clients are absent, and whether it forgets a class.

Rated is the lower end of Student's interval over seeds; one seed has none, and nothing of it is rated.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedaudit.audit.robustness.rule_questions import LostAnswers, bound_absence
from fedaudit.audit.verdict.subject import Subject
from fedaudit.reports import format as fmt
from fedaudit.reports.absence import AXES, Absence, Beside, Difference, Return
from fedaudit.reports.questions import State
from fedaudit.reports.result import Severity

LIMIT = "What other rounds, data or patterns of absence would cost: clients here are absent whatever they hold."


@dataclass(frozen=True)
class _Absent(Subject):
    """What is lost where clients are absent; a share `tolerable` of the answers may be."""

    tolerable: float

    @property
    @abstractmethod
    def lost(self) -> LostAnswers:
        """At least, and at most."""

    @property
    @abstractmethod
    def drops(self) -> Sequence[Difference]:
        """As the seeds have it, the largest first."""

    @property
    def severity(self) -> Severity:
        return self.lost.rate(self.tolerable)

    @property
    def reason(self) -> str:
        if self.lost.judge(self.tolerable) is not State.OPEN:
            return self.lost.explain(self.tolerable)
        if (ends := self.drops[0].interval) is None:
            return "One seed has no interval over seeds: run three."
        low, high = ends
        return f"The seeds disagree: the loss may be anything from {100 * low:.1f} to {100 * high:.1f} points."


@dataclass(frozen=True)
class Resilience(_Absent):
    """One method along one axis, at the place where it loses most."""

    method: str
    axis: str
    places: Sequence[Beside]

    @property
    def worst(self) -> Beside:
        return max(self.places, key=lambda b: b.drop.value)

    @property
    def drops(self) -> Sequence[Difference]:
        return sorted((b.drop for b in self.places), key=lambda d: d.value, reverse=True)

    @property
    def lost(self) -> LostAnswers:
        return bound_absence(self.drops)

    def words(self) -> Mapping[str, Any]:
        worst = self.worst
        does = "make the model wrong"
        does = f"were not seen to {does}" if self.severity is Severity.NONE else does
        beside = " ".join(_describe_comparison(b) for b in self.places if b.over_fedavg)
        return {
            "id": f"absence-{self.method}-{self.axis}",
            "title": f"{self.method}: clients that do not answer {does}",
            "source": "robustness",
            "method": f"Absence, {AXES[self.axis]}",
            "summary": f"With {_describe_axis(worst)} accuracy is {fmt.percent(worst.accuracy)}, "
            f"{_say_lost(worst.drop)} than with everybody there "
            f"({fmt.plural(worst.drop.seeds, 'seed')}). {beside}".strip(),
            "does_not_show": LIMIT,
            "remedy": "Ask more clients a round, train longer, or choose the method that keeps most here.",
        }


@dataclass(frozen=True)
class Forgetting(_Absent):
    """The only holders of a class leave and return."""

    leaving: Return

    @property
    def drops(self) -> Sequence[Difference]:
        return [self.leaving.drop]

    @property
    def lost(self) -> LostAnswers:
        return bound_absence([], self.drops)

    def words(self) -> Mapping[str, Any]:
        r = self.leaving
        forgets = "was not seen to forget" if self.severity is Severity.NONE else "forgets"
        return {
            "id": f"absence-{r.method}-leaving",
            "title": f"{r.method}: the model {forgets} class {r.label} while its only holders are away",
            "source": "robustness",
            "method": "Absence, holders of a class leave and return",
            "summary": f"The holders of {r.label} ({', '.join(str(len(h)) for h in r.holders)} clients) "
            f"are away from round {r.leave} to {r.back - 1}. Its recall is {_say_lost(r.drop)} then than before. "
            f"Rounds until a tenth is left: {_list_rounds(r.lost)}; after the return until "
            f"nine tenths are there again: {_list_rounds(r.regained)} ({fmt.plural(len(r.lost), 'seed')}).",
            "does_not_show": LIMIT,
            "remedy": "Keep what such clients sent (prototypes, an older model) while they are away, or "
            "release no model while a class has no holder.",
        }


def make_dropout_subjects(absence: Absence, tolerable: float) -> list[Subject]:
    """One a method and axis, then one a method whose holders left."""
    pairs = dict.fromkeys((b.method, b.axis) for b in absence.beside)
    return [
        *(
            Resilience(
                tolerable, method, axis, [b for b in absence.beside if (b.method, b.axis) == (method, axis)]
            )
            for method, axis in pairs
        ),
        *(Forgetting(tolerable, r) for r in absence.returns),
    ]


def _describe_comparison(b: Beside) -> str:
    """How a method compares with fedavg at one place, as a sentence."""
    assert b.over_fedavg is not None
    low, high = b.over_fedavg.interval or (-1.0, 1.0)
    kept = fmt.points_less(-b.over_fedavg.value, b.over_fedavg.interval and (-high, -low))
    left_open = "" if low > 0 or high < 0 else ", and may keep as much"
    return f"With {_describe_axis(b)} it keeps {kept} than fedavg{left_open}."


def _list_rounds(rounds: Sequence[int | None]) -> str:
    return ", ".join("never" if n is None else str(n) for n in rounds)


def _describe_axis(b: Beside) -> str:
    return {
        "answering": f"p = {b.x:g}",
        "persistence": f"s = {b.x:g}",
        "lost": f"{100 * b.x:g} % of replies lost",
    }[b.axis]


def _say_lost(d: Difference) -> str:
    return fmt.points_less(d.value, d.interval)
