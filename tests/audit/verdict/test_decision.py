"""The word is the first that holds, is never better than its evidence, and every word can be reached."""

import math
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedaudit.audit.noise_audit.findings import list_refuted_bounds
from fedaudit.audit.settings import catalog
from fedaudit.audit.verdict.decision import decide
from fedaudit.audit.verdict.policy import Terms, accept_cells, find_known, load_policy
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.threats.threat import Harm, Position
from fedaudit.reports.bound import PrivacyBound, Status
from fedaudit.reports.decision import Word
from fedaudit.reports.questions import Cell, GroupLimits, State
from fedaudit.reports.result import AuditResult, Finding, Severity
from tests.audit.verdict import audits
from tests.audit.verdict.audits import ask, ask_rule, make_audit
from tests.reports.sample_bounds import CLEAR, make_bound

POLICY = load_policy("default")
SAFE: list[Cell] = [ask(State.CLEAR)]
MINORITY = GroupLimits(name="class 3", people=35, at_least=23, at_most=28, attack="f")


def fact(severity: str, **more: Any) -> Finding:
    return audits.make_finding(severity, "disclosure", **more)


def attack(severity: str = "none", **more: Any) -> Finding:
    return audits.make_finding(severity, **more)


@pytest.mark.parametrize(
    ("audited", "word", "rule"),
    [
        (make_audit(), Word.READY, ""),
        (make_audit(attack()), Word.READY, ""),
        (make_audit(cells=[]), Word.CANNOT_TELL, "question-open"),
        (make_audit(cells=[ask(State.CLEAR, required=False)]), Word.CANNOT_TELL, "question-open"),
        (make_audit(cells=[*SAFE, ask(State.OPEN, required=False)]), Word.READY, ""),
        (make_audit(cells=[ask(State.EXPOSED)]), Word.NOT_READY, "people-exposed"),
        (make_audit(cells=[ask(State.EXPOSED), ask(State.OPEN)]), Word.NOT_READY, "people-exposed"),
        (make_audit(cells=[*SAFE, ask(State.EXPOSED, required=False)]), Word.READY, ""),
        (make_audit(cells=[ask(State.EXPOSED, at_least=9, is_refuting=True)]), Word.NOT_READY, "people-exposed"),
        (make_audit(cells=[ask(State.EXPOSED, at_least=9, groups=[MINORITY])]), Word.NOT_READY, "people-exposed"),
        # mild: told, and no reason to forbid anything
        (make_audit(cells=[*SAFE, ask(State.EXPOSED, Harm.DIFFUSE)]), Word.WITH_CONDITIONS, "finding-to-treat"),
        (make_audit(cells=[*SAFE, ask(State.OPEN, Harm.DIFFUSE)]), Word.CANNOT_TELL, "question-open"),
        (make_audit(cells=[*SAFE, ask(State.OPEN, accepted="A. Person")]), Word.WITH_CONDITIONS, "accepted"),
        # what attacks do is counted by the table and by nothing else
        (make_audit(attack("low")), Word.READY, ""),
        (make_audit(fact("high")), Word.NOT_READY, "severe-finding"),
        (make_audit(fact("critical"), cells=[]), Word.NOT_READY, "severe-finding"),
        (make_audit(fact("medium")), Word.WITH_CONDITIONS, "finding-to-treat"),
        (make_audit(fact("low")), Word.READY, ""),
        (make_audit(cells=[*SAFE, ask_rule(State.EXPOSED)]), Word.NOT_READY, "people-exposed"),
        (make_audit(cells=[*SAFE, ask_rule(State.OPEN)]), Word.CANNOT_TELL, "question-open"),
        (make_audit(cells=[*SAFE, ask_rule(State.CLEAR)]), Word.READY, ""),
    ],
)
def test_every_word_is_reached_by_its_ground(audited: AuditResult, word: Word, rule: str) -> None:
    found = decide(audited, POLICY)
    assert (found.word, found.rule) == (word, rule), found.sentence


def test_one_open_required_question_forbids_ready() -> None:
    found = decide(make_audit(cells=[*SAFE, ask(State.OPEN, observer="public")]), POLICY)
    assert (found.word, found.word.exit_code) == (Word.CANNOT_TELL, 3)
    assert "Required questions are open: membership." in found.sentence
    assert "Membership by whoever gets the model: because." in found.sentence
    assert "1 of 2 questions answered" in found.sentence


def test_a_refuted_bound_forbids_a_deployment_whatever_its_finding_says() -> None:
    audited = make_audit()
    audited.bounds = [make_bound(Status.REFUTED, math.inf, CLEAR)]
    assert decide(audited, POLICY).rule == "bound-refuted"


def test_more_doubt_never_makes_the_word_better() -> None:
    order = [Word.READY, Word.WITH_CONDITIONS, Word.CANNOT_TELL, Word.NOT_READY]
    worse: list[Cell] = [
        ask(State.OPEN, observer="client"),
        ask(State.EXPOSED, observer="client"),
        ask_rule(State.OPEN),
    ]
    for base, cell in product(([], [fact("medium")], [fact("high")]), worse):
        before = order.index(decide(make_audit(*base), POLICY).word)
        for cells in ([*SAFE, cell], [cell], []):
            assert order.index(decide(make_audit(*base, cells=cells), POLICY).word) >= before


def test_not_ready_says_how_many_people_were_hit_and_somebody_may_answer_for_them() -> None:
    for q, why in [
        (ask(State.EXPOSED), "the policy tolerates 5"),
        (ask(State.EXPOSED, at_least=9, is_refuting=True), "an epsilon that is stated allows fewer"),
    ]:
        text = decide(make_audit(cells=[q]), POLICY).sentence
        start = f"At least {q.at_least} of 719 people are hit because their data were in"
        assert text.startswith(f"{start}: membership by the server; {why}")
    for id in ("f", "membership.server"):
        accepted = Terms(accepted={id: "A. Person, until 2030"})
        assert decide(make_audit(cells=[ask(State.EXPOSED)]), POLICY, accepted).word is Word.WITH_CONDITIONS


def test_not_ready_for_a_minority_says_which() -> None:
    text = decide(make_audit(cells=[ask(State.EXPOSED, at_least=9, groups=[MINORITY])]), POLICY).sentence
    assert text.startswith("At least 23 of 35 people of class 3 are hit because their data were in: membership")
    assert "of a group the policy tolerates 7." in text


def test_not_ready_for_the_model_says_what_it_loses_and_under_which_rule() -> None:
    text = decide(make_audit(cells=[*SAFE, ask_rule(State.EXPOSED, "krum")]), POLICY).sentence
    assert text.startswith("Attackers cost the model at least 40\u00a0% of its answers: availability by")
    assert "krum" in text


def test_ready_says_for_whom_how_many_and_what_it_leaves_out() -> None:
    lacking = ask(State.OPEN, Harm.LINKAGE, required=False)
    cells: list[Cell] = [*SAFE, ask(State.CLEAR, Harm.RECONSTRUCTION, at_most=3), lacking]
    text = decide(make_audit(cells=cells), POLICY).sentence
    assert text.startswith("Ready for these 10 clients and this run: by the attacks of panel 7")
    assert "membership 31 of 719; reconstruction 3 of 719" in text
    assert "other clients, of which up to 25.9\u00a0% could leak unseen" in text  # 1 - .05^(1/10)
    assert "attacks that we lack, and linkage by the server" in text


def test_cannot_tell_names_the_question_its_limit_and_what_would_settle_it() -> None:
    why = "x hit none of 60 people tested; at most 46 of 719 are"
    left = ask(State.OPEN, at_most=46, more=240, seconds=130.0, why=why)
    text = decide(make_audit(cells=[left]), POLICY).sentence
    assert f"Membership by the server: {why}." in text
    assert "Testing 240 more (about 2\u00a0min 10\u00a0s) should settle it." in text


def test_what_more_time_would_answer_counts_each_attack_once_and_promises_nothing_else() -> None:
    def miss(harm: Harm, attack: str, seconds: float | None) -> Cell:
        return ask(State.OPEN, harm, next_attack=attack, seconds=seconds)

    untested = ask(State.OPEN, Harm.ATTRIBUTE, at_most=46, more=240, seconds=130.0)
    left = [
        miss(Harm.MEMBERSHIP, "lira", 10.0), miss(Harm.DIFFUSE, "lira", 10.0), ask(State.OPEN, Harm.RECORD),
        untested ]  # fmt: skip
    text = decide(make_audit(cells=left), POLICY).more.replace("\u00a0", " ")
    start = "2 of 4 open required questions lack attacks that this audit left out (about 10 s of one core): lira."
    assert text.startswith(start)
    assert "Testing more people (about 2 min 10 s) should settle 1." in text
    assert text.endswith("1 stays open whatever the time budget.")
    assert decide(make_audit(), POLICY).more == ""
    unknown = decide(make_audit(cells=[miss(Harm.MEMBERSHIP, "lira", None)]), POLICY).more
    assert "left out: lira." in unknown  # no estimate, no number


@pytest.mark.parametrize("source", ["accountant", "lint"])
def test_where_only_a_statement_fails_no_leak_is_said_to_have_succeeded(source: str) -> None:
    stated = audits.make_finding("critical", source, id="g")
    text = decide(make_audit(stated), POLICY).sentence
    assert "What is stated of a protection does not hold" in text
    assert (
        "it is rated high or worse that rows are sent"
        in decide(make_audit(stated, fact("high")), POLICY).sentence
    )


@pytest.mark.parametrize("bound", [make_bound(Status.NONE, math.inf, CLEAR), make_bound(Status.VERIFIED, 60.0)])
def test_how_large_an_epsilon_is_and_that_there_is_none_is_said_and_is_no_finding(bound: PrivacyBound) -> None:
    assert list_refuted_bounds([bound]) == []
    made = make_audit()
    made.bounds = [bound]
    assert decide(made, POLICY).word is Word.READY
    text = repr(catalog.load("sections", "budget")().build(made))
    assert "released without noise" in text or "should not be advertised as differential privacy" in text


def test_a_policy_of_ones_own_has_its_own_bar_and_without_one_the_default_ones() -> None:
    assert POLICY.decision is not None
    strict = POLICY.decision.model_copy(update={"not_ready": Severity.MEDIUM})
    own = POLICY.model_copy(update={"decision": strict})
    audited = make_audit(fact("medium"))
    assert decide(audited, own).word is Word.NOT_READY
    bare = POLICY.model_copy(update={"decision": None, "questions": None}).complete(POLICY)
    assert decide(audited, bare).rule == "finding-to-treat" and bare.demands == POLICY.demands


def written(tmp_path: Path, **changes: Any) -> str:
    text = POLICY.model_dump(mode="json", exclude_none=True) | changes
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(text))
    return str(tmp_path / "own.yaml")


def test_a_policy_may_hold_what_is_seen_for_worse_or_milder_and_says_why(tmp_path: Path) -> None:
    seen = Finding(id="seen-1", title="Rows are sent", summary="s", severity=Severity.HIGH)
    assert POLICY.rate(seen) == seen
    facts = [{"id": "seen-*", "severity": "low", "reason": "These rows are public."}]
    found = load_policy(written(tmp_path, facts=facts)).rate(seen)
    assert found.severity is Severity.LOW and "rates it low: These rows are public." in found.reason


@pytest.mark.parametrize(
    "harm", ["exact_record", "reconstruction", "membership", "diffuse_membership", "attribute"]
)
def test_a_policy_that_does_not_ask_what_nobody_may_leave_out_is_refused(harm: str, tmp_path: Path) -> None:
    text = POLICY.demands.model_dump(mode="json")
    text["required"][0]["harms"].remove(harm)
    with pytest.raises(UserError, match=f"required must ask {harm} of the server"):
        load_policy(written(tmp_path, questions=text))


@pytest.mark.parametrize("observer", ["server", "client", "public"])
def test_a_policy_that_leaves_out_a_reader_is_refused(observer: str, tmp_path: Path) -> None:
    text = POLICY.demands.model_dump(mode="json")
    text["required"][0]["observers"].remove(observer)
    with pytest.raises(UserError, match=f"of the {observer}"):
        load_policy(written(tmp_path, questions=text))


def test_a_policy_may_tolerate_less_and_never_more_than_a_twentieth(tmp_path: Path) -> None:
    text = POLICY.demands.model_dump(mode="json")
    text["tolerable"][1]["share"] = 0.001
    assert load_policy(written(tmp_path, questions=text)).demands.tolerate(Harm.RECONSTRUCTION) == 0.001
    text["tolerable"][1]["share"] = 0.06
    with pytest.raises(UserError, match="but of diffuse_membership"):
        load_policy(written(tmp_path, questions=text))
    text["tolerable"] = POLICY.demands.model_dump(mode="json")["tolerable"][1:]
    with pytest.raises(UserError, match="tolerable must name each harm once, and names exact_record 0 times"):
        load_policy(written(tmp_path, questions=text))


def test_rules_of_an_older_policy_say_what_replaced_them(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="rules on measures"):
        load_policy(written(tmp_path, rules=[]))


def test_a_policy_may_ask_for_more_attacks_and_not_for_less(tmp_path: Path) -> None:
    rows = [{"attacks": ["lira"], "reason": "A second look at models."}]
    own = load_policy(written(tmp_path, panel={"number": 1, "rows": rows}))
    assert {"lira", "played_message"} <= set(own.whole_panel.list_attacks("local_model"))


def test_whose_a_policy_is_follows_from_its_digest_and_not_from_its_name(tmp_path: Path) -> None:
    assert load_policy(written(tmp_path)).owner == "as fedaudit ships it"
    changed = load_policy(written(tmp_path, version="0"))
    assert changed.name == "default" and changed.owner == "the owner's own"


def test_linkage_is_required_where_clients_are_persons() -> None:
    demands = POLICY.demands
    assert demands.requires(Harm.LINKAGE, Position.SERVER, are_persons=True)
    assert not demands.requires(Harm.LINKAGE, Position.SERVER, are_persons=False)


def test_a_harm_is_one_row_whoever_can_do_it_and_names_the_attacks_that_hit_somebody() -> None:
    cells: list[Cell] = [
        ask(State.EXPOSED, findings=["f", "quiet"]),
        ask(State.EXPOSED, observer="public", at_least=60, findings=["g"]),
    ]
    found = [attack("medium"), attack("medium", id="g"), attack(id="quiet")]
    (row,) = decide(make_audit(*found, cells=cells), POLICY).risks
    assert (row.finding, row.also, row.cells) == ("g", ["f"], ["membership.public", "membership.server"])
    assert (row.at_least, row.at_most, row.people) == (60, 102, 719)
    assert row.who == "the server and whoever gets the model" and row.severity == "medium"


def test_the_worst_harm_stands_first_whether_or_not_the_verdict_waits_for_it() -> None:
    cells: list[Cell] = [
        ask(State.EXPOSED, Harm.LINKAGE, at_least=400, at_most=None, required=False),
        ask(State.EXPOSED),
        ask_rule(State.EXPOSED),
    ]
    whats = [r.severity for r in decide(make_audit(cells=cells), POLICY).risks]
    assert whats == ["critical", "high", "medium"]


def test_the_same_fact_of_two_kinds_is_one_row() -> None:
    (row,) = decide(make_audit(fact("high"), fact("high", id="g")), POLICY).risks
    assert (row.finding, row.also, row.note) == ("f", ["g"], "certain")


HIGH, MEDIUM = fact("high"), fact("medium")
OPEN: list[Cell] = [ask(State.OPEN)]


@pytest.mark.parametrize(
    ("found", "cells", "terms", "word", "code"),
    [
        ([HIGH], SAFE, Terms(), Word.NOT_READY, 1),
        ([HIGH], SAFE, Terms(fail_on=Severity.CRITICAL), Word.WITH_CONDITIONS, 0),
        ([MEDIUM], SAFE, Terms(), Word.WITH_CONDITIONS, 0),
        ([MEDIUM], SAFE, Terms(fail_on=Severity.MEDIUM), Word.NOT_READY, 1),
        ([attack("low")], SAFE, Terms(fail_on=Severity.LOW), Word.NOT_READY, 1),
        ([HIGH], SAFE, Terms(accepted={"f": "A. Person"}), Word.WITH_CONDITIONS, 0),
        ([HIGH], SAFE, Terms(known=["f"]), Word.WITH_CONDITIONS, 0),
        ([HIGH], SAFE, Terms(accepted={"g": "A. Person"}), Word.NOT_READY, 1),
        ([HIGH], OPEN, Terms(accepted={"f": "A. Person"}), Word.CANNOT_TELL, 3),
        ([], OPEN, Terms(accepted={"membership.server": "A. Person"}), Word.WITH_CONDITIONS, 0),
        ([], OPEN, Terms(accepted={"membership.client": "B"}), Word.CANNOT_TELL, 3),
        ([], SAFE, Terms(unmet=["lira is required and was not planned"]), Word.CANNOT_TELL, 3),
        ([HIGH], SAFE, Terms(unmet=["lira is required and was not planned"]), Word.NOT_READY, 1),
        ([], SAFE, Terms(), Word.READY, 0),
    ],
)
def test_a_reviewers_terms_go_through_the_same_decider(
    found: list[Finding], cells: list[Cell], terms: Terms, word: Word, code: int
) -> None:
    decision = decide(make_audit(*found, cells=cells), POLICY, terms)
    assert (decision.word, decision.word.exit_code) == (word, code), decision.sentence
    assert all(reason in decision.sentence for reason in terms.unmet) or word is Word.NOT_READY
    assert bool(decision.failing) is (word is Word.NOT_READY)


def test_what_is_accepted_by_name_stands_with_its_question() -> None:
    terms = Terms(accepted={"membership.server": "A. Person, until 2030: known"})
    for state, is_kept in ((State.OPEN, True), (State.EXPOSED, True), (State.CLEAR, False)):
        (cell,) = accept_cells([ask(state)], terms)
        assert bool(cell.accepted) is is_kept


def test_a_finding_that_became_severer_is_not_known_from_the_baseline() -> None:
    assert (
        find_known(make_audit(HIGH), make_audit(HIGH))
        == find_known(make_audit(MEDIUM), make_audit(HIGH))
        == ["f"]
    )
    assert find_known(make_audit(HIGH), make_audit(MEDIUM)) == find_known(make_audit(HIGH), None) == []


def test_page_1_says_that_a_policy_is_none_of_ours() -> None:
    theirs = POLICY.model_copy(update={"name": "theirs"})
    judged = f"Judged by policy theirs {POLICY.version}, which is none of fedaudit's. "
    assert decide(make_audit(), theirs).page.bar == judged + decide(make_audit(), POLICY).page.bar
    said = decide(make_audit(), theirs).sentence
    assert said == judged + decide(make_audit(), POLICY).sentence


def test_a_limit_that_excludes_nobody_is_no_limit() -> None:
    some, all_ = (ask(State.OPEN, at_most=n, people=12) for n in (11, 12))
    for question, is_limit in ((some, True), (all_, False)):
        decision = decide(make_audit(cells=[question]), POLICY)
        (people,) = (a.answer for a in decision.page.answers if a.question == "How many could it be?")
        assert (decision.page.people.at_most is not None) is is_limit
        assert ("it could be everybody" in people) is not is_limit
