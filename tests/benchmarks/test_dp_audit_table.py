"""The table of accuracy and privacy lost: its numbers are the run's, and lower bounds lie below upper ones."""

from pathlib import Path

import pytest

from benchmarks.privacy.noise_audit_table import HEADER, Row, figure, measure, overrides_of, table
from fedaudit.audit.accounting.accountants.exact import gaussian
from fedaudit.audit.accounting.budget import round_up
from fedaudit.fl.runtime.errors import UserError

SMALL = {"federation": {"dataset": "digits", "model": {"name": "mlp", "hidden": [8]}, "clients": 4}, "workers": 0}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    return measure([1.0], 2, 7, tmp_path_factory.mktemp("table"), SMALL)


@pytest.mark.nightly
def test_every_noised_kind_has_a_row_with_the_exact_bound(rows: list[Row]) -> None:
    assert [(r.method, r.kind) for r in rows] == [
        ("DP-FedAvg", "local_model"),
        ("DP-ReBaFL", "local_model"),
        ("DP-ReBaFL", "local_prototypes"),
    ]
    for r in rows:
        assert r.exact == round_up(gaussian(2**0.5, 1e-5))  # two rounds at multiplier 1
        assert not r.refuted and 0.9 * r.exact < r.lower <= r.exact < r.rdp
    assert rows[0].clear == () and "proto_counts" in rows[1].clear


def test_table_and_figure_hold_the_rows(rows: list[Row]) -> None:
    lines = table(rows).splitlines()
    assert len(lines) == 2 + len(rows) + 2 and lines[0].count("|") == len(HEADER) + 1
    drawn = figure(rows)
    assert [s.x for s in drawn.series if "exact" in s.name] == [[rows[0].exact], [rows[1].exact]]


def test_bad_plans_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="rounds"):
        measure([1.0], 0, 7, tmp_path, SMALL)
    with pytest.raises(UserError, match="DP-FedAvg"):
        overrides_of("DP-FedAvgg", 1.0, 2, 7)
