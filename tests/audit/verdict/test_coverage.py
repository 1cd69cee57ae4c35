"""Coverage is over what exists: all attacks, all kinds, all that could read them."""

from collections.abc import Iterable

import pytest

from fedaudit.attacks.attack import Card
from fedaudit.audit.observer.reach import Reach, declared, observed
from fedaudit.audit.settings import catalog
from fedaudit.audit.verdict.coverage import Tried, coverage
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card as MethodCard
from fedaudit.fl.protections.secure_aggregation import SecureAggregation
from fedaudit.fl.threats.threat import Position
from fedaudit.reports.covered import Coverage
from fedaudit.reports.result import Outcome

CARDS: dict[str, Card] = {name: catalog.load("attacks", name).card for name in catalog.names("attacks")}
METHODS: dict[str, MethodCard] = {name: catalog.load("methods", name).card for name in catalog.names("methods")}


def ran(name: str, opened: Iterable[Kind], outcome: Outcome = Outcome.NOT_DEMONSTRATED) -> Tried:
    return Tried(finding=name, card=CARDS[name], outcome=outcome, opened=frozenset(opened))


def covered(method: str, *tried: Tried, left: dict[str, str] | None = None) -> Coverage:
    others = {n: c for n, c in CARDS.items() if n not in [t.finding for t in tried]}
    return coverage(declared(METHODS[method], ()), method, tried, others, left or {})


def status(found: Coverage) -> dict[tuple[str, str], str]:
    return {(c.kind, c.party): c.status for c in found.artifacts}


@pytest.mark.parametrize("method", METHODS)
def test_every_attack_that_exists_is_counted_once_and_every_kind_sent_has_a_row(method: str) -> None:
    found, card = covered(method), METHODS[method]
    assert {u.attack for u in found.untried} == set(CARDS) and len(found.untried) == len(CARDS)
    assert found.applicable + found.not_applicable == len(CARDS) and found.ran == 0
    sent = {*card.uplink, *card.downlink, *card.relay, *card.release, *(card.observed if card.timed else ())}
    assert {c.kind for c in found.artifacts} == sent
    assert {Kind(c.kind) for c in found.artifacts if c.status == "attacked"} == {k for k in sent if k.raw}
    assert all(c.why for c in found.artifacts) and all(u.why for u in found.untried)


def test_what_an_attack_did_not_open_is_not_attacked_whatever_its_card_names() -> None:
    both = {Kind.GLOBAL_MODEL, Kind.LOCAL_MODEL}
    wide = status(covered("fedavg", ran("loss_threshold", both)))
    narrow = covered("fedavg", ran("loss_threshold", {Kind.GLOBAL_MODEL}))
    assert wide["local_model", "server"] == wide["global_model", "server"] == "attacked"
    assert status(narrow)["local_model", "server"] == "not_run"  # other attacks on it exist
    assert status(narrow)["global_model", "server"] == "attacked"


def test_what_only_helps_an_attack_is_not_attacked_by_it() -> None:
    alone = ran("count_recovery", {Kind.PROTO_COUNTS, Kind.NUM_EXAMPLES})
    found = coverage(declared(METHODS["rebafl"], ()), "ReBaFL", [alone], {}, {})
    rows = {(c.kind, c.party): c for c in found.artifacts}
    assert rows["proto_counts", "server"].attacks == ["count_recovery"]
    assert rows["num_examples", "server"].status == "unread"
    assert "count_recovery" in rows["num_examples", "server"].why


def test_the_same_kind_read_from_another_place_says_so() -> None:
    rows = status(covered("fedavg", ran("loss_threshold", {Kind.GLOBAL_MODEL})))
    assert rows["global_model", "client"] == rows["global_model", "public"] == "elsewhere"


@pytest.mark.parametrize(
    ("outcome", "state"), [(Outcome.FAILED, "failed"), (Outcome.NOT_APPLICABLE, "not_applicable")]
)
def test_an_attack_that_did_not_work_covers_nothing(outcome: Outcome, state: str) -> None:
    found = coverage(
        declared(METHODS["fedavg"], ()),
        "",
        [ran("loss_threshold", CARDS["loss_threshold"].reads, outcome)],
        {},
        {},
    )
    assert status(found)["global_model", "server"] == state
    assert (found.ran, found.failed, found.not_applicable) == (
        (0, 1, 0) if outcome is Outcome.FAILED else (0, 0, 1)
    )


def test_an_attack_that_applies_and_was_left_out_says_why() -> None:
    found = covered("fedavg", left={"lira": "too long"})
    why = {u.attack: (u.applies, u.why) for u in found.untried}
    assert why["lira"] == (True, "too long")
    assert why["rmia"] == (True, "it is not among the attacks of this audit")
    assert why["ridge"] == (False, "fedavg sends no local_prototypes that the server could read")


def test_secure_aggregation_leaves_the_server_the_sum_and_no_attack_on_uploads() -> None:
    hidden = declared(METHODS["rebafl"], [SecureAggregation()])
    assert Reach(Position.SERVER, Kind.AGGREGATE) in hidden.reaches
    assert not {Kind.LOCAL_MODEL, Kind.LOCAL_PROTOTYPES} & hidden.visible(Position.SERVER)
    assert hidden.missing(CARDS["ridge"], "ReBaFL") and not hidden.missing(CARDS["loss_threshold"], "ReBaFL")


def line(channel: str, kind: str, *seen_by: str) -> dict[str, object]:
    return {"channel": channel, "traffic": kind, "seen_by": list(seen_by)}


def test_what_crossed_the_wire_decides_after_a_run() -> None:
    lines = [
        line("uplink", "local_model", "server"),
        line("downlink", "global_model", "client"),
        line("relay", "gan_G", "client", "mediator"),
        {"message": 1, "channel": "uplink"},
    ]
    assert observed(lines).reaches == [
        Reach(Position.SERVER, Kind.LOCAL_MODEL),
        Reach(Position.NEXT_CLIENT, Kind.GAN_G),
        Reach(Position.MEDIATOR, Kind.GAN_G),
        Reach(Position.SERVER, Kind.GLOBAL_MODEL),
        Reach(Position.CLIENT, Kind.GLOBAL_MODEL),
    ]
    hidden = observed([line("uplink", "local_model"), line("downlink", "global_model", "client")])
    assert Kind.LOCAL_MODEL not in hidden.visible(Position.SERVER)
