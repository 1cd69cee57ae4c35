"""What releases cost at least, against values of other programs."""

import pytest

from fedaudit.audit.accounting.below import tell_apart
from fedaudit.audit.accounting.terms import Term


@pytest.mark.parametrize(
    ("counts", "value"),
    [
        ({Term("gaussian", 1.0, "none", 1.0): 1}, 4.377178),
        ({Term("gaussian", 1.0, "poisson", 0.01): 1000}, 1.82824),
        ({Term("gaussian", 1.0, "poisson", 0.01): 500, Term("gaussian", 1.5, "poisson", 0.02): 500}, 1.89748),
    ],
)
def test_a_bound_from_below_is_just_below_the_published_epsilon(counts: dict[Term, int], value: float) -> None:
    assert 0.98 * value < tell_apart(counts, 1e-5, 1.001 * value) <= value


def test_nothing_is_known_from_below_of_other_noise_and_of_the_smallest_delta() -> None:
    gaussian = {Term("gaussian", 1.0, "poisson", 0.01): 10}
    assert tell_apart({Term("laplace", 1.0, "none", 1.0): 1}, 1e-5, 1.0) == 0.0
    assert tell_apart({Term("gaussian", 1.0, "fixed_without_replacement", 0.1): 1}, 1e-5, 1.0) == 0.0
    assert tell_apart(gaussian, 1e-12, 1.0) == 0.0 and tell_apart({}, 1e-5, 1.0) == 0.0
