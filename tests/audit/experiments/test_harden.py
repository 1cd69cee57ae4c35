"""The search for protections: what it tries, what it believes, and what it says."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fedaudit as fa
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.cli.show import Lines
from fedaudit.audit.evidence.files import read_result
from fedaudit.audit.experiments import harden as phases_harden
from fedaudit.audit.experiments.harden import (
    Candidate,
    Hardening,
    Search,
    draw_candidates,
    list_forbidding,
    list_stages,
    name_candidate,
    strengthen,
)
from fedaudit.audit.planning.load import load_config, make_config
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.reports.decision import Word
from fedaudit.reports.result import Severity
from tests.audit.importing.theirs import brought

SETTINGS: dict[str, Any] = {
    "federation": {
        "dataset": "digits",
        "clients": 5,
        "limit": 500,
        "partition": {"name": "dirichlet", "alpha": 0.5},
        "model": {"name": "mlp", "hidden": [16]},
        "holdout": {"auxiliary": 0.3, "reference": 0.3},
    },
    "method": {"name": "rebafl", "rounds": 1, "lr": 0.05, "local_epochs": 1},
    "replay": {"groups": 10, "sizes": [1, 2]},
    "attacks": ["count_recovery"],
    "noise_audit": False,
    "report": ["json"],
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


def test_a_set_whose_own_audit_cannot_tell_is_not_sufficient(hardened: Hardening, folder: Path) -> None:
    assert "attribute.server" in hardened.base.above and hardened.tried
    best = hardened.verified[0]
    whole = RunDir.open(folder / "verified" / best.name)
    assert not list_forbidding(read_result(whole.path)) and list_forbidding(read_result(folder))
    assert whole.load_config().seed == hardened.seed == SETTINGS.get("seed", 7) + 1
    assert read_result(whole.path).verdict.word is best.word is hardened.word is Word.CANNOT_TELL
    assert hardened.sufficient is None and hardened.config is None
    assert f'The verdict on {best.name}, run whole, is "Cannot tell".' in hardened.sentence


NOISE = PluginSpec(name="dp_gaussian", settings={"clip_norm": 2.0})


def test_the_config_to_run_is_that_of_the_first_set_whose_own_audit_is_ready(tmp_path: Path) -> None:
    search = Search(RunDir.create(tmp_path / "run"), make_config(SETTINGS), lambda phase, at, total: None)
    open_ = candidate("threshold", word=Word.CANNOT_TELL)
    ready = replace(candidate("noise", word=Word.WITH_CONDITIONS), protections=(NOISE,))
    found = search.conclude(candidate("as audited", "leak", word=Word.NOT_READY), (), [open_, ready])
    assert found.sufficient is ready and found.word is Word.WITH_CONDITIONS
    assert "noise leaves nothing that forbids a deployment" in found.sentence
    assert "run again with seed 8 and all attacks" in found.sentence
    assert found.config is not None
    written = load_config(found.config)
    assert [(p.name, p.settings["clip_norm"]) for p in written.protections] == [("dp_gaussian", 2.0)]
    assert written.seed == 7 and written.require_simulated().method.name == "rebafl"


@pytest.mark.parametrize("word", Word)
@pytest.mark.parametrize("above", [(), ("leak",)])
def test_whatever_was_run_whole_the_exit_code_is_that_of_its_decision(word: Word, above: tuple[str, ...]) -> None:
    base = candidate("as audited", "leak", word=Word.NOT_READY)
    found = conclude(base, verified=(candidate("noise", *above, word=word),))
    assert found.word is word and (found.sufficient is not None) == (word.exit_code == 0)
    assert ("was sufficient" in found.sentence) == (word.exit_code != 0)
    assert conclude(base).word is Word.NOT_READY
    alone = conclude(candidate("as audited", word=word))
    assert alone.word is word and alone.sufficient is None and "nothing to mend" in alone.sentence
    assert (f'The verdict is "{word.words}".' in alone.sentence) == (word.exit_code != 0)


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
    with pytest.raises(fa.UserError, match="would run here"):
        fa.harden(run.path)
    found = fa.harden(run.path, trust_plugins=True, workers=0)
    assert found.found.base.above and found.found.tried
    assert found.found.seed is None and not found.sufficient and found.found.word is Word.CANNOT_TELL
    whole = RunDir.open(run.path / "verified" / found.found.verified[-1].name)
    assert not list_forbidding(read_result(whole.path)) and list_forbidding(read_result(run.path))
    sent = {file.name for file in (run.artifacts).rglob("*uplink*")}
    passed = {file.name for file in whole.artifacts.rglob("*uplink*")}
    assert sent <= passed and found.config is None


def test_of_sets_that_were_run_whole_the_one_with_the_best_word_decides() -> None:
    """Screening took the first for better, whose own audit says that it is not ready."""
    base = candidate("as audited", "leak", word=Word.NOT_READY)
    first, second = candidate("sums", "fact", word=Word.NOT_READY), candidate("noise", word=Word.CANNOT_TELL)
    found = conclude(base, verified=(first, second))
    assert found.decided is second and found.word is Word.CANNOT_TELL and found.sufficient is None
    assert "The verdict on noise, run whole" in found.sentence


def conclude(base: Candidate, **found: Any) -> Hardening:
    known: dict[str, Any] = {"tried": (), "verified": (), "unmended": (), "seed": 8}
    return Hardening(base=base, config=None, **known | found)


def candidate(name: str, *above: str, screened: tuple[str, ...] = (), word: Word | None = None) -> Candidate:
    return Candidate(
        name=name,
        protections=(),
        accuracy=0.5,
        above=above,
        worst=Severity.HIGH if above else Severity.NONE,
        stage=1,
        screened=screened,
        word=word,
    )


def test_screening_alone_is_never_sufficient() -> None:
    base = candidate("as audited", "leak", word=Word.NOT_READY)
    doubtful = conclude(base, tried=(candidate("noise", screened=("leak",)),))
    assert doubtful.sufficient is None and doubtful.word is Word.NOT_READY
    assert doubtful.sentence == "None of 1 sets of protections was sufficient."


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
