"""What is planted on large networks lies in files, and is what it was in memory."""

import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.controls import on_disk
from fedaudit.audit.controls.control import plant
from fedaudit.audit.controls.lab import Lab
from fedaudit.audit.controls.on_disk import ArraysOnDisk, spill
from fedaudit.audit.phases.attack import Bench, attack_once
from fedaudit.fl.recording.recorder import read
from tests.audit.simulated import simulated
from tests.contracts.test_methods_and_attacks import made

ROOT = Path(__file__).parents[3]
ARRAYS: dict[str, Any] = {
    "weight": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "turned": np.arange(12, dtype=np.float64).reshape(3, 4).T,
    "count": np.array(7, np.int64),
    "empty": np.zeros((0, 3), np.float32),
    "flag": np.array([True, False]),
}
SETTINGS: dict[str, Any] = {
    "federation": {"dataset": "digits", "clients": 4, "partition": "iid", "model": "logreg"},
    "workers": 0,
    "method": {"name": "fedavg", "rounds": 2, "local_epochs": 1},
    "attacks": ["loss_threshold"],
    "replay": {"clients": 2, "updates": [[1, 1, 2], [1, 5, 2]]},
}


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    equal = (np.array_equal(v, other[k]) and v.dtype == other[k].dtype for k, v in one.items())
    return list(one) == list(other) and all(equal)


def test_arrays_come_back_as_they_were_in_any_process(tmp_path: Path) -> None:
    kept = ArraysOnDisk(tmp_path, ARRAYS)
    assert same(ARRAYS, kept) and same(ARRAYS, dict(kept)) and len(kept) == len(ARRAYS)
    text = pickle.dumps(kept)
    assert same(ARRAYS, pickle.loads(text))
    large = pickle.dumps(ArraysOnDisk(tmp_path, {"weight": np.zeros(10**6)}))
    assert len(large) < 1000  # what travels is where it lies


def test_who_changes_an_array_changes_it_for_nobody_else(tmp_path: Path) -> None:
    kept = ArraysOnDisk(tmp_path, ARRAYS)
    mine = kept["weight"]
    mine += 1
    assert same(ARRAYS, kept)


def test_small_messages_and_those_that_find_no_room_stay_in_memory(tmp_path: Path) -> None:
    assert spill(ARRAYS, tmp_path) is ARRAYS
    large = {"weight": np.zeros(on_disk.LARGE // 8)}
    assert isinstance(spill(large, tmp_path), ArraysOnDisk)
    assert spill(large, None) is large and spill(large, tmp_path / "nothing") is large


def test_a_file_that_finds_no_room_is_not_left_behind(tmp_path: Path) -> None:
    code = (
        "import resource, signal, sys\nfrom pathlib import Path\nimport numpy as np\n"
        "from fedaudit.audit.controls.on_disk import spill\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))\n"
        "large = {'weight': np.zeros(2**20)}\n"
        "assert spill(large, Path(sys.argv[1])) is large"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], cwd=ROOT, check=True)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("control", ["memorised", "updates"])
def test_what_is_planted_in_files_is_what_is_planted_in_memory(
    control: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, config = simulated(SETTINGS)
    case = SimulatedCase(config)
    recorded = list(read(run.artifacts))
    here = plant(control, Lab.from_case(case), recorded, config.replay)
    monkeypatch.setattr(on_disk, "LARGE", 0)
    there = plant(control, Lab.from_case(case, tmp_path), recorded, config.replay)
    assert here.artifacts and all(isinstance(a.payload, ArraysOnDisk) for a in there.artifacts)
    assert [a.id for a in here.artifacts] == [a.id for a in there.artifacts]
    assert all(same(a.payload, b.payload) for a, b in zip(here.artifacts, there.artifacts, strict=True))


@pytest.mark.parametrize("name", ["loss_threshold", "idlg"])
def test_attacks_read_files_as_they_read_memory_and_the_files_go_with_the_bench(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, config = simulated(SETTINGS)
    case, attack = SimulatedCase(config), made(name)
    case.__dict__["artifacts"] = run.artifacts
    found = []
    for large in (on_disk.LARGE, 0):
        monkeypatch.setattr(on_disk, "LARGE", large)
        bench = Bench(case, [attack.card], config.replay)
        folder = Path(bench._scratch.name)
        assert bool([*folder.iterdir()]) == (large == 0)
        found.append({k: v for k, v in attack_once(attack, name, bench).items() if k != "seconds"})
        del bench
        assert not folder.exists()
    assert found[0] == found[1] and found[0]["status"] == "ran"
