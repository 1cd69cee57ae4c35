"""`fa.load` has no box around it: what holds of a stranger's folder holds because of what reads it."""

import json
import os
import shutil
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fedaudit as fa
from fedaudit.audit.attestation.chain import FORM

GOLDEN = Path(__file__).parents[1] / "golden"
CONNECTED: list[str] = []


def _hear(event: str, args: tuple[object, ...]) -> None:
    if event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system"):
        CONNECTED.append(f"{event}{args}")


sys.addaudithook(_hear)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """A finished run, which must come to nothing outside of it; no connection is made."""
    shutil.copytree(GOLDEN / f"form_{FORM}" / "noise" / "run", tmp_path / "run")
    (tmp_path / "secret.txt").write_text("a stranger may not read this")
    CONNECTED.clear()
    yield tmp_path / "run"
    assert not CONNECTED
    assert (tmp_path / "secret.txt").read_text() == "a stranger may not read this"


def set_key(run: Path, old: str, new: str) -> None:
    text = (run / "config.yaml").read_text()
    assert old in text
    (run / "config.yaml").write_text(text.replace(old, new, 1))


def pipe(run: Path) -> None:
    (run / "ledger.jsonl").unlink()
    os.mkfifo(run / "ledger.jsonl")


def link_to_secret(run: Path) -> None:
    (run / "ledger.jsonl").unlink()
    (run / "ledger.jsonl").symlink_to(run.parent / "secret.txt")


def link_to_device(run: Path) -> None:
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to("/dev/zero")


def hard_link(run: Path) -> None:
    (run / "audit.json").unlink()
    os.link(run.parent / "secret.txt", run / "audit.json")


def deep_json(run: Path) -> None:
    (run / "audit.json").write_text("[" * 200_000)


def sparse_terabyte(run: Path) -> None:
    with (run / "audit.json").open("r+b") as file:
        file.truncate(1 << 40)


def endless_integer(run: Path) -> None:
    (run / "phases.json").write_text('{"simulate": ' + "9" * 1_000_000 + "}")


def billion_laughs(run: Path) -> None:
    names = [f"a{i}: &a{i} [" + ", ".join([f"*a{i - 1}"] * 9) + "]" for i in range(1, 12)]
    (run / "config.yaml").write_text("\n".join(["a0: &a0 lol", *names]))


def tensor_of_an_exabyte(run: Path) -> None:
    path = min(run.glob("artifacts/**/*.safetensors"))
    header = json.dumps({"w": {"dtype": "F32", "shape": [1 << 58], "data_offsets": [0, 1 << 60]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)


def message_outside(run: Path) -> None:
    manifest = next(run.glob("artifacts/manifest.jsonl"))
    lines = [json.loads(line) for line in manifest.read_text().splitlines()]
    for line in lines:
        if "message" in line:
            line["message"] = "../../secret"
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines))


def download(run: Path) -> None:
    set_key(run, "name: digits", "name: mnist\n    download: true")


def network_of_a_hub(run: Path) -> None:
    set_key(run, "name: mlp", "name: hf\n    path: gpt2")


def code_beside(run: Path) -> None:
    (run / "evil.py").write_text("import subprocess\nsubprocess.run(['true'])\nclass X: ...\n")
    set_key(run, "name: mlp", "name: 'evil:X'")


def policy_outside(run: Path) -> None:
    set_key(run, "policy: default", "policy: ../secret.yaml")
    (run.parent / "secret.yaml").write_text("name: theirs\n")


HOSTILE: dict[str, Callable[[Path], None]] = {
    f.__name__.replace("_", " "): f
    for f in (
        pipe, link_to_secret, link_to_device, hard_link, deep_json, sparse_terabyte, endless_integer,
        billion_laughs, tensor_of_an_exabyte, message_outside, download, network_of_a_hub, code_beside,
        policy_outside,
    )
}  # fmt: skip


def test_the_folder_as_it_was_left_is_judged(run: Path) -> None:
    assert fa.load(run).verdict == "cannot_tell"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_folder_is_refused_in_a_sentence(name: str, run: Path) -> None:
    HOSTILE[name](run)
    with pytest.raises(fa.UserError) as told:
        fa.load(run)
    assert told.value.hint and "a stranger may not read" not in str(told.value)
    assert "evil" not in sys.modules
