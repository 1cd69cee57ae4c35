"""What `record` keeps of methods with phases: the last round of each, and the exchange before them."""

from pathlib import Path
from typing import Any

import pytest

from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.recorder import manifest
from tests.audit.simulated import simulated

GANDALF = {
    "name": "gandalf",
    "rounds": 3,
    "local_epochs": 1,
    "mediators": 2,
    "labeler_rounds": 2,
    "gan": {"cycles": 4, "least_cycles": 4, "unit": "step", "local": 1, "width": 4, "latent": 4},
}


def kept(folder: Path, method: dict[str, Any], rounds: Any) -> dict[int, set[str]]:
    """Kinds by round."""
    run, _ = simulated(
        {
            "federation": {
                "dataset": "digits",
                "clients": 4,
                "partition": "iid",
                "availability": "full",
                "model": {"name": "mlp", "hidden": [8]},
            },
            "method": method,
            "workers": 0,
            "record": rounds,
        },
        folder,
    )
    found: dict[int, set[str]] = {}
    for line in manifest(run.artifacts):
        if "message" in line:
            found.setdefault(line["round"], set()).update(line["kinds"])
    return found


@pytest.mark.nightly
def test_every_phase_of_gandalf_leaves_its_last_round(tmp_path: Path) -> None:
    found = kept(tmp_path, GANDALF, "last")
    # 4 cycles of generators, 2 rounds for labels, one for images, 3 of training, and the release
    assert sorted(found) == [0, 3, 5, 6, 9, 10]
    assert {Kind.NOISED_LABEL_DIST, Kind.GROUP_MAP} <= found[0]
    assert Kind.GAN_D in found[3] and Kind.GAN_G in found[6] and Kind.LOCAL_MODEL in found[9]
    assert found[10] == {Kind.GLOBAL_MODEL}


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("rounds", "which"), [("every 4", [0, 3, 4, 5, 6, 8, 9, 10]), ([1, 6], [1, 6]), ("all", list(range(11)))]
)
def test_numbers_are_kept_besides_and_a_list_is_kept_exactly(
    rounds: Any, which: list[int], tmp_path: Path
) -> None:
    assert sorted(kept(tmp_path, GANDALF, rounds)) == which


def test_without_phases_the_last_round_and_the_release_are_kept(tmp_path: Path) -> None:
    found = kept(tmp_path, {"name": "fedavg", "rounds": 3, "local_epochs": 1}, "last")
    assert sorted(found) == [2, 3]
