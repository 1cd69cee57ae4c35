"""Checkpoints and trees: what is saved comes back, half-written files never count, damage is named."""

import itertools
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from fedaudit.fl.recording.checkpoint import Checkpoints, Saved, is_finished
from fedaudit.fl.runtime import tree
from fedaudit.fl.runtime.durable import Log
from fedaudit.fl.runtime.errors import UserError

STATE = {
    "model": {
        "conv.weight": torch.randn(2, 3, generator=torch.Generator().manual_seed(0)),
        "n": torch.tensor(2**60),
    },
    "empty": torch.empty(0, 4),
    "nothing": {},
    "deep": {"a": {"b": {"c": torch.tensor([True])}}},
    "round": 3,
    "rate": 0.1,
    "name": "x",
    "none": None,
    "list": [1, 2.5, "y"],
    "flag": True,
}


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    return bool(type(a) is type(b) and a == b)


# Trees --------------------------------------------------------------------------------------


def test_a_tree_is_written_as_safetensors_would_piece_by_piece(tmp_path: Path) -> None:
    shared = torch.arange(12.0).view(3, 4)
    tensors = {
        "z\x1f\u00e9": torch.tensor([True, False, True]),
        "whole": shared,
        "transposed": shared.t(),
        "short": torch.ones(3, dtype=torch.bfloat16),
        "one": torch.tensor(2.5, dtype=torch.float64),
        "none": torch.zeros(0, 3),
    }
    tree.save(tmp_path / "tree", tensors)
    with safe_open(tmp_path / "tree", framework="pt") as file:
        metadata = file.metadata()
    assert (tmp_path / "tree").read_bytes() == save(
        {k: v.clone().contiguous() for k, v in tensors.items()}, metadata
    )


def test_a_tree_comes_back_as_it_was(tmp_path: Path) -> None:
    tree.save(tmp_path / "t.safetensors", STATE)
    assert equal(tree.load(tmp_path / "t.safetensors"), STATE)


def test_a_tree_comes_back_in_its_order_and_is_written_again_to_the_same_bytes(tmp_path: Path) -> None:
    mixed = {"z": torch.ones(1), "round": 1, "a": {"w": torch.zeros(2), "n": 3, "b": torch.ones(2)}, "m": {}}
    once, twice = tmp_path / "1.safetensors", tmp_path / "2.safetensors"
    tree.save(once, mixed)
    found = tree.load(once)
    assert (list(found), list(found["a"])) == (["z", "round", "a", "m"], ["w", "n", "b"])
    tree.save(twice, found)
    assert once.read_bytes() == twice.read_bytes()


def test_one_tensor_under_two_names_comes_back_twice(tmp_path: Path) -> None:
    model = torch.arange(6.0).reshape(2, 3)
    twice = {"now": model, "before": {"w": model}, "row": model[1], "turned": model.t()}
    tree.save(tmp_path / "t.safetensors", twice)
    assert equal(tree.load(tmp_path / "t.safetensors"), twice)


def test_saving_leaves_the_old_file_or_the_whole_new_one(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    tree.save(path, {"a": torch.zeros(1)})
    with pytest.raises(TypeError):
        tree.save(path, {"a": torch.ones(1), "b": object()})  # cannot be stored
    assert tree.load(path)["a"].item() == 0
    tree.save(path, {"a": torch.ones(1)})
    assert tree.load(path)["a"].item() == 1 and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("length", [0, 5, 40, -3])
def test_a_truncated_tree_is_a_user_error_that_names_the_file(tmp_path: Path, length: int) -> None:
    path = tmp_path / "t.safetensors"
    tree.save(path, STATE)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(UserError, match=r"t\.safetensors cannot be read"):
        tree.load(path)


def test_a_pickle_in_place_of_a_tree_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(UserError, match="cannot be read"):
        tree.load(path)


def test_finite_looks_at_every_float_and_no_integer() -> None:
    ok = {"a": torch.ones(2), "n": torch.tensor([2**62]), "none": torch.empty(0)}
    assert tree.finite(ok) and tree.finite({})
    for bad, dtype, place in itertools.product(
        (float("nan"), float("inf"), -float("inf")),
        (torch.float16, torch.bfloat16, torch.float32, torch.float64),
        (0, 37, 99),
    ):
        numbers = torch.linspace(-3, 3, 100, dtype=dtype)
        assert tree.finite(ok | {"b": numbers})
        numbers[place] = bad
        assert not tree.finite(ok | {"b": numbers})
    largest = torch.full((9,), torch.finfo(torch.float32).max)  # whose sum is infinite
    assert tree.finite({"a": largest})
    assert tree.size_bytes(ok) == 8 + 8


# Checkpoints --------------------------------------------------------------------------------


def books(folder: Path) -> tuple[Checkpoints, Log]:
    log = Log(folder / "log.jsonl")
    return Checkpoints(folder / "checkpoint", {"log": log}), log


def text(folder: Path) -> str:
    return (folder / "log.jsonl").read_text()


def test_state_memory_and_the_end_of_the_logs_come_back(tmp_path: Path) -> None:
    checkpoints, log = books(tmp_path)
    log.add("1")
    checkpoints.save(Saved(4, STATE, {0: {"c": torch.ones(2)}, 12: {}}))
    log.add("2")
    log.close()

    checkpoints, log = books(tmp_path)
    saved = checkpoints.restore()
    assert saved is not None and saved.round == 4 and not checkpoints.finished
    assert equal(saved.state, STATE)
    assert equal(saved.memory, {0: {"c": torch.ones(2)}, 12: {}})
    log.add("3")
    log.close()
    assert text(tmp_path) == "1\n3\n"


def test_without_a_checkpoint_a_run_starts_with_empty_logs(tmp_path: Path) -> None:
    checkpoints, log = books(tmp_path)
    log.add("left over")
    assert checkpoints.restore() is None
    log.close()
    assert text(tmp_path) == ""


def test_a_half_written_checkpoint_does_not_count(tmp_path: Path) -> None:
    checkpoints, _ = books(tmp_path)
    checkpoints.save(Saved(1, {}, {}))
    (tmp_path / "checkpoint" / ".state.safetensors.partial").write_bytes(b"half")
    saved = checkpoints.restore()
    assert saved is not None and saved.round == 1
    checkpoints.save(Saved(2, {}, {}))
    assert [p.name for p in (tmp_path / "checkpoint").iterdir()] == ["state.safetensors"]


def test_finished_is_remembered(tmp_path: Path) -> None:
    checkpoints, _ = books(tmp_path)
    assert not is_finished(tmp_path / "checkpoint")
    checkpoints.save(Saved(1, {}, {}))
    assert not is_finished(tmp_path / "checkpoint") and not checkpoints.finished
    checkpoints.save(Saved(2, {}, {}), finished=True)
    assert is_finished(tmp_path / "checkpoint")
    again, _ = books(tmp_path)
    again.restore()
    assert again.finished


def test_a_log_shorter_than_its_checkpoint_says_is_refused(tmp_path: Path) -> None:
    checkpoints, log = books(tmp_path)
    log.add("12345")
    checkpoints.save(Saved(1, {}, {}))
    log.cut(2)
    with pytest.raises(UserError, match=r"log\.jsonl is shorter than its checkpoint says"):
        checkpoints.restore()


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"round": 1, "state": {}, "memory": {}, "finished": False},
        {"round": None, "state": {}, "memory": {}, "finished": False, "offsets": {"log": 0}},
        {"round": 1, "state": {}, "memory": {}, "finished": False, "offsets": {"log": "x"}},
        {"round": 1, "state": {}, "memory": {}, "finished": False, "offsets": 3},
    ],
)
def test_a_tree_that_is_no_checkpoint_is_refused(tmp_path: Path, content: dict[str, Any]) -> None:
    checkpoints, _ = books(tmp_path)
    tree.save(tmp_path / "checkpoint" / "state.safetensors", content)
    with pytest.raises(UserError, match=r"state\.safetensors is not a checkpoint"):
        checkpoints.restore()
