"""Changes: what an option's attacks measured, beside the audited run's, and what its run took.

Per attack one or two measures, where the run leaks most: at the smallest n that was replayed, and at the smallest
that was recorded; of what has no n, at the place that was graded. Differences have MOVER intervals (Zou, Donner.
Stat. Med. 27, 2008, eq. 2) of two independent estimates; runs share seed and data, so these are rather too wide.
"""

import math
from collections.abc import Mapping, Sequence

from fedaudit.attacks.evidence import Evidence, is_replay
from fedaudit.attacks.measure import find_measure
from fedaudit.attacks.measure import telling as most_telling
from fedaudit.audit.verdict.clock import BY_TIME
from fedaudit.reports import format as fmt
from fedaudit.reports.result import Alternative, AuditResult, Finding, Outcome, Trade

Interval = tuple[float, float]
TAKEN = (
    "bytes_up",
    "bytes_down",
    "simulated_time",
    "round_length_mean",
    "round_length_std",
    "jain_index",
    "slow_devices_heard",
)


def summarise_cost(rows: Sequence[Alternative], results: Sequence[AuditResult | None]) -> None:
    """What each run took, with the simulated time until it was as good as all of them were at their best."""
    ended = [(row, result) for row, result in zip(rows, results, strict=True) if result is not None]
    level = min((r.summary_metrics.get("accuracy_best", 0.0) for _, r in ended), default=0.0)
    for row, result in ended:
        row.measures = {k: v for k, v in result.summary_metrics.items() if k in TAKEN}
        curve = next((f.series[0] for f in result.figures if f.id == BY_TIME), None)
        if curve is not None and level:
            good = [x for x, y in zip(curve.x, curve.y, strict=True) if y >= 100 * level]
            row.measures |= {"level": level} | ({"time_to_level": good[0]} if good else {})


def describe_changes(finding: Finding, rows: Sequence[Alternative]) -> str:
    """What each option did to a finding, as sentences; empty where none was tried on it."""
    sentences = []
    for row in rows[1:]:
        for trade in (t for t in row.trades if t.finding == finding.id):
            before = next((t for t in rows[0].trades if _is_same(t, trade)), None)
            if before is None or before.value is None:
                continue
            after = trade.why if trade.value is None else fmt.quantity(trade.value, trade.unit)
            cost = ""
            if rows[0].accuracy is not None and row.accuracy is not None:
                cost = f", accuracy {fmt.percent(rows[0].accuracy)} → {fmt.percent(row.accuracy)}"
            sentences.append(
                f"With {row.name}: {find_measure(trade.measure).words}"
                f"{f' ({trade.place})' if trade.place else ''} "
                f"{fmt.quantity(before.value, before.unit)} → {after}{cost}."
            )
            break  # the most telling measure is enough here; the table has the rest
    return " ".join(sentences)


def difference(new: float, new_interval: Interval, old: float, old_interval: Interval) -> Interval:
    """MOVER interval of new - old, each with an interval of its own, taken as independent."""
    gap = new - old
    below = math.hypot(new - new_interval[0], old_interval[1] - old)
    above = math.hypot(new_interval[1] - new, old - old_interval[0])
    return gap - below, gap + above


def measure_changes(main: AuditResult, result: AuditResult) -> list[Trade]:
    """The most telling measures of the audited run's attacks, with a result's own values.

    Of the audited run itself there are no changes.
    """
    here = {f.id: f for f in _attacks(result)}
    changes = []
    for finding in _attacks(main):
        for e in choose_telling(finding.evidence, finding.where):
            if result is main:
                changes.append(_make_trade(finding.id, e, e))
            elif finding.id in here:
                changes.append(_compare(here[finding.id], e))
    return changes


def describe_settings(main: Mapping[str, str], own: Mapping[str, str]) -> list[str]:
    """Settings of the method in words; of a group of settings, those that differ."""
    changed = []
    for name, value in own.items():
        parts, before = value.split(", "), main.get(name, "").split(", ")
        if parts != before:
            changed.append(f"{name}: {', '.join(p for p in parts if p not in before) or value}")
    return changed


def choose_telling(evidence: Sequence[Evidence], graded: str = "") -> list[Evidence]:
    """The evidence to compare: two measures at most, at each origin's smallest n or at the place `graded`."""
    real = [e for e in evidence if _is_measured(e)]
    found = []
    for measure in most_telling((e.measure for e in real), 2):
        for origin in dict.fromkeys(_origin(e) for e in real if e.measure == measure):
            found.append(_smallest(real, measure, origin, graded))
    return [e for e in found if e is not None]


def _is_measured(e: Evidence) -> bool:
    """Whether clients sent it, or would; what an attack planted by itself shows no leak."""
    return e.control == "none" or (e.control == "positive" and is_replay(_origin(e)))


def _smallest(evidence: Sequence[Evidence], measure: str, origin: str, graded: str = "") -> Evidence | None:
    fits = [e for e in evidence if (e.measure, _origin(e)) == (measure, origin) and _is_measured(e)]
    return min(fits, key=lambda e: (float(e.condition.get("n", 0)), e.place != graded), default=None)


def _compare(finding: Finding, old: Evidence) -> Trade:
    """The variant's own number for what `old` measured: at the same place, but of recorded n at its smallest."""
    is_recorded = "n" in old.condition and _origin(old) != "replayed"
    among = finding.evidence if is_recorded else [e for e in finding.evidence if e.condition == old.condition]
    new = _smallest(among, old.measure, _origin(old))
    if new is not None:
        return _make_trade(finding.id, old, new)
    why = "withheld"
    if finding.outcome in (Outcome.NOT_APPLICABLE, Outcome.FAILED):
        why = "not readable" if finding.outcome is Outcome.NOT_APPLICABLE else "failed"
    return Trade(finding=finding.id, measure=old.measure, place=_place(old), unit=old.unit, value=None, why=why)


def _make_trade(finding: str, old: Evidence, new: Evidence) -> Trade:
    trade = Trade(
        finding=finding,
        measure=old.measure,
        place=_place(old),
        unit=old.unit,
        value=new.value,
        interval=new.interval,
    )
    if new is not old:
        trade.change = new.value - old.value
        if new.interval and old.interval:
            trade.change_interval = difference(new.value, new.interval, old.value, old.interval)
    return trade


def _origin(e: Evidence) -> str:
    return str(e.condition.get("origin", "recorded"))


def _place(e: Evidence) -> str:
    if "n" not in e.condition:
        return e.place
    if _origin(e) == "replayed":
        return f"replayed, n = {fmt.number(float(e.condition['n']))}"
    return "recorded, smallest n"


def _is_same(a: Trade, b: Trade) -> bool:
    return (a.finding, a.measure, a.place) == (b.finding, b.measure, b.place)


def _attacks(result: AuditResult) -> list[Finding]:
    return [f for f in result.findings if f.source == "attack"]
