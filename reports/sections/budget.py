"""Budget: an upper bound on the privacy loss towards each observer, or that there is none."""

import math
from collections.abc import Sequence

from fedaudit.reports.format import number
from fedaudit.reports.result import AuditResult
from fedaudit.reports.result import Budget as BudgetRecord
from fedaudit.reports.section import Block, Bullets, Card, Chart, Paragraph, Section, Table


class Budget(Section):
    card = Card(title="Differential privacy budget", order=50)

    def build(self, result: AuditResult) -> list[Block]:
        if not result.budgets:
            return [
                Paragraph(
                    "No accountant was run. Without one, nothing bounds what an adversary with "
                    "more effort than the attacks of this audit could learn."
                )
            ]
        proved = [b for b in result.budgets if not b.declared]
        declared = [b for b in result.budgets if b.declared]
        blocks: list[Block] = []
        if proved:
            blocks += [
                Paragraph(
                    "Upper bounds on the privacy loss. Smaller is more private; each holds for its "
                    "unit, its neighbouring datasets (adjacency) and its `delta` only."
                ),
                _table(proved, "Epsilon at most", "What each observer can learn at most, by the accountants."),
            ]
        if declared:
            blocks += [
                Paragraph(
                    "What the ledger declares of the privacy loss. It was written by others, and nobody could "
                    "verify that its noise, its sampling and its releases are those of the run."
                ),
                _table(declared, "Epsilon declared", "The loss towards each observer if the ledger is true."),
            ]
        if assumed := [_assumptions(b) for b in result.budgets if b.assumes or b.note]:
            blocks.append(Bullets(list(dict.fromkeys(assumed))))
        figures = [f for f in result.figures if not f.finding and f.id.startswith("budget")]
        return [*blocks, *(Chart(f) for f in figures)]


def _table(budgets: Sequence[BudgetRecord], heading: str, caption: str) -> Table:
    return Table(
        header=["Observer", heading, "Delta", "Unit", "Adjacency", "Accountant"],
        rows=[
            [
                b.observer,
                epsilon(b),
                number(b.delta),
                b.unit,
                b.adjacency.replace("_", " "),
                f"{b.accountant}, {b.releases:,} releases",
            ]
            for b in budgets
        ],
        align="llrlll",
        widths=[1.3, 4.2, 0.8, 0.9, 1.4, 2.2],
        caption=caption,
    )


def epsilon(b: BudgetRecord) -> str:
    """The bound, or in words why there is none."""
    if b.inconclusive:
        return "inconclusive"
    if math.isinf(b.epsilon_upper):
        kinds = ", ".join(b.spoiled_by)
        if not kinds:
            return f"no bound: {b.unbounded}" if b.unbounded else "no bound"
        return f"no bound: {kinds} {'is' if len(b.spoiled_by) == 1 else 'are'} released without noise"
    return number(b.epsilon_upper)


def _assumptions(b: BudgetRecord) -> str:
    text = f"Towards {b.observer} ({b.accountant}): assumes {b.assumes or 'nothing further'}."
    return f"{text} {b.note}" if b.note else text
