"""Questions follow from the wire, attacks answer them, and leaving one out never makes an answer."""

import math
import re
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from fedaudit.attacks.people import Share
from fedaudit.audit.checks._check import ENOUGH, ConstantKind
from fedaudit.audit.observer.reach import Reach, observed_rounds, read_traffic
from fedaudit.audit.verdict.aims import FAMILIES, FROM_CLIENTS, find_family, list_aims
from fedaudit.audit.verdict.attempts import Attempt, is_about
from fedaudit.audit.verdict.questions import list_questions
from fedaudit.audit.verdict.scene import Answers, describe_rounds
from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import NUMBERS, Kind, Modality, Row, Tells
from fedaudit.fl.protections.secure_aggregation import SecureAggregation
from fedaudit.fl.threats.threat import Aim, Position
from fedaudit.reports.bound import PrivacyBound, Status
from fedaudit.reports.questions import MESSAGES, Question, State
from fedaudit.reports.result import Finding, Outcome, Severity
from tests.audit.verdict.scenes import CARDS, DEMANDS, METHODS, answer, attempt, make_people, make_scene, try_all
from tests.reports.sample_bounds import CLEAR, make_bound

MODEL, GLOBAL = Kind.LOCAL_MODEL, Kind.GLOBAL_MODEL
ALL = range(3)


@pytest.mark.parametrize("method", METHODS)
def test_every_kind_that_tells_of_somebody_is_asked_about_at_each_reader(method: str) -> None:
    scene = make_scene(method)
    asked = list_questions(scene, DEMANDS)
    assert len({q.id for q in asked}) == len(asked)
    places = {(q.observer, q.kind) for q in asked if q.kind != MESSAGES}
    orders = {r for r, channels in scene.traffic.paths.items() if not FROM_CLIENTS & channels}
    assert places == {(r.position, str(r.kind)) for r in scene.traffic.reaches if not r.kind.control_plane} | {
        (r.position, str(r.kind)) for r in scene.traffic.reaches if r not in orders
    }
    assert {"membership.server.global_model"} <= {q.id for q in asked} or GLOBAL not in METHODS[method].downlink
    assert all(q.state is State.NO_ATTACK and q.rounds for q in asked)


def own_kind(name: str, **fields: Any) -> Kind:
    """A kind that fedaudit has no row of."""
    kind = str.__new__(Kind, name)
    row = Row(name, "an adapter", Tells.CLIENT, NUMBERS)._replace(**fields)
    kind.__dict__ |= row._asdict() | {"_value_": name, "_name_": name.upper()}
    return kind


def test_a_kind_of_somebodys_own_is_asked_everything() -> None:
    kind = own_kind("widget")
    aims = dict(list_aims(kind, [Channel.UPLINK]))
    assert {a for a in Aim if a.is_against_people} == set(aims)
    assert aims[Aim.MEMBERSHIP] and aims[Aim.EXFILTRATION] and not aims[Aim.LINKAGE]
    order = own_kind("order", tells=Tells.NOBODY)
    assert dict(list_aims(order, [Channel.DOWNLINK])) == {}
    assert find_family(order, [Channel.UPLINK, Channel.DOWNLINK]) is FAMILIES[-1]  # a client may write anything
    assert find_family(own_kind("faces", raw=True)).aims == (Aim.EXFILTRATION,)


def test_that_a_message_is_sent_at_all_is_asked_and_nothing_reads_it() -> None:
    scene = make_scene("fedavg")
    q = answer(scene, try_all(scene))["linkage.server.messages"]
    assert q.state is State.NO_ATTACK and not q.required


@pytest.mark.parametrize("kind", ["local_loss", "mean_logit_table"])
def test_losses_and_logits_are_asked_for_membership_and_nothing_answers(kind: str) -> None:
    method = next(m for m, card in METHODS.items() if kind in card.uplink)
    scene = make_scene(method)
    q = answer(scene, try_all(scene))[f"membership.server.{kind}"]
    assert q.state is State.NO_ATTACK and q.required


@cache
def answer_all(method: str, modality: Modality = "image", summed: bool = False) -> dict[str, Question]:
    """The table of a method after every attack that fits it."""
    scene = make_scene(method, modality=modality, protections=[SecureAggregation()] if summed else [])
    return answer(scene, try_all(scene))


@pytest.mark.parametrize("name", CARDS)
def test_every_attack_asks_something_of_some_method(name: str) -> None:
    fits = CARDS[name].modality
    modality: Modality = "image" if "image" in fits else min(fits)
    tables = [answer_all(method, modality, name == "sum_difference") for method in METHODS]
    assert {q.aim for found in tables for q in found.values() if name in q.findings} == {CARDS[name].aim}


@pytest.mark.parametrize("most", [3, pytest.param(len(METHODS), marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", CARDS)
def test_without_an_attack_nothing_that_it_alone_asks_is_answered(name: str, most: int) -> None:
    """In methods that it fits, every attack beginning elsewhere among them."""
    fitting = [m for m in METHODS if not make_scene(m).traffic.missing(CARDS[name], "")]
    start = list(CARDS).index(name)
    for method in (fitting[(start + 7 * i) % len(fitting)] for i in range(min(most, len(fitting)))):
        scene = make_scene(method)
        whole, left = answer_all(method), answer(scene, try_all(scene, without=[name]))
        for id, q in left.items():
            named = re.search(rf"\b{name}\b", q.why)
            assert name not in q.findings and (not named or "left out" in q.why), id
        alone = [q for q in whole.values() if q.findings == [name] and "the same message" not in q.why]
        for q in alone:
            gone = left.get(q.id) or left[q.id.removesuffix(".other_rounds")]
            assert gone.state in (State.NOT_ASKED, State.NO_ATTACK), (method, q.id, gone.why)


def test_an_image_attack_asks_nothing_of_text() -> None:
    image, text = make_scene("fedavg"), make_scene("fedavg", modality="text")
    tried = {a.id for a in try_all(text)}
    assert "loss_threshold" in tried and not {"analytic", "hidden_images", "inverting_gradients"} & tried
    assert answer(image, try_all(image))["reconstruction.server.local_model"].state is State.INCONCLUSIVE
    found = answer(text, try_all(text))
    hidden, read = (found[f"{aim}.server.local_model"] for aim in ("exfiltration", "reconstruction"))
    assert hidden.state is State.NO_ATTACK and "image data only, and these are text data" in hidden.why
    assert {"token_set", "span_check"} <= set(read.findings) and read.state is State.INCONCLUSIVE


def test_a_round_that_nothing_read_leaves_a_question_without_an_upper_limit() -> None:
    def ask(rounds: set[int], kept: set[int]) -> Question:
        tried = attempt("played_update", {MODEL: rounds}, people=make_people())
        return answer(make_scene("fedavg", kept=kept), [tried])["membership.server.local_model"]

    assert ask({0, 1, 2}, {0, 1, 2}).state is State.BOUNDED
    latest = ask({2}, {0, 1, 2})
    assert (latest.state, latest.at_most, latest.rounds) == (State.INCONCLUSIVE, None, "round 3 of 3")
    assert latest.why == "the panel lacks played_update (did not read rounds 1 to 2 of 3)"
    assert ask({2}, {2}).why == "the panel lacks played_update (2 rounds were not recorded (setting record))"
    none = answer(make_scene("fedavg", kept=()), [])["membership.server.local_model"]
    assert none.state is State.NOT_ASKED and none.why == "its messages were not recorded (setting record)"


def test_what_an_attack_did_not_open_it_did_not_ask() -> None:
    found = answer(make_scene("fedavg"), [attempt("loss_threshold", {GLOBAL: ALL})])
    assert found["membership.server.global_model"].findings == ["loss_threshold"]
    assert found["membership.server.local_model"].state is State.NOT_ASKED
    helped = answer(make_scene("rebafl"), [attempt("ridge", {Kind.LOCAL_PROTOTYPES: ALL, MODEL: ALL})])
    assert not any("ridge" in q.findings for q in helped.values() if q.kind == MODEL)  # it only helps there


def test_what_only_helps_an_attack_is_not_what_it_asks_about() -> None:
    card = CARDS["label_counts_from_update"]
    assert {Kind.LOCAL_MODEL, Kind.NUM_EXAMPLES} <= set(card.reads)
    assert is_about(card, Aim.ATTRIBUTE, Reach(Position.SERVER, Kind.LOCAL_MODEL))
    assert not is_about(card, Aim.ATTRIBUTE, Reach(Position.SERVER, Kind.NUM_EXAMPLES))


def test_any_attack_demonstrates_and_only_on_the_kind_where_it_was_seen() -> None:
    shown = attempt("loss_threshold", {MODEL: ALL, GLOBAL: ALL}, Outcome.DEMONSTRATED)
    other = attempt("entropy", {MODEL: ALL, GLOBAL: ALL}, people=make_people())
    found = answer(make_scene("fedavg"), [other, shown])
    assert found["membership.server.local_model"].state is State.DEMONSTRATED
    assert found["membership.server.local_model"].findings[0] == "loss_threshold"
    at_model = type(shown)(**{**shown.__dict__, "shown": frozenset({MODEL})})
    assert answer(make_scene("fedavg"), [at_model])["membership.server.global_model"].state is State.INCONCLUSIVE


def ask_analytic(**people: Any) -> Question:
    tried = attempt("analytic", {MODEL: ALL}, people=make_people(**people))
    return answer(make_scene("fedavg"), [tried])["reconstruction.server.local_model"]


def test_a_census_without_a_hit_bounds_a_question() -> None:
    q = ask_analytic()
    assert q.state is State.BOUNDED and q.at_most == 0 and q.people == 360
    assert "None of 360 people tested" in q.why


@pytest.mark.parametrize(
    ("people", "phrase"),
    [
        ({"tested": 20}, "at most 10 of 360 are, net of luck"),  # 1 % asks for nearly a census
        ({"planted": 10.0}, "analytic is blind here: it found 50 of 200 planted people"),
        ({"clients": 4}, "analytic (read 4 of 5 clients)"),
    ],
)
def test_what_no_number_bounds_stays_open(people: dict[str, Any], phrase: str) -> None:
    q = ask_analytic(**people)
    assert q.state is State.INCONCLUSIVE and phrase in q.why, q.why
    assert q.is_open


def test_more_people_hit_than_is_tolerable_demonstrate_whatever_a_rule_says() -> None:
    q = ask_analytic(hit=20)
    assert q.state is State.DEMONSTRATED and 3 < q.at_least <= (q.at_most or 0) <= 20
    assert (
        q.why == f"analytic hit 20 of 360 people tested, at least {q.at_least} of them because their data were in"
    )
    few = ask_analytic(hit=3)
    assert few.state is State.BOUNDED and few.at_most == 3


def test_an_open_question_says_how_many_more_people_would_settle_it_and_how_long_that_takes() -> None:
    q = ask_analytic(tested=20)
    assert q.at_most is not None and q.at_most > 3 and q.more and q.seconds
    assert q.seconds == pytest.approx(100.0 * q.more / 100)


def test_an_attack_of_the_panel_that_is_left_out_changed_or_failed_leaves_no_upper_limit() -> None:
    """However many others ran: nobody buys a limit with the attacks that they name."""
    weak = [
        attempt(n, {MODEL: ALL}, people=make_people()) for n in ("loss_threshold", "entropy", "gradient_cosine")
    ]
    played = attempt("played_update", {MODEL: ALL}, people=make_people())

    def ask(*tried: Attempt) -> Question:
        return answer(make_scene("fedavg"), tried)["membership.server.local_model"]

    assert ask(*weak, played).state is State.BOUNDED and ask(played).state is State.BOUNDED
    for tried, why in [
        (weak, "played_update (left out)"),
        ([*weak, replace(played, is_changed=True)], "played_update (played_update has settings of its own)"),
        ([*weak, attempt("played_update", {}, Outcome.FAILED)], "played_update (failed: why)"),
        ([*weak, attempt("played_update", {}, Outcome.NOT_APPLICABLE)], "played_update (could not run: why)"),
        ([*weak, attempt("played_update", {MODEL: ALL})], "played_update (counts no people here)"),
    ]:
        q = ask(*tried)
        assert (q.state, q.at_most, q.why) == (State.INCONCLUSIVE, None, f"the panel lacks {why}")
    assert ask(*weak).next_attack == "played_update"


def test_an_attack_beside_the_panel_can_only_make_an_answer_worse() -> None:
    analytic = attempt("analytic", {MODEL: ALL}, people=make_people())
    scene = make_scene("fedavg")
    for people in (make_people(hit=20, planted=36.0), make_people(hit=20, tested=40), make_people(tested=20)):
        beside = attempt("dlg", {MODEL: ALL}, people=people)
        found = answer(scene, [analytic, beside])["reconstruction.server.local_model"]
        assert found.state is not State.BOUNDED
    for silent in (attempt("dlg", {MODEL: ALL}), attempt("dlg", {}, Outcome.FAILED)):
        assert answer(scene, [analytic, silent])["reconstruction.server.local_model"].state is State.BOUNDED


def test_few_examples_call_for_a_search() -> None:
    analytic = attempt("analytic", {MODEL: ALL}, people=make_people())
    for fewest, state in ((9, State.BOUNDED), (8, State.INCONCLUSIVE), (None, State.INCONCLUSIVE)):
        scene = replace(make_scene("fedavg"), fewest=fewest)
        q = answer(scene, [analytic])["reconstruction.server.local_model"]
        assert q.state is state and ("inverting_gradients" in q.why) is (state is State.INCONCLUSIVE)


def test_attacks_that_could_not_work_are_none() -> None:
    unfit = attempt("ridge", {}, Outcome.NOT_APPLICABLE)
    given = Answers(attempts=[unfit])
    q = answer(make_scene("rebafl"), [], given)["inversion.server.local_prototypes"]
    assert q.state is State.NO_ATTACK and q.why == "ridge could not: why"


def test_nothing_is_bounded_since_something_else_is() -> None:
    """A released model is computed from bounded uploads, and is looked at all the same."""
    tried = [
        attempt(n, dict.fromkeys(CARDS[n].targets, ALL), people=make_people())
        for n in ("analytic", "played_update", "hidden_images")
    ]
    found = answer(make_scene("fedavg"), tried)
    assert found["membership.server.local_model"].state is State.BOUNDED
    for observer in ("server", "client", "public"):
        assert found[
            f"membership.{observer}.global_model"
        ].why == "left out: loss_threshold, confidence, entropy, rmia, lira" or (
            found[f"membership.{observer}.global_model"].state is State.NOT_ASKED
        )
        assert found[f"inversion.{observer}.global_model"].state is State.NO_ATTACK


def test_the_same_message_is_the_same_at_another_reader() -> None:
    tried = attempt("rmia", {GLOBAL: ALL}, people=make_people())
    found = answer(make_scene("fedavg"), [tried])
    for observer in ("server", "client", "public"):
        q = found[f"membership.{observer}.global_model"]
        assert (q.state, q.at_most, q.findings) == (State.BOUNDED, 0, ["rmia"])


def ask_beside(bound: PrivacyBound, *tried: Attempt) -> dict[str, Question]:
    """The table of FedAvg after these attacks, with a bound."""
    given = Answers(attempts=tried, shipped=CARDS, limits=[bound])
    return answer(make_scene("fedavg"), tried, given)


BLIND = [
    attempt(name, {MODEL: ALL}, people=make_people(planted=0.0))
    for name in (
        "played_update",
        "analytic",
        "hidden_images",
        "label_counts_from_update",
        "label_counts_from_gradient",
    )
]


@pytest.mark.parametrize(
    ("bound", "bounded"),
    [
        (make_bound(Status.VERIFIED, 1.7), True),
        (make_bound(Status.VERIFIED, 1.9), False),  # 5 % is 1.783
        (make_bound(Status.VERIFIED, 1.7, observer="public"), False),
        (make_bound(Status.DECLARED, 0.1, CLEAR), False),
        (make_bound(Status.REFUTED, math.inf, CLEAR), False),
    ],
)
def test_a_verified_epsilon_towards_the_reader_stands_in_for_attacks_that_see_nothing(
    bound: PrivacyBound, bounded: bool
) -> None:
    found = ask_beside(bound, *BLIND)
    assert (found["membership.server.local_model"].state is State.BOUNDED) is bounded
    assert found["reconstruction.server.local_model"].state is not State.BOUNDED  # 1 % is .688


def test_no_epsilon_stands_in_for_an_attack_that_did_not_run() -> None:
    bound = make_bound(Status.VERIFIED, 0.04, unit="client")
    everything = {id for id, q in ask_beside(bound, *BLIND).items() if q.state is State.BOUNDED}
    assert {"membership.server.local_model", "attribute.server.local_model"} <= everything
    for left in BLIND:
        q = next(
            q for id, q in ask_beside(bound, *(a for a in BLIND if a is not left)).items() if id in everything
            and q.aim is left.card.aim
            and q.kind == MODEL
        )  # fmt: skip
        assert q.state is not State.BOUNDED and left.name in q.why, q.why


def test_an_epsilon_lowers_a_limit_and_more_hits_than_it_allows_refute_it() -> None:
    def ask(hit: int, epsilon: float) -> Question:
        played = attempt("played_update", {MODEL: ALL}, people=make_people(hit=hit, luck=10))
        return ask_beside(make_bound(Status.VERIFIED, epsilon), played)["membership.server.local_model"]

    assert [ask(15, epsilon).at_most for epsilon in (4.0, 1.7, 1.0)] == [14, 14, 6]
    refuted = ask(26, 0.1)
    assert refuted.state is State.DEMONSTRATED and 0 < refuted.at_least <= 18
    assert "the epsilon is refuted" in refuted.why and (refuted.at_most or 0) >= refuted.at_least


@pytest.mark.parametrize(("epsilon", "delta"), [(3.9, 0.0), (3.94, 0.0), (1.0, 2e-5), (1.0, 2e-4)])
def test_an_epsilon_bounds_copies_of_records_where_anybody_s_is_hardly_ever_in_a_message(
    epsilon: float, delta: float
) -> None:
    """The chance that anybody's record is copied is over all people together; ln(51) = 3.93 leaves 5 % of it."""
    bound = make_bound(Status.VERIFIED, epsilon).model_copy(update={"delta": delta})
    scene = make_scene("fedavg")
    looked = [attempt("hidden_images", {MODEL: ALL})]
    q = answer(scene, looked, Answers(attempts=looked, shipped=CARDS, limits=[bound]))[
        "exfiltration.server.local_model"
    ]
    chance = 0.001 * math.exp(epsilon) + scene.people * delta - 0.001
    assert (q.state is State.BOUNDED) is (chance <= 0.05)
    if chance <= 0.05:
        assert q.at_most == 0 and "anybody's record" in q.why


def test_a_limit_stands_beside_what_was_shown() -> None:
    shown = attempt("played_update", {MODEL: ALL}, Outcome.DEMONSTRATED, people=make_people(hit=40))
    q = answer(make_scene("fedavg"), [shown])["membership.server.local_model"]
    assert q.state is State.DEMONSTRATED and 18 < q.at_least <= (q.at_most or 0) <= 40
    blind = attempt("played_update", {MODEL: ALL}, Outcome.DEMONSTRATED, people=make_people(hit=40, planted=10.0))
    q = answer(make_scene("fedavg"), [blind])["membership.server.local_model"]
    assert q.state is State.DEMONSTRATED and q.at_most is None


@pytest.mark.parametrize(("held_out", "asked"), [(60, True), (2_000, False)])
def test_a_census_that_its_threshold_leaves_open_says_what_would_settle_it(held_out: int, asked: bool) -> None:
    people = replace(make_people(hit=40), luck=Share(hits=0.05 * held_out, trials=held_out))
    tried = attempt("played_update", {MODEL: ALL}, people=people)
    q = answer(make_scene("fedavg"), [tried])["membership.server.local_model"]
    assert q.state is State.INCONCLUSIVE and q.more is None
    assert ("people whom nobody trained on should settle it" in q.why) is asked


@pytest.mark.parametrize("epsilon", [0.1, 1.7, 4.0])
def test_an_open_question_says_what_keeps_a_declared_epsilon_from_answering_it(epsilon: float) -> None:
    """And no other does: where a verified one would be too large, or the question was answered."""
    shown = attempt("loss_threshold", {MODEL: ALL}, Outcome.DEMONSTRATED)

    def ask(status: Status) -> dict[str, Question]:
        limits = [make_bound(status, epsilon, CLEAR)]
        found = answer(make_scene("fedavg"), [shown], Answers(attempts=[shown], limits=limits))
        return {id: q for id, q in found.items() if q.observer == "server"}

    verified, would = ask(Status.VERIFIED), []
    for id, q in ask(Status.DECLARED).items():
        would.append(not q.is_answered and verified[id].state is State.BOUNDED)
        assert ("if it were verified" in q.why and CLEAR.sentence.rstrip(".") in q.why) is would[-1]
    assert any(would) is (epsilon < 3.9)


def test_what_was_seen_to_work_outweighs_any_epsilon() -> None:
    shown = attempt("loss_threshold", {MODEL: ALL, GLOBAL: ALL}, Outcome.DEMONSTRATED)
    given = Answers(attempts=[shown], limits=[make_bound(Status.VERIFIED, 0.5)])
    q = answer(make_scene("fedavg"), [shown], given)["membership.server.local_model"]
    assert q.state is State.DEMONSTRATED


def test_epsilon_for_a_record_bounds_nothing_about_a_group() -> None:
    for unit, state in (("client", State.BOUNDED), ("record", State.INCONCLUSIVE)):
        found = ask_beside(make_bound(Status.VERIFIED, 0.04, unit=unit), *BLIND)
        assert found["attribute.server.local_model"].state is state
        assert found["reconstruction.server.local_model"].state is State.BOUNDED


def test_one_bit_about_a_client_is_guessed_by_half_so_that_it_takes_a_smaller_epsilon() -> None:
    """Epsilon 1.79 was said to leave 5 % of such facts; it leaves 83 %."""
    found = ask_beside(make_bound(Status.VERIFIED, 1.78, unit="client"), *BLIND)
    assert found["membership.server.local_model"].state is State.BOUNDED
    q = found["attribute.server.local_model"]
    assert q.state is State.INCONCLUSIVE and q.at_most == 299


def raw_finding(id: str) -> Finding:
    return Finding(
        id=id,
        title="t",
        source="disclosure",
        outcome=Outcome.DEMONSTRATED,
        severity=Severity.CRITICAL,
        summary="s",
    )


def test_examples_that_are_sent_need_no_attack_and_true_counts_carry_nothing() -> None:
    method = next(m for m, card in METHODS.items() if Kind.SEED_SAMPLES in card.uplink)
    given = Answers(attempts=[], findings=[raw_finding("raw-seed_samples")])
    assert answer(make_scene(method), [], given)["exfiltration.server.seed_samples"].state is State.DEMONSTRATED
    true = Answers(attempts=[], checked=frozenset({Kind.NUM_EXAMPLES}))
    bounded = answer(replace(make_scene("fedavg"), people=719), [], true)["exfiltration.server.num_examples"]
    assert (bounded.at_most, bounded.people) == (0, 719)
    false = Answers(
        attempts=[], checked=frozenset({Kind.NUM_EXAMPLES}), findings=[raw_finding("untrue-num_examples")]
    )
    assert answer(make_scene("fedavg"), [], false)["exfiltration.server.num_examples"].state is State.DEMONSTRATED


def test_true_counts_say_nothing_of_rounds_that_were_not_recorded() -> None:
    true = Answers(attempts=[], checked=frozenset({Kind.NUM_EXAMPLES}))
    name = "exfiltration.server.num_examples"
    assert answer(make_scene("fedavg"), [], true)[name].state is State.BOUNDED
    for kept in ([2], []):
        assert not answer(make_scene("fedavg", kept=kept), [], true)[name].is_answered


def test_what_a_server_sends_is_of_nobody_where_all_that_it_heard_is() -> None:
    """And where one round, or one kind, depends on somebody's examples, it is asked about as all else."""
    scene = make_scene("fedavg")
    uploads = scene.traffic.kinds[Channel.UPLINK]
    names = ("membership.server.local_model", "membership.public.global_model", "inversion.client.global_model")

    def ask(rounds: dict[Kind, frozenset[int]]) -> set[State]:
        played = {k: ConstantKind(kind=str(k), rounds=tuple(r), plays=ENOUGH) for k, r in rounds.items()}
        found = answer(scene, [], Answers(attempts=[], shipped=CARDS, constant=played))
        return {found[name].state for name in names}

    whole = dict.fromkeys(uploads, frozenset(ALL))
    if timed := scene.traffic.kinds[Channel.OBSERVED]:
        assert State.BOUNDED in ask(whole) and ask(whole) != {State.BOUNDED}  # when a client answers is known
    whole |= dict.fromkeys(timed, frozenset(ALL))
    assert ask(whole) == {State.BOUNDED}
    assert State.BOUNDED not in ask(whole | {MODEL: frozenset({0, 1})})


def test_secure_aggregation_leaves_the_server_the_sum_which_is_asked_about_as_well() -> None:
    hidden = make_scene("fedavg", protections=[SecureAggregation()])
    asked = {q.id: q for q in list_questions(hidden, DEMANDS)}
    assert "membership.server.local_model" not in asked and asked["membership.server.aggregate"].required


SUMMABLE = [
    name for name, card in METHODS.items() if card.uplink and not SecureAggregation().refuses(card.uplink)
]


@pytest.mark.parametrize("method", SUMMABLE)
def test_of_a_sum_is_asked_what_is_asked_of_the_uploads_in_it(method: str) -> None:
    hidden = list_questions(make_scene(method, protections=[SecureAggregation()]), DEMANDS)
    single = list_questions(make_scene(method), DEMANDS)
    uplink = {str(k) for k in METHODS[method].uplink}
    in_sums = {(q.aim, q.required) for q in hidden if q.kind == Kind.AGGREGATE}
    before = {(q.aim, q.required) for q in single if q.kind in uplink and q.observer == Position.SERVER}
    assert {aim for aim, _ in in_sums} == {aim for aim, _ in before}
    assert {aim for aim, required in in_sums if required} == {aim for aim, required in before if required}


@pytest.mark.parametrize("method", SUMMABLE)
def test_attacks_on_uploads_find_in_a_sum_what_they_read_and_only_that(method: str) -> None:
    bare, hidden = make_scene(method).traffic, make_scene(method, protections=[SecureAggregation()]).traffic
    reading = {n: c for n, c in CARDS.items() if Kind.AGGREGATE in c.also_reads}
    assert len(reading) >= 15
    for name, card in reading.items():
        assert bool(hidden.missing(card, "")) is bool(bare.missing(card, "")), name
    scene = make_scene(method, protections=[SecureAggregation()])
    unanswered = answer(scene, [])
    for q in unanswered.values():
        if q.kind == Kind.AGGREGATE and "left out" in q.why:
            named = q.why.removeprefix("left out: ").split(", ")
            assert all(not hidden.missing(CARDS[n], "") for n in named), q.why


@pytest.mark.parametrize(
    ("some", "every", "words"),
    [
        ({0, 1, 2}, {0, 1, 2}, "all 3 rounds"),
        ({2}, {0, 1, 2}, "round 3 of 3"),
        ({0, 1}, {0, 1, 2}, "rounds 1 to 2 of 3"),
        ({0, 2, 4}, {0, 1, 2, 3, 4}, "3 of 5 rounds"),
        ({0}, {0}, "the only round"),
        (set(), set(), "all rounds"),
    ],
)
def test_rounds_are_said_as_they_are_counted_from_one(some: set[int], every: set[int], words: str) -> None:
    assert describe_rounds(some, every) == words


def line(
    channel: str, kind: str, round: int, senders: int, behind: list[int], *seen_by: str
) -> dict[str, object]:
    counted = {"senders": senders, "seen_by": list(seen_by), "behind": behind}
    return {"channel": channel, "traffic": kind, "round": round, **counted}


def upload(name: str, round: int, *seen_by: str) -> dict[str, object]:
    way = {"channel": "uplink", "round": round, "sender": "client/0", "seen_by": list(seen_by)}
    return {"message": name, "kinds": ["local_model"], **way}


def test_rounds_are_kept_whole_or_not_and_a_model_made_of_nobody_asks_nothing() -> None:
    lines = [
        line("downlink", "global_model", 0, 1, [], "client"),
        line("uplink", "local_model", 0, 2, [0, 1], "server"),
        upload("a", 0, "server"),
        line("uplink", "local_model", 1, 1, [0], "server"),
        upload("b", 1, "server"),
        line("uplink", "local_model", 2, 1, [0]),  # in a sum
        upload("c", 2),
        line("uplink", "local_model", 3, 1, [0], "server"),
        {"unread" if k == "message" else k: v for k, v in upload("d", 3, "server").items()},
    ]
    found = observed_rounds(lines)
    assert (Channel.DOWNLINK, GLOBAL) not in found
    assert found[Channel.UPLINK, MODEL] == (frozenset({0, 1, 3}), frozenset({1}), frozenset({3}))
    hidden = read_traffic(
        [line("uplink", "local_model", 0, 1, [0]), line("downlink", "global_model", 0, 1, [0], "client")]
    )
    assert MODEL not in hidden.visible(Position.SERVER)
    assert hidden.reaches == [Reach(Position.SERVER, GLOBAL), Reach(Position.CLIENT, GLOBAL)]


def test_a_round_of_which_a_message_was_set_aside_has_no_limit_beside_what_was_read() -> None:
    scene = replace(make_scene("fedavg"), people=719)
    path = (Channel.UPLINK, MODEL)
    scene = replace(scene, rounds={**scene.rounds, path: scene.rounds[path]._replace(unread=frozenset({0}))})
    asked = answer(scene, try_all(scene))
    for aim in ("attribute", "membership"):
        q = asked[f"{aim}.server.local_model"]
        assert q.state is State.INCONCLUSIVE and q.at_most is None
        assert "of 1 round a message was set aside unread" in q.why
