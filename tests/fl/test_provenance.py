"""Whose examples a relayed message carries, message by message; tests/fl/test_all_methods.py has the methods."""

import json

from fedaudit.fl.artifact import SERVER, Channel, Party, Route
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.provenance import Provenance


class Followed:
    def __init__(self) -> None:
        self.provenance = Provenance()

    def server(self, kind: Kind = Kind.GLOBAL_MODEL, to: int = 9) -> set[int]:
        return self._sent(Channel.DOWNLINK, SERVER, f"client/{to}", kind)

    def relay(self, sender: int, to: int, *seen: str) -> set[int]:
        return self._sent(Channel.RELAY, Party.client(sender), f"client/{to}", Kind.RELAY_MODEL, *seen)

    def uplink(self, sender: int, kind: Kind = Kind.LOCAL_MODEL, seen: str = "server") -> set[int]:
        return self._sent(Channel.UPLINK, Party.client(sender), "server", kind, *filter(None, [seen]), only=True)

    def _sent(
        self, channel: Channel, sender: Party, to: str, kind: Kind, *seen: str, only: bool = False, round: int = 0
    ) -> set[int]:
        route = Route(round, channel, sender, (to,), seen if only else (to, *seen))
        return set(self.provenance.behind(route, [kind])[kind])


def test_a_model_carries_all_who_handed_it_on_and_nobody_whose_work_was_rolled_back() -> None:
    f = Followed()
    assert f.server(to=1) == set()
    assert f.relay(1, 2) == {1}
    assert f.relay(2, 3) == {1, 2}  # client 3 never answers, client 2 is down: client 1 hands its own on again
    assert f.relay(1, 4) == {1}
    assert f.server() == set()  # nobody was heard yet
    assert f.uplink(4) == {1, 4}
    assert f.server() == {1, 4}


def test_who_starts_from_the_servers_model_again_carries_nobody_else() -> None:
    f = Followed()
    f.relay(1, 2)
    f.server(to=2)
    assert f.uplink(2) == {2}


def test_a_mediator_hears_what_it_passes_on() -> None:
    f = Followed()
    f.relay(1, 2, "mediator/0")
    assert f.server() == {1}


def test_counts_losses_generators_and_samples_are_in_no_model() -> None:
    f = Followed()
    for client, kind in enumerate((Kind.LABEL_COUNTS, Kind.LOCAL_LOSS, Kind.GAN_G, Kind.SEED_SAMPLES)):
        assert f.uplink(client, kind) == {client}
    assert f.server() == set()
    assert f.server(Kind.GAN_G) == {2, 3}  # a generator is trained on the samples
    assert f.server(Kind.ALLOCATION) == {0, 1}


def test_who_was_heard_is_not_listed_anew_for_each_message() -> None:
    f, total = Followed(), Route(0, Channel.UPLINK, Party.parse("client"), ("server",), ("server",))
    for client in range(5):
        f.uplink(client)
        f.uplink(client, seen="")
    routes = [Route(0, Channel.DOWNLINK, SERVER, (f"client/{k}",), (f"client/{k}",)) for k in range(3)]
    asked = [(route, kind) for kind in (Kind.GLOBAL_MODEL, Kind.SMASHED_GRADIENT) for route in routes]
    for some in (asked, [(total, Kind.AGGREGATE)] * 3):
        found = [f.provenance.behind(route, [kind])[kind] for route, kind in some]
        assert found[0] == {0, 1, 2, 3, 4} and all(clients is found[0] for clients in found)


def test_a_sum_is_made_of_the_uploads_of_its_round_that_only_it_shows() -> None:
    f, total = Followed(), Party.parse("client")
    f.uplink(1, seen="")
    f.uplink(3, seen="")
    assert f._sent(Channel.UPLINK, total, "server", Kind.AGGREGATE) == {1, 3}
    assert f._sent(Channel.UPLINK, total, "server", Kind.AGGREGATE, round=1) == set()


def test_a_model_that_begins_anew_has_nobody_in_it() -> None:
    f = Followed()
    f.uplink(1)
    f.provenance.note_restart()
    assert f.server() == set()
    f.provenance.note_pooling([2, 5])
    assert f.server() == {2, 5}


def test_an_interrupted_run_goes_on_with_all_that_was_known() -> None:
    def begun() -> Followed:
        f = Followed()
        f.uplink(1)
        f.uplink(7, Kind.LABEL_COUNTS)
        f.relay(2, 3)
        f.uplink(5, seen="")
        return f

    def ended(f: Followed) -> tuple[object, ...]:
        route = Route(0, Channel.UPLINK, Party.parse("client"), ("server",), ("server",))
        summed = f.provenance.behind(route, [Kind.LOCAL_MODEL])
        return f.relay(3, 4), f.server(), f.server(Kind.LABEL_COUNTS), summed

    continued = Followed()
    continued.uplink(8)  # of another life
    continued.provenance.load(json.loads(json.dumps(begun().provenance.state())))
    assert ended(continued) == ended(begun()) != ended(Followed())
