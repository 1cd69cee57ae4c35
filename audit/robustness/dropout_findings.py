"""Findings about client dropout: what a method loses where clients are absent, and whether it forgets a class.

Rated is the lower end of Student's interval over seeds; one seed has none, and nothing of it is rated.
"""

from collections.abc import Sequence

from fedaudit.audit.robustness.rule_questions import LostAnswers, bound_absence
from fedaudit.reports import format as fmt
from fedaudit.reports.absence import AXES, Absence, Beside, Difference, Return
from fedaudit.reports.questions import State
from fedaudit.reports.result import Finding, Severity

LIMIT = "What other rounds, data or patterns of absence would cost: clients here are absent whatever they hold."


def list_dropout_findings(absence: Absence, tolerable: float) -> list[Finding]:
    """One a method and axis, then one a method whose holders left; a share `tolerable` of answers may be lost."""
    pairs = dict.fromkeys((b.method, b.axis) for b in absence.beside)
    along = [[b for b in absence.beside if (b.method, b.axis) == pair] for pair in pairs]
    return [
        *(_describe_resilience(places, tolerable) for places in along),
        *(_describe_forgetting(r, tolerable) for r in absence.returns),
    ]


def _describe_resilience(places: Sequence[Beside], tolerable: float) -> Finding:
    """One method along one axis, at the place where it loses most."""
    worst = max(places, key=lambda b: b.drop.value)
    drops = sorted((b.drop for b in places), key=lambda d: d.value, reverse=True)
    severity, reason = _rate(bound_absence(drops), drops, tolerable)
    does = "were not seen to make the model wrong" if severity is Severity.NONE else "make the model wrong"
    beside = " ".join(_describe_comparison(b) for b in places if b.over_fedavg)
    summary = (
        f"With {_describe_axis(worst)} accuracy is {fmt.percent(worst.accuracy)}, {_say_lost(worst.drop)} than "
        f"with everybody there ({fmt.plural(worst.drop.seeds, 'seed')}). {beside}"
    )
    return Finding(
        id=f"absence-{worst.method}-{worst.axis}",
        title=f"{worst.method}: clients that do not answer {does}",
        source="robustness",
        method=f"Absence, {AXES[worst.axis]}",
        severity=severity,
        reason=reason,
        summary=summary.strip(),
        does_not_show=LIMIT,
        remedy="Ask more clients a round, train longer, or choose the method that keeps most here.",
    )


def _describe_forgetting(r: Return, tolerable: float) -> Finding:
    """The only holders of a class leave and return."""
    severity, reason = _rate(bound_absence([], [r.drop]), [r.drop], tolerable)
    forgets = "was not seen to forget" if severity is Severity.NONE else "forgets"
    return Finding(
        id=f"absence-{r.method}-leaving",
        title=f"{r.method}: the model {forgets} class {r.label} while its only holders are away",
        source="robustness",
        method="Absence, holders of a class leave and return",
        severity=severity,
        reason=reason,
        summary=f"The holders of {r.label} ({', '.join(str(len(h)) for h in r.holders)} clients) "
        f"are away from round {r.leave} to {r.back - 1}. Its recall is {_say_lost(r.drop)} then than before. "
        f"Rounds until a tenth is left: {_list_rounds(r.lost)}; after the return until "
        f"nine tenths are there again: {_list_rounds(r.regained)} ({fmt.plural(len(r.lost), 'seed')}).",
        does_not_show=LIMIT,
        remedy="Keep what such clients sent (prototypes, an older model) while they are away, or "
        "release no model while a class has no holder.",
    )


def _rate(lost: LostAnswers, drops: Sequence[Difference], tolerable: float) -> tuple[Severity, str]:
    """How bad it is and why; `drops`: as the seeds have it, the largest first."""
    severity = lost.rate(tolerable)
    if lost.judge(tolerable) is not State.OPEN:
        return severity, lost.explain(tolerable)
    if (ends := drops[0].interval) is None:
        return severity, "One seed has no interval over seeds: run three."
    low, high = ends
    return (
        severity,
        f"The seeds disagree: the loss may be anything from {100 * low:.1f} to {100 * high:.1f} points.",
    )


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
    return {"answering": f"p = {b.x:g}", "persistence": f"s = {b.x:g}"}[b.axis]


def _say_lost(d: Difference) -> str:
    return fmt.points_less(d.value, d.interval)
