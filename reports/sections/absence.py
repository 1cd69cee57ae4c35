"""Absence: what clients that do not answer cost each method, and what becomes of a class whose holders leave."""

from collections.abc import Sequence

from fedaudit.reports import format as fmt
from fedaudit.reports.absence import AXES, Beside, Difference, Return
from fedaudit.reports.result import AuditResult
from fedaudit.reports.section import Block, Card, Chart, Heading, Paragraph, Section, Table
from fedaudit.reports.sections._not_run import tabulate_failures


class AbsenceSection(Section):
    card = Card(title="Clients that are absent", order=48)

    def build(self, result: AuditResult) -> list[Block]:
        absence = result.absence
        if absence is None:
            return []
        seeds = f"{fmt.plural(len(absence.seeds), 'seed')} ({', '.join(map(str, absence.seeds))})"
        blocks: list[Block] = [
            Paragraph(
                f"Each method was run with clients that answer seldom, in long turns, or in vain, with "
                f"{seeds}. Runs of one seed share data, first model and batches, so that they are compared seed "
                "by seed. Nobody is attacking. A round in which nobody answers is skipped, and counts as one. "
                "Bands and brackets are Student's 95 % intervals over seeds."
            )
        ]
        for axis, words in AXES.items():
            here = [b for b in absence.beside if b.axis == axis]
            if here:
                blocks += [Heading(fmt.sentence_case(words)), _compare(here)]
                blocks += [Chart(f) for f in result.figures if f.id.startswith(f"absence-{axis}-")]
        if absence.returns:
            blocks += [Heading("The only holders of a class leave and return"), _returns(absence.returns)]
            blocks += [Chart(f) for f in result.figures if f.id == "absence-leaving"]
        if absence.not_run:
            blocks.append(tabulate_failures(absence.not_run, "Runs", "Runs that came to no end."))
        return blocks


def _compare(rows: Sequence[Beside]) -> Table:
    return Table(
        header=["Method", "At", "Accuracy", "Lost, points", "Beside fedavg, points", "Verdict"],
        rows=[
            [
                b.method,
                f"{b.x:g}",
                fmt.percent(b.accuracy),
                fmt.points(b.drop.value, b.drop.interval),
                fmt.points(b.over_fedavg.value, b.over_fedavg.interval) if b.over_fedavg else "",
                _verdict(b.over_fedavg) if b.over_fedavg else "",
            ]
            for b in rows
        ],
        align="lrrlll",
        widths=[1.6, 0.7, 1.2, 2.3, 2.3, 1.6],
        caption="Accuracy of the last five rounds, what of it is lost beside the same method with everybody "
        "there, and how it compares with fedavg in the same place. No verdict where the interval holds both.",
    )


def _verdict(d: Difference) -> str:
    if d.interval is None:
        return "one seed"
    return "keeps more" if d.interval[0] > 0 else "keeps less" if d.interval[1] < 0 else "cannot tell"


def _returns(returns: Sequence[Return]) -> Table:
    def counts(rounds: Sequence[int | None]) -> str:
        return ", ".join("never" if n is None else str(n) for n in rounds)

    return Table(
        header=["Method", "Class", "Away", "Recall lost, points", "Rounds to lose it", "Rounds to regain it"],
        rows=[
            [
                r.method,
                r.label,
                f"{r.leave} to {r.back - 1}",
                fmt.points(r.drop.value, r.drop.interval),
                counts(r.lost),
                counts(r.regained),
            ]
            for r in returns
        ],
        align="llllll",
        widths=[1.5, 1.4, 1.1, 2.3, 1.7, 1.8],
        caption="By seed: rounds until a tenth of the class's recall is left, and rounds after the return until "
        "nine tenths of it are there again.",
    )
