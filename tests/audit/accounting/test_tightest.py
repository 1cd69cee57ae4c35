"""The tightest bound is the least of those that apply; no engine answers for what it was not made for."""

import math

import numpy as np
import pytest

from fedaudit.audit.accounting.accountants import pld, rdp, wor_pld
from fedaudit.audit.accounting.accountants.auto import tightest
from fedaudit.audit.accounting.accountants.pld import PLD
from fedaudit.audit.accounting.accountants.rdp import RDP
from fedaudit.audit.accounting.accountants.wor_pld import WorPLD
from fedaudit.audit.accounting.terms import Term, creditable

SIZED = Term("gaussian", 1.0, "fixed_without_replacement", 0.1)
ANSWERS = Term("randomized_response", 1 / math.log(3), "fixed_without_replacement", 0.1)
POISSON = Term("gaussian", 1.0, "poisson", 0.1)
LAPLACE = Term("laplace", 1.0, "none", 1.0)


@pytest.mark.parametrize(
    ("engine", "terms"), [(PLD, (SIZED, ANSWERS)), (WorPLD, (POISSON, ANSWERS)), (RDP, (SIZED, LAPLACE))]
)
def test_an_engine_refuses_by_every_way_in(engine: type[PLD], terms: tuple[Term, ...]) -> None:
    module = {PLD: pld, WorPLD: wor_pld, RDP: rdp}[engine]
    for term in terms:
        refused = engine().cost({term: 1}, 1e-5)
        assert refused.epsilon == math.inf and refused.note.startswith("Not covered: ")
        with pytest.raises(ValueError, match=r"knows no|only|covers"):
            module.bound({term: 1}, 1e-5)  # type: ignore[attr-defined]
    for distribution, term in ((pld.distribution, SIZED), (wor_pld.distribution, ANSWERS)):
        with pytest.raises(ValueError, match=r"knows no|only"):
            distribution(term, 1e-3)


def test_randomised_response_of_a_fixed_number_is_never_below_its_truth() -> None:
    for whole, delta in ((math.log(3), 0.03), (0.5, 0.01), (2.0, 1e-5), (math.log(1.99), 0.03)):
        term = ANSWERS._replace(z=1 / whole)
        found = tightest({term: 1}, delta, PLD.Config()).epsilon
        # ten of a hundred: all others answer alike, so the number of one answer tells of the one replaced
        p = math.exp(whole) / (1 + math.exp(whole))
        q = np.array([1 - p, p])
        mixed = 0.9 * q + 0.1 * q[::-1]
        assert sum(np.maximum(0, mixed - math.exp(found) * q)) <= delta
        assert found <= math.log1p(0.1 * math.expm1(whole)) + 1e-9


def test_a_draw_of_a_fixed_number_credits_pure_noise_and_no_coins_beside_it() -> None:
    [(term, count)] = creditable({ANSWERS: 3}).items()
    assert term.sampling == "none" and count == 3
    assert 1 / term.z == pytest.approx(math.log(1.2))
    assert creditable({SIZED: 1, POISSON: 1})[Term("gaussian", 1.0, "none", 1.0)] == 1
    assert creditable({POISSON: 2}) == {POISSON: 2}


@pytest.mark.nightly
def test_hundreds_of_different_releases_cost_less_than_by_renyi_divergences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    counts = {
        Term("gaussian", float(rng.uniform(0.8, 2.4)), "poisson", float(rng.uniform(0.01, 0.05))): 1
        for _ in range(358)
    }
    made: list[Term] = []

    def counted(term: Term, step: float) -> object:
        made.append(term)
        return pld_distribution(term, step)

    pld_distribution = pld.distribution
    monkeypatch.setattr(pld, "distribution", counted)
    found = pld.bound(counts, 1e-5).epsilon
    assert 2.8645 <= found <= 3.35  # without rounding 2.8645; by Renyi divergences 3.5136
    assert len(made) <= 2 * pld.MOST_TERMS  # on at most two grids
