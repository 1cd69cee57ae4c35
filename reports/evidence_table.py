"""Evidence as tables: a compact one where a measure was taken at many n, a full one otherwise.

Where measures form a curve, the report prints the telling ones, each with its strongest
baseline, one row an n; every measurement with every baseline stays in audit.json.
"""

from collections import Counter
from collections.abc import Sequence

from fedaudit.attacks import measure
from fedaudit.attacks.evidence import WHOLE, Evidence
from fedaudit.attacks.measure import find_measure
from fedaudit.reports import format as fmt
from fedaudit.reports.section import Table

COLUMNS = 3  # measures whose controls and notes are shown
ACROSS = 2  # measures that become columns


def telling(evidence: Sequence[Evidence]) -> list[Evidence]:
    """The evidence of the most telling measures only."""
    chosen = measure.telling((e.measure for e in evidence), COLUMNS)
    return [e for e in evidence if e.measure in chosen]


def on_curve(e: Evidence) -> bool:
    """Whether it is a point of a curve over n, planted leaks included."""
    return "n" in e.condition and e.control != "negative"


def over_samples(evidence: Sequence[Evidence]) -> Table | None:
    """One row a condition, one column a telling measure; None where no curve was measured."""
    evidence = [e for e in evidence if on_curve(e) and e.condition.get("origin") != WHOLE]
    if not any(find_measure(e.measure).curve for e in evidence):
        return None
    columns = measure.telling((e.measure for e in evidence), ACROSS)
    rows: dict[tuple[float, str], dict[str, Evidence]] = {}
    for e in evidence:
        if e.measure in columns:
            origin = str(e.condition.get("origin", "recorded"))
            if e.control == "positive":
                origin += ", control"
            rows.setdefault((float(e.condition["n"]), origin), {})[e.measure] = e
    if len(rows) < 2:
        return None
    levels = {fmt.rate(e.confidence) for e in evidence if e.interval}
    level = f"{levels.pop()} interval" if len(levels) == 1 else "interval"
    return Table(
        header=["Samples", "Messages", *(fmt.sentence_case(find_measure(m).words) for m in columns), "Trials"],
        rows=[
            [f"{n:g}", origin, *(_cell(found.get(m)) for m in columns), _trials(found)]
            for (n, origin), found in sorted(rows.items())
        ],
        align="rl" + "l" * len(columns) + "r",
        widths=[1, 1.3, *([3.6] * len(columns)), 1.0],
        caption=f"By number of samples behind the message: value ({level}, corrected for the number of "
        "comparisons) and the strongest baseline. Controls are messages that no client of this federation sent. "
        "Every measurement with every baseline is in audit.json.",
    )


def _cell(e: Evidence | None) -> str:
    if e is None:
        return "not measured"
    text = fmt.estimate(e.value, e.interval, e.unit)
    if not e.baselines:
        return text
    pick = max if e.higher_is_worse else min
    strongest = pick(e.baselines, key=lambda b: b.value)
    return f"{text}; baseline {fmt.quantity(strongest.value, e.unit)}"


def _trials(found: dict[str, Evidence]) -> str:
    counts = sorted({e.trials for e in found.values()})
    return f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"


def tabulate_each(evidence: Sequence[Evidence], caption: str) -> Table:
    """One row a measurement, with every baseline."""
    levels = {e.confidence for e in evidence if e.interval}
    one_level = levels.pop() if len(levels) == 1 else None
    controls = any(e.control != "none" for e in evidence)
    rows = []
    for e in evidence:
        bounds = fmt.interval(e.interval, e.unit)
        if e.interval and one_level is None:
            bounds += f" ({fmt.rate(e.confidence)})"
        name = find_measure(e.measure).words
        if where := e.place:
            name += f" ({where})"
        if not e.higher_is_worse:
            name += "; lower is worse"
        row = [
            name,
            fmt.quantity(e.value, e.unit),
            bounds,
            "; ".join(f"{b.name} {fmt.estimate(b.value, b.interval, e.unit)}" for b in e.baselines) or "none",
            f"{e.trials:,}",
            f"{e.looks:,}",
        ]
        rows.append([e.control, *row] if controls else row)
    level = f"{fmt.rate(one_level)} interval" if one_level else "Interval"
    header = ["Measure", "Value", level, "Baselines", "Trials", "Comparisons"]
    widths = [2.4, 1.1, 1.7, 3.3, 0.85, 1.4]
    return Table(
        header=["Control", *header] if controls else header,
        rows=rows,
        align="llrrlrr" if controls else "lrrlrr",
        widths=[1.2, *widths] if controls else widths,
        caption=f"{caption}. Intervals are corrected for the number of comparisons.",
    )


def notes(evidence: Sequence[Evidence]) -> list[str]:
    """What has to be said of the telling measures, each remark once.

    Remarks on a single point of a curve stay in audit.json.
    """
    said: dict[str, list[str]] = {}
    remarks = Counter(e.note for e in telling(evidence))
    for e in telling(evidence):
        if e.note and ("n" not in e.condition or remarks[e.note] > 1):
            name = find_measure(e.measure).words
            if name not in said.setdefault(e.note, []):
                said[e.note].append(name)
    return [f"{fmt.sentence_case(', '.join(names))}: {note}" for note, names in said.items()]
