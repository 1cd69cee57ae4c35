"""The recorder: what is written comes back bit for bit, and damage is refused in one sentence."""

import hashlib
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save as to_bytes

from fedaudit.fl.artifact import SERVER, Channel, Party, Route
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.recorder import MANIFEST, Choice, Recorder, manifest, read
from fedaudit.fl.runtime.durable import Log
from fedaudit.fl.runtime.errors import UserError

MODEL = {
    "w": torch.tensor([[1.5, -0.0], [1e-45, 3.4e38]]),
    "steps": torch.tensor(2**62),
    "none": torch.empty(0, 3),
    "half": torch.tensor([0.1], dtype=torch.float16),
    "double": torch.tensor(1 / 3, dtype=torch.float64),
    "yes": torch.tensor([True, False]),
}


def send(recorder: Recorder, round: int, client: int, **kinds: dict[str, torch.Tensor]) -> None:
    payloads = {Kind(k): v for k, v in (kinds or {"local_model": MODEL}).items()}
    recorder.message(Route(round, Channel.UPLINK, Party.client(client), ("server",), ("server",)), payloads)


def broadcast(recorder: Recorder, round: int, *clients: int) -> None:
    route = Route(round, Channel.DOWNLINK, SERVER, tuple(f"client/{k}" for k in clients), ("client",))
    recorder.message(route, {Kind.GLOBAL_MODEL: MODEL}, len(clients))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One recorded round: client 3 sent a model and its size."""
    recorder = Recorder(tmp_path)
    send(recorder, 0, 3, local_model=MODEL, num_examples={"count": torch.tensor(5)})
    recorder.end_round(0)
    recorder.manifest.close()
    return tmp_path


FILE = "r00000/client-3.uplink.safetensors"


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*.safetensors"))


# Writing and reading back -------------------------------------------------------------------


def test_types_that_numpy_has_not_come_back_as_float32_with_their_values(tmp_path: Path) -> None:
    recorder, short = Recorder(tmp_path), torch.tensor([1.5, -0.375], requires_grad=True)
    types = {"bf16": torch.bfloat16, "f8": torch.float8_e4m3fn}
    send(recorder, 0, 3, local_model={name: short.to(dtype) for name, dtype in types.items()})
    recorder.end_round(0)
    recorder.manifest.close()
    (sent,) = read(tmp_path)
    assert {n: (v.dtype, v.tolist()) for n, v in sent.payload.items()} == {
        n: (np.float32, [1.5, -0.375]) for n in types
    }


def test_arrays_come_back_bit_for_bit(folder: Path) -> None:
    model, count = read(folder)
    assert set(model.payload) == set(MODEL)
    for name, tensor in MODEL.items():
        array = model.payload[name]
        assert (array.dtype, array.shape) == (tensor.numpy().dtype, tuple(tensor.shape))
        assert array.tobytes() == tensor.numpy().tobytes()
    assert count.payload["count"] == 5
    assert model.id == "r00000/client-3.uplink/local_model"
    assert (model.kind, model.channel, model.round) == (Kind.LOCAL_MODEL, Channel.UPLINK, 0)
    assert (model.sender, model.seen_by, model.origin) == (Party.client(3), ("server",), "recorded")
    assert model.size_bytes == 16 + 8 + 0 + 2 + 8 + 2


def test_a_tensor_that_is_not_contiguous_is_kept_as_it_reads(tmp_path: Path) -> None:
    recorder, t = Recorder(tmp_path), torch.arange(12.0).reshape(3, 4).t()
    send(recorder, 0, 0, local_model={"t": t, "slice": t[:, 1]})
    recorder.manifest.close()
    [found] = read(tmp_path)
    assert found.payload["t"].tolist() == t.tolist()
    assert found.payload["slice"].tolist() == [4.0, 5.0, 6.0, 7.0]


def test_the_manifest_holds_the_sha256_of_the_file(folder: Path) -> None:
    line = next(manifest(folder))
    assert line["sha256"] == hashlib.sha256((folder / FILE).read_bytes()).hexdigest()
    assert line["message"] + ".safetensors" == FILE and line["bytes"] == 36 + 8
    assert line["kinds"] == ["local_model", "num_examples"]


def test_reading_can_be_limited_by_manifest_line(folder: Path) -> None:
    assert read(folder, lambda line: line["round"] > 0) == []
    assert len(read(folder, lambda line: line["channel"] == "uplink")) == 2


def test_a_log_is_cut_back_to_where_a_checkpoint_left_it(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")
    log.add({"a": 1})
    offset = log.offset()
    log.add({"a": 2})
    log.cut(offset)
    log.add("3")
    log.close()
    reopened = Log(tmp_path / "log.jsonl")
    assert reopened.offset() == offset + 2
    reopened.close()
    assert (tmp_path / "log.jsonl").read_bytes() == b'{"a":1}\n3\n'


# Keeping less -------------------------------------------------------------------------------


def recorded(folder: Path, choice: Choice) -> tuple[list[str], list[dict[str, Any]]]:
    recorder = Recorder(folder, choice)
    for t in (0, 1):
        broadcast(recorder, t, 0, 1, 2)
        for k in (0, 1, 2):
            send(recorder, t, k, local_model=MODEL, num_examples={"count": torch.tensor(k)})
        recorder.end_round(t)
    recorder.manifest.close()
    return files(folder), [line for line in manifest(folder) if "traffic" in line]


def test_what_is_not_kept_is_still_counted(tmp_path: Path) -> None:
    everything, traffic = recorded(tmp_path / "all", Choice())
    assert len(everything) == 2 * (1 + 3)
    choices = {
        "rounds": Choice(rounds=lambda t: t == 1),
        "kinds": Choice(kinds=frozenset({Kind.NUM_EXAMPLES})),
        "none": Choice(rounds=lambda _: False),
    }
    kept = {}
    for name, choice in choices.items():
        kept[name], lines = recorded(tmp_path / name, choice)
        assert lines == traffic  # who sent and saw how much is complete, whatever is kept
    assert kept["rounds"] == [f for f in everything if f.startswith("r00001/")]
    assert kept["kinds"] == [f for f in everything if "uplink" in f]
    assert kept["none"] == []
    assert {a.kind for a in read(tmp_path / "kinds")} == {Kind.NUM_EXAMPLES}


def test_traffic_is_bytes_by_channel_and_starts_again_each_round(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, Choice(rounds=lambda _: False))
    broadcast(recorder, 0, 0, 1)
    send(recorder, 0, 1)
    assert recorder.end_round(0) == {"downlink": 72, "uplink": 36}
    assert recorder.end_round(1) == {}
    recorder.manifest.close()
    down, up = manifest(tmp_path)
    assert (down["messages"], down["senders"], down["bytes"]) == (2, 1, 72)
    assert (up["messages"], up["senders"], up["seen_by"]) == (1, 1, ["server"])


# Damage -------------------------------------------------------------------------------------


def refusal(folder: Path) -> str:
    """The one sentence that reading this folder gives."""
    with pytest.raises(UserError) as error:
        read(folder)
    sentence = str(error.value.args[0])
    assert error.value.hint
    return sentence


def edit(folder: Path, **fields: Any) -> None:
    """Change fields of the first manifest line."""
    lines = (folder / MANIFEST).read_text().splitlines()
    lines[0] = json.dumps(json.loads(lines[0]) | fields)
    (folder / MANIFEST).write_text("\n".join(lines) + "\n")


def replace(folder: Path, data: bytes) -> None:
    """Other contents, with the hash that belongs to them."""
    (folder / FILE).write_bytes(data)
    edit(folder, sha256=hashlib.sha256(data).hexdigest())


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / FILE).unlink()
    assert refusal(folder) == f"artifact {folder / FILE} is missing"


def test_a_folder_or_a_pipe_in_place_of_a_file_is_missing_too(folder: Path) -> None:
    (folder / FILE).unlink()
    os.mkfifo(folder / FILE)  # opening it would wait for ever
    assert refusal(folder) == f"artifact {folder / FILE} is missing"
    (folder / FILE).unlink()
    (folder / FILE).mkdir()
    assert refusal(folder) == f"artifact {folder / FILE} is missing"


@pytest.mark.parametrize("where", [0, 40, -1])
def test_one_changed_byte_is_refused(folder: Path, where: int) -> None:
    data = bytearray((folder / FILE).read_bytes())
    data[where] ^= 1
    (folder / FILE).write_bytes(data)
    assert refusal(folder) == (f"artifact {folder / FILE} is not the one that was recorded: its SHA-256 differs")


def test_a_message_whose_digest_was_taken_out_is_refused(folder: Path) -> None:
    for digest in ("", None, 0):
        edit(folder, sha256=digest)
        assert "its SHA-256 differs" in refusal(folder)


def test_a_truncated_file_is_refused_even_with_the_right_hash(folder: Path) -> None:
    data = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(data[:-5])
    assert "its SHA-256 differs" in refusal(folder)
    for length in (0, 4, 60, len(data) - 5):
        replace(folder, data[:length])
        assert refusal(folder).startswith(f"artifact {folder / FILE} is damaged: ")


@pytest.mark.parametrize("name", ["../outside", "r00000/../../outside", "/etc/outside", ".."])
def test_a_path_that_leads_outside_is_refused(folder: Path, name: str) -> None:
    (folder.parent / "outside.safetensors").write_bytes((folder / FILE).read_bytes())
    edit(folder, message=name)
    sentence = refusal(folder)
    if name == "..":  # "..": the file is "...safetensors", inside
        assert sentence == f"artifact {folder / '...safetensors'} is missing"
    else:
        assert sentence == f"{folder / MANIFEST}: {name!r} leads outside the run folder"


def test_a_symlink_that_leads_outside_is_refused(folder: Path) -> None:
    outside = folder.parent / "target.safetensors"
    (folder / FILE).rename(outside)
    (folder / FILE).symlink_to(outside)
    assert refusal(folder).endswith("'r00000/client-3.uplink' leads outside the run folder")


def test_a_linked_folder_that_leads_outside_is_refused(folder: Path) -> None:
    (folder / "r00000").rename(folder.parent / "elsewhere")
    (folder / "r00000").symlink_to(folder.parent / "elsewhere")
    assert refusal(folder).endswith("leads outside the run folder")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(folder: Path, bad: float) -> None:
    replace(folder, to_bytes({"local_model/w": np.array([1, bad], np.float32)}))
    assert refusal(folder) == f"artifact {folder / FILE}: 'local_model/w' holds NaN or infinity"


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_server_that_sends_no_numbers_has_diverged_and_it_is_said_what_to_do(folder: Path, bad: float) -> None:
    replace(folder, to_bytes({"local_model/w": np.array([1, bad], np.float32)}))
    edit(folder, sender="server")
    with pytest.raises(
        UserError, match="training has diverged: what the server sent in round 1 holds NaN"
    ) as error:
        read(folder)
    assert "step size" in error.value.hint


@pytest.mark.parametrize("key", ["gan_G/w", "local_model", "w", "local_model/", "/w"])
def test_an_array_that_the_manifest_does_not_list_is_refused(folder: Path, key: str) -> None:
    replace(folder, to_bytes({"local_model/w": np.ones(2), key: np.ones(1)}))
    assert refusal(folder) == (f"artifact {folder / FILE} holds {key!r}, which its manifest line does not list")


@pytest.mark.parametrize(
    "fields, says",
    [
        ({"kinds": ["local_model", "love_letter"]}, "'love_letter' is no kind: one of your own is WHOSE:ROLE"),
        ({"channel": "post"}, "'post' is not a valid Channel"),
        ({"sender": "spy/1"}, "'spy/1' is no party"),
        ({"sender": 3}, "3 is no party"),
        ({"sender": "client/three"}, "is no party"),
        ({"round": "first"}, "must be a whole number"),
        ({"round": float("inf")}, "must be a whole number"),
        ({"seen_by": "server"}, "seen_by must be a list"),  # nobody called "s" or "e"
        ({"seen_by": None}, "seen_by must be a list"),
        ({"kinds": 4}, "kinds must be a list"),
        ({"message": "a\0b"}, "null"),
        ({"message": "x" * 5000}, "too long"),
    ],
)
def test_a_manifest_field_that_makes_no_sense_is_named(folder: Path, fields: dict[str, Any], says: str) -> None:
    edit(folder, **fields)
    sentence = refusal(folder)
    assert sentence.startswith(f"{folder / MANIFEST}: message ") and says in sentence


@pytest.mark.parametrize("field", ["sha256", "round", "channel", "sender", "seen_by", "kinds"])
def test_a_manifest_field_that_is_missing_is_named(folder: Path, field: str) -> None:
    line = json.loads((folder / MANIFEST).read_text().splitlines()[0])
    del line[field]
    (folder / MANIFEST).write_text(json.dumps(line))
    assert refusal(folder).endswith(f"line 1 is not a manifest line: '{field}' is missing")


@pytest.mark.parametrize("bad", ["{", "[]", "3", '{"a": 1}', "\xff", "[" * 100_000])
def test_a_line_that_is_not_a_manifest_line_is_named_by_number(folder: Path, bad: str) -> None:
    with open(folder / MANIFEST, "ab") as file:
        file.write(bad.encode("latin-1") + b"\n")
    lines = len((folder / MANIFEST).read_bytes().splitlines())
    assert refusal(folder).startswith(f"{folder / MANIFEST} line {lines} is not a manifest line: ")


def test_a_message_listed_twice_is_refused(folder: Path) -> None:
    line = (folder / MANIFEST).read_bytes().splitlines(keepends=True)[0]
    with open(folder / MANIFEST, "ab") as file:
        file.write(line)
    assert refusal(folder) == (f"{folder / MANIFEST} lists message 'r00000/client-3.uplink' twice")


def test_a_folder_without_a_manifest_says_so(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"no {MANIFEST} in {tmp_path}"


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(os.environ["BOMB"]),)


def test_a_pickle_in_place_of_an_artifact_is_refused_and_not_executed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fired = folder.parent / "fired"
    monkeypatch.setenv("BOMB", str(fired))
    bomb = pickle.dumps(Bomb())
    pickle.loads(bomb)
    assert fired.exists()  # it does go off when somebody unpickles it
    fired.unlink()
    torch.save({"w": Bomb()}, folder.parent / "bomb.pt")
    for data in (bomb, (folder.parent / "bomb.pt").read_bytes()):
        replace(folder, data)
        assert refusal(folder).startswith(f"artifact {folder / FILE} is damaged: ")
        assert not fired.exists()
