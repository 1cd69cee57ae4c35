"""Questions about the model: what declared attackers, or absent clients, do to each rule of the server."""

from collections.abc import Iterable, Mapping, Sequence

from fedaudit.attacks.evidence import Evidence
from fedaudit.audit.verdict.policy import Demands
from fedaudit.fl.threats.threat import Aim, Position
from fedaudit.reports import format as fmt
from fedaudit.reports.absence import Absence
from fedaudit.reports.questions import Question, State
from fedaudit.reports.result import Finding, Outcome
from fedaudit.reports.robustness import MatrixCell, Robustness


def list_rule_questions(
    rules: Sequence[str], aims: Iterable[Aim], demands: Demands, *, absence: bool = False
) -> list[Question]:
    """One for each rule and aim of an attacker that the config declares, and one for absence, unanswered."""
    made = [_question(aim, rule, demands) for rule in rules for aim in dict.fromkeys(aims)]
    return made + ([_question(Aim.DROPOUT, "absent_clients", demands)] if absence else [])


def _question(aim: Aim, rule: str, demands: Demands) -> Question:
    return Question(
        id=f"{aim}.client.{rule}",
        aim=aim,
        observer=str(Position.CLIENT),
        kind=rule,
        rounds="all rounds",
        required=demands.requires(aim, Position.CLIENT, are_persons=False),
        state=State.NOT_ASKED,
        why="the config declares an attacker, and no matrix compares the model with an honest one"
        if aim is not Aim.DROPOUT
        else "no run without these clients was made",
        tolerable=demands.tolerate(aim),
    )


def answer_rule_questions(
    questions: Sequence[Question],
    matrix: Robustness | None,
    absence: Absence | None,
    findings: Sequence[Finding],
    aims: Mapping[str, Aim],
) -> list[Question]:
    """The same with their states; `aims` of adversaries by the label that cells of the matrix have."""
    return [
        q.model_copy(
            update=_answer_by_absence(absence, findings)
            if q.aim is Aim.DROPOUT
            else _answer_by_cells(q, matrix, findings, aims)
        )
        for q in questions
    ]


def _answer_by_cells(
    q: Question, matrix: Robustness | None, findings: Sequence[Finding], aims: Mapping[str, Aim]
) -> dict[str, object]:
    cells = [
        c
        for c in (matrix.cells if matrix else ())
        if c.rule == q.kind and aims.get(c.adversary) == q.aim and not c.bisected and c.evidence
    ]
    if not cells:
        return {"why": "no run of the matrix was made of it"} if matrix else {}
    ids = [f.id for f in findings if f.id in {f"robustness-{c.setting}-{c.rule}" for c in cells}]
    answer: dict[str, object] = {"findings": ids}
    if hurt := [c for c in cells if c.severity]:
        return answer | {"state": State.DEMONSTRATED, "why": f"{hurt[0].title} changed the model"}
    most = max(_most_lost(c) for c in cells)
    tried = fmt.plural(len(cells), "attack")
    if most <= q.tolerable:
        why = f"{tried} took at most {fmt.percent(max(0.0, most))} of the answers"
        return answer | {"state": State.BOUNDED, "why": why}
    why = f"{tried} could have taken up to {fmt.percent(most)} of the answers, by the interval"
    return answer | {"state": State.INCONCLUSIVE, "why": why}


def _most_lost(cell: MatrixCell) -> float:
    """Upper end of what it took, beyond what idle clients take; of the trigger's success where there is one."""
    return max((_upper_end(e) for e in cell.evidence if e.measure in ("accuracy_drop", "asr")), default=1.0)


def _upper_end(e: Evidence) -> float:
    high = e.interval[1] if e.interval else 1.0
    return high - max(0.0, e.strongest.value) if e.measure == "asr" and e.strongest else high


def _answer_by_absence(absence: Absence | None, findings: Sequence[Finding]) -> dict[str, object]:
    mine = [f for f in findings if f.id.startswith("absence-")]
    if absence is None or not mine:
        return {}
    shown = [f.id for f in mine if f.outcome is Outcome.DEMONSTRATED]
    answer: dict[str, object] = {"findings": shown or [f.id for f in mine]}
    if shown:
        return answer | {
            "state": State.DEMONSTRATED,
            "why": "clients that do not answer cost answers of the model",
        }
    if all(f.outcome is Outcome.NOT_DEMONSTRATED for f in mine):
        return answer | {"state": State.BOUNDED, "why": "no absence that was played costs what the policy grades"}
    return answer | {"state": State.INCONCLUSIVE, "why": "some runs without these clients came to no end"}
