"""The hook for NVFlare, with a stand-in for its classes: SCAFFOLD's controls, and models sent to be evaluated."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedaudit.audit.importing.recorders.files import source

WEIGHTS = {"w": np.ones(3, np.float32)}
RESULT, TASK = "result", "data"


class Dxo(SimpleNamespace):
    """An exchange object."""

    def get_meta_prop(self, name: str, default: Any = None) -> Any:
        return self.meta.get(name, default)

    def get_filter_history(self) -> list[str]:
        return []


def weights(kind: str = "WEIGHTS", **meta: Any) -> Dxo:
    return Dxo(data_kind=kind, data=WEIGHTS, meta=meta)


@pytest.fixture
def tap(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The class Tap of what `fedaudit tools recorder nvflare` writes."""
    names = {"WEIGHTS": "WEIGHTS", "WEIGHT_DIFF": "WEIGHT_DIFF", "COLLECTION": "COLLECTION"}
    contents: dict[str, dict[str, Any]] = {
        "dxo": {
            "DXO": Dxo,
            "DataKind": SimpleNamespace(**names),
            "MetaKey": SimpleNamespace(NUM_STEPS_CURRENT_ROUND="steps", CURRENT_ROUND="round"),
            "from_shareable": lambda shareable: shareable.dxo,
        },
        "filter": {
            "Filter": type("Filter", (), {"get_prop": lambda self, _: self.chain}),
            "FilterChainType": SimpleNamespace(TASK_RESULT_CHAIN=RESULT),
            "FilterContextKey": SimpleNamespace(CHAIN_TYPE="chain"),
        },
        "fl_constant": {
            "FLContextKey": SimpleNamespace(TASK_NAME="task"),
            "ProcessType": SimpleNamespace(SERVER_PARENT="SP", SERVER_JOB="SJ"),
        },
    }
    for name in ("nvflare", "nvflare.apis"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for name, values in contents.items():
        module = ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, f"nvflare.apis.{name}", module)
    found: dict[str, Any] = {"__name__": "fedaudit_recorder"}
    exec(compile(source("nvflare"), "fedaudit_recorder.py", "exec"), found)
    return found["Tap"]


SERVER = ("SJ", "example_project")  # a process, and its identity: a provisioned server has its project's name


def exchange(
    tap: Any,
    folder: Path,
    chain: str,
    dxo: Dxo,
    own: tuple[str, str] = SERVER,
    peer: str = "site-1",
    task: str = "train",
    **headers: Any,
) -> list[dict[str, Any]]:
    """The manifest after one exchange between a process and its peer, in a job of three clients."""
    sites = [SimpleNamespace(name=name) for name in ("site-1", "observer-7", "dataserver")]
    context = SimpleNamespace(
        get_process_type=lambda: own[0],
        get_identity_name=lambda: own[1],
        get_prop={"task": task, "current_round": 0}.get,
        get_peer_context=lambda: SimpleNamespace(get_identity_name=lambda: peer),
        get_engine=lambda: SimpleNamespace(get_clients=lambda: sites),
    )
    one = tap(str(folder))
    one.chain = chain
    one.process(SimpleNamespace(dxo=dxo, get_return_code=lambda: "OK", get_header=headers.get), context)
    path = folder / "manifest.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    assert not [x for x in lines if "error" in x]
    return lines


def record(tap: Any, folder: Path, chain: str, dxo: Dxo, task: str = "train") -> list[set[str]]:
    """Kinds of each message that one exchange left."""
    return [set(x["kinds"]) for x in exchange(tap, folder, chain, dxo, task=task) if "message" in x]


def routes(lines: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    """Channel, sender, receiver and first kind of each message."""
    return [(x["channel"], x["sender"], *x["receivers"], x["kinds"][0]) for x in lines if "message" in x]


def nodes(lines: list[dict[str, Any]]) -> list[str]:
    return [x["node"] for x in lines if "party" in x]


def test_a_server_that_is_called_after_its_project_tells_its_sites_apart(tap: Any, tmp_path: Path) -> None:
    exchange(tap, tmp_path, RESULT, weights(), peer="site-1")
    lines = exchange(tap, tmp_path, RESULT, weights(), peer="observer-7")
    assert nodes(lines) == ["site-1", "observer-7"] and lines[0]["recorder"] == "nvflare"
    assert [sender for _, sender, *_ in routes(lines)] == ["client/0", "client/1"]


@pytest.mark.parametrize("site", ["observer-7", "dataserver", "server"])
def test_a_site_is_a_client_whatever_it_is_called(tap: Any, tmp_path: Path, site: str) -> None:
    exchange(tap, tmp_path, TASK, weights(), ("CJ", site), "example_project")
    lines = exchange(tap, tmp_path, RESULT, weights(), ("CJ", site), "example_project")
    assert nodes(lines) == [site] and lines[0]["recorder"] == "nvflare-client"
    assert routes(lines) == [
        ("downlink", "server", "client/0", "global_model"),
        ("uplink", "client/0", "server", "local_model"),
    ]


def test_what_one_client_of_a_swarm_sends_another_is_a_relay_between_them(tap: Any, tmp_path: Path) -> None:
    own = ("CJ", "observer-7")
    exchange(tap, tmp_path, TASK, weights(), own, "site-1", "swarm_learn", **{"cwf.aggr": "observer-7"})
    lines = exchange(tap, tmp_path, TASK, weights(), own, "dataserver", "swarm_report_learn_result")
    assert nodes(lines) == ["observer-7", "site-1", "dataserver"]
    assert routes(lines) == [
        ("relay", "client/1", "client/0", "global_model"),
        ("relay", "client/2", "client/0", "local_model"),
    ]


def test_the_model_of_a_cycle_is_handed_from_client_to_client(tap: Any, tmp_path: Path) -> None:
    order = {"cwf.client_order": ["site-1", "observer-7", "dataserver"]}
    lines = exchange(tap, tmp_path, TASK, weights(), ("CJ", "observer-7"), "site-1", "cyclic_learn", **order)
    assert routes(lines) == [("relay", "client/1", "client/0", "relay_model")]


def test_controls_in_a_models_metadata_are_kinds_of_their_own(tap: Any, tmp_path: Path) -> None:
    up = weights(steps=4, scaffold_c_diff=WEIGHTS)
    assert record(tap, tmp_path / "a", RESULT, up) == [{"local_model", "num_steps", "control_delta"}]
    down = weights(scaffold_c_global=WEIGHTS, scaffold_c_diff=WEIGHTS)
    kinds = {"global_model", "control_global", "clients:scaffold_c_diff"}  # the mean of clients' changes
    assert record(tap, tmp_path / "b", TASK, down) == [kinds]


def test_controls_in_a_collection_are_not_part_of_the_model(tap: Any, tmp_path: Path) -> None:
    parts = {"__model_weights__": weights("WEIGHT_DIFF"), "scaffold_c_diff": weights("WEIGHT_DIFF")}
    up = Dxo(data_kind="COLLECTION", data=parts, meta={})
    assert record(tap, tmp_path, RESULT, up) == [{"model_delta", "control_delta"}]
    line = json.loads((tmp_path / "manifest.jsonl").read_text().splitlines()[-1])
    assert (tmp_path / f"{line['message']}.safetensors").read_bytes().count(b"model_delta/w") == 1


def test_models_that_others_evaluate_are_not_recorded_as_training(tap: Any, tmp_path: Path) -> None:
    assert record(tap, tmp_path / "a", TASK, weights(), "validate") == []
    assert record(tap, tmp_path / "b", RESULT, weights(), "submit_model") == []
