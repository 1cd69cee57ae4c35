"""The hook for NVFlare, with a stand-in for its classes: SCAFFOLD's controls, and models sent to be evaluated."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from fedaudit.audit.importing.recorders.files import source

WEIGHTS = {"w": np.ones(3, np.float32)}
RESULT, TASK = "result", "data"


class Dxo(SimpleNamespace):
    """An exchange object."""


class Shareable(dict[str, Any]):
    """What holds one, and headers."""

    code: str = "OK"

    def get_return_code(self) -> str:
        return self.code

    def get_header(self, name: str) -> Any:
        return self.get("__headers__", {}).get(name)


class Filter:
    """What NVFlare gives every filter: properties, and a way into a job for the tasks that are named."""

    chain: str

    def get_prop(self, name: str) -> Any:
        return self.chain

    def add_to_fed_job(self, job: list[Any], ctx: Any, **kwargs: Any) -> None:
        job.append(kwargs)


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
            "MetaKey": SimpleNamespace(
                NUM_STEPS_CURRENT_ROUND="steps", CURRENT_ROUND="round", FILTER_HISTORY="history"
            ),
            "from_shareable": lambda shareable: shareable["DXO"],
        },
        "filter": {
            "Filter": Filter,
            "FilterChainType": SimpleNamespace(TASK_RESULT_CHAIN=RESULT, TASK_DATA_CHAIN=TASK),
            "FilterContextKey": SimpleNamespace(CHAIN_TYPE="chain"),
        },
        "event_type": {
            "EventType": SimpleNamespace(AFTER_TASK_DATA_FILTER="sends", AFTER_TASK_RESULT_FILTER="receives")
        },
        "fl_constant": {
            "FLContextKey": SimpleNamespace(TASK_NAME="task", TASK_DATA="sent", TASK_RESULT="received"),
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


def context_of(own: tuple[str, str], peer: str, **known: Any) -> Any:
    """What a filter is told of an exchange, in a job of three clients."""
    sites = [SimpleNamespace(name=name) for name in ("site-1", "observer-7", "dataserver")]
    return SimpleNamespace(
        get_process_type=lambda: own[0],
        get_identity_name=lambda: own[1],
        get_prop=({"current_round": 0} | known).get,
        get_peer_context=lambda: SimpleNamespace(get_identity_name=lambda: peer),
        get_engine=lambda: SimpleNamespace(get_clients=lambda: sites),
    )


def read_lines(folder: Path) -> list[dict[str, Any]]:
    path = folder / "manifest.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def exchange(
    tap: Any,
    folder: Path,
    chain: str,
    dxo: Dxo | Shareable,
    own: tuple[str, str] = SERVER,
    peer: str = "site-1",
    task: str = "train",
    **headers: Any,
) -> list[dict[str, Any]]:
    """The manifest after one exchange between a process and its peer."""
    one = tap(str(folder))
    one.chain = chain
    message = dxo if isinstance(dxo, Shareable) else Shareable(DXO=dxo)
    message |= {"__headers__": message.get("__headers__", {}) | headers} if headers else {}
    one.process(message, context_of(own, peer, task=task))
    return read_lines(folder)


def arrays(folder: Path) -> dict[str, Any]:
    """Of the one message."""
    (path,) = folder.glob("*/*.safetensors")
    return load_file(path)


def record(tap: Any, folder: Path, chain: str, dxo: Dxo | Shareable, task: str = "train") -> list[set[str]]:
    """Kinds of each message that one exchange left."""
    return [set(x["kinds"]) for x in exchange(tap, folder, chain, dxo, task=task) if "message" in x]


def routes(lines: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    """Channel, sender, receiver and model of each message."""
    return [
        (x["channel"], x["sender"], *x["receivers"], *(k for k in x["kinds"] if k.endswith("model")))
        for x in lines
        if "message" in x
    ]


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


def test_models_that_others_evaluate_are_no_training(tap: Any, tmp_path: Path) -> None:
    assert record(tap, tmp_path / "a", TASK, weights(), "validate") == [{"client:validate"}]
    assert record(tap, tmp_path / "b", RESULT, weights(), "submit_model") == [{"client:submit_model"}]


def test_statistics_metadata_and_headers_are_kept(tap: Any, tmp_path: Path) -> None:
    counts = Dxo(
        data_kind="STATISTICS", data={"histogram": {"age": [1, 0, 2]}, "count": 3}, meta={"site": "Bern"}
    )
    up = Shareable(DXO=counts, note=b"\x01\x02", __headers__={"hint": "x", "__topic__": "t", "start_round": 0})
    assert record(tap, tmp_path, RESULT, up) == [{"client:records"}]
    found = {name.removeprefix("client:records/"): value for name, value in arrays(tmp_path).items()}
    assert found["STATISTICS.histogram.age"].tolist() == [1, 0, 2] and found["STATISTICS.count"] == 3
    assert found["meta.site"].tobytes() == b"Bern" and found["message.note"].tolist() == [1, 2]
    assert found.keys() - {"STATISTICS.histogram.age", "STATISTICS.count", "meta.site"} == {
        "message.note",
        "message.hint",
    }


def test_tensors_of_every_type_are_kept_also_those_that_require_a_gradient(tap: Any, tmp_path: Path) -> None:
    values = {
        "bf16": torch.full((3,), 1.5, dtype=torch.bfloat16, requires_grad=True),
        "f8": torch.full((3,), 1.5).to(torch.float8_e4m3fn),
        "f16": torch.full((3,), 1.5, dtype=torch.float16),
        "turned": torch.arange(6.0).reshape(2, 3).T,
        "complex": torch.full((2,), 1 + 2j),
        "sparse": torch.eye(2).to_sparse(),
        "bool": torch.tensor([True, False]),
        "long": torch.tensor([2**40]),
    }
    values |= {"tied": values["f16"]}
    assert record(tap, tmp_path, RESULT, Dxo(data_kind="WEIGHTS", data=values, meta={})) == [{"local_model"}]
    found = {name.removeprefix("local_model/"): value for name, value in arrays(tmp_path).items()}
    assert found.keys() == values.keys()
    assert [found[n].tolist() for n in ("bf16", "f8", "f16", "tied")] == [[1.5] * 3] * 4
    assert found["f16"].dtype == np.float16 and found["turned"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert found["complex"].tolist() == [[1, 2]] * 2 and found["sparse"].tolist() == [[1, 0], [0, 1]]
    assert found["bool"].tolist() == [True, False] and found["long"].tolist() == [2**40]


def test_an_answer_that_is_an_error_lost_nothing(tap: Any, tmp_path: Path) -> None:
    failed = Shareable()
    failed.code = "EXECUTION_EXCEPTION"
    (noted,) = [x for x in exchange(tap, tmp_path, RESULT, failed) if "error" in x]
    assert noted["bytes"] == 0 and "client/0 to train: ValueError: EXECUTION_EXCEPTION" in noted["error"]


def test_what_a_server_says_to_every_client_is_recorded_for_each_and_repetitions_once(
    tap: Any, tmp_path: Path
) -> None:
    one = tap(str(tmp_path))
    one.chain = TASK
    for peer in ("site-1", "observer-7", "site-1"):
        one.process(Shareable(DXO=weights()), context_of(SERVER, peer, task="validate"))
    lines = read_lines(tmp_path)
    assert [x["receivers"] for x in lines if "message" in x] == [["client/0"], ["client/1"]]


@pytest.mark.parametrize("given", [{}, {"tasks": None}, {"tasks": ["*"]}])
def test_a_tap_that_names_no_task_is_a_filter_of_those_of_nvflares_workflows(
    tap: Any, given: dict[str, Any]
) -> None:
    job: list[Any] = []
    tap("inbox").add_to_fed_job(job, None, filter_type=RESULT, **given)
    tasks = [one["tasks"] for one in job]  # each alone, as another filter of the recipe may have it
    assert all(len(named) == 1 for named in tasks)
    assert {"train", "validate", "submit_model", "fed_stats", "swarm_learn"} <= {named[0] for named in tasks}
    tap("inbox").add_to_fed_job(named := [], None, filter_type=RESULT, tasks=["train", "mine"])
    assert named == [{"filter_type": RESULT, "tasks": ["train", "mine"]}]


def test_a_task_that_no_tap_is_a_filter_of_is_noted_once_with_its_size(tap: Any, tmp_path: Path) -> None:
    taps = [tap(str(tmp_path)), tap(str(tmp_path))]  # as of two sets of tasks
    for one in taps:
        one.chain = RESULT
    taps[1].process(Shareable(DXO=weights()), context_of(SERVER, "site-1", task="train"))
    for task in ("train", "mine"):
        came = context_of(SERVER, "observer-7", task=task, received=Shareable(DXO=weights()))
        for one in taps:
            one.handle_event("receives", came)
            one.handle_event("sends", came)
    (noted,) = [x for x in read_lines(tmp_path) if "error" in x]
    assert noted["error"].startswith("task mine: ") and noted["bytes"] == 12
    assert (noted["channel"], noted["sender"], noted["seen_by"]) == ("uplink", "client/1", ["server"])
