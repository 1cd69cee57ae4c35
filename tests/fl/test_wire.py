"""The wire: declared kinds only, finite answers only, and who could see what, decided once."""

from pathlib import Path

import pytest
import torch

from fedaudit.fl import ledger
from fedaudit.fl.artifact import Artifact, Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card
from fedaudit.fl.protections.secure_aggregation import SecureAggregation
from fedaudit.fl.recording.recorder import Recorder, manifest, read
from fedaudit.fl.runtime.durable import Log
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Averaging, Message, Payload, Protection, Sending, describe_protection
from fedaudit.fl.wire.wire import Wire

CARD = Card(
    title="Example",
    source="none",
    text="",
    downlink=(Kind.GLOBAL_MODEL, Kind.TRAIN_ORDER),
    uplink=(Kind.LOCAL_MODEL, Kind.NUM_EXAMPLES, Kind.HEARTBEAT),
    relay=(Kind.RELAY_MODEL,),
    release=(Kind.GLOBAL_MODEL,),
)
MODEL = {"w": torch.tensor([[1.0, -2.0], [0.5, 0.0]]), "b": torch.tensor([3.0])}  # 20 bytes
COUNT = {"count": torch.tensor(7)}  # 8 bytes
UP: Message = {Kind.LOCAL_MODEL: MODEL, Kind.NUM_EXAMPLES: COUNT}
DOWN: Message = {Kind.GLOBAL_MODEL: MODEL}


class Hides(Protection):
    """Stands for secure aggregation: the server reads sums only."""

    title, source = "hides", "test"

    def apply(self, sending: Sending) -> None: ...

    def describe(self) -> str:
        return "hides"

    def hides_single_uploads(self) -> bool:
        return True


class Scales(Protection):
    """Multiplies everything and draws one number, so that order and streams show."""

    title, source = "scales", "test"

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor, self.seen = factor, list[tuple[str, float]]()

    def apply(self, sending: Sending) -> None:
        self.seen.append((str(sending.sender), float(torch.rand(1, generator=sending.rng))))
        for kind, payload in sending.message.items():
            sending.message[kind] = {
                k: v * self.factor + 1 if v.is_floating_point() else v for k, v in payload.items()
            }

    def describe(self) -> str:
        return "scales"


class Books:
    """A wire over a folder, and what it left there."""

    def __init__(self, folder: Path, *protections: Protection, seed: int = 1) -> None:
        self.folder = folder
        self.log = Log(folder / "ledger.jsonl")
        self.recorder = Recorder(folder / "artifacts")
        self.wire = Wire(CARD, Streams(seed), protections, self.recorder, self.log)

    def artifacts(self) -> list[Artifact]:
        self.recorder.manifest.offset()  # flushes
        return read(self.folder / "artifacts")

    def traffic(self, round: int = 0) -> list[dict[str, object]]:
        self.wire.end_round(round)
        self.recorder.manifest.offset()
        return [line for line in manifest(self.folder / "artifacts") if "traffic" in line]

    def releases(self) -> list[ledger.Release]:
        self.log.offset()
        return ledger.read(self.folder / "ledger.jsonl")


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books(tmp_path)


def seen_by(books: Books) -> dict[str, tuple[str, ...]]:
    return {a.id.partition("/")[2]: a.seen_by for a in books.artifacts()}


# What may be sent ---------------------------------------------------------------------------


def test_an_undeclared_kind_is_refused_with_this_sentence(books: Books) -> None:
    with pytest.raises(UserError) as error:
        books.wire.uplink(0, {**UP, Kind.LABEL_COUNTS: {"counts": torch.ones(3)}}, 4, {})
    assert str(error.value) == (
        "Example: client/4 sent 'label_counts' on the uplink, which its card does not declare\n"
        "  hint: add Kind('label_counts') to card.uplink, or stop sending it"
    )
    assert books.artifacts() == [] and books.releases() == []


def test_a_kind_that_is_written_as_text_is_refused_with_what_to_write(books: Books) -> None:
    with pytest.raises(
        UserError, match=r"sent 'local_model', which is str, expected a Kind(.|\n)*Kind\('local_model'\)"
    ):
        books.wire.uplink(0, {"local_model": UP[Kind.LOCAL_MODEL]}, 4, {})  # type: ignore[dict-item]
    assert books.artifacts() == [] and books.releases() == []


def test_what_is_tied_to_an_array_and_not_in_it_is_refused(books: Books) -> None:
    noted = {k: {n: v.clone() for n, v in arrays.items()} for k, arrays in UP.items()}
    [array, *_] = next(iter(noted.values())).values()
    array.note = 3.0  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=r"client/4 ties 'note' to the array .* which no message can carry"):
        books.wire.uplink(0, noted, 4, {})
    assert books.artifacts() == [] and books.releases() == []


def test_a_kind_is_declared_for_one_direction_only(books: Books) -> None:
    wire = books.wire
    for send, channel in (
        (lambda: wire.broadcast(0, UP, [1]), "downlink"),
        (lambda: wire.downlink(0, UP, 1), "downlink"),
        (lambda: wire.uplink(0, DOWN, 1, {}), "uplink"),
        (lambda: wire.relay(0, UP, 1, 2), "relay"),
        (lambda: wire.release(0, UP), "release"),
    ):
        with pytest.raises(UserError, match=f"on the {channel}, which its card does not declare"):
            send()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_an_answer_with_one_number_that_is_not_finite_is_rejected_whole(books: Books, bad: float) -> None:
    broken = {**UP, Kind.LOCAL_MODEL: {**MODEL, "b": torch.tensor([bad])}}
    assert books.wire.uplink(0, broken, 2, DOWN) is None
    assert books.wire.relay(0, {Kind.RELAY_MODEL: broken[Kind.LOCAL_MODEL]}, 0, 1) is None
    assert books.artifacts() == [] and books.releases() == []
    assert set(books.wire.end_round(0).values()) == {0}


# What it costs ------------------------------------------------------------------------------


def test_bytes_are_counted_by_direction_and_start_again_each_round(books: Books) -> None:
    books.wire.broadcast(0, DOWN, [0, 1, 2])  # 3 x 20
    books.wire.downlink(0, DOWN, 1)  # 20
    books.wire.uplink(0, UP, 0, DOWN)  # 28
    books.wire.uplink(0, UP, 2, DOWN)
    books.wire.relay(0, {Kind.RELAY_MODEL: MODEL}, 0, 1)
    sent = books.wire.end_round(0)
    moved = {Channel.DOWNLINK: 80, Channel.UPLINK: 56, Channel.RELAY: 20}
    assert sent == dict.fromkeys(Channel, 0) | moved
    assert set(books.wire.end_round(1).values()) == {0}


def test_traffic_lines_add_up_to_the_bytes(books: Books) -> None:
    books.wire.broadcast(0, DOWN, [0, 1, 2])
    books.wire.uplink(0, UP, 0, DOWN)
    books.wire.uplink(0, UP, 2, DOWN)
    by_kind = {line["traffic"]: line for line in books.traffic()}
    assert by_kind["global_model"]["messages"] == 3 and by_kind["global_model"]["bytes"] == 60
    assert by_kind["local_model"] == {
        "traffic": "local_model",
        "round": 0,
        "channel": "uplink",
        "sender": "client",
        "senders": 2,
        "seen_by": ["server"],
        "messages": 2,
        "bytes": 40,
        "behind": [0, 2],
    }
    assert by_kind["num_examples"]["bytes"] == 16


def test_a_broadcast_to_nobody_leaves_nothing(books: Books) -> None:
    assert books.wire.broadcast(0, DOWN, []) is DOWN
    assert books.artifacts() == [] and books.traffic() == []


# Who could see it ---------------------------------------------------------------------------


def test_each_direction_has_its_observers(books: Books) -> None:
    books.wire.broadcast(0, DOWN, [0, 1])
    books.wire.downlink(0, DOWN, 1)
    books.wire.uplink(0, UP, 1, DOWN)
    books.wire.release(9, DOWN)
    assert seen_by(books) == {
        "server.downlink/global_model": ("client",),
        "server.downlink.client-1/global_model": ("client/1",),
        "client-1.uplink/local_model": ("server",),
        "client-1.uplink/num_examples": ("server",),
        "server.release/global_model": ("public",),
    }


def test_a_relay_is_seen_by_the_next_client_and_by_a_mediator_on_the_path(books: Books) -> None:
    message: Message = {Kind.RELAY_MODEL: MODEL}
    books.wire.relay(0, message, 0, 1)
    books.wire.relay(0, message, 2, 3, mediator=1)
    assert seen_by(books) == {
        "client-0.relay.client-1/relay_model": ("client/1",),
        "client-2.relay.client-3/relay_model": ("client/3", "mediator/1"),
    }
    roles = {tuple(line["seen_by"]) for line in books.traffic()}  # type: ignore[arg-type]
    assert roles == {("client",), ("client", "mediator")}


def test_secure_aggregation_hides_single_uploads_and_nothing_else(tmp_path: Path) -> None:
    books = Books(tmp_path, Scales(1.0), Hides())
    books.wire.broadcast(0, DOWN, [0])
    assert books.wire.uplink(0, UP, 0, DOWN) is not None  # the sum still needs it
    assert books.wire.uplink(0, UP, 1, DOWN) is not None
    assert seen_by(books)["client-0.uplink/local_model"] == ()
    assert seen_by(books)["server.downlink/global_model"] == ("client",)
    uplink = {line["traffic"]: line["seen_by"] for line in books.traffic() if line["channel"] == "uplink"}
    assert uplink == {"local_model": [], "num_examples": [], "aggregate": ["server"]}
    # what is learned from the sum is still a release of the client's data
    assert all(r.observers == ("client", "public") for r in books.releases())


def test_the_sum_of_one_upload_is_that_upload_and_crosses_once(tmp_path: Path) -> None:
    books = Books(tmp_path, Hides())
    books.wire.uplink(0, UP, 0, DOWN)
    alone = books.wire.end_round(0)
    books.wire.uplink(1, UP, 0, DOWN)
    books.wire.uplink(1, UP, 1, DOWN)
    both = books.wire.end_round(1)
    uploads = [(a.round, str(a.sender), str(a.kind), a.seen_by) for a in books.artifacts()]
    assert [x for x in uploads if x[0] == 0] == [(0, "client/0", k, ("server",)) for k in CARD.uplink[:2]]
    assert {x for x in uploads if x[0] == 1 and x[1] != "client"} == {
        (1, f"client/{c}", k, ()) for c in (0, 1) for k in CARD.uplink[:2]
    }
    for t, sent in enumerate((alone, both)):
        counted = [x for x in books.traffic() if x["round"] == t and x["traffic"] != "aggregate"]
        assert sum(x["bytes"] for x in counted) == sent[Channel.UPLINK]  # type: ignore[misc]


def test_two_messages_of_one_client_in_a_round_are_both_kept(books: Books) -> None:
    books.wire.uplink(0, {Kind.NUM_EXAMPLES: COUNT}, 0, {})
    books.wire.uplink(0, {Kind.LOCAL_MODEL: MODEL}, 0, DOWN)
    assert len({a.id for a in books.artifacts()}) == 2


# The ledger ---------------------------------------------------------------------------------


def test_an_unnoised_kind_enters_the_ledger_once_a_round(books: Books) -> None:
    for t in (0, 1):
        for k in (0, 1, 2):
            books.wire.uplink(t, UP, k, DOWN)
        books.wire.end_round(t)
    found = [(r.round, r.kind, r.sender, r.mechanism, r.observers) for r in books.releases()]
    everyone = ("server", "client", "public")
    assert found == [
        (t, kind, "client/*", "none", everyone) for t in (0, 1) for kind in ("local_model", "num_examples")
    ]


def test_a_relay_names_its_receiver_and_mediator_in_the_ledger(books: Books) -> None:
    books.wire.relay(0, {Kind.RELAY_MODEL: MODEL}, 2, 3, mediator=1)
    [release] = books.releases()
    assert release.observers == ("client/3", "mediator/1", "client", "public")


def test_control_messages_are_no_release_of_data(books: Books) -> None:
    books.wire.uplink(0, {Kind.HEARTBEAT: {"at": torch.tensor(1.0)}}, 0, {})
    assert books.releases() == [] and len(books.artifacts()) == 1


def test_what_the_server_sends_down_is_no_new_release(books: Books) -> None:
    books.wire.broadcast(0, DOWN, [0])
    books.wire.downlink(0, DOWN, 0)
    books.wire.release(0, DOWN)
    assert books.releases() == []


# Protections --------------------------------------------------------------------------------


def test_protections_act_in_order_before_anyone_reads(tmp_path: Path) -> None:
    books = Books(tmp_path, Scales(2.0), Scales(10.0))
    received = books.wire.uplink(0, UP, 0, DOWN)
    assert received is not None
    assert received[Kind.LOCAL_MODEL]["b"].item() == (3 * 2 + 1) * 10 + 1
    [model, _] = books.artifacts()
    assert model.payload["b"].item() == 71.0
    assert MODEL["b"].item() == 3.0 and UP[Kind.LOCAL_MODEL] is MODEL  # the sender's own is kept


class Sends(Protection):
    """Puts the arrays of models into another order, or others beside them."""

    title, source = "sends", "test"

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names

    def apply(self, sending: Sending) -> None:
        model = sending.message[Kind.LOCAL_MODEL]
        sending.message[Kind.LOCAL_MODEL] = {k: model.get(k, torch.zeros(1)) for k in self.names}

    def describe(self) -> str:
        return "sends"


def test_the_order_of_arrays_tells_nothing(tmp_path: Path) -> None:
    for names, left in ((("b", "w"), ["w", "b"]), (("b",), ["b"])):
        received = Wire(CARD, Streams(1), [Sends(*names)]).uplink(0, UP, 0, DOWN)
        assert received is not None and list(received[Kind.LOCAL_MODEL]) == left


def test_an_array_that_a_protection_adds_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"added the array 'debug' to local_model"):
        Wire(CARD, Streams(1), [Sends("w", "b", "debug")]).uplink(0, UP, 0, DOWN)


class Returns(Hides):
    """Hands back what it should have put in place of what was there."""

    central = True

    def apply(self, sending: Sending) -> Message:  # type: ignore[override]
        return {kind: {k: v.round() for k, v in of.items()} for kind, of in sending.message.items()}

    def average(self, averaging: Averaging) -> Payload:  # type: ignore[override]
        return averaging.model


def test_a_protection_that_returns_what_it_made_is_refused_for_it_changed_nothing() -> None:
    wire = Wire(CARD, Streams(7), [Returns()])
    with pytest.raises(UserError, match=r"Returns: apply\(\) returned dict, which nobody reads") as refused:
        wire.uplink(0, UP, 1, DOWN)
    assert "sending.message[kind] = ..." in refused.value.hint
    with pytest.raises(UserError, match=r"Returns: average\(\) returned dict") as refused:
        wire.average(0, MODEL, MODEL, 1, 2)
    assert "averaging.model = ..." in refused.value.hint


def test_every_protection_round_and_sender_has_its_own_stream(tmp_path: Path) -> None:
    first, second = Scales(1.0), Scales(1.0)
    books = Books(tmp_path, first, second)
    for t in (0, 1):
        for k in (0, 1):
            books.wire.uplink(t, UP, k, DOWN)
    draws = [d for _, d in first.seen + second.seen]
    assert len(set(draws)) == 8
    again = Scales(1.0)
    Books(tmp_path / "again", again).wire.uplink(1, UP, 1, DOWN)
    assert again.seen == [("client/1", first.seen[3][1])]  # whoever came before


def test_what_the_server_sends_is_not_protected_again(tmp_path: Path) -> None:
    books = Books(tmp_path, Scales(2.0))
    assert books.wire.broadcast(0, DOWN, [0]) is DOWN
    assert books.artifacts()[0].payload["b"].item() == 3.0


def test_a_wire_without_books_still_carries_and_refuses() -> None:
    wire = Wire(CARD, Streams(1))
    assert wire.uplink(0, UP, 0, DOWN) == UP
    with pytest.raises(UserError):
        wire.uplink(0, DOWN, 0, {})
    assert wire.end_round(0)[Channel.UPLINK] == 28


def test_what_a_protection_of_ones_own_says_of_itself_is_said_to_be_its_own() -> None:
    assert describe_protection(Hides()) == "unchecked words of its author: hides"
    ours = SecureAggregation()
    assert describe_protection(ours) == ours.describe()
