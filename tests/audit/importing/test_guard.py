"""What a site's guard stops, and that it lets honest updates pass."""

import base64
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes
from torch import nn
from typer.testing import CliRunner

from fedaudit.attacks.evaluation.copies import find_copies
from fedaudit.attacks.evaluation.payloads import Numbers, find_records, read_numbers
from fedaudit.attacks.summaries._stretches import fits
from fedaudit.audit.attestation import envelope
from fedaudit.audit.cli.main import app
from fedaudit.audit.importing.guard import PAYLOAD, Outgoing, check_outgoing, is_of_rank_one
from fedaudit.audit.importing.recorders.plain import Inbox
from fedaudit.fl.data.dataset import Arrays
from tests.audit.importing import nets
from tests.audit.importing.inboxes import State, Upload, counted, digits, standard, table, train, write_message

PART = digits()[0][0]
OWN = Arrays(x=PART[0], y=PART[1].astype(np.int64))
STD = 0.01


def outgoing(folder: Path, kinds: Mapping[str, Any], before: State | None = None) -> Outgoing:
    if before is not None:
        write_message(folder, "down", 0, "downlink", "server", ["client"], {"global_model": before})
    write_message(folder, "up", 0, "uplink", "client/0", ["server"], kinds)
    return Outgoing.read(folder)


def trained(make: type[nn.Module] = nets.Normed) -> tuple[State, Upload]:
    one = standard(make)[0][0]
    return one.before, one.uploads[0]


def put(state: State, name: str, values: np.ndarray, at: int = 0) -> State:
    """The state with numbers written over an array."""
    flat = state[name].copy().ravel()
    flat[at : at + values.size] = values.ravel()
    return state | {name: flat.reshape(state[name].shape)}


def secret(like: State, std: float = STD) -> State:
    rng = np.random.default_rng(123456789012345)
    return {n: (v + std * rng.normal(size=v.shape)).astype(np.float32) for n, v in like.items()}


def from_table(like: State, std: float = STD) -> State:
    rng = np.random.default_rng(5)
    values = rng.normal(size=40)
    return {n: (v + std * rng.choice(values, v.shape)).astype(np.float32) for n, v in like.items()}


IMAGE = PART[0][3]
Plant = Callable[[State, Upload], Mapping[str, Any]]
COPIES: dict[str, Plant] = {
    "an image over weights": lambda b, u: counted(put(u.state, "hidden.weight", IMAGE, 200), u.examples),
    "an image, small, inverted and shifted": lambda b, u: counted(
        put(u.state, "hidden.weight", 0.5 - 0.01 * IMAGE, 77), u.examples
    ),
    "an image added to the model": lambda b, u: counted(
        put(u.state, "hidden.weight", b["hidden.weight"].ravel()[64:128] + 0.02 * IMAGE.ravel(), 64), u.examples
    ),
    "a row of the first layer that one image moved": lambda b, u: counted(
        b
        | {
            "hidden.weight": b["hidden.weight"] + np.eye(16, dtype=np.float32)[:, :1] * 0.1 * IMAGE.reshape(1, -1)
        },
        u.examples,
    ),
    "an image as a column": lambda b, u: {"model_delta": {"w": np.stack([IMAGE.ravel()] * 3, 1)}},
    "examples as they are": lambda b, u: {"seed_samples": {"images": PART[0][:2], "labels": PART[1][:2]}},
}
DISGUISES: dict[str, tuple[str, Callable[[State], State]]] = {
    "greys in the last five bits": ("in the last bits", lambda s: hide_in_bits(s, 16 * IMAGE, 5)),
    "greys in the last four bits": ("in the last bits", lambda s: hide_in_bits(s, 15 * IMAGE, 4)),
    "signs of zeros": (
        "in the signs of its zeros",
        lambda s: put(s, "hidden.weight", np.where(IMAGE > 0.5, -0.0, 0.0).astype("f4"), 100),
    ),
    "eight pixels": ("in pieces", lambda s: put(s, "hidden.weight", IMAGE.ravel()[18:26], 100)),
    "a permutation": (
        "in another order",
        lambda s: put(s, "hidden.weight", 3 - 2 * np.random.default_rng(7).permutation(IMAGE.ravel())),
    ),
}
COUNTS: dict[str, Plant] = {
    "one more": lambda b, u: counted(u.state, u.examples + 1),
    "a label as a count": lambda b, u: counted(u.state, 7),
    "a class that is not held": lambda b, u: {"label_counts": {"counts": np.arange(10)}},
}


@pytest.mark.parametrize("name", [*COPIES, *COUNTS])
def test_what_should_not_leave_is_named(name: str, tmp_path: Path) -> None:
    before, upload = trained(nets.Mlp if name in COPIES else nets.Normed)
    kinds = (COPIES | COUNTS)[name](before, upload)
    alarms = check_outgoing(outgoing(tmp_path, kinds, before), OWN)
    assert {a.check for a in alarms} == {"examples" if name in COPIES else "counts"}
    other = digits()[0][1]
    of_others = check_outgoing(Outgoing.read(tmp_path), Arrays(x=other[0], y=other[1].astype(np.int64)))
    assert "examples" not in {a.check for a in of_others}  # it is the image that is found, not the place


def hide_in_bits(state: State, grey: NDArray[Any], width: int) -> State:
    bits = state["hidden.weight"].copy().ravel().view(np.uint32)
    bits[50 : 50 + grey.size] = bits[50 : 50 + grey.size] >> width << width | np.rint(grey).astype("u4").ravel()
    return state | {"hidden.weight": bits.view(np.float32).reshape(state["hidden.weight"].shape)}


@pytest.mark.parametrize("name", DISGUISES)
def test_an_image_in_disguise_is_named_and_that_of_another_site_is_not(name: str) -> None:
    where, hide = DISGUISES[name]
    torch.manual_seed(1)
    state = {n: v.numpy() for n, v in nets.Mlp().state_dict().items()}
    others = digits()[0][1][0]
    found = find_records(read_numbers(hide(state)), PART[0])
    assert [x.record for x in found] == [3] and where in found[0].how
    assert find_records(read_numbers(state), PART[0]) == find_records(read_numbers(hide(state)), others) == []


def test_numbers_on_the_grid_of_the_pixels_are_no_pieces() -> None:
    grid = np.random.default_rng(0).integers(0, 17, 50_000).astype("f4") / 16  # all 8 in a row are some pixels
    assert find_records([Numbers("w", grid)], PART[0]) == []
    assert find_records([Numbers("w", np.concatenate([grid[:900] * 1e-3, IMAGE.ravel()[18:26]]))], PART[0])


def one_step(x: np.ndarray, y: np.ndarray, make: type[nn.Module] = nets.Mlp) -> tuple[State, State]:  # type: ignore[type-arg]
    """The network before and after one step on a batch."""
    torch.manual_seed(1)
    net = make()
    before = {n: v.numpy().copy() for n, v in net.state_dict().items()}
    nn.functional.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(y).long()).backward()
    with torch.no_grad():
        for p in net.parameters():
            assert p.grad is not None
            p -= 0.1 * p.grad
    return before, {n: v.numpy().copy() for n, v in net.state_dict().items()}


@pytest.mark.parametrize("images", [1, 2, 5])
def test_one_step_on_one_example_is_named_and_on_several_it_is_not(images: int, tmp_path: Path) -> None:
    before, after = one_step(PART[0][[0, 1, 21, 22, 23][-images:]], PART[1][[0, 1, 21, 22, 23][-images:]])
    alarms = check_outgoing(outgoing(tmp_path, {"local_model": after}, before), OWN)
    ranks = [a.text for a in alarms if "rank one" in a.text]
    assert len(ranks) == (images == 1)
    assert images > 1 or ("head.weight, hidden.weight" in ranks[0] and "whatever the code intends" in ranks[0])


def test_rank_one_is_told_by_numbers_and_not_where_rounding_or_shape_makes_it() -> None:
    rng = np.random.default_rng(0)
    weights, one = (
        rng.normal(size=(16, 64)).astype("f4"),
        np.outer(rng.normal(size=16), rng.random(64)).astype("f4"),
    )
    assert is_of_rank_one(weights + 0.01 * one - weights, weights)
    other = np.outer(rng.normal(size=16), rng.random(64)).astype("f4")
    assert not is_of_rank_one(0.01 * (one + 0.01 * other), weights)  # a hundredth of a second example is told
    assert not is_of_rank_one(0.01 * one, weights.astype("f2"))  # there is more rounding than change
    assert not is_of_rank_one(one[:2], weights[:2])  # two outputs: always each other's opposite
    assert not is_of_rank_one(np.eye(16, 64, dtype="f4")[:1].repeat(16, 0), weights)  # one column moved
    assert not is_of_rank_one(np.zeros((16, 64), "f4"), weights)


def test_rows_that_no_training_makes_are_not_excused(tmp_path: Path) -> None:
    rows = PART[0][:2].reshape(2, -1)
    alarms = check_outgoing(outgoing(tmp_path, {"proxies": {"classes": PART[1][:2], "rows": rows}}), OWN)
    assert alarms and "rows of a layer" not in alarms[0].text


NOISES: dict[str, tuple[Callable[[State], State], bool]] = {
    "none": (lambda s: s, True),
    "a tenth": (lambda s: secret(s, STD / 10), True),
    "of a table": (from_table, True),
    "as claimed": (secret, False),
}


@pytest.mark.parametrize("name", NOISES)
def test_noise_that_is_missing_or_of_another_law_is_named(name: str, tmp_path: Path) -> None:
    make, is_wrong = NOISES[name]
    before, _ = trained()
    update = {n: np.full_like(v, 1e-4) for n, v in before.items()}
    clean = outgoing(tmp_path / "clean", {"model_delta": update})
    sent = outgoing(tmp_path / "sent", {"model_delta": make(update)})
    alarms = check_outgoing(sent, OWN, noise_std=STD, clean=clean)
    assert bool(alarms) is is_wrong and {a.check for a in alarms} <= {"noise"}


def count_alarms(folder: Path, updates: int) -> tuple[list[str], list[str]]:
    """False and true ones, of honest updates of several networks, data, rounds, epochs and ways of sending.

    A network that reads pixels learns rows that are single images: whether one is there is asked of other code.
    """
    false, true = [], []
    for i in range(updates):
        make = (nets.Mlp, nets.Normed, nets.Table)[i % 3]
        parts = table()[0] if make is nets.Table else digits()[0]
        part = parts[i % len(parts)]
        before = (
            standard(make)[0][i % 3].before if make is not nets.Table else train(make, _first(), part, 0).state
        )
        upload = train(make, before, part, i, epochs=1 + i % 4, proximal=float(i % 2))
        kinds: dict[str, Any] = counted(upload.state, upload.examples)
        if i % 4 == 0:
            change = {n: (v - before[n]).astype(v.dtype) for n, v in upload.state.items()}
            kinds = counted(change, upload.examples, "model_delta")
        if i % 5 == 0:
            kinds = counted(secret(upload.state), upload.examples)
        claims = {"noise_std": STD} if i % 5 == 0 and make is not nets.Normed else {}
        sent = outgoing(folder / str(i), kinds, before)
        alarms = check_outgoing(sent, Arrays(x=part[0], y=part[1].astype(np.int64)), **claims)
        numbers = [v.ravel() for v in sent.parts[0].payload.values() if v.dtype.kind == "f"]
        numbers += [(v - before[n]).ravel() for n, v in sent.parts[0].payload.items() if v.dtype.kind == "f"]
        is_there = bool(alarms) and (fits(np.concatenate(numbers), part[0]) >= 0.999).any()
        (true if is_there else false).extend(f"{i}: {a.text}" for a in alarms)
    return false, true


def _first() -> State:
    torch.manual_seed(3)
    return {n: v.numpy().copy() for n, v in nets.Table().state_dict().items()}


def test_honest_updates_pass(tmp_path: Path) -> None:
    false, true = count_alarms(tmp_path, 15)
    assert false == [] and all("rows of a layer" in text for text in true)


@pytest.mark.nightly
def test_of_200_honest_updates_at_most_ten_raise_an_alarm(tmp_path: Path) -> None:
    false, true = count_alarms(tmp_path, 200)
    assert len(false) <= 10 and all("rows of a layer" in text for text in true)
    print(len(false), len(true))


@pytest.mark.nightly
def test_ten_million_weights_take_less_than_five_seconds_of_processor_a_core(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    before = {f"{i}.weight": rng.normal(size=(1000, 1000)).astype(np.float32) for i in range(10)}
    after = {n: v + 0.01 * rng.normal(size=v.shape).astype(np.float32) for n, v in before.items()}
    x = rng.random((500, 3, 32, 32)).astype(np.float32)
    sent = outgoing(tmp_path, counted(after, 500), before)
    began = time.process_time()
    assert check_outgoing(sent, Arrays(x=x, y=np.zeros(500, np.int64))) == []
    print(time.process_time() - began)
    assert time.process_time() - began < 10  # of two cores


def test_copies_are_found_wherever_they_stand_and_flat_ground_is_not() -> None:
    rng = np.random.default_rng(1)
    images = rng.random((30, 1, 8, 8)).astype(np.float32)
    images[29] = 0.5
    numbers = rng.normal(size=70_000).astype(np.float32) * 0.1
    places = {3: 0, 7: 65_530, 11: 69_936, 29: 100}  # at both ends and across a chunk's
    for i, at in places.items():
        numbers[at : at + 64] = -3e-3 * images[i].ravel() + 0.2
    assert {c.example: c.begin for c in find_copies(numbers, images)} == {3: 0, 7: 65_530, 11: 69_936}


@pytest.fixture
def key(tmp_path: Path) -> Path:
    private = Ed25519PrivateKey.generate()
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path = tmp_path / "key.pem"
    path.write_bytes(private.private_bytes(serialization.Encoding.PEM, form, plain))
    return path


def test_the_command_stops_warns_or_passes_and_signs_a_line(tmp_path: Path, key: Path) -> None:
    np.savez(tmp_path / "own.npz", x=PART[0], y=PART[1])
    before, upload = trained()
    outbox, log = tmp_path / "outbox", tmp_path / "guard.jsonl"
    given = [
        "tools",
        "guard",
        str(outbox),
        "--truth",
        str(tmp_path / "own.npz"),
        "--key",
        str(key),
        "--log",
        str(log),
    ]
    write_message(outbox, "d", 0, "downlink", "server", ["client"], {"global_model": before})
    write_message(outbox, "a", 0, "uplink", "client/0", ["server"], counted(upload.state, upload.examples))
    assert CliRunner().invoke(app, given).exit_code == 0
    write_message(outbox, "b", 0, "uplink", "client/0", ["server"], counted(upload.state, 3))
    assert CliRunner().invoke(app, given).exit_code == 1
    assert CliRunner().invoke(app, [*given, "--on-alarm", "warn"]).exit_code == 0
    lines = [envelope.Envelope.model_validate_json(line) for line in log.read_text().splitlines()]
    public = envelope.private_key(key).public_key()
    said = [json.loads(envelope.open_envelope(line, PAYLOAD, public)) for line in lines]
    assert [x["action"] for x in said] == ["pass", "stop", "warn"] and said[1]["alarms"][0]["check"] == "counts"
    forged = lines[1].model_copy(update={"payload": base64.b64encode(b"{}").decode()})
    with pytest.raises(Exception, match="not signed"):
        envelope.open_envelope(forged, PAYLOAD, public)


def test_a_recorder_lets_nothing_leave_that_its_guard_stops(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "outbox")
    assert inbox.message(0, "uplink", inbox.client("a"), ["server"], {"num_examples": {"count": 3}})
    inbox.approve(["true"])
    with pytest.raises(PermissionError, match="does not leave"):
        inbox.approve(["false"])
    assert "a message that was stopped" in (tmp_path / "outbox" / "manifest.jsonl").read_text()


def test_a_site_whose_examples_are_texts_is_guarded_too(tmp_path: Path) -> None:
    before, upload = trained(nets.Mlp)
    tokens = np.random.default_rng(3).integers(1, 500, (len(OWN.y), 40))
    tokens[:, 30:] = 0
    texts = Arrays(x=tokens, y=OWN.y)
    hidden = put(upload.state, "hidden.weight", 0.2 - 1e-3 * tokens[7, :20], 40)
    for name, state, alarms in (("honest", upload.state, 0), ("hidden", hidden, 1)):
        found = check_outgoing(outgoing(tmp_path / name, counted(state, upload.examples), before), texts)
        assert len(found) == alarms and all("1 text" in a.text for a in found), found


def test_rows_of_a_table_are_named_and_statistics_of_them_are_not(tmp_path: Path) -> None:
    x = load_diabetes(scaled=False).data[:120].astype(np.float32)
    own = Arrays(x=x, y=np.zeros(120, np.int64))
    scaled = ((x - x.mean(axis=0)) / x.std(axis=0)).astype(np.float32)
    sent = {"mean": x.mean(axis=0), "covariance": np.cov(x.T), "histogram": np.histogram(x[:, 0], 20)[0]}
    assert not check_outgoing(outgoing(tmp_path / "honest", {"client:statistics": sent}), own)
    [alarm] = check_outgoing(outgoing(tmp_path / "leak", {"client:statistics": sent | {"sv": scaled[:30]}}), own)
    assert alarm.text == "30 examples can be read from client:statistics"
