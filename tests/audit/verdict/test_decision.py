"""The word is the first that holds, is never better than its evidence, and every word can be reached."""

import math
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.measure import MEASURES
from fedaudit.audit.settings import catalog
from fedaudit.audit.verdict.accounts import make_bound_subjects
from fedaudit.audit.verdict.decision import FACTS, decide
from fedaudit.audit.verdict.policy import GradingPolicy, load_policy
from fedaudit.audit.verdict.terms import Terms, find_known
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.threats.threat import Aim, Position
from fedaudit.reports.bound import PrivacyBound, Status
from fedaudit.reports.decision import Odds, Word
from fedaudit.reports.questions import Question, State
from fedaudit.reports.result import AuditResult, Finding, Outcome, Severity
from tests.reports.sample import make_question, result
from tests.reports.sample_bounds import CLEAR, make_bound

POLICY = load_policy("default")


def finding(severity: str = "none", outcome: str = "not_demonstrated", source: str = "attack") -> Finding:
    return Finding(
        id="f",
        title="t",
        source=source,  # type: ignore[arg-type]
        outcome=Outcome(outcome),
        severity=Severity(severity),
        summary="s",
        rule="above-chance",
    )


BOUNDED = {"at_most": 35, "people": 719}


def ask(state: State, **more: Any) -> Question:
    facts = BOUNDED if state is State.BOUNDED else {}
    return make_question("membership", "server", "local_model", state, "because", **facts | more)


SAFE = [ask(State.BOUNDED)]


def audit(*findings: Finding, questions: list[Question] = SAFE) -> AuditResult:
    made = result()
    made.findings, made.decision, made.bounds = list(findings), None, []
    made.questions = list(questions)
    return made


def expose(**more: Any) -> Question:
    """A question of which 36 of 719 people were hit at least, where 35 are tolerable."""
    limits = {"tolerable": 0.05, "at_least": 36, "at_most": 50, "people": 719, "findings": ["f"]}
    return ask(State.DEMONSTRATED, **limits | more)


CLEAN = finding()
OPEN = [State.INCONCLUSIVE, State.NOT_ASKED, State.NO_ATTACK]


@pytest.mark.parametrize(
    ("audited", "word", "rule"),
    [
        (audit(CLEAN), Word.READY, ""),
        (audit(), Word.READY, ""),
        (audit(finding("high", "demonstrated")), Word.NOT_READY, "severe-finding"),
        (audit(finding("critical", "demonstrated"), questions=[]), Word.NOT_READY, "severe-finding"),
        (audit(questions=[]), Word.CANNOT_TELL, "question-open"),
        (audit(CLEAN, questions=[ask(State.BOUNDED, required=False)]), Word.CANNOT_TELL, "question-open"),
        (audit(CLEAN, finding("medium", "demonstrated")), Word.WITH_CONDITIONS, "finding-to-treat"),
        (audit(CLEAN, finding("low", "demonstrated", "lint")), Word.WITH_CONDITIONS, "finding-to-treat"),
        (audit(CLEAN, finding(outcome="not_applicable")), Word.READY, ""),
        (audit(CLEAN, questions=[expose()]), Word.NOT_READY, "people-exposed"),
        (audit(CLEAN, questions=[expose(), ask(State.NOT_ASKED)]), Word.NOT_READY, "people-exposed"),
        (audit(CLEAN, questions=[*SAFE, expose(required=False)]), Word.READY, ""),
        (audit(CLEAN, questions=[expose(at_least=9, is_refuting=True)]), Word.NOT_READY, "people-exposed"),
        # an attack that could not tell is no reason of its own: the question says what is known
        (audit(finding(outcome="inconclusive")), Word.READY, ""),
        (audit(CLEAN, questions=[*SAFE, ask(State.NO_ATTACK, required=False)]), Word.READY, ""),
        (
            audit(CLEAN, questions=[*SAFE, ask(State.NOT_ASKED, accepted="A. Person")]),
            Word.WITH_CONDITIONS,
            "accepted",
        ),
    ],
)
def test_every_word_is_reached_by_its_ground(audited: AuditResult, word: Word, rule: str) -> None:
    found = decide(audited, POLICY)
    assert (found.word, found.rule) == (word, rule), found.sentence


@pytest.mark.parametrize("state", OPEN)
def test_one_open_required_question_forbids_ready(state: State) -> None:
    found = decide(audit(CLEAN, questions=[*SAFE, ask(state)]), POLICY)
    assert (found.word, found.word.exit_code) == (Word.CANNOT_TELL, 3)
    assert "Required questions are open: membership 1." in found.sentence
    assert (
        "Membership by the server (local model): " in found.sentence
        and "1 of 2 questions answered" in found.sentence
    )


def test_a_refuted_bound_forbids_a_deployment_whatever_its_finding_says() -> None:
    audited = audit(CLEAN)
    audited.bounds = [make_bound(Status.REFUTED, math.inf, CLEAR)]
    assert decide(audited, POLICY).rule == "bound-refuted"


def test_more_doubt_never_makes_the_word_better() -> None:
    order = [Word.READY, Word.WITH_CONDITIONS, Word.CANNOT_TELL, Word.NOT_READY]
    bases = ([CLEAN], [finding("low", "demonstrated")], [finding("high", "demonstrated")])
    for base, state in product(bases, OPEN):
        before = order.index(decide(audit(*base), POLICY).word)
        for worse in (audit(*base, questions=[ask(state)]), audit(*base, questions=[])):
            assert order.index(decide(worse, POLICY).word) >= before


def test_not_ready_says_how_many_people_were_hit_and_somebody_may_answer_for_them() -> None:
    name = "membership by the server (local model)"
    for q, why in [(expose(), "the policy tolerates 5"), (expose(at_least=9, is_refuting=True), "an epsilon")]:
        text = decide(audit(CLEAN, questions=[q]), POLICY).sentence
        assert f"At least {q.at_least} of 719 people are hit because their data were in: {name}; {why}" in text
    for id in ("f", "membership.server.local_model"):
        accepted = Terms(accepted={id: "A. Person, until 2030"})
        assert decide(audit(CLEAN, questions=[expose()]), POLICY, accepted).word is Word.WITH_CONDITIONS


def test_ready_says_for_whom_how_many_and_what_it_leaves_out() -> None:
    lacking = make_question("inversion", "public", "global_model", State.NO_ATTACK, "none", required=False)
    text = decide(audit(CLEAN, questions=[*SAFE, lacking]), POLICY).sentence
    assert "Ready for these 10 clients and this run." in text and "1 of 2 questions answered" in text
    assert "By the attacks of panel 1, each run in full, at most 35 of 719 people (4.9\u00a0%)" in text
    assert "other clients, of which up to 25.9\u00a0% could leak unseen" in text  # 1 - .05^(1/10)
    assert "attacks we lack: inversion, public: global model" in text


def test_cannot_tell_names_the_question_its_bound_and_what_would_settle_it() -> None:
    why = "None of 60 people tested was hit; at most 46 of 719 could be exposed"
    left = ask(State.INCONCLUSIVE, at_most=46, people=719, more=240, seconds=130.0).model_copy(
        update={"why": why}
    )
    text = decide(audit(CLEAN, questions=[left]), POLICY).sentence
    assert f"Membership by the server (local model): {why}." in text
    assert "Testing 240 more (about 2\u00a0min 10\u00a0s) should settle it." in text


def test_what_more_time_would_answer_counts_each_attack_once_and_promises_nothing_else() -> None:
    def miss(kind: str, attack: str, seconds: float | None) -> Question:
        asked = make_question("membership", "server", kind, State.NOT_ASKED, "left out")
        return asked.model_copy(update={"next_attack": attack, "seconds": seconds})

    lacking = make_question("inversion", "server", "global_model", State.NO_ATTACK, "none")
    untested = ask(State.INCONCLUSIVE, at_most=46, people=719, more=240, seconds=130.0)
    left = [miss("local_model", "lira", 10.0), miss("global_model", "lira", 10.0), lacking, untested]
    text = decide(audit(CLEAN, questions=left), POLICY).more.replace("\u00a0", " ")
    start = "2 of 4 open required questions could be answered in about 10 s of one core, by attacks that this "
    assert text.startswith(start)
    assert "Testing more people (about 2 min 10 s) should settle 1." in text
    assert text.endswith("1 stays open whatever the time budget: fedaudit has no attack for 1.")
    assert decide(audit(CLEAN, questions=SAFE), POLICY).more == ""
    for seconds, said in ((0.479, " in about 1 s of one core"), (None, "")):  # an estimate has no digits
        text = decide(audit(CLEAN, questions=[miss("local_model", "lira", seconds)]), POLICY).more
        assert text.replace("\u00a0", " ").startswith(
            f"1 of 1 open required question could be answered{said}, by"
        )


@pytest.mark.parametrize("source", ["accountant", "lint"])
def test_where_only_a_statement_fails_no_leak_is_said_to_have_succeeded(source: str) -> None:
    stated = finding("critical", "demonstrated", source)
    text = decide(audit(stated), POLICY).sentence
    assert "succeeded" not in text and "What is stated of a protection does not hold" in text
    leak = finding("high", "demonstrated").model_copy(update={"id": "leak"})
    assert "succeeded against this federation" in decide(audit(stated, leak), POLICY).sentence


def test_a_place_that_few_messages_reach_is_quoted_with_the_interval_of_its_replays() -> None:
    def named(origin: str, low: float, **more: Any) -> Evidence:
        condition = {"n": 1.0, "origin": origin}
        fields = {"measure": "named", "value": 1.0, "unit": "fraction", "trials": 10, "interval": (low, 1.0)}
        return Evidence(**fields | {"condition": condition} | more)  # type: ignore[arg-type]

    sent, planted = named("recorded", 0.0), named("replayed", 0.5, control="positive")
    leak = finding("critical", "demonstrated").model_copy(
        update={"rule": "re-identified-critical", "where": sent.place, "evidence": [sent, planted]}
    )
    (alone,) = decide(audit(leak), POLICY).risks[0].odds
    assert alone.interval == (0.0, 1.0) and alone.replayed is None  # a planted leak is no replay of what was sent
    both = leak.model_copy(update={"evidence": [sent, planted, named("replayed", 0.9)]})
    (odds,) = decide(audit(both), POLICY).risks[0].odds
    assert odds.interval == (0.0, 1.0) and odds.replayed == (0.9, 1.0)
    assert (
        (odds.trials, odds.replays) == (10, 10) and odds.rests_on_replays and odds.reliable_interval == (0.9, 1.0)
    )


def test_replays_are_relied_on_only_where_they_say_more_than_the_run() -> None:
    odds = Odds(group=1, value=0.9, interval=(0.8, 1.0), guess=0.1, replayed=(0.7, 0.95), graded=True)
    assert not odds.rests_on_replays and odds.reliable_interval == (0.8, 1.0)
    narrower = odds.model_copy(update={"replayed": (0.85, 0.95)})
    assert narrower.rests_on_replays and narrower.reliable_interval == (0.85, 0.95)
    assert odds.model_copy(update={"replayed": None}).reliable_interval == (0.8, 1.0)


@pytest.mark.parametrize("bound", [make_bound(Status.NONE, math.inf, CLEAR), make_bound(Status.VERIFIED, 60.0)])
def test_how_large_an_epsilon_is_and_that_there_is_none_is_said_and_is_no_finding(bound: PrivacyBound) -> None:
    assert make_bound_subjects([bound]) == []
    made = audit(CLEAN)
    made.bounds = [bound]
    assert decide(made, POLICY).word is Word.READY
    text = repr(catalog.load("sections", "budget")().build(made))
    assert "released without noise" in text or "should not be advertised as differential privacy" in text


def test_a_policy_of_ones_own_has_its_own_bar_and_without_one_the_default_ones() -> None:
    assert POLICY.decision is not None
    strict = POLICY.decision.model_copy(update={"not_ready": Severity.LOW})
    own = POLICY.model_copy(update={"decision": strict})
    audited = audit(finding("low", "demonstrated"))
    assert decide(audited, own).word is Word.NOT_READY
    bare = POLICY.model_copy(update={"decision": None, "questions": None})
    assert decide(audited, bare).rule == "finding-to-treat" and bare.demands == POLICY.demands


def written(tmp_path: Path, **changes: Any) -> str:
    text = POLICY.model_dump(mode="json", exclude_none=True) | changes
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(text))
    return str(tmp_path / "own.yaml")


@pytest.mark.parametrize("aim", ["exfiltration", "membership", "attribute", "inversion", "reconstruction"])
def test_a_policy_that_does_not_ask_what_nobody_may_leave_out_is_refused(aim: str, tmp_path: Path) -> None:
    text = POLICY.demands.model_dump(mode="json")
    text["required"][0]["aims"].remove(aim)
    with pytest.raises(UserError, match=f"required must ask {aim} of the server"):
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
    assert load_policy(written(tmp_path, questions=text)).demands.tolerate(Aim.INVERSION) == 0.001
    text["tolerable"][1]["share"] = 0.06
    with pytest.raises(UserError, match="share"):
        load_policy(written(tmp_path, questions=text))
    text["tolerable"] = POLICY.demands.model_dump(mode="json")["tolerable"][1:]
    with pytest.raises(UserError, match="tolerable must name each aim once, and names exfiltration 0 times"):
        load_policy(written(tmp_path, questions=text))


def test_a_list_of_grounds_of_an_older_policy_says_what_replaced_it(tmp_path: Path) -> None:
    old = [{"id": "x", "verdict": "cannot_tell", "ran_below": 1, "reason": "Nothing was attacked."}]
    with pytest.raises(UserError, match="decision is a list of grounds"):
        load_policy(written(tmp_path, decision=old))


def test_linkage_is_required_where_clients_are_persons() -> None:
    demands = POLICY.demands
    assert demands.requires(Aim.LINKAGE, Position.SERVER, are_persons=True)
    assert not demands.requires(Aim.LINKAGE, Position.SERVER, are_persons=False)


def graded(policy: GradingPolicy) -> list[tuple[str, list[str]]]:
    return [(r.id, [c.measure for c in r.all if c.measure != "*"]) for r in policy.rules]


@pytest.mark.parametrize(("rule", "measures"), graded(POLICY))
def test_every_rule_of_the_policy_has_words_for_a_reader_without_statistics(
    rule: str, measures: list[str]
) -> None:
    told = [row.harm for row in MEASURES.values() for m in measures if fnmatchcase(row.name, m)]
    facts = [
        words for name, words in FACTS.items() for m in measures if fnmatchcase(name, m) or fnmatchcase(m, name)
    ]
    assert not measures or any(told) or facts, rule


def test_findings_of_one_harm_share_a_row_and_keep_their_names() -> None:
    bound = finding("high", "demonstrated", "accountant")
    other = bound.model_copy(update={"id": "g"})
    (row,) = decide(audit(bound, other), POLICY).risks
    assert (row.finding, row.also) == ("f", ["g"])


@pytest.mark.parametrize(
    ("aim", "what"),
    [
        ("membership", "A person's record is recognised as training data"),
        ("attribute", "A fact about a client's examples is learned"),
    ],
)
def test_an_area_under_a_curve_is_a_harm_of_what_its_attack_asks(aim: str, what: str) -> None:
    measured = finding("medium", "demonstrated")
    measured.rule, measured.evidence = (
        "membership-average-medium",
        [Evidence(measure="auc", value=0.9, unit="fraction", trials=99, interval=(0.8, 0.95))],
    )
    asked = make_question(aim, "server", "local_model", State.DEMONSTRATED, "f succeeded").model_copy(
        update={"findings": ["f"]}
    )
    (row,) = decide(audit(measured, questions=[asked]), POLICY).risks
    assert row.what == what


def test_page_2_does_not_call_unasked_what_no_attack_could_ask() -> None:
    def of_client(kind: str, state: State) -> Question:
        return make_question("membership", "client", kind, state, "because")

    asked = [of_client("global_model", State.NOT_ASKED), of_client("global_prototypes", State.NO_ATTACK)]
    answers = {a.question: a.answer for a in decide(audit(CLEAN, questions=asked), POLICY).answers}
    assert (
        "Another client cannot be excluded (2 questions about them: 1 not asked, 1 no attack exists)."
        in answers["Who can do it?"]
    )


HIGH, MEDIUM = finding("high", "demonstrated"), finding("medium", "demonstrated")
QUESTION = "membership.server.local_model"


@pytest.mark.parametrize(
    ("found", "questions", "terms", "word", "code"),
    [
        ([HIGH], SAFE, Terms(), Word.NOT_READY, 1),
        ([HIGH], SAFE, Terms(fail_on=Severity.CRITICAL), Word.WITH_CONDITIONS, 0),
        ([MEDIUM], SAFE, Terms(), Word.WITH_CONDITIONS, 0),
        ([MEDIUM], SAFE, Terms(fail_on=Severity.MEDIUM), Word.NOT_READY, 1),
        ([HIGH], SAFE, Terms(accepted={"f": "A. Person"}), Word.WITH_CONDITIONS, 0),
        ([HIGH], SAFE, Terms(known=["f"]), Word.WITH_CONDITIONS, 0),
        ([HIGH], SAFE, Terms(accepted={"g": "A. Person"}), Word.NOT_READY, 1),
        ([HIGH], [ask(State.NOT_ASKED)], Terms(accepted={"f": "A. Person"}), Word.CANNOT_TELL, 3),
        ([CLEAN], [ask(State.NOT_ASKED)], Terms(accepted={QUESTION: "A. Person"}), Word.WITH_CONDITIONS, 0),
        ([CLEAN], [ask(State.NOT_ASKED)], Terms(accepted={QUESTION + ".other_rounds": "B"}), Word.CANNOT_TELL, 3),
        ([CLEAN], SAFE, Terms(unmet=["lira is required and was not planned"]), Word.CANNOT_TELL, 3),
        ([HIGH], SAFE, Terms(unmet=["lira is required and was not planned"]), Word.NOT_READY, 1),
        ([CLEAN], SAFE, Terms(), Word.READY, 0),
    ],
)
def test_a_reviewers_terms_go_through_the_same_decider(
    found: list[Finding], questions: list[Question], terms: Terms, word: Word, code: int
) -> None:
    decision = decide(audit(*found, questions=questions), POLICY, terms)
    assert (decision.word, decision.word.exit_code) == (word, code), decision.sentence
    assert all(reason in decision.sentence for reason in terms.unmet) or word is Word.NOT_READY
    assert bool(decision.failing) is (word is Word.NOT_READY)


def test_a_finding_that_became_severer_is_not_known_from_the_baseline() -> None:
    assert find_known(audit(HIGH), audit(HIGH)) == find_known(audit(MEDIUM), audit(HIGH)) == ["f"]
    assert find_known(audit(HIGH), audit(MEDIUM)) == find_known(audit(HIGH), None) == []


def test_a_limit_of_a_question_names_the_harm_that_answered_it_and_no_other() -> None:
    shown = ask(State.DEMONSTRATED, at_most=220, people=575, findings=["f"])
    (people, *_) = decide(audit(finding("high", "demonstrated"), questions=[shown]), POLICY).answers
    assert "220 of 575 (membership by the server (local model), harm 1)" in people.answer
    for other in (shown.model_copy(update={"findings": ["g"]}), ask(State.BOUNDED, findings=["f"])):
        (people, *_) = decide(audit(finding("high", "demonstrated"), questions=[other]), POLICY).answers
        assert "(local model))" in people.answer and "harm 1" not in people.answer


def test_limits_of_nobody_are_not_called_the_highest() -> None:
    none = [ask(State.BOUNDED, at_most=0, people=575), ask(State.BOUNDED, at_most=0, people=575)]
    (people, *_) = decide(audit(questions=none), POLICY).answers
    assert "known for 2 of 2 questions, and it is 0 for each of these." in people.answer
    (people, *_) = decide(audit(questions=none[:1]), POLICY).answers
    assert "known for 1 of 1 question: 0 of 575 (membership by the server" in people.answer


def test_page_1_says_that_a_policy_is_none_of_ours() -> None:
    audited = audit(CLEAN, questions=SAFE)
    theirs = POLICY.model_copy(update={"name": "theirs"})
    said = decide(audited, theirs).sentence
    assert said == f"Judged by policy theirs {POLICY.version}, which is none of fedaudit's. " + (
        decide(audited, POLICY).sentence
    )


def test_a_bound_that_excludes_nobody_is_no_limit() -> None:
    open_ = {"state": State.INCONCLUSIVE, "people": 12, "required": True}
    some, all_ = (ask(State.INCONCLUSIVE).model_copy(update={**open_, "at_most": n}) for n in (11, 12))
    for question, is_limit in ((some, True), (all_, False)):
        decision = decide(audit(CLEAN, questions=[question]), POLICY)
        (people,) = (a.answer for a in decision.answers if a.question == "How many people?")
        assert ("An upper limit is known for 1 of 1" in people) is is_limit
        assert any("at most" in n.text for n in decision.numbers) is is_limit
        assert ("it could be all 12" in people) is not is_limit
