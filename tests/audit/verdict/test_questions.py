"""Questions follow from the wire, attacks answer them, and leaving one out never makes an answer."""

import math
import re
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from fedaudit.attacks.people import Share
from fedaudit.audit.observer.reach import Reach, observed_rounds, read_traffic
from fedaudit.audit.verdict.aims import FAMILIES, FROM_CLIENTS, find_family, list_aims
from fedaudit.audit.verdict.attempts import is_about
from fedaudit.audit.verdict.questions import Answers, describe_rounds, list_questions
from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import NUMBERS, Kind, Modality, Row, Tells
from fedaudit.fl.protections.secure_aggregation import SecureAggregation
from fedaudit.fl.threats.threat import Aim, Position
from fedaudit.reports.bound import Status
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


def test_rounds_that_were_not_recorded_or_not_read_are_a_question_of_their_own() -> None:
    latest = attempt("loss_threshold", {MODEL: {2}, GLOBAL: {2}})
    found = answer(make_scene("fedavg"), [latest])
    q, rest = (found[f"membership.server.local_model{r}"] for r in ("", ".other_rounds"))
    assert (q.rounds, rest.rounds) == ("round 3 of 3", "rounds 1 to 2 of 3")
    assert (
        rest.required
        and rest.state is State.NOT_ASKED
        and rest.why == "2 recorded rounds were not read by loss_threshold"
    )
    last = answer(make_scene("fedavg", kept={2}), [latest])["membership.server.local_model.other_rounds"]
    assert last.why == "2 rounds were not recorded (setting record)"
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
        ({"tested": 20}, "could be exposed"),  # 1 % asks for nearly a census
        ({"hit": 20}, "20 of 360 people tested were hit"),
        ({"planted": 10.0}, "too few to rely on"),
        ({"clients": 4}, "read 4 of 5 clients"),
    ],
)
def test_what_no_number_bounds_stays_open(people: dict[str, Any], phrase: str) -> None:
    q = ask_analytic(**people)
    assert q.state is State.INCONCLUSIVE and phrase in q.why, q.why
    assert q.is_open


def test_an_open_question_says_how_many_more_people_would_settle_it_and_how_long_that_takes() -> None:
    q = ask_analytic(tested=20)
    assert q.at_most is not None and q.at_most > 3 and q.more and q.seconds
    assert q.seconds == pytest.approx(100.0 * q.more / 100)


def test_all_that_say_how_many_must_bound_and_the_most_sensitive_comes_first() -> None:
    strong = attempt("analytic", {MODEL: ALL}, people=make_people())
    weak = attempt("dlg", {MODEL: ALL}, people=make_people(hit=20, planted=36.0))
    none = attempt("idlg", {MODEL: ALL})
    found = answer(make_scene("fedavg"), [none, weak, strong])["reconstruction.server.local_model"]
    assert found.state is State.INCONCLUSIVE and found.findings == ["analytic", "dlg", "idlg"]
    found = answer(make_scene("fedavg"), [none, strong])["reconstruction.server.local_model"]
    assert found.state is State.BOUNDED


def test_an_attack_that_failed_leaves_its_question_open() -> None:
    failed = attempt("dlg", {}, Outcome.FAILED)
    strong = attempt("analytic", {MODEL: ALL}, people=make_people())
    q = answer(make_scene("fedavg"), [strong, failed])["reconstruction.server.local_model"]
    assert q.state is State.INCONCLUSIVE and q.why == "dlg failed: why"
    alone = answer(make_scene("fedavg"), [failed])["reconstruction.server.local_model"]
    assert alone.state is State.NOT_ASKED and "dlg failed" in alone.why


def test_attacks_that_could_not_work_are_none() -> None:
    unfit = attempt("ridge", {}, Outcome.NOT_APPLICABLE)
    given = Answers(attempts=[unfit])
    q = answer(make_scene("rebafl"), [], given)["inversion.server.local_prototypes"]
    assert q.state is State.NO_ATTACK and q.why == "ridge could not: why"


def bounded_uploads(*names: str) -> dict[str, Question]:
    tried = [attempt(n, dict.fromkeys(CARDS[n].targets, ALL), people=make_people()) for n in names]
    return answer(make_scene("fedavg"), tried)


def test_what_is_computed_from_bounded_uploads_is_bounded_and_not_before() -> None:
    found = bounded_uploads("analytic")
    for observer in ("server", "client", "public"):
        q = found[f"inversion.{observer}.global_model"]
        assert q.state is State.BOUNDED and "computed from local model" in q.why, q.why
    open_ones = bounded_uploads("hidden_images")
    assert open_ones["inversion.public.global_model"].state is State.NO_ATTACK
    both = bounded_uploads("label_counts_from_update")  # num_examples tells of attributes, too, and is open
    assert both["attribute.server.local_model"].state is State.BOUNDED
    assert both["attribute.client.global_model"].state is State.NOT_ASKED


def test_what_worked_on_a_message_outweighs_that_it_is_computed_from_bounded_ones() -> None:
    uploads = attempt("gradient_cosine", {MODEL: ALL}, people=make_people())
    shown = attempt("loss_threshold", {GLOBAL: ALL}, Outcome.DEMONSTRATED)
    found = answer(make_scene("fedavg"), [uploads, shown])
    assert found["membership.server.local_model"].state is State.BOUNDED
    for observer in ("server", "client", "public"):
        assert found[f"membership.{observer}.global_model"].state is State.DEMONSTRATED


def test_the_same_message_is_the_same_at_another_reader() -> None:
    tried = attempt("loss_threshold", {GLOBAL: ALL}, people=make_people())
    found = answer(make_scene("fedavg"), [tried])
    for observer in ("client", "public"):
        q = found[f"membership.{observer}.global_model"]
        assert q.state is State.BOUNDED and q.at_most == 0 and "the same message is read by the server" in q.why


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
def test_a_verified_epsilon_towards_the_reader_bounds_and_no_other(bound: Any, bounded: bool) -> None:
    given = Answers(attempts=[], limits=[bound])
    found = answer(make_scene("fedavg"), [], given)
    assert (found["membership.server.local_model"].state is State.BOUNDED) is bounded
    assert found["reconstruction.server.local_model"].state is not State.BOUNDED  # 1 % is .688
    assert found["exfiltration.server.local_model"].state is not State.BOUNDED  # nobody looked


@pytest.mark.parametrize(("epsilon", "delta"), [(3.9, 0.0), (3.94, 0.0), (1.0, 2e-5), (1.0, 2e-4)])
def test_an_epsilon_bounds_copies_of_records_where_anybody_s_is_hardly_ever_in_a_message(
    epsilon: float, delta: float
) -> None:
    """The chance that anybody's record is copied is over all people together; ln(51) = 3.93 leaves 5 % of it."""
    bound = make_bound(Status.VERIFIED, epsilon).model_copy(update={"delta": delta})
    scene = make_scene("fedavg")
    looked = [attempt("hidden_images", {MODEL: ALL})]
    q = answer(scene, looked, Answers(attempts=looked, limits=[bound]))["exfiltration.server.local_model"]
    chance = 0.001 * math.exp(epsilon) + scene.people * delta - 0.001
    assert (q.state is State.BOUNDED) is (chance <= 0.05)
    if chance <= 0.05:
        assert q.at_most == 0 and "anybody's record" in q.why


@pytest.mark.parametrize(
    ("hit", "planted", "known", "bounded"),
    [(0, 40.0, True, True), (40, 40.0, True, False), (0, 10.0, False, False)],
)
def test_what_is_computed_from_an_artifact_is_bounded_with_it_though_something_was_shown(
    hit: int, planted: float, known: bool, bounded: bool
) -> None:
    """If what showed it also says how many people that exposes, at most, and these are few enough."""
    people = make_people(hit=hit, planted=planted)
    shown = attempt("gradient_cosine", {MODEL: ALL}, Outcome.DEMONSTRATED, people=people)
    other = attempt("loss_threshold", {MODEL: ALL}, people=make_people())
    found = answer(make_scene("fedavg"), [shown, other])
    q = found["membership.server.local_model"]
    assert q.state is State.DEMONSTRATED and (q.at_most is not None) is known
    for observer in ("server", "client", "public"):
        assert (found[f"membership.{observer}.global_model"].state is State.BOUNDED) is bounded


@pytest.mark.parametrize(("held_out", "asked"), [(60, True), (2_000, False)])
def test_a_census_that_its_threshold_leaves_open_says_what_would_settle_it(held_out: int, asked: bool) -> None:
    people = replace(make_people(hit=19), luck=Share(hits=3, trials=held_out), false_alarms=0.01)
    tried = attempt("loss_threshold", {MODEL: ALL}, people=people)
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
    for unit, state in (("client", State.BOUNDED), ("record", State.NO_ATTACK)):
        given = Answers(attempts=[], limits=[make_bound(Status.VERIFIED, 0.5, unit=unit)])
        found = answer(make_scene("fedavg"), [], given)
        assert found["attribute.server.local_model"].state is state
        assert found["reconstruction.server.local_model"].state is State.BOUNDED


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


def test_true_counts_say_nothing_of_rounds_of_which_none_was_recorded() -> None:
    true = Answers(attempts=[], checked=frozenset({Kind.NUM_EXAMPLES}))
    name = "exfiltration.server.num_examples"
    found = answer(make_scene("fedavg", kept=[2]), [], true)
    assert (found[name].state, found[name].rounds) == (State.BOUNDED, "round 3 of 3")
    assert (found[f"{name}.other_rounds"].state, found[f"{name}.other_rounds"].rounds) == (
        State.NOT_ASKED,
        "rounds 1 to 2 of 3",
    )
    assert answer(make_scene("fedavg", kept=[]), [], true)[name].state is State.NOT_ASKED


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


def test_a_round_of_which_a_message_was_set_aside_stays_open_beside_what_was_read() -> None:
    scene = replace(make_scene("fedavg"), people=719, in_small_groups=0)
    path = (Channel.UPLINK, MODEL)
    scene = replace(scene, rounds={**scene.rounds, path: scene.rounds[path]._replace(unread=frozenset({0}))})
    asked = answer(scene, try_all(scene))
    for aim in ("attribute", "membership"):  # by a census, and by attacks that opened every round
        left = asked[f"{aim}.server.local_model.other_rounds"]
        assert left.state is State.NOT_ASKED and left.why == "of 1 round a message was set aside unread"
        assert left.required == asked[f"{aim}.server.local_model"].required


@pytest.mark.parametrize(("small", "state"), [(0, State.BOUNDED), (35, State.BOUNDED), (36, State.INCONCLUSIVE)])
def test_who_stands_in_small_groups_bounds_what_can_be_learned_of_groups(small: int, state: State) -> None:
    scene = replace(make_scene("fedavg"), people=719, in_small_groups=small)
    asked = answer(scene, try_all(scene))
    q = asked["attribute.server.local_model"]
    assert (q.state is State.BOUNDED) is (state is State.BOUNDED)
    if state is State.BOUNDED:
        assert q.at_most == small and "census" in q.why
    assert asked["membership.server.local_model"].state is not State.BOUNDED
    if state is not State.BOUNDED:  # a fact about a larger group tells of nobody, whatever an attack shows
        assert asked["attribute.server.local_model"].at_most == small
    unknown = answer(replace(scene, in_small_groups=None), try_all(scene))
    assert unknown["attribute.server.local_model"].state is not State.BOUNDED


def test_a_fact_that_was_learned_outweighs_the_census() -> None:
    scene = replace(make_scene("fedavg"), people=719, in_small_groups=0)
    shown = attempt("label_counts_from_update", {MODEL: ALL}, Outcome.DEMONSTRATED)
    assert answer(scene, [shown])["attribute.server.local_model"].state is State.DEMONSTRATED
