"""Questions: who reads what, by what can happen to people; how each stands, and what rests on it."""

from fedaudit.reports.format import NBSP, name_observer, name_question, percent, sentence_case
from fedaudit.reports.questions import Cell, Question, RuleQuestion, describe_answered
from fedaudit.reports.result import AuditResult
from fedaudit.reports.section import Block, Bullets, Card, Folded, Heading, Paragraph, Section, Table

WIDTHS = [2.2, 1.8, 1.2, 1.2, 1.0]
NO_LIMIT = "not known"


class Questions(Section):
    card = Card(title="Questions and answers", order=35)

    def build(self, result: AuditResult) -> list[Block]:
        if not result.cells:
            return [Paragraph("No message that is made of anybody's examples is known of, so nothing was asked.")]
        said = f" {result.decision.sentence}" if result.decision else ""
        blocks: list[Block] = [Paragraph(f"{describe_answered(result.cells)}{said}")]
        if result.questions:
            text = (
                "What can happen to people by all that somebody reads: how many are hit because their data were "
                "in; of facts about clients, how many clients. The verdict waits for questions with an asterisk."
            )
            blocks.append(_tabulate("Read by", [_row(q) for q in result.questions], text))
        if result.rule_questions:
            text = (
                "What share of the model's answers declared attackers, or absence, cost under each rule of the "
                "server, by whatever takes most; however many clients are malicious. A class of which four times "
                "the tolerable share is lost is exposed too."
            )
            rows = [_rule_row(q) for q in result.rule_questions]
            blocks += [Heading("Of the model"), _tabulate("Rule", rows, text)]
        reasons = [f"{sentence_case(name_question(c))}: {_explain(c)}" for c in result.cells]
        return [*blocks, Folded("What each answer rests on", [Bullets(reasons)])]


def _tabulate(second: str, rows: list[list[str]], caption: str) -> Table:
    header = ["Question", second, "At least", "At most", "Answer"]
    return Table(header=header, rows=rows, align="lllll", widths=WIDTHS, caption=caption)


def _row(q: Question) -> list[str]:
    of = f" of {q.people:,}"
    return [
        _name(q.harm.label, q),
        name_observer(q.observer),
        f"{q.at_least:,}{of}",
        NO_LIMIT if q.at_most is None else f"{q.at_most:,}{of}",
        sentence_case(q.state.value),
    ]


def _rule_row(q: RuleQuestion) -> list[str]:
    share = f", {percent(q.malicious)} malicious" if q.malicious else ""
    return [
        _name(q.aim, q),
        f"{q.rule.replace('_', ' ')}{share}",
        percent(q.at_least),
        NO_LIMIT if q.at_most is None else percent(q.at_most),
        sentence_case(q.state.value),
    ]


def _name(what: str, cell: Cell) -> str:
    return f"{sentence_case(what)}{f'{NBSP}*' if cell.required else ''}"


def _explain(cell: Cell) -> str:
    why = f"accepted: {cell.accepted}; {cell.why}" if cell.accepted else cell.why
    names = ("fedaudit", *cell.findings)
    return f"{why if why.startswith(names) else sentence_case(why)}."
