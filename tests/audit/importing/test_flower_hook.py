"""The hook for Flower, with a stand-in for Flower's classes: actions, rounds and what is not recorded."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedaudit.audit.importing.recorders.files import source

Hook = SimpleNamespace


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Hook:
    """What `fedaudit tools recorder flower` writes, executed where `flwr` is a stand-in."""
    flwr, serverapp = ModuleType("flwr"), ModuleType("flwr.serverapp")
    serverapp.Grid = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flwr", flwr)
    monkeypatch.setitem(sys.modules, "flwr.serverapp", serverapp)
    found: dict[str, Any] = {"__name__": "fedaudit_recorder"}
    exec(compile(source("flower"), "fedaudit_recorder.py", "exec"), found)
    return SimpleNamespace(**found)


def message(
    action: str, node: int, *, group: str = "", config: dict[str, int] | None = None, value: float = 0
) -> Any:
    array = SimpleNamespace(numpy=lambda: np.full(3, value, np.float32))
    content = SimpleNamespace(
        array_records={"a": {"w": array}},
        metric_records={"m": {"num-examples": 7}},
        config_records={"c": config or {}},
    )
    metadata = SimpleNamespace(message_type=action, dst_node_id=node, src_node_id=node, group_id=group)
    return SimpleNamespace(content=content, metadata=metadata, has_error=lambda: False)


class Here:
    """A grid whose nodes send back what `reply` makes of a message."""

    def __init__(self, reply: Callable[[Any], Any]) -> None:
        self.reply = reply

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Any]:
        return [self.reply(m) for m in messages]


def record(hook: Hook, folder: Path, sent: list[list[Any]]) -> list[dict[str, Any]]:
    grid = hook.GridTap(Here(lambda m: m), str(folder))
    for messages in sent:
        grid.send_and_receive(messages)
    path = folder / "manifest.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def rounds(lines: list[dict[str, Any]], channel: str) -> list[int]:
    return [x["round"] for x in lines if x.get("channel") == channel]


def test_an_action_with_a_name_is_recorded_as_training(hook: Hook, tmp_path: Path) -> None:
    sent = [[message("train.warmup", k, config={"server-round": t}, value=t)] for t in (1, 2) for k in (5, 6)]
    lines = record(hook, tmp_path, sent)
    assert rounds(lines, "uplink") == [0, 0, 1, 1] and not [x for x in lines if "error" in x]


def test_of_several_records_one_is_the_model_and_the_others_kinds_of_the_apps_own(
    hook: Hook, tmp_path: Path
) -> None:
    sent = message("train", 5, config={"server-round": 1})
    array = sent.content.array_records["a"]
    sent.content.array_records = {"arrays": array, "optimizer": array, "my-state": array}
    lines = record(hook, tmp_path, [[sent]])
    kinds = {x["channel"]: set(x["kinds"]) for x in lines if "message" in x}
    assert kinds["uplink"] == {"local_model", "client:optimizer", "client:my_state", "num_examples"}
    assert kinds["downlink"] == {"global_model", "clients:optimizer", "clients:my_state"}


def test_rounds_of_numpy_clients_are_those_of_their_messages_groups(hook: Hook, tmp_path: Path) -> None:
    sent = [[message("train", k, group=str(t), value=t)] for t in (1, 2, 3) for k in (5, 6)]
    lines = record(hook, tmp_path, sent)
    assert rounds(lines, "uplink") == [0, 0, 1, 1, 2, 2] == rounds(lines, "downlink")


def test_a_type_that_is_not_recorded_is_noted_once(hook: Hook, tmp_path: Path) -> None:
    sent = [[message("query.histogram", k)] for k in (5, 6)] + [[message("get_parameters", 5)]]
    lines = record(hook, tmp_path, sent)
    assert [x["error"] for x in lines if "error" in x] == [
        "messages to 'query.histogram': ValueError: train and evaluate are recorded"
    ]


def test_a_reply_that_the_guard_stops_does_not_leave(hook: Hook, tmp_path: Path) -> None:
    context, sent = SimpleNamespace(node_id=5), message("train", 5, config={"server-round": 1})
    back = hook.ClientTap(str(tmp_path / "a"), guard=["true"])(sent, context, lambda m, c: m)
    assert back is sent
    with pytest.raises(PermissionError, match="does not leave"):
        hook.ClientTap(str(tmp_path / "b"), guard=["false"])(sent, context, lambda m, c: m)
    bad = message("train", 5)
    bad.content.array_records = {"a": {"w": SimpleNamespace(numpy=lambda: np.array([object()]))}}
    with pytest.raises(PermissionError, match="could not be recorded"):
        hook.ClientTap(str(tmp_path / "c"), guard=["true"])(bad, context, lambda m, c: m)
