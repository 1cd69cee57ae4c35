"""The hook for Flower, with a stand-in for Flower's classes: actions, rounds and all that is recorded."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

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
    kinds = [(x["channel"], kind) for x in lines if "message" in x for kind in x["kinds"]]
    own = {"local_model", "client:optimizer", "client:my_state", "num_examples", "client:records"}
    assert {kind for channel, kind in kinds if channel == "uplink"} == own
    sent_down = {kind for channel, kind in kinds if channel == "downlink"}
    assert sent_down == {"global_model", "clients:optimizer", "clients:my_state", "clients:records"}


def test_rounds_of_numpy_clients_are_those_of_their_messages_groups(hook: Hook, tmp_path: Path) -> None:
    sent = [[message("train", k, group=str(t), value=t)] for t in (1, 2, 3) for k in (5, 6)]
    lines = record(hook, tmp_path, sent)
    models = [x for x in lines if "clients:records" not in x.get("kinds", ())]
    assert rounds(lines, "uplink") == [0, 0, 1, 1, 2, 2] == rounds(models, "downlink")


def arrays(folder: Path, line: dict[str, Any]) -> dict[str, Any]:
    return {name: value.tolist() for name, value in load_file(folder / f"{line['message']}.safetensors").items()}


def uplinks(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [x for x in lines if x.get("channel") == "uplink" and "message" in x]


def test_lists_texts_and_bytes_of_metrics_and_configs_are_kept(hook: Hook, tmp_path: Path) -> None:
    sent = message("train", 5, config={"server-round": 1})
    sent.content.metric_records = {
        "m": {"num-examples": 7, "train_loss": 0.5, "val_loss": 2.0, "counts": [5, 7, 0]}
    }
    sent.content.config_records = {
        "c": {"server-round": 1},
        "note": {"raw": b"\x00\x10", "city": "Bern", "tags": ["a", "b"]},
    }
    (line,) = uplinks(record(hook, tmp_path, [[sent]]))
    found = arrays(tmp_path, line)
    assert found["num_examples/count"] == 7 and found["local_loss/loss"] == 0.5
    assert found["client:records/m.val_loss"] == 2.0 and found["client:records/m.counts"] == [5, 7, 0]
    assert found["client:records/note.raw"] == [0, 16]
    assert (
        bytes(found["client:records/note.city"]) == b"Bern"
        and bytes(found["client:records/note.tags"]) == b"a\nb"
    )


@pytest.mark.parametrize("action", ["evaluate", "query.histogram", "get_properties", "get_parameters"])
def test_answers_to_every_action_are_kept_in_the_round_that_is_on(
    action: str, hook: Hook, tmp_path: Path
) -> None:
    sent = [[message(action, 5)], [message("train", 5, value=1)], [message(action, 5, value=2)]]
    lines = uplinks(record(hook, tmp_path, sent))
    kind = "client:" + action.partition(".")[0]
    assert [(x["round"], x["kinds"][0]) for x in lines] == [(0, kind), (0, "local_model"), (0, kind)]
    assert arrays(tmp_path, lines[2]) == {f"{kind}/a.w": [2, 2, 2], f"{kind}/m.num-examples": 7}


def test_what_the_server_repeats_besides_the_model_is_recorded_once(hook: Hook, tmp_path: Path) -> None:
    sent = [[message("train", 5, config={"server-round": t, "rate": max(2, t)}, value=t)] for t in (1, 2, 3)]
    lines = [x for x in record(hook, tmp_path, sent) if x.get("kinds") == ["clients:records"]]
    assert [(x["round"], arrays(tmp_path, x)["clients:records/c.rate"]) for x in lines] == [(0, 2), (2, 3)]


def test_what_cannot_be_kept_is_noted_by_name_and_size_and_the_rest_is_kept(hook: Hook, tmp_path: Path) -> None:
    sent = message("train", 5, config={"server-round": 1})
    sent.content.config_records["note"] = {"odd": object(), "city": "Bern"}
    lines = record(hook, tmp_path, [[sent]])
    noted = [x for x in lines if "error" in x]
    assert [("note.odd" in x["error"], x["bytes"] > 0, x["channel"]) for x in noted] == [
        (True, True, "downlink"),
        (True, True, "uplink"),
    ]
    assert "client:records/note.city" in arrays(tmp_path, uplinks(lines)[0])


def test_an_array_that_flower_cannot_read_is_kept_as_its_bytes(hook: Hook, tmp_path: Path) -> None:
    sent = message("train", 5, config={"server-round": 1})

    def fail() -> None:
        raise TypeError("unsupported serialization type")

    sent.content.array_records["a"]["odd"] = SimpleNamespace(numpy=fail, data=b"\x01\x02")
    (line,) = uplinks(record(hook, tmp_path, [[sent]]))
    assert arrays(tmp_path, line)["local_model/odd"] == [1, 2]


def test_an_answer_that_is_an_error_lost_nothing(hook: Hook, tmp_path: Path) -> None:
    sent = message("train", 5, config={"server-round": 1})
    sent.has_error, sent.error = lambda: True, "out of memory"
    assert [x["bytes"] for x in record(hook, tmp_path, [[sent]]) if "error" in x] == [0]


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


def test_a_loss_and_a_count_are_recorded_in_every_digit(hook: Hook, tmp_path: Path) -> None:
    sent = message("train", 5, config={"server-round": 1})
    sent.content.metric_records = {"m": {"num-examples": 7.5, "train_loss": 0.1}}
    (line,) = uplinks(record(hook, tmp_path, [[sent]]))
    found = arrays(tmp_path, line)
    assert (found["num_examples/count"], found["local_loss/loss"]) == (7.5, 0.1)
