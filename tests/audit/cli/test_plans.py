"""A plan that was kept is printed again only where all that it follows from is the same."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.audit.cli.app import fold
from fedaudit.audit.cli.plan_lines import write_short, write_whole
from fedaudit.audit.cli.plans import plan_audit
from fedaudit.audit.cli.preflight import Forecast
from fedaudit.audit.planning.efforts import record_error
from fedaudit.audit.planning.load import SHIPPED, load_config
from fedaudit.audit.settings import index
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.datasets.digits import Digits

TEXT = """
federation: {dataset: {name: npz, path: data.npz}, clients: 2, model: logreg}
method: {name: fedavg, rounds: 1}
attacks: [label_counts_from_update]
policy: mine.yaml
"""
POLICY = SHIPPED.parent / "policy" / "default.yaml"
KEPT = ["as it was kept"]


def write_data(examples: int = 40, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.random((examples, 1, 8, 8), dtype=np.float32), np.arange(examples) % 2
    np.savez("data.npz", x_train=x[10:], y_train=y[10:], x_test=x[:10], y_test=y[:10])


def replace_unseen(name: str) -> None:
    """Other bytes of the same number, in a file with the times of the old one."""
    file, times = Path(name), os.stat(name)
    content = bytearray(file.read_bytes())
    content[-1:] = b" "  # in the place of a line end
    shutil.copy(file, "copy")
    Path("copy").write_bytes(content)
    os.utime("copy", ns=(times.st_atime_ns, times.st_mtime_ns))
    os.replace("copy", name)


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config that was planned; what was kept of it is marked, so that a plan made anew is told from it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_data()
    shutil.copy(POLICY, "mine.yaml")
    config = tmp_path / "c.yaml"
    config.write_text(TEXT)
    plan_audit(load_config(config))
    (key,) = index.recall_all("plans")
    index.keep("plans", key, KEPT)
    return config


def test_the_same_config_over_the_same_files_is_planned_once(planned: Path) -> None:
    (planned.parent / "beside.npz").write_bytes(b"")
    shutil.copy("data.npz", "data2.npz")
    assert plan_audit(load_config(planned)) == KEPT


@pytest.mark.parametrize(
    "change",
    [
        lambda: os.utime("data.npz", ns=(1, 1)),
        lambda: write_data(seed=1),
        lambda: write_data(examples=60),
        lambda: replace_unseen("mine.yaml"),
        lambda: record_error("fedavg", "label_counts_from_update", 1.0, 3.0),
        lambda: Path("c.yaml").write_text(TEXT.replace("rounds: 1", "rounds: 2")),
    ],
    ids=["data touched", "other data", "more data", "policy", "attacks took longer", "config"],
)
def test_what_a_plan_follows_from_makes_it_anew(change: Callable[[], object], planned: Path) -> None:
    change()
    made = plan_audit(load_config(planned))
    assert made != KEPT and len(made) > 5
    assert plan_audit(load_config(planned)) == made  # and it is kept in its turn


def test_a_replaced_file_shows_though_its_size_and_time_are_the_old_ones(planned: Path) -> None:
    before = index.digest_states([Path("mine.yaml")])
    old = os.stat("mine.yaml")
    replace_unseen("mine.yaml")
    new = os.stat("mine.yaml")
    assert (old.st_size, old.st_mtime_ns) == (new.st_size, new.st_mtime_ns)
    assert index.digest_states([Path("mine.yaml")]) != before


def test_files_at_any_depth_count_and_a_link_that_leads_back_ends(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "back").symlink_to(tmp_path)
    seen = [index.digest_states([tmp_path])]
    for file in (tmp_path / "a" / "b" / "1.png", tmp_path / "a" / "0.png"):
        file.write_bytes(b"1")
        seen.append(index.digest_states([tmp_path]))
    assert len(set(seen)) == 3 and index.digest_states([tmp_path]) == seen[-1]


def test_a_place_where_nothing_is_counts_since_a_file_may_come_there(tmp_path: Path) -> None:
    before = index.digest_states([tmp_path / "train.gz"])
    (tmp_path / "train.gz").write_bytes(b"")
    assert index.digest_states([tmp_path / "train.gz"]) != before


TEXT_MODEL = """
federation:
  dataset: {name: notes, patients: 12, vocabulary: 500, length: 44}
  base: 1
  model: {name: tiny_gpt, dim: 16, layers: 1, task: lm}
  clients: 2
  partition: {name: people, each: 4}
method: {name: fedavg, rounds: 1}
attacks: [token_set]
"""


@pytest.mark.parametrize("adapters", ["", "  adapters: {rank: 1, targets: [q, v]}\n"])
def test_a_plan_trains_no_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adapters: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("fedaudit.fl.training.pretraining.train_base", refuse_call)
    config = tmp_path / "c.yaml"
    config.write_text(TEXT_MODEL.replace("  clients", f"{adapters}  clients"))
    assert any("training: about" in line for line in plan_audit(load_config(config)))


def refuse_call(*args: object) -> None:
    raise AssertionError("called")


def test_data_are_read_once_however_many_seeds_a_run_has_beside_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    loads = [0, 0]
    config = tmp_path / "c.yaml"
    config.write_text(
        "federation: {dataset: digits, clients: 10, model: logreg, partition: {name: n_class_exhaustive}}\n"
        "method: {name: fedavg, rounds: 3}\n"
        "matrix: {seeds: [1, 2, 3], availabilities: [{name: leaving, label: 0, leave: 1, back: 2}]}\n"
    )
    for i, read in enumerate((plan_audit, lambda c: Forecast(c).refuse_endless(86_400))):
        with monkeypatch.context() as patched:
            patched.setattr(Digits, "load", counted(Digits.load, loads, i))
            read(load_config(config))
    assert loads == [1, 1]


def counted(load: Callable[[Any], Data], loads: list[int], i: int) -> Callable[[Any], Data]:
    def load_and_count(self: Any) -> Data:
        loads[i] += 1
        return load(self)

    return load_and_count


def test_a_plan_is_one_screen_and_names_each_reason_once_behind_all() -> None:
    plan = plan_audit(load_config(SHIPPED / "quickstart.yaml"))
    short, whole = list(write_short(plan)), list(write_whole(plan))
    rows = [row for line in short for row in fold(line, 80).splitlines()]
    assert len(rows) < 24 and max(map(len, rows)) <= 80
    assert any(line.startswith("attacks that apply and are left out: ") for line in short)
    assert "planted leaks: 2 (memorised, prototypes)" in short  # names where they fit
    assert sum("it is not among the attacks of this audit" in line for line in whole) == 1
    assert any(line.startswith("  * membership.server: ") for line in whole)
