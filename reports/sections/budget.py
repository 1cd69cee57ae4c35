"""Budget: the bound on the privacy loss towards each observer with its status, or that there is none."""

from collections.abc import Sequence

from fedaudit.reports.bound import PrivacyBound, Status, group_observers
from fedaudit.reports.bound_text import describe_bound
from fedaudit.reports.format import number
from fedaudit.reports.result import AuditResult
from fedaudit.reports.section import Block, Bullets, Card, Chart, Paragraph, Section, Table

LARGE = 10.0  # an epsilon, above which it says little
TOO_LARGE = (
    f"An epsilon of {LARGE:g} still allows 99.99 % true positives at 1 % false ones. A larger one excludes "
    "hardly any attack and should not be advertised as differential privacy."
)
MEANING = {
    Status.VERIFIED: "*Verified*: the ledger was made once more, and no test contradicts it. "
    "That is evidence (no counterexample was found), never proof.",
    Status.DECLARED: "*Declared*: somebody says so, and some of what it needs could not be checked.",
    Status.REFUTED: "*Refuted*: the verifier of the ledger, a test of the noise or a replay contradicts it; "
    "no limit holds.",
    Status.NONE: "*None*: something is released in clear, or no accountant could bound the loss. That is no leak "
    "by itself; a limit would hold for attacks that nobody has tried. Withhold what is released in clear, or "
    "protect it with `dp_gaussian`.",
}


class Budget(Section):
    card = Card(title="Differential privacy budget", order=50)

    def build(self, result: AuditResult) -> list[Block]:
        bounds = result.bounds
        if not bounds:
            return [
                Paragraph(
                    "No accountant was run. Without one, nothing bounds what an adversary with "
                    "more effort than the attacks of this audit could learn."
                )
            ]
        statuses = {b.status for b in bounds}
        is_any_large = any(b.holds and b.epsilon > LARGE for b in bounds)
        blocks: list[Block] = [
            Paragraph(
                "Epsilon limits what any attack can learn; smaller is more private. It speaks of its unit, its "
                "neighbouring datasets (adjacency) and its `delta` only."
            ),
            Bullets([text for status, text in MEANING.items() if status in statuses]),
            *([Paragraph(TOO_LARGE)] if is_any_large else []),
            _table(bounds),
        ]
        if assumed := [_assumptions(o, b) for o, b in group_observers(bounds) if b.holds or b.note]:
            blocks.append(Bullets(assumed))
        figures = [f for f in result.figures if not f.finding and f.id.startswith("budget")]
        return [*blocks, *(Chart(f) for f in figures)]


def _table(bounds: Sequence[PrivacyBound]) -> Table:
    return Table(
        header=["Observer", "Epsilon and its status", "Delta", "Unit", "Adjacency", "Accountant"],
        rows=[
            [
                observers,
                describe_bound(b),
                number(b.delta),
                b.unit,
                b.adjacency.replace("_", " "),
                f"{b.accountant}, {b.releases:,} releases",
            ]
            for observers, b in group_observers(bounds)
        ],
        align="llrlll",
        widths=[1.4, 4.2, 0.8, 0.8, 1.4, 2.0],
        caption="The privacy loss towards each observer.",
    )


def _assumptions(observers: str, b: PrivacyBound) -> str:
    """Of whom a bound speaks, what it assumes, and what else is known of it."""
    parts = [f"it speaks of a {b.unit} among {b.population}"] if b.population else []
    parts += [f"it assumes {b.assumes}"] if b.assumes else []
    parts += [f"the draw of clients is not credited: {b.uncredited}"] if b.uncredited else []
    text = f"Towards {observers} ({b.accountant}, {b.status}): {'; '.join(parts)}."
    return f"{text} {b.note}" if b.note else text
