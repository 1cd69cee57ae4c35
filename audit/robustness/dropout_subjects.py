"""Findings about client dropout: what a method loses where clients are absent, and whether it forgets a class.

Graded is the lower end of Student's interval over seeds; one seed has none, and nothing of it is graded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedaudit.audit.verdict.judge import Fact, Subject, Verdict
from fedaudit.reports import format as fmt
from fedaudit.reports.absence import AXES, Absence, Beside, Difference, Return
from fedaudit.reports.result import Outcome

LITTLE = 0.05  # a loss surely below this is called none; the policy grades what is surely above
LIMIT = "What other rounds, data or patterns of absence would cost: clients here are absent whatever they hold."


@dataclass(frozen=True)
class Resilience(Subject):
    """One method along one axis, at the place where it loses most."""

    method: str
    axis: str
    places: Sequence[Beside]

    @property
    def worst(self) -> Beside:
        return max(self.places, key=lambda b: b.drop.value)

    @property
    def found(self) -> Sequence[Fact]:
        return _take_lower_end("absence_drop", self.worst.drop)

    @property
    def not_gradable(self) -> Verdict | None:
        return _explain_open(self.worst.drop)

    def words(self, verdict: Verdict) -> Mapping[str, Any]:
        worst = self.worst
        lost = any(_is_loss(b.drop) for b in self.places)
        loses = "loses accuracy" if lost else "not shown to lose accuracy"
        beside = " ".join(_describe_comparison(b) for b in self.places if b.over_fedavg)
        return {
            "id": f"absence-{self.method}-{self.axis}",
            "title": f"{self.method}: {loses} where clients are absent{_name_outcome(verdict, lost)}",
            "source": "robustness",
            "method": f"Absence, {AXES[self.axis]}",
            "summary": f"With {_describe_axis(worst)} accuracy is {fmt.percent(worst.accuracy)}, "
            f"{_say_lost(worst.drop)} than with everybody there "
            f"({fmt.plural(worst.drop.seeds, 'seed')}). {beside}".strip(),
            "does_not_show": LIMIT,
            "remedy": "Ask more clients a round, train longer, or choose the method that keeps most here.",
        }


@dataclass(frozen=True)
class Forgetting(Subject):
    """The only holders of a class leave and return."""

    leaving: Return

    @property
    def found(self) -> Sequence[Fact]:
        return _take_lower_end("class_lost", self.leaving.drop)

    @property
    def not_gradable(self) -> Verdict | None:
        return _explain_open(self.leaving.drop)

    def words(self, verdict: Verdict) -> Mapping[str, Any]:
        r = self.leaving
        forgotten = _is_loss(r.drop)
        forgets = "forgets" if forgotten else "not shown to forget"
        return {
            "id": f"absence-{r.method}-leaving",
            "title": f"{r.method}: {forgets} class {r.label} when its only holders leave"
            + _name_outcome(verdict, forgotten),
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


def make_dropout_subjects(absence: Absence) -> list[Subject]:
    """One a method and axis, then one a method whose holders left."""
    pairs = dict.fromkeys((b.method, b.axis) for b in absence.beside)
    return [
        *(
            Resilience(method, axis, [b for b in absence.beside if (b.method, b.axis) == (method, axis)])
            for method, axis in pairs
        ),
        *map(Forgetting, absence.returns),
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


def _is_loss(d: Difference) -> bool:
    return d.interval is not None and d.interval[0] > 0


def _name_outcome(verdict: Verdict, lost: bool) -> str:
    """For a title: something is lost for sure, and the policy's verdict is not about that."""
    if not lost or verdict.outcome is Outcome.DEMONSTRATED:
        return ""
    return ", how much is open" if verdict.outcome is Outcome.INCONCLUSIVE else ", less than the policy grades"


def _take_lower_end(measure: str, d: Difference) -> list[Fact]:
    return [Fact(measure=measure, value=d.interval[0])] if d.interval else []


def _explain_open(d: Difference) -> Verdict | None:
    """Inconclusive where the seeds leave open whether anything, or much, is lost."""
    if d.interval is None:
        return Verdict(outcome=Outcome.INCONCLUSIVE, reason="One seed has no interval over seeds: run three.")
    low, high = d.interval
    if low >= LITTLE or high < LITTLE:
        return None
    reason = f"The seeds disagree: the loss may be anything from {100 * low:.1f} to {100 * high:.1f} points."
    return Verdict(outcome=Outcome.INCONCLUSIVE, reason=reason)


def _say_lost(d: Difference) -> str:
    return fmt.points_less(d.value, d.interval)
