"""The chain: whatever changes after a phase is named by every later one, before anything is computed from it."""

import json
import shutil
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest

from fedaudit.audit.attestation import chain as links
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.evidence.phase import PHASES
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import Config, load
from fedaudit.fl.runtime.errors import UserError
from tests.audit.tiny import TEXT

NAMES = [p.name for p in PHASES]


def config_of(folder: Path) -> Config:
    """Data in a file and a policy in a file, both of which somebody can change."""
    rng = np.random.default_rng(0)
    if not (folder / "data.npz").exists():
        x, y = rng.random((80, 1, 4, 4), dtype=np.float32), np.arange(80) % 2
        np.savez(folder / "data.npz", x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:])
        shutil.copy(Path(__file__).parents[3] / "audit/policy/default.yaml", folder / "mine.yaml")
    text = TEXT.replace("tests.audit.tiny:TinyImages", "{name: npz, path: data.npz}")
    text += "workers: 0\nattacks: []\nreport: [json]\nrecord: all\npolicy: ./mine.yaml\n"
    (folder / "c.yaml").write_text(text)
    return load(folder / "c.yaml")


def go(folder: Path, names: list[str], *, again: bool = True) -> RunDir:
    run = RunDir.create(folder / "run")
    execute(run, config_of(folder), names, lambda *_: None, skip_finished=not again)
    return run


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chain")
    with chdir(folder):
        go(folder, NAMES)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the finished run, with its data and policy where the config says."""
    copy = tmp_path / "copy"
    shutil.copytree(original, copy)
    monkeypatch.chdir(copy)
    return copy


def cut(path: Path, keep: Callable[[dict[str, object]], bool]) -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if keep(json.loads(line))))


def without_three_clients(run: Path) -> None:
    cut(
        run / "artifacts/manifest.jsonl",
        lambda r: str(r.get("sender")) not in ("client/1", "client/2", "client/3"),
    )


def first_round_only(run: Path) -> None:
    for name in ("ledger.jsonl", "metrics.jsonl"):
        cut(run / name, lambda r: r["round"] == 0)


def other_ground_truth(run: Path) -> None:
    (run / "data.json").write_text(json.dumps({"data": "0" * 64, "population": "0" * 64}))


CHANGES = {  # what somebody does after `simulate`: the file that is named
    "three of four clients leave the manifest": (
        without_three_clients,
        "manifest.jsonl is not what simulate wrote",
    ),
    "ledger and metrics end after one round": (first_round_only, "ledger.jsonl is not what simulate wrote"),
    "another digest of the data": (other_ground_truth, "data.json is not what simulate wrote"),
    "the metrics are gone": (lambda run: (run / "metrics.jsonl").unlink(), "metrics.jsonl is missing"),
    "the chain is gone": (lambda run: (run / "chain.json").unlink(), "does not say what simulate left"),
}


@pytest.mark.parametrize("phase", ["attack", "account", "score"])
@pytest.mark.parametrize("change", CHANGES)
def test_every_later_phase_names_what_was_changed(change: str, phase: str, folder: Path) -> None:
    edit, phrase = CHANGES[change]
    edit(folder / "run")
    with pytest.raises(UserError, match=phrase):
        go(folder, [phase])


def test_evidence_that_was_added_removed_or_edited_is_named(folder: Path) -> None:
    evidence = folder / "run" / "evidence"
    (evidence / "00-nothing.json").write_text("{}")
    with pytest.raises(UserError, match=r"00-nothing\.json is there, and attack did not write it"):
        go(folder, ["score"])
    (evidence / "00-nothing.json").unlink()
    text = (evidence / "budgets.json").read_text()
    (evidence / "budgets.json").write_text(text.replace("server", "nobody"))
    with pytest.raises(UserError, match=r"budgets\.json is not what account wrote"):
        go(folder, ["score"])
    (evidence / "budgets.json").unlink()
    with pytest.raises(UserError, match=r"budgets\.json is missing, and account wrote it"):
        go(folder, ["score"])


def test_a_verdict_that_was_edited_is_not_rendered(folder: Path) -> None:
    audit = folder / "run" / "audit.json"
    audit.write_text(audit.read_text().replace('"state": "open"', '"state": "clear"'))
    with pytest.raises(UserError, match=r"audit\.json is not what score wrote"):
        go(folder, ["report"])


def test_data_that_changed_after_the_simulation_are_named(folder: Path) -> None:
    found = dict(np.load(folder / "data.npz"))
    found["x_train"][7] = 0.5  # one image of sixty
    np.savez(folder / "data.npz", **found)
    for phase in ("score", "attack"):  # account reads no example
        with pytest.raises(UserError, match="is not what this run was trained on: the examples differ"):
            go(folder, [phase])


def test_a_changed_policy_is_scored_anew_and_is_not_called_fixed_before(folder: Path) -> None:
    run = go(folder, NAMES, again=False)
    first = json.loads(run.audit.read_bytes())
    assert first["policy"]["fixed"] and first["policy"]["sha256"]
    text = (folder / "mine.yaml").read_text()
    (folder / "mine.yaml").write_text(text.replace("share: 0.05", "share: 0.04"))
    go(folder, NAMES, again=False)
    second = json.loads(run.audit.read_bytes())
    tolerable = ({q["tolerable"] for q in audit["questions"]} for audit in (first, second))
    assert [0.05 in shares for shares in tolerable] == [True, False]
    assert second["policy"]["fixed"] == "" and second["policy"]["sha256"] != first["policy"]["sha256"]


def test_artifacts_of_another_seed_are_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = go_with_seed(tmp_path / "other", 8)
    shutil.rmtree(folder / "run" / "artifacts")
    shutil.copytree(other.artifacts, folder / "run" / "artifacts")
    with pytest.raises(UserError, match=r"manifest\.jsonl is not what simulate wrote"):
        go(folder, ["attack"])


def go_with_seed(folder: Path, seed: int) -> RunDir:
    config_of(folder)
    (folder / "c.yaml").write_text((folder / "c.yaml").read_text() + f"seed: {seed}\n")
    run = RunDir.create(folder / "run")
    execute(run, load(folder / "c.yaml"), ["simulate"], lambda *_: None, skip_finished=False)
    return run


def test_another_version_does_not_continue_or_attack(folder: Path) -> None:
    run = RunDir.open(folder / "run")
    chain = links.read_chain(run.path)
    for where, name, phase in [
        ("versions", "torch", "simulate"),
        ("packages", "fl", "simulate"),
        ("plugins", "methods fedavg", "attack"),
        ("versions", "fedaudit", "account"),
    ]:
        other = chain.model_copy(deep=True)
        getattr(other.links["simulate"], where)[name] = "0.0"
        reread(other)
        run.write_json(run.chain, other.model_dump())
        with pytest.raises(UserError, match=f"{name} 0.0, and here it is"):
            go(folder, [phase])


def reread(chain: links.Chain) -> None:
    """As an owner who changed one link repairs the others."""
    for name, link in chain.links.items():
        link.read |= {other: chain.links[other].digest() for other in links.READS[name]}


def test_two_runs_of_one_config_have_the_same_root(folder: Path, tmp_path: Path) -> None:
    first = links.read_chain(folder / "run")
    again = tmp_path / "again"
    again.mkdir()
    with chdir(again):
        config_of(again)
        assert links.read_chain(go(again, NAMES).path).content() == first.content()
    with chdir(folder):
        config_of(folder)
        (folder / "c.yaml").write_text((folder / "c.yaml").read_text() + "delta: 0.001\n")
        run = RunDir.open(folder / "run")
        execute(run, load(folder / "c.yaml"), ["account"], lambda *_: None, skip_finished=False)
        assert links.read_chain(run.path).content() != first.content()


def test_a_config_and_its_record_that_were_edited_together_are_named(folder: Path) -> None:
    run = folder / "run"
    for name, old, new in [
        ("config.yaml", "delta: 1.0e-05", "delta: 0.1"),
        ("phases.json", '"delta": 1e-05', '"delta": 0.1'),
    ]:
        text = (run / name).read_text()
        assert old in text
        (run / name).write_text(text.replace(old, new))
    with pytest.raises(UserError, match=r"account ran with other settings than phases\.json says"):
        execute(RunDir.open(run), load(run / "config.yaml"), ["score"], lambda *_: None, skip_finished=False)


def test_times_threads_and_commit_stand_outside_the_root_and_all_else_inside(folder: Path) -> None:
    chain = links.read_chain(folder / "run")
    root = chain.content()
    chain.links["attack"].aside.threads += 1
    chain.links["score"].aside.started = "2001-01-01T00:00:00+00:00"
    assert chain.content() == root
    wrote = chain.links["simulate"].wrote
    assert wrote is not None
    wrote["ledger.jsonl"] = "0" * 64
    assert chain.content() != root
    for name in chain.links.keys() - {"report"}:
        chain = links.read_chain(folder / "run")
        chain.links[name].settings = "0" * 64
        assert chain.content() != root, name
