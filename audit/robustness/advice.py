"""Advice: where each rule breaks, and which kept most under its strongest attack, from cells that ran."""

from collections import defaultdict
from collections.abc import Sequence

from fedaudit.reports.robustness import Breakdown, MatrixCell, Robustness

KEPT = 0.9  # of the clean accuracy; below that a rule counts as broken


def advice(matrix: Robustness) -> list[str]:
    """One sentence a setting and number of malicious clients, where a rule did better than the mean."""
    worst: dict[tuple[str, int], dict[str, MatrixCell]] = defaultdict(dict)
    for cell in matrix.cells:
        rules = worst[cell.setting, cell.malicious]
        if cell.rule not in rules or cell.accuracy < rules[cell.rule].accuracy:
            rules[cell.rule] = cell
    said = []
    for (setting, malicious), rules in worst.items():
        if "mean" not in rules:
            continue
        mean, best = rules["mean"], max(rules.values(), key=lambda c: c.accuracy)
        if best.accuracy <= mean.accuracy:
            continue
        who = f"{malicious} of {matrix.clients} clients malicious"
        cost = next((c.evidence for c in matrix.costs if (c.setting, c.rule) == (setting, best.rule)), [])
        price = f"; with nobody malicious it costs {100 * cost[0].value:.1f} points" if cost else ""
        said.append(
            f"{setting}, {who}: `{best.rule}` kept {100 * best.accuracy:.1f} % under its strongest attack here "
            f"({best.title}), the mean {100 * mean.accuracy:.1f} % ({mean.title}){price}."
        )
    return said


def breakdown(cells: Sequence[MatrixCell]) -> list[Breakdown]:
    """One for each rule: the fewest malicious clients, of those tried, at their strongest attack."""
    families: dict[tuple[str, str], list[MatrixCell]] = defaultdict(list)
    for cell in cells:
        families[cell.setting, cell.family].append(cell)
    return [
        Breakdown(
            setting=setting,
            family=family,
            tried=sorted({c.malicious for c in own}),
            least=[_least(own, seed) for seed in range(min(len(c.by_seed) for c in own))],
        )
        for (setting, family), own in families.items()
    ]


def _least(cells: Sequence[MatrixCell], seed: int) -> int | None:
    broken = [c.malicious for c in cells if c.by_seed[seed][0] < KEPT * c.by_seed[seed][1]]
    return min(broken, default=None)
