"""Audits as a decision reads them: questions with limits, and findings."""

from typing import Any

from fedaudit.fl.threats.threat import Aim, Harm
from fedaudit.reports.questions import Cell, Question, RuleQuestion, State
from fedaudit.reports.result import AuditResult, Finding, Outcome, Severity
from tests.reports.sample import result

LIMITS: dict[State, dict[str, Any]] = {
    State.EXPOSED: {"at_least": 51, "at_most": 102, "findings": ["f"]},
    State.CLEAR: {"at_most": 31},
    State.OPEN: {},
}


def ask(state: State, harm: Harm = Harm.MEMBERSHIP, observer: str = "server", **more: Any) -> Question:
    """A question about 719 people, of whom 35 are tolerable; with limits that fit its state."""
    facts = {"tolerable": 0.05, "people": 719, "required": True, "why": "because"} | LIMITS[state] | more
    return Question(id=f"{harm}.{observer}", harm=harm, observer=observer, state=state, **facts)


def ask_rule(state: State, rule: str = "mean", aim: Aim = Aim.AVAILABILITY, **more: Any) -> RuleQuestion:
    """A question about the model, of whose answers 5 % are tolerable."""
    ends = {State.EXPOSED: (0.4, 0.5), State.CLEAR: (0.0, 0.03), State.OPEN: (0.0, None)}[state]
    facts = {"tolerable": 0.05, "required": True, "why": "because"} | more
    low, high = ends
    return RuleQuestion(
        id=f"{aim}.client.{rule}", aim=aim, rule=rule, state=state, at_least=low, at_most=high, **facts
    )


def make_finding(
    severity: str = "none", source: str = "attack", id: str = "f", title: str = "Rows are sent", **more: Any
) -> Finding:
    return Finding(
        id=id,
        title=title,
        source=source,  # type: ignore[arg-type]
        outcome=Outcome.RAN,
        severity=Severity(severity),
        summary="s",
        **more,
    )


def make_audit(*findings: Finding, cells: list[Cell] | None = None) -> AuditResult:
    """An audit of these findings and questions; one that is clear by default."""
    made = result()
    made.findings, made.decision, made.bounds = list(findings), None, []
    given = [ask(State.CLEAR)] if cells is None else cells
    made.questions = [c for c in given if isinstance(c, Question)]
    made.rule_questions = [c for c in given if isinstance(c, RuleQuestion)]
    return made
