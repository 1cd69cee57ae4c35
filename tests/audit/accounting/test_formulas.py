"""Formulas that claims cite: their published values, and where they are on the wrong side."""

import math

import pytest

from fedaudit.audit.accounting.accountants.exact import gaussian
from fedaudit.audit.accounting.formulas import central_limit, classical
from fedaudit.audit.claims.scores import rescore
from fedaudit.reports.claims import page
from fedaudit.reports.section import Table
from tests.audit.claims.made import BASE, made


@pytest.mark.parametrize(("delta", "z", "epsilon"), [(1e-2, 0.4589, 6.7718), (1e-5, 0.5754, 8.4198)])
def test_the_classical_formula_crosses_the_truth_where_it_was_published_to(
    delta: float, z: float, epsilon: float
) -> None:
    assert classical(z, delta) == pytest.approx(epsilon, rel=2e-4)
    assert gaussian(1 / z, delta) == pytest.approx(epsilon, rel=2e-4)
    assert classical(0.9 * z, delta) < gaussian(1 / (0.9 * z), delta)  # above, it understates
    assert classical(1.1 * z, delta) > gaussian(1 / (1.1 * z), delta)


@pytest.mark.parametrize(
    ("rate", "z", "releases", "delta", "value", "truth"),
    [
        (0.01, 1.0, 1000, 1e-5, 1.6177, 1.82824),
        (256 / 60000, 1.1, 14040, 1e-5, 2.3222, 2.37956),
        (0.1, 0.5, 200, 1e-5, 96.919, 45.3712),
        (0.1, 1.0, 2000, 1e-2, 29.982, 27.3884),
        (0.001, 0.7, 10000, 1e-6, 1.1010, 1.63692),
    ],
)
def test_the_central_limit_has_its_published_values_and_is_no_bound(
    rate: float, z: float, releases: int, delta: float, value: float, truth: float
) -> None:
    found = central_limit(z, rate, releases, delta)
    assert found == pytest.approx(value, rel=2e-4) and abs(found / truth - 1) > 0.02
    assert central_limit(0.01, rate, releases, delta) == math.inf


@pytest.mark.nightly
def test_a_claim_that_cites_the_central_limit_shows_it_beside_the_bound() -> None:
    sampled = {
        "name": "as run",
        "noise": 0.7,
        "sensitivity": 1.0,
        "sampling": "poisson",
        "rate": 0.001,
        "releases": 10000,
        "delta": 1e-6,
    }
    settings = [*BASE["settings"], sampled]
    found = rescore(made(theorem="central_limit", settings=settings))
    (row,) = found.sampled
    assert row.formula == pytest.approx(1.1010, rel=2e-4) and row.epsilon[0] >= 1.63692
    assert next(c for c in found.conditions if c.text == "The formula is a bound").status == "contradicted"
    tables = [b for b in page(found) if isinstance(b, Table)]
    assert any("Cited formula" in t.header and t.rows[0][-1] == "1.101" for t in tables)
