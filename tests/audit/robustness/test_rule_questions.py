"""Questions about the model: asked where attackers or absence are declared, answered by what is lost."""

from typing import Any

import pytest

from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.audit.planning.questions import DeclaredAttackers
from fedaudit.audit.robustness.measures import DOING_NOTHING
from fedaudit.audit.robustness.plan import IDLE
from fedaudit.audit.robustness.rule_questions import (
    LostAnswers,
    answer_rule_questions,
    bound_lost,
    list_rule_questions,
)
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.fl.threats.threat import Aim, Conduct, Position, ThreatModel
from fedaudit.reports.absence import Absence, Beside, Difference
from fedaudit.reports.questions import RuleQuestion, State
from fedaudit.reports.result import Severity
from fedaudit.reports.robustness import MatrixCell, NotRun, Robustness, TriedAdversary

DEMANDS = load_policy("default").demands
AIMS = {"flip": Aim.AVAILABILITY, "door": Aim.BACKDOOR}


def lost(
    measure: str, value: float, low: float, high: float, **baselines: tuple[float, float, float]
) -> Evidence:
    others = (Baseline(name=n, value=v, interval=(a, b)) for n, (v, a, b) in baselines.items())
    nothing = Baseline(name="nobody malicious", value=0.0)
    return Evidence(
        measure=measure,
        value=value,
        unit="fraction",
        trials=1000,
        interval=(low, high),
        baselines=(nothing, *others),
    )


def cell(
    low: float = -0.01,
    high: float = 0.01,
    *more: Evidence,
    adversary: str = "flip",
    rule: str = "krum",
    malicious: int = 1,
) -> MatrixCell:
    return MatrixCell(
        setting="fedavg-iid",
        rule=rule,
        family=rule,
        assumed=1,
        adversary=adversary,
        title=adversary,
        malicious=malicious,
        accuracy=0.9,
        clean=0.9,
        by_seed=[(0.9, 0.9)],
        evidence=[lost("accuracy_drop", (low + high) / 2, low, high), *more],
    )


PLANTED = cell(0.6, 0.8, adversary="_planted", rule="mean")


def make_matrix(*cells: MatrixCell, planted: MatrixCell = PLANTED, **more: Any) -> Robustness:
    threat = ThreatModel(position=Position.CLIENT, conduct=Conduct.MALICIOUS)
    words: dict[str, Any] = {
        "title": "",
        "source": "",
        "does": "harms it",
        "remedy": "",
        "threat": threat,
        "taxonomy": [],
    }
    who = {c.adversary: AIMS.get(c.adversary, Aim.AVAILABILITY) for c in cells}
    tried = {label: TriedAdversary(name="", aim=aim, **words) for label, aim in who.items()}
    return Robustness(
        clients=10, chance=0.1, seeds=[7], cells=[*cells], planted=[planted], adversaries=tried, **more
    )


def answer(matrix: Robustness | None, absence: Absence | None = None) -> dict[str, RuleQuestion]:
    asked = list_rule_questions(["mean", "krum"], AIMS.values(), DEMANDS, absence=absence is not None)
    return {q.id: q for q in answer_rule_questions(asked, matrix, absence, [], AIMS)}


def ask(*cells: MatrixCell, **more: Any) -> RuleQuestion:
    return answer(make_matrix(*cells, **more))["availability.client.krum"]


def test_each_rule_and_aim_is_asked_and_required_and_without_a_matrix_nothing_answers() -> None:
    found = answer(None, Absence(seeds=[7]))
    assert set(found) == {
        *(f"{aim}.client.{rule}" for aim in ("availability", "backdoor") for rule in ("mean", "krum")),
        "dropout.client.absent_clients",
    }
    assert all(q.required and q.state is State.OPEN and q.at_most is None for q in found.values())
    assert list_rule_questions(["mean"], [], DEMANDS) == []


@pytest.mark.parametrize(
    ("cells", "state", "limits"),
    [
        ([cell()], State.CLEAR, (0.0, 0.01)),
        ([cell(high=0.05)], State.CLEAR, (0.0, 0.05)),
        ([cell(high=0.051)], State.OPEN, (0.0, 0.051)),
        ([cell(), cell(high=0.2)], State.OPEN, (0.0, 0.2)),  # all that ran must limit it
        ([cell(0.04, 0.05)], State.CLEAR, (0.04, 0.05)),
        ([cell(), cell(0.06, 0.2)], State.EXPOSED, (0.06, 0.2)),  # and any exposes it
    ],
)
def test_a_rule_is_exposed_by_what_it_loses_at_least_and_clear_by_what_it_loses_at_most(
    cells: list[MatrixCell], state: State, limits: tuple[float, float]
) -> None:
    found = ask(*cells)
    assert found.state is state and (found.at_least, found.at_most) == pytest.approx(limits)
    others = answer(make_matrix(*cells))
    assert others["backdoor.client.krum"].state is others["availability.client.mean"].state is State.OPEN


def test_a_drop_is_rated_the_same_however_many_are_malicious_and_their_share_is_said() -> None:
    found = [ask(cell(0.78, 0.84, malicious=m)) for m in (1, 2, 3, 9)]
    assert [q.malicious for q in found] == [0.1, 0.2, 0.3, 0.9]
    assert {(q.state, round(q.at_least, 6)) for q in found} == {(State.EXPOSED, 0.78)}


def test_the_share_of_malicious_clients_is_that_of_the_run_that_loses_most() -> None:
    assert ask(cell(0.1, 0.2, malicious=3), cell(0.3, 0.4, malicious=2)).malicious == 0.2


def test_what_the_same_clients_cost_by_doing_nothing_is_no_merit_of_an_attack_and_lost_all_the_same() -> None:
    drop = lost("accuracy_drop", 0.11, 0.10, 0.12, **{DOING_NOTHING: (0.10, 0.10, 0.10)})
    assert bound_lost([drop]).of_all == pytest.approx((0.0, 0.12), abs=1e-9)


@pytest.mark.parametrize(
    ("low", "high", "state"), [(0.34, 0.44, State.EXPOSED), (0.0, 0.2, State.OPEN), (-0.01, 0.01, State.CLEAR)]
)
def test_a_rule_that_clients_who_do_nothing_break_is_not_cleared(low: float, high: float, state: State) -> None:
    flipped = lost("accuracy_drop", 0.0, -0.01, 0.01)
    idle = cell(low, high, flipped, adversary=IDLE)
    assert ask(cell(), idle).state is state
    asked = list_rule_questions(["krum"], [Aim.AVAILABILITY], DEMANDS)
    [alone] = answer_rule_questions(asked, make_matrix(idle), None, [], AIMS)
    assert alone.state is State.EXPOSED if state is State.EXPOSED else State.OPEN


def test_a_backdoor_takes_what_the_strongest_control_does_not_answer() -> None:
    hit = lost("asr", 0.60, 0.55, 0.65, clean=(0.10, 0.10, 0.10), untrained=(0.20, 0.20, 0.20))
    assert bound_lost([lost("accuracy_drop", 0.0, -0.01, 0.01), hit]).of_all == pytest.approx((0.35, 0.45))
    found = answer(make_matrix(cell(-0.01, 0.01, hit, adversary="door")))["backdoor.client.krum"]
    assert found.state is State.EXPOSED and found.at_least == pytest.approx(0.35)


def test_a_class_that_loses_four_times_as_much_as_is_tolerable_exposes_a_rule() -> None:
    found = ask(cell(-0.01, 0.01, lost("worst_class_drop", 0.3, 0.21, 0.4)))
    assert found.state is State.EXPOSED and "on the class that loses most" in found.why
    assert ask(cell(-0.01, 0.01, lost("worst_class_drop", 0.1, 0.0, 0.2))).state is State.CLEAR
    open_ = ask(cell(-0.01, 0.01, lost("worst_class_drop", 0.1, 0.0, 0.25)))
    assert open_.state is State.OPEN and "on one class" in open_.why


def test_severity_follows_from_what_is_lost_at_least() -> None:
    rated = [LostAnswers(of_all=(low, 1.0)).rate(0.05) for low in (0.0, 0.05, 0.15, 0.5, 0.51)]
    assert rated == [Severity.NONE, Severity.LOW, Severity.MEDIUM, Severity.HIGH, Severity.CRITICAL]
    rated = [LostAnswers(of_class=(low, 1.0)).rate(0.05) for low in (0.0, 0.2, 0.21, 0.51)]
    assert rated == [Severity.NONE, Severity.LOW, Severity.HIGH, Severity.CRITICAL]


def test_a_run_that_failed_leaves_a_rule_open_and_one_that_does_not_apply_does_not() -> None:
    place = "fedavg-iid/krum/flip-1/seed-7"
    failed = ask(cell(), not_run=[NotRun(cells=[place], reason="out of memory", failed=True)])
    assert failed.state is State.OPEN and failed.at_most is None and place in failed.why
    assert ask(cell(), not_run=[NotRun(cells=[place], reason="no prototypes", failed=False)]).state is State.CLEAR
    exposed = ask(cell(0.3, 0.4), not_run=[NotRun(cells=[place], reason="out of memory", failed=True)])
    assert exposed.state is State.EXPOSED


def test_an_attacker_that_the_config_declares_and_no_run_tried_leaves_a_rule_open() -> None:
    asked = list_rule_questions(["krum"], [Aim.AVAILABILITY], DEMANDS)
    declared = {"flip": Aim.AVAILABILITY, "gaussian": Aim.AVAILABILITY}
    [found] = answer_rule_questions(asked, make_matrix(cell()), None, [], declared)
    assert found.state is State.OPEN and found.why == "no run of the matrix was made with gaussian"


def test_what_an_adaptive_attacker_preferred_counts_though_no_config_names_it() -> None:
    assert ask(cell(), cell(0.3, 0.4, adversary="ipm-0.1")).state is State.EXPOSED


def test_a_planted_fault_that_did_not_break_the_mean_leaves_open_what_was_not_seen() -> None:
    found = ask(cell(), planted=cell(-0.1, 0.1, adversary="_planted", rule="mean"))
    assert found.state is State.OPEN and "the planted fault did not break the mean" in found.why


def away(*intervals: tuple[float, float] | None) -> RuleQuestion:
    drops = [Difference(value=0.0, interval=i, seeds=3 if i else 1) for i in intervals]
    beside = [
        Beside(method="fedavg", axis="answering", x=0.5, accuracy=0.8, drop=d, over_fedavg=None) for d in drops
    ]
    return answer(None, Absence(seeds=[7, 8, 9], beside=beside))["dropout.client.absent_clients"]


@pytest.mark.parametrize(
    ("intervals", "state"),
    [
        ([(0.0, 0.04)], State.CLEAR),
        ([(0.0, 0.04), (0.0, 0.06)], State.OPEN),
        ([(0.0, 0.04), (0.06, 0.1)], State.EXPOSED),
        ([None], State.OPEN),
    ],
)
def test_absence_is_answered_by_what_it_costs(intervals: list[tuple[float, float] | None], state: State) -> None:
    assert away(*intervals).state is state


def test_a_plan_says_which_runs_will_ask_about_rules() -> None:
    with_matrix = DeclaredAttackers(AIMS, ["mean"], is_absence_measured=True, has_matrix=True)
    planned = {q.id: (q.findings, q.why) for q in with_matrix.plan_questions(DEMANDS)}
    assert planned["availability.client.mean"] == (["matrix"], "to be asked by runs of the matrix")
    assert planned["dropout.client.absent_clients"] == (["absence"], "to be asked by runs without these clients")
    [alone] = DeclaredAttackers({"flip": Aim.AVAILABILITY}, ["mean"]).plan_questions(DEMANDS)
    assert not alone.findings and "no matrix" in alone.why
