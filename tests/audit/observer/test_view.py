"""A view is one party's: over all attacks and all methods nothing else is ever in it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaudit.attacks.attack import Card
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.observer.reading import Opened, watch_reading
from fedaudit.audit.observer.view import Observer, observer, select_visible, view
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.artifact import PUBLIC, SERVER, Artifact, Channel, Party, Role
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card as MethodCard
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.protections.secure_aggregation import SecureAggregation
from fedaudit.fl.threats.threat import Position
from tests.fl.worlds import run

CLIENTS = 6
CASE = SimulatedCase(
    validate(Config, {"federation": {"dataset": "digits", "clients": CLIENTS}, "method": "fedavg"}, "")
)
CLIENT = [Party.client(k) for k in range(CLIENTS)]
ALL = {str(k) for k in CLIENT}
MEDIATOR = Party(Role.MEDIATOR, 0)
ATTACKS: dict[str, Card] = {name: catalog.load("attacks", name).card for name in catalog.names("attacks")}


def sent(kind: Kind, channel: Channel, sender: Party, seen_by: tuple[str, ...], size: int = 1) -> Artifact:
    name = f"{sender}.{channel}/{'+'.join(seen_by)}/{kind}".replace("/", "-")
    return Artifact(
        id=name,
        kind=kind,
        channel=channel,
        round=0,
        sender=sender,
        seen_by=seen_by,
        payload={"a": np.zeros(size)},
    )


def traffic(card: MethodCard) -> Iterator[tuple[Artifact, set[str]]]:
    """Messages as the wire carries them, and by hand who reads each: the sender, and whom it went to."""
    for kind in card.downlink:
        yield sent(kind, Channel.DOWNLINK, SERVER, ("client",)), {"server", *ALL}
        yield sent(kind, Channel.DOWNLINK, SERVER, ("client/5",)), {"server", "client/5"}
    for kind in card.uplink:
        for k in (3, 5):
            yield sent(kind, Channel.UPLINK, CLIENT[k], ("server",)), {"server", str(CLIENT[k])}
        yield sent(kind, Channel.UPLINK, CLIENT[0], ()), {"client/0"}  # secure aggregation
    for kind in card.relay:
        yield sent(kind, Channel.RELAY, CLIENT[3], ("client/4",)), {"client/3", "client/4"}
        yield (
            sent(kind, Channel.RELAY, CLIENT[4], ("client/1", "mediator/0")),
            {"client/4", "client/1", "mediator/0"},
        )
    for kind in card.release:
        yield sent(kind, Channel.RELEASE, SERVER, ("public",)), {"server", "public"}


METHODS = {name: list(traffic(catalog.load("methods", name).card)) for name in catalog.names("methods")}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_party_reads_what_was_sent_to_it_and_what_it_sent_of_the_kinds_on_the_card(name: str) -> None:
    card = ATTACKS[name]
    for messages in METHODS.values():
        artifacts = [a for a, _ in messages]
        who = observer(CASE, artifacts, card)
        for party in who.parties:
            wanted = {a.id for a, readers in messages if str(party) in readers and a.kind in card.reads}
            if card.threat.position == Position.NEXT_CLIENT:  # of nothing that it sent itself
                wanted -= {a.id for a in artifacts if a.sender == party}
            assert {a.id for a in view(artifacts, party, card)} == wanted
        everything = {a.id for p in who.parties for a in view(artifacts, p, card)}
        assert {a.id for a in select_visible(artifacts, who, card)} == everything


@pytest.mark.parametrize("name", ATTACKS)
def test_what_is_sent_to_client_5_alone_is_not_in_the_view_of_client_3(name: str) -> None:
    card = ATTACKS[name]
    for position in (Position.CLIENT, Position.NEXT_CLIENT, Position.COLLUDING_CLIENTS):
        there = replace(card, threat=replace(card.threat, position=position))
        for messages in METHODS.values():
            read = view([a for a, _ in messages], CLIENT[3], there)
            assert not [a for a in read if a.seen_by == ("client/5",)]


def of(position: Position) -> Card:
    card = ATTACKS["loss_threshold"]
    return replace(card, requires=(Kind.RELAY_MODEL,), threat=replace(card.threat, position=position))


def test_one_client_attacks_and_it_is_the_one_that_could_read_most() -> None:
    own = [sent(Kind.RELAY_MODEL, Channel.DOWNLINK, SERVER, (f"client/{k}",), k + 1) for k in (2, 4, 1)]
    who = observer(CASE, own, of(Position.CLIENT))
    assert who.parties == (CLIENT[4],) and str(who) == "client/4"
    assert [a.seen_by for a in select_visible(own, who, of(Position.CLIENT))] == [("client/4",)]
    equal = [replace(a, payload={"a": np.zeros(1)}) for a in own]
    assert observer(CASE, equal, of(Position.CLIENT)).parties == (CLIENT[1],)  # the first of equals


def test_next_clients_are_tried_each_for_itself_and_only_those_that_were_handed_something() -> None:
    relayed = [
        sent(Kind.RELAY_MODEL, Channel.RELAY, CLIENT[0], ("client/2",)),
        sent(Kind.RELAY_MODEL, Channel.RELAY, CLIENT[2], ("client/3",)),
    ]
    who = observer(CASE, relayed, of(Position.NEXT_CLIENT))
    assert who.parties == (CLIENT[2], CLIENT[3]) and not who.colluding
    assert str(who) == "client/2, client/3, each for itself"
    assert view(relayed, CLIENT[2], of(Position.NEXT_CLIENT)) == relayed[:1]
    assert str(observer(CASE, [], of(Position.NEXT_CLIENT))) == "nobody"


def test_collusion_is_said() -> None:
    who = observer(CASE, [], of(Position.COLLUDING_CLIENTS))
    assert who.colluding and who.parties == tuple(CLIENT) and str(who).endswith("client/5, together")


def test_a_mediator_reads_the_relays_through_it_and_the_public_the_release() -> None:
    through = sent(Kind.RELAY_MODEL, Channel.RELAY, CLIENT[0], ("client/2", "mediator/0"))
    past = sent(Kind.RELAY_MODEL, Channel.RELAY, CLIENT[0], ("client/3",))
    given = sent(Kind.RELAY_MODEL, Channel.RELEASE, SERVER, ("public",))
    everything = [through, past, given]
    for position, party, read in (
        (Position.MEDIATOR, MEDIATOR, [through]),
        (Position.PUBLIC, PUBLIC, [given]),
        (Position.SERVER, SERVER, [given]),
    ):
        who = observer(CASE, everything, of(position))
        assert who.parties == (party,) and select_visible(everything, who, of(position)) == read


def test_replayed_artifacts_are_for_attacks_that_name_a_control() -> None:
    real = sent(Kind.RELAY_MODEL, Channel.UPLINK, CLIENT[0], ("server",))
    made = replace(real, id="replay/0", origin="replayed")
    card = of(Position.SERVER)
    assert view([real, made], SERVER, card) == [real, made]
    assert view([real, made], SERVER, replace(card, control="")) == [real]


def test_sums_are_opened_and_a_client_that_left_is_solved_from_them(tmp_path: Path) -> None:
    """For an attack on uploads, under secure aggregation: no upload, the mean of each sum, and client 4."""
    method = FedAvg(FedAvg.Config(rounds=2, local_epochs=1, batch_size=8, lr=0.05))
    script = [((0, 1, 4), (0, 1, 4)), ((0, 1), (0, 1))]
    made = run(method, folder=tmp_path, protections=[SecureAggregation()], script=script).artifacts
    participants = {0: {0, 1, 4}, 1: {0, 1}}
    read = select_visible(made, Observer((SERVER,)), ATTACKS["lira"], participants)
    found = {(str(a.sender), a.kind, a.round) for a in read if a.channel == Channel.UPLINK}
    of_sums = {("client", Kind.LOCAL_MODEL, 0), ("client", Kind.LOCAL_MODEL, 1)}
    assert found == of_sums | {("client/4", Kind.MODEL_DELTA, 0)}
    opened: Opened = {}
    for a in watch_reading(read, opened):
        if a.channel == Channel.UPLINK:
            dict(a.payload)
    assert opened == {Kind.AGGREGATE: {0, 1}}
    whole = select_visible(made, Observer((SERVER,)), ATTACKS["sum_difference"], participants)
    assert {a.kind for a in whole} == {Kind.AGGREGATE}
