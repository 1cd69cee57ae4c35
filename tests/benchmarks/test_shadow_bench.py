"""The comparison of shadow training says what is missing, and judges shadow models of both tools."""

import numpy as np
import pytest

from benchmarks.peers import shadow_models as shadow_bench
from fedaudit.attacks.models._shadows import halves
from fedaudit.fl.runtime.errors import UserError


def test_without_the_other_tool_it_says_what_to_install() -> None:
    pytest.importorskip("torch")
    try:
        import art  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        with pytest.raises(UserError, match="not installed"):
            shadow_bench.compare("digits", "logreg", 100, 2, 0, 1)
    else:
        assert len(shadow_bench.compare("digits", "logreg", 100, 2, 0, 1)) == 2


def test_quality_is_chance_without_and_one_with_a_planted_leak() -> None:
    rng = np.random.default_rng(0)
    inside = halves(200, 8, rng)
    y = rng.integers(0, 3, 200)
    logits = rng.normal(size=(8, 200, 3))
    assert 0.45 < shadow_bench.quality(logits, inside, y) < 0.55
    logits[:, np.arange(200), y] += 10 * inside
    assert shadow_bench.quality(logits, inside, y) > 0.99
