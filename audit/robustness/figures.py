"""Figures of a matrix and of client dropout: accuracy by the number of malicious clients, and by who answers."""

import math
from collections import defaultdict
from collections.abc import Sequence

from fedaudit.attacks import stats
from fedaudit.attacks.evidence import Series
from fedaudit.reports.absence import AXES, MEASURES, Absence
from fedaudit.reports.result import Figure
from fedaudit.reports.robustness import MatrixCell, MovedPrototypes, Robustness


def plot_breakdown(matrix: Robustness) -> list[Figure]:
    """One figure a setting, one line a rule; with several seeds from the lowest to the highest of them."""
    return [
        Figure(
            id=f"robustness-breakdown-{setting}",
            title=f"{setting}: accuracy under the strongest attack",
            caption="Of the attacks tried, the one that leaves each rule least. At 0 nobody is malicious. "
            + _describe_bands(matrix),
            alt=f"Accuracy of {setting} by rule, falling with the number of malicious clients",
            x_label="malicious clients",
            y_label="accuracy, %",
            series=[
                *(_draw_line(family, cells) for family, cells in _group_families(matrix, setting).items()),
                _draw_chance(matrix, setting),
            ],
        )
        for setting in dict.fromkeys(c.setting for c in matrix.cells)
    ]


def _describe_bands(matrix: Robustness) -> str:
    if matrix.replayed is not None:
        return "One round, replayed."
    return "Bands reach from the lowest seed to the highest." if len(matrix.seeds) > 1 else "One seed."


def plot_moved_prototypes(matrix: Robustness) -> list[Figure]:
    """One figure an attack that forges prototypes: each class from where it was to where it is."""
    return [
        Figure(
            id=f"robustness-prototypes-{i}",
            kind="moves",
            title=moved.title,
            caption="Each arrow is the shared prototype of a class in the last round: from the ring, with nobody "
            "malicious, to the square, with the same seed and the attack. The plane holds "
            f"{100 * moved.kept:.0f} % of the variance of all of them.",
            alt=f"{moved.title}: {len(moved.classes)} arrows, the longest that of {_describe_farthest(moved)}",
            x_label="first principal component",
            y_label="second",
            series=[
                Series(name=name, x=[a[0], b[0]], y=[a[1], b[1]])
                for name, a, b in zip(moved.classes, moved.before, moved.after, strict=True)
            ],
        )
        for i, moved in enumerate(matrix.prototypes)
    ]


def _describe_farthest(moved: MovedPrototypes) -> str:
    far = [math.dist(a, b) for a, b in zip(moved.before, moved.after, strict=True)]
    return moved.classes[far.index(max(far))]


def _group_families(matrix: Robustness, setting: str) -> dict[str, dict[int, MatrixCell]]:
    """Rule -> malicious -> its strongest attack."""
    found: dict[str, dict[int, MatrixCell]] = defaultdict(dict)
    for cell in matrix.cells:
        if cell.setting == setting:
            own = found[cell.family]
            if cell.malicious not in own or cell.accuracy < own[cell.malicious].accuracy:
                own[cell.malicious] = cell
    return found


def _draw_line(family: str, cells: dict[int, MatrixCell]) -> Series:
    first = cells[min(cells)]
    clean, attacked = [b for _, b in first.by_seed], {m: [a for a, _ in cells[m].by_seed] for m in sorted(cells)}
    each = {0: clean, **attacked}
    several = len(clean) > 1
    return Series(
        name=family,
        x=list(map(float, each)),
        y=[100 * sum(v) / len(v) for v in each.values()],
        low=[100 * min(v) for v in each.values()] if several else None,
        high=[100 * max(v) for v in each.values()] if several else None,
    )


def _draw_chance(matrix: Robustness, setting: str) -> Series:
    most = max(c.malicious for c in matrix.cells if c.setting == setting)
    return Series(name="chance", x=[0.0, float(most)], y=[100 * matrix.chance] * 2, blind=True)


def plot_dropout(absence: Absence) -> list[Figure]:
    """One figure an axis and measure, one line a method; and recall over rounds where holders leave."""
    pairs = dict.fromkeys((c.axis, c.measure) for c in absence.curves if len(c.x) > 1)
    figures = [
        Figure(
            id=f"absence-{axis}-{measure}",
            title=f"{MEASURES[measure][:1].upper()}{MEASURES[measure][1:]}",
            caption=f"By {AXES[axis]}."
            + (" Bands are 95 % intervals over seeds." if len(absence.seeds) > 1 else ""),
            alt=f"Line chart: {MEASURES[measure]} of each method, by {AXES[axis]}",
            x_label=AXES[axis],
            y_label="%",
            series=[
                _average_seeds(c.method, c.x, c.values)
                for c in absence.curves
                if (c.axis, c.measure) == (axis, measure)
            ],
        )
        for axis, measure in pairs
    ]
    return figures + ([_plot_recall(absence)] if absence.returns else [])


def _plot_recall(absence: Absence) -> Figure:
    first = absence.returns[0]
    return Figure(
        id="absence-leaving",
        title=f"Recall of class {first.label} while its holders are away",
        caption=f"Its only holders are away from round {first.leave} to {first.back - 1}; mean over seeds.",
        alt=f"Line chart: recall of class {first.label} by round, for each method",
        x_label="round",
        y_label="recall, %",
        series=[
            Series(
                name=r.method,
                x=[float(t) for t in range(len(r.recall[0]))],
                y=[100 * sum(at) / len(at) for at in zip(*r.recall, strict=True)],
            )
            for r in absence.returns
        ],
    )


def _average_seeds(name: str, x: Sequence[float], values: Sequence[Sequence[float]]) -> Series:
    """Means, in percent, with Student's intervals where there are several seeds."""
    ends = [stats.t_interval(v) for v in values] if len(values[0]) > 1 else []
    return Series(
        name=name,
        x=list(x),
        y=[100 * sum(v) / len(v) for v in values],
        low=[100 * max(0.0, low) for low, _ in ends] or None,
        high=[100 * min(1.0, high) for _, high in ends] or None,
    )
