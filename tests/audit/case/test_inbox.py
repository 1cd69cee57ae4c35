"""Hostile inboxes: one sentence each, nothing executed, no memory taken for what is only claimed."""

import hashlib
import io
import json
import os
import pickle
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.audit.importing.inbox import InboxLimits, take_in
from fedaudit.audit.importing.recorders.plain import Inbox
from fedaudit.fl.kinds import Kind, explain_misfit
from fedaudit.fl.recording.recorder import MANIFEST
from fedaudit.fl.runtime.errors import UserError

FILE = "r00000/client-0.uplink.safetensors"


def good(folder: Path) -> Path:
    inbox = Inbox(folder / "inbox")
    model = {"w": np.arange(4, dtype=np.float32)}
    inbox.message(0, "downlink", "server", ["client"], {"global_model": model})
    for k in range(2):
        kinds = {"local_model": model, "num_examples": {"count": np.int64(3)}}
        inbox.message(0, "uplink", inbox.client(f"n{k}"), ["server"], kinds)
    return folder / "inbox"


def upload(inbox: Path) -> dict[str, Any]:
    return next(x for x in map(json.loads, (inbox / MANIFEST).read_text().splitlines()) if "client-0" in str(x))


def lines(inbox: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Every message line of client 0 changed."""
    told = map(json.loads, (inbox / MANIFEST).read_text().splitlines())
    changed = [change(x) if x.get("sender") == "client/0" else x for x in told]
    (inbox / MANIFEST).write_text("\n".join(map(json.dumps, changed)) + "\n")


def line(**fields: Any) -> Callable[[Path], None]:
    return lambda inbox: lines(inbox, lambda x: x | fields)


def content(data: bytes) -> Callable[[Path], None]:
    """Another file, with the hash that belongs to it."""

    def change(inbox: Path) -> None:
        (inbox / FILE).write_bytes(data)
        lines(inbox, lambda x: x | {"sha256": hashlib.sha256(data).hexdigest()})

    return change


def header(entries: Any, tail: bytes = b"\0" * 16, length: int | None = None) -> Callable[[Path], None]:
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return content(struct.pack("<Q", len(text) if length is None else length) + text + tail)


def added(text: bytes) -> Callable[[Path], None]:
    def change(inbox: Path) -> None:
        with open(inbox / MANIFEST, "ab") as file:
            file.write(text + b"\n")

    return change


def linked(inbox: Path) -> None:
    (inbox / FILE).rename(inbox / "aside")
    (inbox / FILE).symlink_to(inbox / "aside")


def linked_folder(inbox: Path) -> None:
    (inbox / "r00000").rename(inbox.parent / "elsewhere")
    (inbox / "r00000").symlink_to(inbox.parent / "elsewhere")


def linked_manifest(inbox: Path) -> None:
    (inbox / MANIFEST).rename(inbox.parent / "m")
    (inbox / MANIFEST).symlink_to(inbox.parent / "m")


def pipe(inbox: Path) -> None:
    (inbox / FILE).unlink()
    os.mkfifo(inbox / FILE)


def twice(inbox: Path) -> None:
    added(json.dumps(upload(inbox)).encode())(inbox)


def only(name: str) -> Callable[[Path], None]:
    def change(inbox: Path) -> None:
        (inbox / MANIFEST).rename(inbox / name)

    return change


class Owned:
    def __reduce__(self) -> Any:
        return os.mkdir, (str(Path(os.environ["OWNED"])),)


def objects() -> bytes:
    file = io.BytesIO()
    np.savez(file, w=np.array([Owned()], dtype=object))
    return file.getvalue()


ENTRY = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
HOSTILE: dict[str, tuple[Callable[[Path], None], str]] = {
    "a pickle": (lambda i: content(pickle.dumps(Owned()))(i), "is a pickle"),
    "an old pickle": (lambda i: content(pickle.dumps(Owned(), protocol=0))(i), "is not safetensors"),
    "npz with objects": (lambda i: content(objects())(i), "is a pickle, an archive"),
    "a numpy file": (content(b"\x93NUMPY\x01\x00" + b"\0" * 90), "or a numpy file"),
    "an archive, as torch saves": (content(b"PK\x03\x04" + b"\0" * 90), "an archive"),
    "only a torch file": (only("model.pt"), "it is not an inbox"),
    "only a pickle": (only("updates.pkl"), "it is not an inbox"),
    "only FOBS": (only("result.fobs"), "it is not an inbox"),
    "a link": (linked, "is a link"),
    "a linked folder": (linked_folder, "is a link"),
    "a linked manifest": (linked_manifest, "is a link"),
    "a pipe": (pipe, "is a pipe"),
    "a missing file": (lambda i: (i / FILE).unlink(), "is missing"),
    "a way out": (line(message="../../etc/passwd"), "is no name of a message"),
    "an absolute path": (line(message="/etc/passwd"), "is no name of a message"),
    "a way out inside": (line(message="r00000/../../x"), "is no name of a message"),
    "a hidden file": (line(message=".ssh/x"), "is no name of a message"),
    "a bidi name": (line(message="r00000/\u202egpj.exe"), "is no name of a message"),
    "a name with a line break": (line(message="a\nb"), "is no name of a message"),
    "a name with an escape": (line(message="a\x1b[2Jb"), "is no name of a message"),
    "a very long name": (line(message="a" * 5000), "is no name of a message"),
    "a name that is no text": (line(message=["a"]), "is no name of a message"),
    "another hash": (line(sha256="0" * 64), "its SHA-256 differs"),
    "the same line twice": (twice, "is listed twice"),
    "a truncated file": (content(b"\x10"), "is not safetensors"),
    "an empty file": (content(b""), "is not safetensors"),
    "a header longer than the file": (header({}, length=2**63), "its header says"),
    "a header that is no JSON": (header(b"\xff\xfe{}"), "is not safetensors"),
    "a header that is a list": (header([]), "is not safetensors"),
    "10^12 elements": (
        header({"local_model/w": {"dtype": "F32", "shape": [10**6, 10**6], "data_offsets": [0, 16]}}),
        "of 1,000,000,000,000 numbers is not in the file",
    ),
    "elements beyond 2^64": (
        header({"local_model/w": {"dtype": "F32", "shape": [2**63, 2**63], "data_offsets": [0, 16]}}),
        "is not in the file",
    ),
    "a negative shape": (header({"local_model/w": ENTRY | {"shape": [-4]}}), "has no shape"),
    "numbers out of the file": (
        header({"local_model/w": ENTRY | {"data_offsets": [16, 32]}}),
        "is not in the file",
    ),
    "a type that is none": (header({"local_model/w": ENTRY | {"dtype": "O"}}), "has type 'O'"),
    "deep JSON": (header(b"[" * 200_000), "is not safetensors"),
    "a client without end": (line(sender="client/" + "9" * 30), "is no party"),
    "a party that is none": (line(seen_by=["spy"]), "is no party"),
    "a round without end": (line(round=10**12), "round must be a whole number"),
    "a round that is true": (line(round=True), "round must be a whole number"),
    "an uplink of the server": (line(sender="server"), "sends no uplink"),
    "half a line": (added(b'{"message":'), "is not a manifest line"),
    "a node of control characters": (added(b'{"party":"client/9","node":"a\\u001b[2J"}'), "plain characters"),
    "a node that turns its line around": (added(b'{"party":"client/9","node":"a\\u202eb"}'), "plain characters"),
    "a node that leads elsewhere": (added(b'{"party":"client/9","node":"../a"}'), "plain characters"),
    "a node that is a list": (added(b'{"party":"client/9","node":["a"]}'), "plain characters"),
    "two clients of one node": (
        added(b'{"party":"client/8","node":"a"}\n{"party":"client/9","node":"a"}'),
        "are both the node 'a'",
    ),
    "a client of two nodes": (
        added(b'{"party":"client/9","node":"a"}\n{"party":"client/9","node":"b"}'),
        "client/9 is the node 'b', and before it was 'a'",
    ),
    "a node of another's name": (
        lambda i: (line(sender="client/7")(i), added(b'{"party":"client/9","node":"client-7"}')(i)),
        "are both the node 'client-7'",
    ),
    "clients behind that are none": (line(behind={"local_model": [-1]}), "from 0"),
    "clients behind without a kind": (line(behind=[0, 1]), "a list of clients for each kind"),
    "bytes that are no text": (added(b"\xff\xfe"), "is not a manifest line"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_inbox_gets_one_sentence_and_executes_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owned = tmp_path / "owned"
    monkeypatch.setenv("OWNED", str(owned))
    inbox = good(tmp_path)
    change, phrase = HOSTILE[name]
    change(inbox)
    tracemalloc.start()
    with pytest.raises(UserError) as error:
        take_in(inbox, tmp_path / "out")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    sentence = str(error.value.args[0])
    assert phrase in sentence and error.value.hint and len(sentence) < 700
    assert not owned.exists() and most < 100 * 2**20
    assert not (tmp_path / "out" / MANIFEST).exists() or not (tmp_path / "out" / FILE).exists()


def test_there_are_forty_of_them() -> None:
    assert len(HOSTILE) >= 40


@pytest.mark.parametrize(
    ("limits", "phrase"),
    [
        (InboxLimits(messages=3), "more than 3 lines"),
        (InboxLimits(bytes=300), "above its limit"),
        (InboxLimits(message_bytes=100), "above its limit"),
        (InboxLimits(arrays=1), "has 2 arrays"),
    ],
)
def test_limits_are_given_beforehand(limits: InboxLimits, phrase: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=phrase):
        take_in(good(tmp_path), tmp_path / "out", limits)


def test_an_inbox_that_is_whole_comes_in_whole_with_its_traffic(tmp_path: Path) -> None:
    inbox = good(tmp_path)
    taken = take_in(inbox, tmp_path / "out")
    assert taken.messages == 3 and taken.nodes == {"client/0": "n0", "client/1": "n1"}
    told = [json.loads(x) for x in (tmp_path / "out" / MANIFEST).read_text().splitlines()]
    traffic = {x["traffic"]: (x["senders"], x["messages"], x["bytes"]) for x in told if "traffic" in x}
    assert traffic == {"global_model": (1, 1, 16), "local_model": (2, 2, 32), "num_examples": (2, 2, 16)}
    for file in inbox.rglob("*.safetensors"):
        assert (tmp_path / "out" / file.relative_to(inbox)).read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
    ("kind", "shapes", "problem"),
    [
        ("num_examples", {"count": ()}, ""),
        ("num_examples", {"count": (1,)}, "has 'count' of shape [1], expected []"),
        ("num_examples", {"other": ()}, "has no array 'count'"),
        ("local_loss", {"loss": (2,)}, ""),
        ("local_loss", {"loss": (3,)}, "has 'loss' of shape [3], expected [] or [2]"),
        ("local_prototypes", {"classes": (3,), "features": (3, 8)}, ""),
        ("local_prototypes", {"classes": (3,), "features": (4, 8)}, "of shape ["),
        ("local_model", {"anything": (3, 1, 5)}, ""),
    ],
)
def test_arrays_have_the_shapes_of_their_kind(
    kind: str, shapes: dict[str, tuple[int, ...]], problem: str
) -> None:
    found = explain_misfit(Kind(kind), shapes)
    assert problem in found and bool(problem) == bool(found)


def test_sizes_that_are_known_are_compared_as_well() -> None:
    counts = {"counts": (7,)}
    assert not explain_misfit(Kind.LABEL_COUNTS, counts) and not explain_misfit(
        Kind.LABEL_COUNTS, counts, {"C": 7}
    )
    assert "of shape [7], expected [C]" in explain_misfit(Kind.LABEL_COUNTS, counts, {"C": 10})


def test_what_is_left_of_an_import_is_told_by_its_messages(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    taken = take_in(good(tmp_path), tmp_path / "out", progress=lambda done, total: told.append((done, total)))
    assert told == [(i, taken.messages) for i in range(taken.messages + 1)]
