"""Questions about the model: asked where attackers or absence are declared, answered by the matrix."""

from typing import Any

import pytest

from fedaudit.attacks.evidence import Evidence
from fedaudit.audit.phases.questions import DeclaredAttackers
from fedaudit.audit.verdict.answers import describe_more
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.audit.verdict.rule_questions import answer_rule_questions, list_rule_questions
from fedaudit.fl.threats.threat import Aim
from fedaudit.reports.questions import Question, State
from fedaudit.reports.robustness import MatrixCell, Robustness

DEMANDS = load_policy("default").demands
AIMS = {"flip": Aim.AVAILABILITY, "door": Aim.BACKDOOR}


def cell(adversary: str = "flip", high: float = 0.01, severity: str = "", rule: str = "krum") -> MatrixCell:
    drop = Evidence(measure="accuracy_drop", value=0.0, unit="fraction", trials=100, interval=(-0.01, high))
    return MatrixCell(
        setting="fedavg-iid",
        rule=rule,
        family=rule,
        assumed=1,
        adversary=adversary,
        title="Sign flip",
        malicious=1,
        accuracy=0.9,
        clean=0.9,
        by_seed=[(0.9, 0.9)],
        severity=severity,
        evidence=[drop],
    )


def ask(*cells: MatrixCell, **more: Any) -> dict[str, Question]:
    asked = list_rule_questions(["mean", "krum"], AIMS.values(), DEMANDS, **more)
    matrix = Robustness.model_construct(cells=list(cells)) if cells else None
    return {q.id: q for q in answer_rule_questions(asked, matrix, None, [], AIMS)}


def test_each_rule_and_aim_is_asked_and_required_and_without_a_matrix_nothing_answers() -> None:
    found = ask(absence=True)
    assert set(found) == {
        *(f"{aim}.client.{rule}" for aim in ("availability", "backdoor") for rule in ("mean", "krum")),
        "dropout.client.absent_clients",
    }
    assert all(q.required and q.state is State.NOT_ASKED for q in found.values())
    assert list_rule_questions(["mean"], [], DEMANDS) == []


@pytest.mark.parametrize(
    ("cells", "state"),
    [
        ([cell()], State.BOUNDED),
        ([cell(high=0.049)], State.BOUNDED),
        ([cell(high=0.051)], State.INCONCLUSIVE),
        ([cell(), cell(high=0.2)], State.INCONCLUSIVE),  # all that ran must bound
        ([cell(), cell(severity="high")], State.DEMONSTRATED),  # and any demonstrates
    ],
)
def test_the_upper_end_of_what_attacks_took_bounds_a_rule(cells: list[MatrixCell], state: State) -> None:
    found = ask(*cells)
    assert found["availability.client.krum"].state is state
    assert found["backdoor.client.krum"].state is found["availability.client.mean"].state is State.NOT_ASKED


def test_a_plan_says_which_runs_will_ask_about_rules() -> None:
    with_matrix = DeclaredAttackers(AIMS, ["mean"], is_absence_measured=True, has_matrix=True)
    planned = {q.id: (q.findings, q.why) for q in with_matrix.plan_questions(DEMANDS)}
    assert planned["availability.client.mean"] == (["matrix"], "to be asked by runs of the matrix")
    assert planned["dropout.client.absent_clients"] == (["absence"], "to be asked by runs without these clients")
    [alone] = DeclaredAttackers({"flip": Aim.AVAILABILITY}, ["mean"]).plan_questions(DEMANDS)
    assert not alone.findings and "no matrix" in alone.why


def test_of_what_nothing_asked_it_is_not_said_that_an_attack_ran() -> None:
    left = [*ask(cell()).values()]
    assert {q.state for q in left if q.is_open} == {State.NOT_ASKED}
    unasked = [q for q in left if q.is_open]
    said = describe_more(unasked)
    assert said.endswith(f"no attack of this audit asked {len(unasked)}.") and "gave no answer" not in said
