"""Questions are readers by harms, follow from the wire, and have limits that no list of attacks buys."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from fedaudit.attacks.people import GroupCount, PeopleCount, Share
from fedaudit.audit.observer.check import ENOUGH, ConstantKind
from fedaudit.audit.observer.reach import ObservedTraffic, Reach, Rounds, observed_rounds, read_traffic
from fedaudit.audit.verdict.questions import answer_questions
from fedaudit.audit.verdict.scene import Answers, Attempt, describe_rounds, is_about, list_questions
from fedaudit.audit.verdict.taxonomy import FAMILIES, find_family, list_aims
from fedaudit.fl.artifact import FROM_CLIENTS, Channel
from fedaudit.fl.kinds import NUMBERS, Kind, Row, Tells
from fedaudit.fl.protections.secure_aggregation import SecureAggregation
from fedaudit.fl.threats.threat import Aim, Harm, Position
from fedaudit.reports.bound import PrivacyBound, Status
from fedaudit.reports.questions import Question, State
from fedaudit.reports.result import Finding, Outcome, Severity
from tests.audit.verdict.scenes import (
    ALONE,
    CARDS,
    DEMANDS,
    GIVEN,
    METHODS,
    answer,
    attempt,
    make_people,
    make_scene,
    make_uploads,
    try_all,
)
from tests.reports.sample_bounds import CLEAR, make_bound

MODEL, GLOBAL = Kind.LOCAL_MODEL, Kind.GLOBAL_MODEL
ALL = range(3)
UPLOADS = make_uploads()


@pytest.mark.parametrize("method", METHODS)
def test_everything_that_tells_of_somebody_is_read_in_some_question_of_each_reader(method: str) -> None:
    scene = make_scene(method)
    asked = list_questions(scene, DEMANDS)
    assert len({q.id for q in asked}) == len(asked) <= 7 * len({q.observer for q in asked})
    read = {(q.observer, kind) for q in asked for kind in q.kinds}
    orders = {r for r, channels in scene.traffic.paths.items() if not FROM_CLIENTS & channels}
    assert read == {(r.position, str(r.kind)) for r in scene.traffic.reaches if not r.kind.control_plane} | {
        (r.position, str(r.kind)) for r in scene.traffic.reaches if r not in orders
    }
    assert all(q.state is State.OPEN for q in asked)
    server = next((q for q in asked if q.id == "membership.server"), None)
    if GLOBAL in METHODS[method].downlink:  # who computes a model has it
        assert server is not None and GLOBAL in server.kinds


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
    assert find_family(Kind.SEED_SAMPLES).aims == (Aim.EXFILTRATION,)


def test_that_a_message_is_sent_at_all_is_read_by_nothing() -> None:
    scene = make_scene("fedavg")
    q = answer(scene, try_all(scene))["linkage.server"]
    assert q.state is State.OPEN and not q.required and "whether and when a client sends" in q.why
    assert answer(replace(scene, are_persons=True), [])["linkage.server"].required


@pytest.mark.parametrize("kind", ["local_loss", "mean_logit_table"])
def test_a_kind_without_an_attack_of_the_panel_leaves_every_question_that_reads_it_open(kind: str) -> None:
    method = next(m for m, card in METHODS.items() if kind in card.uplink)
    scene = make_scene(method)
    q = answer(scene, try_all(scene))["membership.server"]
    assert q.state is State.OPEN and q.at_most is None and kind in q.kinds


@cache
def answer_all(method: str, data: str = "image", summed: bool = False) -> dict[str, Question]:
    """The table of a method after every attack that fits it."""
    scene = make_scene(method, gives=GIVEN[data], protections=[SecureAggregation()] if summed else [])
    return answer(scene, try_all(scene))


@pytest.mark.parametrize("name", CARDS)
def test_every_attack_asks_something_of_some_method(name: str) -> None:
    data = next(d for d, gives in GIVEN.items() if not CARDS[name].explain_unfit(gives))
    tables = [answer_all(method, data, name == "sum_difference") for method in METHODS]
    asked = {q.harm for found in tables for q in found.values() if name in q.findings}
    assert asked == {harm for aim in CARDS[name].aims for harm in aim.harms}


def test_an_image_attack_asks_nothing_of_text() -> None:
    text = make_scene("fedavg", gives=GIVEN["text"])
    tried = {a.id for a in try_all(text)}
    assert "loss_threshold" in tried and not {"analytic", "dlg", "inverting_gradients"} & tried
    found = answer(text, try_all(text))
    assert found["exact_record.server"].findings == ["hidden_images", "played_message"]  # of any records
    assert {"token_set", "span_check"} <= set(found["reconstruction.server"].findings)


def ask(id: str, *tried: Attempt, **given: Any) -> Question:
    """One question of clients that send their models, after these attacks."""
    return answer(UPLOADS, tried, Answers(attempts=tried, shipped=ALONE, **given))[id]


def ask_played(**people: Any) -> Question:
    return ask("membership.server", attempt("played_message", {MODEL: ALL}, people=make_people(**people)))


def test_a_round_that_nothing_read_leaves_no_upper_limit() -> None:
    def ask_rounds(rounds: set[int], kept: set[int]) -> Question:
        tried = attempt("played_message", {MODEL: rounds}, people=make_people())
        given = Answers(attempts=[tried], shipped=ALONE)
        return answer(make_uploads(kept=kept), [tried], given)["membership.server"]

    assert ask_rounds({0, 1, 2}, {0, 1, 2}).state is State.CLEAR
    latest = ask_rounds({2}, {0, 1, 2})
    assert (latest.state, latest.at_most) == (State.OPEN, None)
    lacks = "there is no limit, since the panel lacks played_message"
    assert latest.why == f"{lacks} (did not read rounds 1 to 2 of 3)"
    assert ask_rounds({2}, {2}).why == f"{lacks} (2 rounds were not recorded (setting record))"
    tried = attempt("played_message", {MODEL: ALL}, people=make_people())
    given = Answers(attempts=[tried], shipped=ALONE)
    unread = answer(make_uploads(unread=[0]), [tried], given)["membership.server"]
    assert unread.at_most is None and "of 1 round a message was set aside unread" in unread.why


def test_what_an_attack_did_not_open_it_did_not_ask() -> None:
    found = answer(make_scene("fedavg"), [attempt("loss_threshold", {GLOBAL: ALL})])
    assert found["membership.public"].findings == ["loss_threshold"]
    assert found["membership.server"].findings == ["loss_threshold"]  # the server has that model as well
    only = answer(UPLOADS, [attempt("loss_threshold", {GLOBAL: ALL})])
    assert only["membership.server"].findings == []


def test_what_only_helps_an_attack_is_not_what_it_asks_about() -> None:
    card = CARDS["label_counts_from_update"]
    assert {Kind.LOCAL_MODEL, Kind.NUM_EXAMPLES} <= set(card.reads)
    assert is_about(card, [Aim.ATTRIBUTE], Reach(Position.SERVER, Kind.LOCAL_MODEL))
    assert not is_about(card, [Aim.ATTRIBUTE], Reach(Position.SERVER, Kind.NUM_EXAMPLES))


def test_hits_of_one_kind_or_harm_are_those_of_no_other() -> None:
    at_global = replace(make_people(hit=60), kind=GLOBAL)
    tried = attempt("loss_threshold", {MODEL: ALL, GLOBAL: ALL}, people=at_global)
    assert ask("membership.server", tried).at_least == 0  # only models of clients are sent here
    assert answer(make_scene("fedavg"), [tried])["membership.public"].at_least > 18
    diffuse = attempt("loss_threshold", {MODEL: ALL}, people=make_people(Harm.DIFFUSE, hit=72))
    assert ask("membership.server", diffuse).at_least == 0
    assert ask("diffuse_membership.server", diffuse).at_least > 54


def test_a_census_without_a_hit_clears() -> None:
    q = ask_played()
    assert q.state is State.CLEAR and (q.at_least, q.at_most, q.people) == (0, 0, 360)
    assert q.why.startswith("played_message hit none of 360 people tested; at most 0 of 360 people are")


@pytest.mark.parametrize(
    ("people", "phrase"),
    [
        ({"tested": 10}, "at most 22 of 360 are, net of luck"),
        ({"planted": 10.0}, "played_message: it is blind here: it found 50 of 200 planted people"),
        ({"clients": 4}, "played_message (read 4 of 5 clients)"),
    ],
)
def test_what_no_number_limits_stays_open(people: dict[str, Any], phrase: str) -> None:
    q = ask_played(**people)
    assert q.state is State.OPEN and phrase in q.why, q.why
    assert q.is_open


def test_where_nobody_was_planted_the_panel_limits_what_it_hit_in_this_run() -> None:
    bare = replace(make_people(), planted={})
    assert ask("membership.server", attempt("played_message", {MODEL: ALL}, people=bare)).state is State.CLEAR


def test_more_people_hit_than_is_tolerable_are_exposed() -> None:
    q = ask_played(hit=40)
    assert q.state is State.EXPOSED and 18 < q.at_least <= (q.at_most or 0) <= 40
    assert (
        q.why == f"played_message hit 40 of 360 people tested, at least {q.at_least} because their data were in"
    )
    few = ask_played(hit=10)
    assert few.state is State.CLEAR and few.at_most == 10


def test_an_open_question_says_how_many_more_people_would_settle_it_and_how_long_that_takes() -> None:
    q = ask_played(tested=10)
    assert q.at_most is not None and q.at_most > 18 and q.more and q.seconds
    assert q.seconds == pytest.approx(100.0 * q.more / 50)


def test_an_attack_of_the_panel_that_is_left_out_changed_or_failed_leaves_no_upper_limit() -> None:
    """However many others ran: nobody buys a limit with the attacks that they name."""
    weak = [attempt(n, {MODEL: ALL}, people=make_people()) for n in ("loss_threshold", "entropy", "lira")]
    played = attempt("played_message", {MODEL: ALL}, people=make_people())
    assert ask("membership.server", *weak, played).state is State.CLEAR
    assert ask("membership.server", played).state is State.CLEAR
    for tried, why in [
        (weak, "played_message (left out)"),
        ([*weak, replace(played, is_changed=True)], "played_message (played_message has settings of its own)"),
        ([*weak, attempt("played_message", {}, Outcome.FAILED)], "played_message (failed: why)"),
        ([*weak, attempt("played_message", {}, Outcome.NOT_APPLICABLE)], "played_message (could not run: why)"),
        ([*weak, attempt("played_message", {MODEL: ALL})], "played_message (counts nobody here)"),
    ]:
        q = ask("membership.server", *tried)
        assert (q.state, q.at_most) == (State.OPEN, None)
        assert q.why == f"there is no limit, since the panel lacks {why}"
    assert ask("membership.server", *weak).next_attack == "played_message"


def test_an_attack_beside_the_panel_can_only_make_an_answer_worse() -> None:
    panel = attempt("played_message", {MODEL: ALL}, people=make_people())
    for people in (make_people(hit=40), make_people(hit=20, tested=40), make_people(tested=10)):
        beside = attempt("entropy", {MODEL: ALL}, people=people)
        assert ask("membership.server", panel, beside).state is not State.CLEAR
    for silent in (attempt("entropy", {MODEL: ALL}), attempt("entropy", {}, Outcome.FAILED)):
        assert ask("membership.server", panel, silent).state is State.CLEAR


def test_few_examples_call_for_a_search() -> None:
    analytic = attempt("analytic", {MODEL: ALL}, people=make_people(Harm.RECONSTRUCTION))
    searches = ["inverting_gradients", "spear"]
    for fewest, asked in ((25, []), (24, searches[1:]), (9, searches[1:]), (8, searches), (None, searches)):
        given = Answers(attempts=[analytic], shipped=ALONE)
        q = answer(replace(UPLOADS, fewest=fewest), [analytic], given)["reconstruction.server"]
        assert q.state is (State.OPEN if asked else State.CLEAR)
        assert [name for name in searches if name in q.why] == asked


def test_nothing_is_limited_since_something_else_is() -> None:
    """A released model is computed from uploads that are clear, and is looked at all the same."""
    tried = [attempt("played_message", {MODEL: ALL}, people=make_people())]
    assert ask("membership.server", *tried).state is State.CLEAR
    found = answer(make_scene("fedavg"), tried)
    for observer in ("server", "client", "public"):
        q = found[f"membership.{observer}"]
        assert q.state is State.OPEN and "rmia (left out)" in q.why


def test_the_same_message_is_the_same_at_another_reader() -> None:
    tried = attempt("rmia", {GLOBAL: ALL}, people=make_people(hit=3))
    found = answer(make_scene("fedavg"), [tried])
    for observer in ("client", "public"):
        q = found[f"membership.{observer}"]
        assert (q.state, q.at_most, q.findings) == (State.CLEAR, 3, ["rmia"])
    assert found["membership.server"].findings == ["rmia"] and found["membership.server"].at_most is None


def test_what_one_client_hands_to_the_next_is_no_message_of_the_servers() -> None:
    sent = frozenset(ALL)
    paths = (Channel.RELAY, Channel.RELEASE)
    scene = replace(
        UPLOADS,
        traffic=ObservedTraffic(kinds=dict.fromkeys(paths, (GLOBAL,))),
        rounds={(channel, GLOBAL): Rounds(sent, sent) for channel in paths},
    )
    tried = attempt("rmia", {GLOBAL: ALL}, people=make_people(hit=60))
    found = answer(scene, [tried], Answers(attempts=[tried], shipped=ALONE))
    assert found["membership.public"].findings == ["rmia"] and found["membership.public"].at_least > 18
    assert found["membership.next_client"].findings == [] and found["membership.next_client"].at_least == 0


def group(name: str, tested: int, hits: int, luck: Share) -> GroupCount:
    return GroupCount(name=name, tested=tested, hits=hits, luck=luck)


def test_a_minority_that_is_hit_exposes_whatever_the_others_are() -> None:
    """35 of 360 hit, 28 of them of one class of 35: 5 % of all tolerate it, and of the class nobody does."""
    rare = group("class 3", 35, 28, Share(hits=6, trials=400))
    people = make_people(hit=32, luck=15, groups=[rare])
    q = ask("membership.server", attempt("played_message", {MODEL: ALL}, people=people))
    assert q.at_least <= 18 and q.state is State.EXPOSED
    assert [(g.name, g.people, g.attack) for g in q.groups] == [("class 3", 35, "played_message")]
    assert q.groups[0].at_least > 7 and "of 35 people of class 3" in q.why


def test_a_group_that_scores_high_whether_it_was_in_or_not_is_not_exposed_and_not_clear() -> None:
    """The null of a group is held-out people of that group."""
    loud = group("class 3", 35, 28, Share(hits=40, trials=50))
    people = make_people(hit=10, groups=[loud])
    q = ask("membership.server", attempt("played_message", {MODEL: ALL}, people=people))
    assert q.state is not State.EXPOSED and q.at_least <= 10
    unknown = replace(people, groups=(replace(loud, luck=Share()),))
    q = ask("membership.server", attempt("played_message", {MODEL: ALL}, people=unknown))
    assert q.state is State.OPEN and "of 35 people of class 3 at most 28" in q.why


def test_where_nobody_is_tolerable_nobody_of_a_group_is() -> None:
    one = group("class 3", 35, 1, Share(hits=0, trials=400))
    people = make_people(Harm.RECORD, groups=[one])
    played = attempt("played_message", {MODEL: ALL}, people=make_people(Harm.RECORD))
    q = ask("exact_record.server", attempt("hidden_images", {MODEL: ALL}, people=people), played)
    assert q.state is State.OPEN and q.groups[0].at_most == 1


def show(*tried: Attempt) -> dict[str, tuple[Severity, Harm]]:
    found = answer_questions(list_questions(UPLOADS, DEMANDS), UPLOADS, Answers(attempts=tried, shipped=ALONE))
    return {name: (s.severity, s.question.harm) for name, s in found.shown.items()}


@pytest.mark.parametrize(
    ("harm", "hit", "severity"),
    [
        (Harm.MEMBERSHIP, 0, Severity.NONE),
        (Harm.MEMBERSHIP, 18, Severity.LOW),
        (Harm.MEMBERSHIP, 50, Severity.MEDIUM),
        (Harm.MEMBERSHIP, 72, Severity.HIGH),
        (Harm.DIFFUSE, 72, Severity.MEDIUM),
    ],
)
def test_severity_follows_from_how_many_are_hit_at_least(harm: Harm, hit: int, severity: Severity) -> None:
    tried = attempt("entropy", {MODEL: ALL}, people=make_people(harm, hit=hit))
    assert show(tried) == {"entropy": (severity, harm)}


def test_one_copy_of_a_record_is_critical() -> None:
    tried = attempt("hidden_images", {MODEL: ALL}, people=make_people(Harm.RECORD, hit=8))
    assert show(tried) == {"hidden_images": (Severity.CRITICAL, Harm.RECORD)}
    assert ask("exact_record.server", tried).state is State.EXPOSED


def test_an_attack_speaks_by_the_worst_that_it_did_and_of_equal_ones_by_what_is_not_mild() -> None:
    both = [make_people(Harm.DIFFUSE, hit=72), make_people(Harm.MEMBERSHIP, hit=50)]
    assert show(attempt("entropy", {MODEL: ALL}, people=both)) == {"entropy": (Severity.MEDIUM, Harm.MEMBERSHIP)}


def blind(name: str, harm: Harm) -> Attempt:
    return attempt(name, {MODEL: ALL}, people=make_people(harm, planted=0.0))


BLIND = [
    blind("played_message", Harm.MEMBERSHIP),
    blind("analytic", Harm.RECONSTRUCTION),
    blind("hidden_images", Harm.RECORD),
    blind("label_counts_from_update", Harm.ATTRIBUTE),
    blind("label_counts_from_gradient", Harm.ATTRIBUTE),
]


def ask_beside(bound: PrivacyBound, *tried: Attempt) -> dict[str, Question]:
    return answer(UPLOADS, tried, Answers(attempts=tried, shipped=ALONE, limits=[bound]))


@pytest.mark.parametrize(
    ("bound", "is_clear"),
    [
        (make_bound(Status.VERIFIED, 1.7), True),
        (make_bound(Status.VERIFIED, 1.9), False),  # 5 % is 1.783
        (make_bound(Status.VERIFIED, 1.7, observer="public"), False),
        (make_bound(Status.DECLARED, 0.1, CLEAR), False),
        (make_bound(Status.REFUTED, math.inf, CLEAR), False),
    ],
)
def test_a_verified_epsilon_towards_the_reader_stands_in_for_attacks_that_see_nothing(
    bound: PrivacyBound, is_clear: bool
) -> None:
    found = ask_beside(bound, *BLIND)
    assert (found["membership.server"].state is State.CLEAR) is is_clear
    assert found["reconstruction.server"].state is not State.CLEAR  # 1 % is .688


def test_no_epsilon_stands_in_for_an_attack_that_did_not_run() -> None:
    bound = make_bound(Status.VERIFIED, 0.04, unit="client")
    clear = {id for id, q in ask_beside(bound, *BLIND).items() if q.state is State.CLEAR}
    assert {"membership.server", "reconstruction.server", "exact_record.server", "attribute.server"} <= clear
    for left in BLIND:
        found = ask_beside(bound, *(a for a in BLIND if a is not left))
        q = found[f"{left.people[0].harm}.server"]
        assert q.state is not State.CLEAR and left.name in q.why, q.why


def test_an_epsilon_lowers_a_limit_and_more_hits_than_it_allows_refute_it() -> None:
    def ask_under(hit: int, epsilon: float) -> Question:
        played = attempt("played_message", {MODEL: ALL}, people=make_people(hit=hit, luck=10))
        return ask_beside(make_bound(Status.VERIFIED, epsilon), played)["membership.server"]

    assert [ask_under(15, epsilon).at_most for epsilon in (4.0, 1.7, 1.0)] == [14, 14, 6]
    refuted = ask_under(26, 0.1)
    assert refuted.state is State.EXPOSED and refuted.is_refuting and 0 < refuted.at_least <= 18
    assert "the epsilon is refuted" in refuted.why and (refuted.at_most or 0) >= refuted.at_least


@pytest.mark.parametrize(("epsilon", "delta"), [(3.9, 0.0), (3.94, 0.0), (1.0, 2e-5), (1.0, 2e-4)])
def test_an_epsilon_bounds_copies_of_records_where_anybody_s_is_hardly_ever_in_a_message(
    epsilon: float, delta: float
) -> None:
    """The chance that anybody's record is copied is over all people together; ln(51) = 3.93 leaves 5 % of it."""
    bound = make_bound(Status.VERIFIED, epsilon).model_copy(update={"delta": delta})
    tried = (blind(name, Harm.RECORD) for name in ("hidden_images", "played_message"))
    q = ask_beside(bound, *tried)["exact_record.server"]
    chance = 0.001 * math.exp(epsilon) + UPLOADS.people * delta - 0.001
    assert (q.state is State.CLEAR) is (chance <= 0.05)
    if chance <= 0.05:
        assert q.at_most == 0 and "anybody's record" in q.why


@pytest.mark.parametrize(("held_out", "asked"), [(60, True), (2_000, False)])
def test_a_census_that_its_threshold_leaves_open_says_what_would_settle_it(held_out: int, asked: bool) -> None:
    people = replace(make_people(hit=40), luck=Share(hits=0.05 * held_out, trials=held_out))
    q = ask("membership.server", attempt("played_message", {MODEL: ALL}, people=people))
    assert q.state is State.OPEN and q.more is None
    assert ("people whom nobody trained on should settle it" in q.why) is asked


@pytest.mark.parametrize("epsilon", [0.1, 1.7, 4.0])
def test_an_open_question_says_what_keeps_a_declared_epsilon_from_answering_it(epsilon: float) -> None:
    """And no other does: where a verified one would be too large, or the question was answered."""
    verified = ask_beside(make_bound(Status.VERIFIED, epsilon), *BLIND)
    would = []
    for id, q in ask_beside(make_bound(Status.DECLARED, epsilon, CLEAR), *BLIND).items():
        would.append(not q.is_answered and verified[id].state is State.CLEAR)
        assert ("if it were verified" in q.why and CLEAR.sentence.rstrip(".") in q.why) is would[-1]
    assert any(would) is (epsilon < 3.9)


def test_epsilon_for_a_record_bounds_nothing_about_a_group_and_none_bounds_presence() -> None:
    for unit, state in (("client", State.CLEAR), ("record", State.OPEN)):
        found = ask_beside(make_bound(Status.VERIFIED, 0.04, unit=unit), *BLIND)
        assert found["attribute.server"].state is state
        assert found["reconstruction.server"].state is State.CLEAR
        assert found["linkage.server"].state is State.OPEN


def test_one_bit_about_a_client_is_guessed_by_half_so_that_it_takes_a_smaller_epsilon() -> None:
    """Epsilon 1.79 was said to leave 5 % of such facts; it leaves 83 %."""
    found = ask_beside(make_bound(Status.VERIFIED, 1.78, unit="client"), *BLIND)
    assert found["membership.server"].state is State.CLEAR
    q = found["attribute.server"]
    assert q.state is State.OPEN and q.at_most == 299


def fact(id: str) -> Finding:
    return Finding(
        id=id, title="t", source="disclosure", outcome=Outcome.RAN, severity=Severity.CRITICAL, summary="s"
    )


def test_examples_that_are_sent_need_no_attack() -> None:
    scene = make_uploads(Kind.SEED_SAMPLES)
    given = Answers(attempts=[], findings=[fact("raw-seed_samples")])
    q = answer(scene, [], given)["exact_record.server"]
    assert q.state is State.EXPOSED and q.at_least == 1 and q.findings == ["raw-seed_samples"]


def test_true_counts_carry_nothing_and_only_where_all_of_them_are_known_to_be_true() -> None:
    def ask_counts(kept: Sequence[int] = ALL, findings: Sequence[Finding] = ()) -> Question:
        given = Answers(attempts=[], checked=frozenset({Kind.NUM_EXAMPLES}), findings=findings)
        return answer(make_uploads(Kind.NUM_EXAMPLES, kept=kept), [], given)["exact_record.server"]

    true = ask_counts()
    assert (true.state, true.at_most, true.people) == (State.CLEAR, 0, 360)
    assert "every recorded number is the one that its sender holds" in true.why
    assert not ask_counts([2]).is_answered and not ask_counts([]).is_answered
    assert ask_counts(findings=[fact("untrue-num_examples")]).state is State.OPEN


def test_what_a_server_sends_is_of_nobody_where_all_that_it_heard_is() -> None:
    """And where one round, or one kind, depends on somebody's examples, it is asked about as all else."""
    scene = make_scene("fedavg")
    uploads = (*scene.traffic.kinds[Channel.UPLINK], *scene.traffic.kinds[Channel.OBSERVED])
    names = ("membership.server", "membership.public", "reconstruction.client")

    def ask_constant(rounds: dict[Kind, frozenset[int]], plays: int = ENOUGH) -> set[State]:
        played = {k: ConstantKind(kind=str(k), rounds=tuple(r), plays=plays) for k, r in rounds.items()}
        found = answer(scene, [], Answers(attempts=[], shipped=CARDS, constant=played))
        return {found[name].state for name in names}

    whole = dict.fromkeys(uploads, frozenset(ALL))
    assert ask_constant(whole) == {State.CLEAR}
    assert ask_constant(whole, plays=20) == {State.OPEN}
    assert ask_constant(whole | {MODEL: frozenset({0, 1})}) == {State.OPEN}


def test_secure_aggregation_leaves_the_server_the_sum_which_is_asked_about_as_well() -> None:
    hidden = make_scene("fedavg", protections=[SecureAggregation()])
    asked = {q.id: q for q in list_questions(hidden, DEMANDS)}
    assert asked["membership.server"].required
    assert {"aggregate"} <= set(asked["membership.server"].kinds) and MODEL not in asked[
        "membership.server"
    ].kinds


SUMMABLE = [
    name for name, card in METHODS.items() if card.uplink and not SecureAggregation().refuses(card.uplink)
]


@pytest.mark.parametrize("method", SUMMABLE)
def test_of_a_sum_is_asked_what_is_asked_of_the_uploads_in_it(method: str) -> None:
    hidden = list_questions(make_scene(method, protections=[SecureAggregation()]), DEMANDS)
    single = list_questions(make_scene(method), DEMANDS)
    uplink = {str(k) for k in METHODS[method].uplink}
    in_sums = {q.harm for q in hidden if Kind.AGGREGATE in q.kinds and q.observer == Position.SERVER}
    assert in_sums == {q.harm for q in single if uplink & {*q.kinds} and q.observer == Position.SERVER}


@pytest.mark.parametrize("method", SUMMABLE)
def test_attacks_on_uploads_find_in_a_sum_what_they_read_and_only_that(method: str) -> None:
    bare, hidden = make_scene(method).traffic, make_scene(method, protections=[SecureAggregation()]).traffic
    reading = {n: c for n, c in CARDS.items() if Kind.AGGREGATE in c.also_reads}
    assert len(reading) >= 15
    for name, card in reading.items():
        assert bool(hidden.missing(card, "")) is bool(bare.missing(card, "")), name


def test_a_harm_of_clients_counts_clients() -> None:
    clients = PeopleCount(
        harm=Harm.CLIENT_FACT,
        hit_means="named",
        tested={c: (c,) for c in range(5)},
        hit={c: (c,) for c in range(5)},
        held=dict.fromkeys(range(5), 1),
        luck=Share(hits=0, trials=20),
    )
    q = ask("client_fact.server", attempt("label_counts_from_update", {MODEL: ALL}, people=clients))
    assert (q.people, q.state, q.required) == (5, State.EXPOSED, False) and q.at_least >= 2
    assert "hit 5 of 5 clients tested" in q.why


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
