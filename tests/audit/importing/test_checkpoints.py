"""Checkpoints as frameworks leave them become an inbox; what cannot be read is an error line of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.torch import save_file

from fedaudit.audit.importing.recorders.checkpoints import convert
from fedaudit.audit.importing.recorders.plain import Inbox

STATE = {"head.weight": torch.ones(2, 3, dtype=torch.bfloat16), "head.bias": torch.zeros(2)}


def saved(folder: Path, name: str, found: Any) -> None:
    path = folder / "checkpoints" / name
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".safetensors":
        save_file(found, path)
    elif path.suffix == ".npz":
        np.savez(path, **{k: v.float().numpy() for k, v in found.items()})
    else:
        torch.save(found, path)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("round_1.pt", STATE),
        ("round_1.pth", {"model": {k: torch.nn.Parameter(v) for k, v in STATE.items()}, "step": 3}),
        (
            "epoch=1.ckpt",
            {"epoch": 1, "state_dict": STATE, "optimizer_states": [{"state": {0: {"step": torch.tensor(1.0)}}}]},
        ),
        ("round_1.safetensors", STATE),
        ("round_1.npz", STATE),
    ],
)
def test_the_model_is_found_wherever_it_stands_in_what_was_saved(name: str, found: Any, tmp_path: Path) -> None:
    saved(tmp_path, name, found)
    assert convert(tmp_path / "checkpoints", Inbox(tmp_path / "inbox", "checkpoints")) == 1
    (path,) = (tmp_path / "inbox" / "r00001").glob("*.safetensors")
    assert {n: v.tolist() for n, v in load_file(path).items()} == {
        "global_model/head.weight": [[1] * 3] * 2,
        "global_model/head.bias": [0, 0],
    }


def test_what_cannot_be_read_is_noted_and_the_others_are_recorded(tmp_path: Path) -> None:
    saved(tmp_path, "round_0.pt", STATE)
    saved(tmp_path, "round_1.pt", {"state_dict": STATE, "code": Path("x")})
    saved(tmp_path, "round_2.pt", {"epoch": 3})
    assert convert(tmp_path / "checkpoints", Inbox(tmp_path / "inbox", "checkpoints")) == 1
    lines = [json.loads(line) for line in (tmp_path / "inbox" / "manifest.jsonl").read_text().splitlines()]
    noted = [(x["round"], x["channel"], x["bytes"] > 0) for x in lines if "error" in x]
    assert noted == [(1, "downlink", True), (2, "downlink", True)]
