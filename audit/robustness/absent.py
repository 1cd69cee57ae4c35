"""Subjects of absence: what each method loses where clients do not answer, and where a class's holders leave.

The lower end of Student's interval over seeds is graded; one seed has none, and nothing of it is graded.
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
        return _lower("absence_drop", self.worst.drop)

    @property
    def unsettled(self) -> Verdict | None:
        return _open(self.worst.drop)

    def words(self, verdict: Verdict) -> Mapping[str, Any]:
        worst = self.worst
        lost = any(_surely(b.drop) for b in self.places)
        loses = "loses accuracy" if lost else "not shown to lose accuracy"
        beside = " ".join(compared(b) for b in self.places if b.over_fedavg)
        return {
            "id": f"absence-{self.method}-{self.axis}",
            "title": f"{self.method}: {loses} where clients are absent{_how_much(verdict, lost)}",
            "source": "robustness",
            "method": f"Absence, {AXES[self.axis]}",
            "summary": f"With {_place(worst)} accuracy is {fmt.percent(worst.accuracy)}, "
            f"{_points(worst.drop)} points less than with everybody there "
            f"({fmt.plural(worst.drop.seeds, 'seed')}). {beside}".strip(),
            "does_not_show": LIMIT,
            "remedy": "Ask more clients a round, train longer, or choose the method that keeps most here.",
        }


@dataclass(frozen=True)
class Forgetting(Subject):
    """The only holders of a class leave and return."""

    found_return: Return

    @property
    def found(self) -> Sequence[Fact]:
        return _lower("class_lost", self.found_return.drop)

    @property
    def unsettled(self) -> Verdict | None:
        return _open(self.found_return.drop)

    def words(self, verdict: Verdict) -> Mapping[str, Any]:
        r = self.found_return
        forgotten = _surely(r.drop)
        forgets = "forgets" if forgotten else "not shown to forget"
        return {
            "id": f"absence-{r.method}-leaving",
            "title": f"{r.method}: {forgets} class {r.label} when its only holders leave"
            + _how_much(verdict, forgotten),
            "source": "robustness",
            "method": "Absence, holders of a class leave and return",
            "summary": f"The holders of {r.label} ({', '.join(str(len(h)) for h in r.holders)} clients) "
            f"are away from round {r.leave} to {r.back - 1}. Of its images {_points(r.drop)} points fewer are "
            f"recognised then. Rounds until a tenth is left: {counted(r.lost)}; after the return until "
            f"nine tenths are there again: {counted(r.regained)} ({fmt.plural(len(r.lost), 'seed')}).",
            "does_not_show": LIMIT,
            "remedy": "Keep what such clients sent (prototypes, an older model) while they are away, or "
            "release no model while a class has no holder.",
        }


def subjects(absence: Absence) -> list[Subject]:
    """One a method and axis, then one a method whose holders left."""
    pairs = dict.fromkeys((b.method, b.axis) for b in absence.beside)
    return [
        *(
            Resilience(method, axis, [b for b in absence.beside if (b.method, b.axis) == (method, axis)])
            for method, axis in pairs
        ),
        *map(Forgetting, absence.returns),
    ]


def compared(b: Beside) -> str:
    """How a method compares with fedavg at one place, as a sentence."""
    assert b.over_fedavg is not None
    low, high = b.over_fedavg.interval or (-1.0, 1.0)
    verdict = "more than" if low > 0 else "less than" if high < 0 else "not to be told from"
    return f"With {_place(b)} it keeps {_points(b.over_fedavg)} points beside fedavg: {verdict} it."


def counted(rounds: Sequence[int | None]) -> str:
    return ", ".join("never" if n is None else str(n) for n in rounds)


def _place(b: Beside) -> str:
    return {
        "answering": f"p = {b.x:g}",
        "persistence": f"s = {b.x:g}",
        "lost": f"{100 * b.x:g} % of replies lost",
    }[b.axis]


def _surely(d: Difference) -> bool:
    return d.interval is not None and d.interval[0] > 0


def _how_much(verdict: Verdict, lost: bool) -> str:
    """For a title: something is lost for sure, and the policy's verdict is not about that."""
    if not lost or verdict.outcome is Outcome.DEMONSTRATED:
        return ""
    return ", how much is open" if verdict.outcome is Outcome.INCONCLUSIVE else ", less than the policy grades"


def _lower(measure: str, d: Difference) -> list[Fact]:
    return [Fact(measure=measure, value=d.interval[0])] if d.interval else []


def _open(d: Difference) -> Verdict | None:
    """Inconclusive where the seeds leave open whether anything, or much, is lost."""
    if d.interval is None:
        return Verdict(outcome=Outcome.INCONCLUSIVE, reason="One seed has no interval over seeds: run three.")
    low, high = d.interval
    if low >= LITTLE or high < LITTLE:
        return None
    reason = f"The seeds disagree: the loss may be anything from {100 * low:.1f} to {100 * high:.1f} points."
    return Verdict(outcome=Outcome.INCONCLUSIVE, reason=reason)


def _points(d: Difference) -> str:
    return fmt.points(d.value, d.interval)
