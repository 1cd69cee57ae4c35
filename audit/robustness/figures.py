"""Figures of a matrix: accuracy under each rule's strongest attack, over the number of malicious clients."""

from collections import defaultdict

from attacks.evidence import Series
from reports.result import Figure
from reports.robustness import MatrixCell, Robustness


def breakdown_curves(matrix: Robustness) -> list[Figure]:
    """One figure a setting, one line a rule; with several seeds from the lowest to the highest of them."""
    return [
        Figure(
            id=f"robustness-breakdown-{setting}",
            title=f"{setting}: accuracy under the strongest attack",
            caption="Of the attacks tried, the one that leaves each rule least. At 0 nobody is malicious. "
            + ("Bands reach from the lowest seed to the highest." if len(matrix.seeds) > 1 else "One seed."),
            alt=f"Accuracy of {setting} by rule, falling with the number of malicious clients",
            x_label="malicious clients",
            y_label="accuracy, %",
            series=[
                *(_line(family, cells) for family, cells in _families(matrix, setting).items()),
                _chance(matrix, setting),
            ],
        )
        for setting in dict.fromkeys(c.setting for c in matrix.cells)
    ]


def _families(matrix: Robustness, setting: str) -> dict[str, dict[int, MatrixCell]]:
    """Rule -> malicious -> its strongest attack."""
    found: dict[str, dict[int, MatrixCell]] = defaultdict(dict)
    for cell in matrix.cells:
        if cell.setting == setting:
            own = found[cell.family]
            if cell.malicious not in own or cell.accuracy < own[cell.malicious].accuracy:
                own[cell.malicious] = cell
    return found


def _line(family: str, cells: dict[int, MatrixCell]) -> Series:
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


def _chance(matrix: Robustness, setting: str) -> Series:
    most = max(c.malicious for c in matrix.cells if c.setting == setting)
    return Series(name="chance", x=[0.0, float(most)], y=[100 * matrix.chance] * 2, blind=True)
