"""The search for protections: what it tries, what it believes, and what it says."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fedaudit as fa
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.cli.show import Lines
from fedaudit.audit.phases import harden as phases_harden
from fedaudit.audit.phases.harden import (
    Candidate,
    Hardening,
    Search,
    draw_candidates,
    list_above,
    list_stages,
    name_candidate,
    strengthen,
)
from fedaudit.audit.phases.load import load_config, make_config
from fedaudit.audit.phases.result_file import read_result
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.reports.result import Severity
from tests.audit.importing.theirs import brought

SETTINGS: dict[str, Any] = {
    "federation": {
        "dataset": "digits",
        "clients": 5,
        "train_limit": 500,
        "partition": {"name": "dirichlet", "alpha": 0.5},
        "model": {"name": "mlp", "hidden": [16]},
        "holdout": {"auxiliary": 0.3, "reference": 0.3},
    },
    "method": {"name": "rebafl", "rounds": 1, "lr": 0.05, "local_epochs": 1},
    "replay": {"groups": 10, "sizes": [1, 2]},
    "attacks": ["count_recovery"],
    "noise_audit": {"play": False},
    "report": {"formats": ["json"]},
    "device": "cpu",
    "workers": 0,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("harden") / "run"


@pytest.fixture(scope="module")
def hardened(folder: Path) -> Iterator[Hardening]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(phases_harden, "MOST", 4)
        yield Search(RunDir.create(folder), make_config(SETTINGS), lambda phase, at, total: None).find()


@pytest.mark.nightly
def test_exact_counts_are_mended_and_the_proof_is_a_run_of_its_own(hardened: Hardening, folder: Path) -> None:
    assert "count_recovery" in hardened.base.above and hardened.tried
    assert hardened.sufficient is not None and not hardened.sufficient.above
    verifying = RunDir.open(folder / "verified" / hardened.sufficient.name)
    assert verifying.load_config().seed == hardened.seed == SETTINGS.get("seed", 7) + 1
    assert not list_above(read_result(verifying.path), hardened.bar)
    assert list_above(read_result(folder), hardened.bar)
    assert "run again with seed 8 and all attacks" in hardened.sentence


def test_the_config_to_run_is_the_one_that_was_proved(hardened: Hardening) -> None:
    assert hardened.config is not None and hardened.sufficient is not None
    written = load_config(hardened.config)
    proved = {p.name: p.settings for p in hardened.sufficient.protections}
    stated = {p.name: p.settings for p in written.protections}
    assert stated.keys() == proved.keys()
    assert all(stated[name].items() >= settings.items() for name, settings in proved.items())
    assert written.seed == 7 and written.require_simulated().method.name == "rebafl"


def test_a_search_that_ended_gives_the_same(hardened: Hardening, folder: Path) -> None:
    trained = {p: p.stat().st_mtime_ns for p in folder.rglob("metrics.jsonl")}
    again = Search(RunDir.create(folder), make_config(SETTINGS), lambda phase, at, total: None).find()
    assert again == hardened
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("metrics.jsonl")} == trained


def test_every_candidate_is_drawn(hardened: Hardening) -> None:
    drawn = draw_candidates(hardened)
    every = [hardened.base, *hardened.tried, *hardened.verified]
    heights = {f.id: sorted(y for s in f.series for y in s.y) for f in drawn}
    assert heights["hardening-worst-severity"] == sorted(c.worst.rank for c in every)
    traffic = [1e6 * y for y in heights["hardening-bytes"]]
    assert traffic == pytest.approx(sorted(c.bytes for c in every if c.bytes)) and len(traffic) == len(every)
    assert all(f.series[-1].name == "as audited" for f in drawn)  # above what stands at the same place
    assert heights.get("hardening-epsilon", []) == sorted(c.epsilon for c in every if c.epsilon is not None)
    assert {f.x_label for f in drawn} == {"accuracy"}
    unknown = replace(hardened, base=replace(hardened.base, accuracy=None))
    assert {f.x_label for f in draw_candidates(unknown)} == {"candidate"}


def test_each_stage_of_a_search_tells_its_own_progress() -> None:
    told: list[str] = []
    lines = Lines(told.append)
    for stage in ("stage 1 of 2", "stage 2 of 2", "run whole"):
        report = phases_harden._name_stage(stage, lines)
        for at in (0, 1):
            report("cells", at, 1)
            report("noise: attack", at, 1)
    assert [line.partition(": done")[0] for line in told if ": done" in line] == [
        f"{stage}{rest}"
        for stage in ("stage 1 of 2", "stage 2 of 2", "run whole")
        for rest in ("", ": noise: attack")
    ]


@pytest.mark.nightly
def test_an_import_is_searched_by_its_messages_and_believed_when_run_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its network is code that the folder names, so whoever searches has to allow it; there is no other seed."""
    monkeypatch.setattr(phases_harden, "MOST", 4)
    run, _, _ = brought(tmp_path)
    with pytest.raises(fa.UserError, match="names code of its own"):
        fa.harden(run.path)
    found = fa.harden(run.path, trust_plugins=True, workers=0)
    assert "label_counts_from_update" in found.found.base.above and found.found.tried
    assert found.found.seed is None and found.sufficient and "run again with all attacks" in found.found.sentence
    whole = RunDir.open(run.path / "verified" / found.found.verified[-1].name)
    assert not list_above(read_result(whole.path), found.found.bar) and list_above(
        read_result(run.path), found.found.bar
    )
    sent = {file.name for file in (run.artifacts).rglob("*uplink*")}
    passed = {file.name for file in whole.artifacts.rglob("*uplink*")}
    assert (
        sent <= passed and found.config is not None and load_config(found.config, trust_plugins=True).protections
    )


def candidate(name: str, *above: str, screened: tuple[str, ...] = ()) -> Candidate:
    return Candidate(
        name=name,
        protections=(),
        accuracy=0.5,
        above=above,
        worst=Severity.HIGH if above else Severity.NONE,
        stage=1,
        screened=screened,
    )


def test_screening_alone_is_never_sufficient() -> None:
    kept = {"bar": Severity.HIGH, "seed": 8, "config": None, "unmended": ()}
    doubtful = Hardening(
        base=candidate("as audited", "leak"),
        tried=(candidate("noise", screened=("leak",)),),
        verified=(candidate("noise", "leak"),),
        sufficient=None,
        **kept,  # type: ignore[arg-type]
    )
    assert doubtful.sentence == "None of 1 sets of protections was sufficient."
    clean = Hardening(base=candidate("as audited"), tried=(), verified=(), sufficient=None, **kept)  # type: ignore[arg-type]
    assert "nothing to mend" in clean.sentence


@pytest.mark.parametrize("name", catalog.names("protections"))
def test_a_strength_is_a_setting_of_its_protection(name: str) -> None:
    cls = catalog.load("protections", name)
    stronger = strengthen(PluginSpec(name=name), 4)
    if not cls.strength:
        assert stronger == PluginSpec(name=name)
    else:
        assert stronger.settings[cls.strength] == 4 * getattr(cls.Config, cls.strength)


def test_sets_with_long_names_have_folders_of_their_own() -> None:
    pair = ["prototype_threshold", "discrete_laplace"]
    names = [
        name_candidate(pair, 0, 1),
        name_candidate([*pair, "secure_aggregation"], 1, 1),
        name_candidate([*pair, "dp_gaussian"], 2, 1),
        name_candidate([*pair, "dp_gaussian"], 2, 16),
    ]
    assert names[0] == "prototype-threshold-discrete-laplace"
    assert len(set(names)) == 4 and max(map(len, names)) <= 40


@pytest.mark.parametrize(("number", "sizes"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (9, [1, 2, 4, 8, 9])])
def test_stages_end_with_all_attacks(number: int, sizes: list[int]) -> None:
    attacks = [f"attack-{i}" for i in range(number)]
    assert [len(names) for names in list_stages(attacks)] == sizes
