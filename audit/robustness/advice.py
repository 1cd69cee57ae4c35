"""Advice: which rule kept most accuracy under its strongest attack, in sentences from cells that ran."""

from collections import defaultdict

from reports.robustness import MatrixCell, Robustness


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
