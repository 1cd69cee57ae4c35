"""A key that is there twice: two readers of one file would see two values, so no reader of ours takes either."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save

from fedaudit.audit.case.digests import of_file
from fedaudit.audit.case.reading import parse, plain_json
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.schemas import TrainedOn
from fedaudit.audit.evidence.files import read_result
from fedaudit.fl import ledger
from fedaudit.fl.recording.recorder import manifest
from fedaudit.fl.runtime import tree
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.strict_json import parse_json
from tests.test_house import FILES, ROOT

TWICE = b'{"data": "a", "population": "b", "data": "c"}\n'
# A file that users copy into their own systems, and the reader itself
# a recorder runs without us, and a payload holds whatever its sender likes
EXCEPT = {"attacks/evaluation/payloads.py", "audit/importing/recorders/plain.py", "fl/runtime/strict_json.py"}


def write(path: Path, data: bytes = TWICE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def with_metadata(path: Path) -> Path:
    return write(path, save({"x": torch.zeros(1)}, metadata={"plain": '{"a": 1, "a": 2}'}))


READERS: dict[str, Callable[[Path], Any]] = {
    "a value": lambda f: parse_json(TWICE),
    "inside a list": lambda f: parse_json(b"[[" + TWICE + b"]]"),
    "a form": lambda f: parse(TWICE, TrainedOn, "data.json"),
    "no form yet": lambda f: plain_json(TWICE, "data.json"),
    "a file of a folder": lambda f: RunDir(f).read_json(write(f / "data.json")),
    "a line of the metrics": lambda f: (
        write(f / "metrics.jsonl", b'{"round": 0, "round": 1}'),
        RunDir(f).history(),
    ),
    "the verdict": lambda f: (write(f / "audit.json"), read_result(f)),
    "the ledger": lambda f: ledger.read(write(f / "ledger.jsonl")),
    "the manifest": lambda f: list(manifest(write(f / "manifest.jsonl").parent)),
    "a tree": lambda f: tree.load(with_metadata(f / "x.safetensors")),
    "a digest": lambda f: of_file(write(f / "environment.json"), "environment.json"),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_key_that_is_there_twice_is_refused_wherever_json_is_read(reader: str, tmp_path: Path) -> None:
    with pytest.raises((UserError, ValueError), match="stands twice"):
        READERS[reader](tmp_path)


def test_a_key_of_two_objects_is_not_there_twice() -> None:
    assert parse_json('{"a": {"a": 1}, "b": [{"a": 2}, {"a": 3}]}') == {"a": {"a": 1}, "b": [{"a": 2}, {"a": 3}]}
    assert np.isnan(parse_json("NaN"))


def test_nothing_else_reads_json() -> None:
    found = {p.relative_to(ROOT).as_posix() for p in FILES if re.search(r"\bjson\.loads?\(", p.read_text())}
    assert found == EXCEPT
