"""Null runs: their messages tell nothing, a few find nothing, and shares are held against what is stated."""

import json
from pathlib import Path

import pytest

from benchmarks.null_audits.audits import NULLS, Found, audited, plan, results, shares
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.settings import catalog
from fedaudit.fl.clients.client import Client
from fedaudit.fl.execution.site import build_site
from fedaudit.fl.federation import Holdings
from fedaudit.fl.kinds import Kind


def findings(hits: int, runs: int) -> list[Found]:
    return [Found("null", i, "ridge", "ran", int(i < hits), "") for i in range(runs)]


@pytest.mark.parametrize(
    ("hits", "runs", "above"), [(0, 20, False), (3, 20, False), (4, 20, True), (16, 200, False)]
)
def test_a_share_is_above_where_its_whole_interval_is(hits: int, runs: int, above: bool) -> None:
    (row,) = shares(findings(hits, runs))
    assert (row.runs, row.findings, row.above) == (runs, hits, above)


def test_what_did_not_apply_or_failed_is_no_trial() -> None:
    more = [Found("null", 9, "ridge", o, 0, "") for o in ("not_applicable", "failed")]
    (row,) = shares([*findings(1, 10), *more])
    assert (row.runs, row.findings, row.failed) == (10, 1, 1)


def test_every_attack_looks_where_it_can_find_nothing_and_every_config_is_valid() -> None:
    for null in NULLS.values():
        assert SimulatedCase(null.config(0)).method.card.title
    looked = {name for null in NULLS.values() for name in (*null.attacks, *null.seldom)}
    assert looked <= set(catalog.names("attacks")) and len(looked) > 25


def at_work(case: SimulatedCase, index: int) -> Client:
    holdings = Holdings(case.data, case.population.parts, case.streams)
    site = build_site(case.method, holdings, case.network.make, "cpu")
    site.begin(0, {Kind.GLOBAL_MODEL: case.network.initial()})
    return site.client((index, {}, {}))


@pytest.mark.parametrize("name", ["other images", "other clients"])
def test_a_null_client_works_on_images_that_nobody_holds(name: str) -> None:
    case = SimulatedCase(NULLS[name].config(0))
    client = at_work(case, 0)
    pixels = (client.x * case.data.std[0] + case.data.mean[0]).flatten(1).numpy().round(4)
    test = case.data.test
    known = {tuple(x): int(y) for x, y in zip(test.x.reshape(-1, 64).round(4), test.y, strict=True)}
    assert [known[tuple(x)] for x in pixels] == client.y.tolist()
    own = case.data.train.y[case.population.parts[0]].tolist()
    assert (client.y.tolist() == own) == (name == "other images")


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["means of other images", "counts of other clients", "tables of other clients"])
def test_a_federation_with_nothing_to_find_has_no_finding(name: str, tmp_path: Path) -> None:
    found = audited(name, 0, tmp_path / "run")
    assert [f.attack for f in found] == list(NULLS[name].attacks)
    assert all(f.status != "failed" and not f.at_least for f in found)


def test_a_run_that_left_its_file_is_not_run_again(tmp_path: Path) -> None:
    (name, number), *_ = plan(1)
    kept = [list(f) for f in findings(1, 1)]
    (tmp_path / f"{name.replace(' ', '-')}-{number:04d}.json").write_text(json.dumps(kept))
    assert list(results([(name, number)], tmp_path)) == findings(1, 1)
