"""Columns that are scaled by clients' rows: what each client then sends, and that nothing of it is silent."""

from pathlib import Path

import numpy as np
import pytest

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.phases import simulate
from fedaudit.audit.settings.config import Config, SimulatedConfig
from fedaudit.audit.settings.errors import validate
from fedaudit.fl import ledger
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.data.columns import STATS
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.recorder import manifest, read_message
from fedaudit.fl.runtime.errors import UserError


def config(scaled_by: str, method: str = "fedavg", **more: object) -> SimulatedConfig:
    plain = {
        "federation": {
            "dataset": {"name": "patients", "patients": 120, "scaled_by": scaled_by},
            "clients": 3,
            "model": "logreg",
            "partition": "iid",
        },
        "method": {"name": method, "rounds": 2, "local_epochs": 1},
        **more,
    }
    return validate(Config, plain, "c.yaml").require_simulated()


def run(folder: Path, asked: SimulatedConfig) -> tuple[SimulatedCase, list[Artifact]]:
    simulate.run(RunDir(folder), asked, lambda *_: None)
    sent = [
        a
        for line in manifest(folder / "artifacts")
        if "message" in line
        for a in read_message(folder / "artifacts", line)
    ]
    return SimulatedCase(asked), [a for a in sent if a.kind == Kind.FEATURE_STATS]


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "scaffold"])
def test_each_client_sends_what_its_columns_are_like_before_the_first_round(method: str, tmp_path: Path) -> None:
    case, sent = run(tmp_path, config("clients", method))
    *up, down = sent
    assert [str(a.sender) for a in sent] == ["client/0", "client/1", "client/2", "server"] and {
        a.round for a in sent
    } == {0}
    for a, rows in zip(up, case.population.parts, strict=True):
        age = case.data.train.x[rows, 0]
        told = [a.payload[name][0] for name in STATS]
        assert told == pytest.approx([len(age), age.mean(), age.std(), age.min(), age.max()], rel=1e-12)
        assert not a.payload["greatest"][4:].any()  # of categories
    lines = [r for r in ledger.read(RunDir(tmp_path).ledger) if r.kind == Kind.FEATURE_STATS]
    assert lines and all(r.mechanism == "none" for r in lines)
    assert down.payload["count"][0] == sum(map(len, case.population.parts))


def test_the_scale_is_that_of_all_clients_rows_together_as_the_server_sends_it(tmp_path: Path) -> None:
    case, sent = run(tmp_path, config("clients"))
    held = case.data.train.x[np.concatenate(list(case.population.parts))]
    columns, down = case.data.columns, sent[-1].payload
    assert columns is not None
    assert columns.mean[:4] == pytest.approx(held[:, :4].mean(0)) and columns.mean == tuple(down["mean"].tolist())
    assert columns.std[:4] == pytest.approx(held[:, :4].std(0)) == down["deviation"][:4]
    public = SimulatedCase(config("public")).data.columns
    assert public is not None and public.mean[0] != columns.mean[0]


def test_by_public_rows_nothing_is_sent(tmp_path: Path) -> None:
    assert not run(tmp_path, config("public"))[1]


def test_secure_aggregation_refuses_it_since_least_and_greatest_have_no_sum(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="feature_stats"):
        run(tmp_path, config("clients", protections=["secure_aggregation"]))


def test_a_run_that_goes_on_sends_it_no_second_time(tmp_path: Path) -> None:
    asked = config("clients")

    def stop(what: str, done: int, of: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate.run(RunDir(tmp_path), asked, stop)
    assert len(run(tmp_path, asked)[1]) == 4
