"""Claims about devices and times: what the clock tells by itself, and what freezing cuts off a round."""

from pathlib import Path

import pytest

from fedaudit.audit.claims.claim import TimedClaim, load
from fedaudit.audit.claims.clock import score_timing, simulate_answers
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.format import percent
from fedaudit.reports.result import ClaimOutcome, Severity

SHIPPED = Path(__file__).parents[3] / "configs" / "claims" / "freezefl.yaml"


def claim(says: str, cut: float | None = None) -> TimedClaim:
    return TimedClaim.model_validate(
        {"id": "x", "title": "X", "source": "here", "words": "so", "says": says, "cut": cut}
    )


def test_exact_times_give_every_device_and_every_size_and_noise_takes_them_away() -> None:
    exact, noisy = simulate_answers(0.0), simulate_answers(0.2)
    assert exact.devices == exact.sizes == 1.0 and exact.error < 1e-9
    assert noisy.devices < 0.6 and noisy.sizes < 0.1 and noisy.error > 0.1


def test_obliviousness_is_refuted() -> None:
    found = score_timing(claim("oblivious"))
    assert (found.outcome, found.severity) == (ClaimOutcome.REFUTED, Severity.LOW)
    assert found.table[1] == ["0", percent(1), percent(1), "0"]


@pytest.mark.nightly
def test_a_cut_holds_where_the_algorithms_own_charge_gives_it() -> None:
    """26 % with the first epoch charged, 31 % without, 12 % for one epoch more."""
    shorter, longer = score_timing(claim("shorter", 0.2)), score_timing(claim("shorter", 0.33))
    assert (shorter.outcome, longer.outcome) == (ClaimOutcome.HOLDS, ClaimOutcome.UNDECIDED)
    cuts = [row[-1].replace("\xa0%", "").split(" / ") for row in longer.table[1:]]
    for found, wanted in zip(cuts, (31, 26, 12), strict=True):
        assert [float(c) for c in found] == pytest.approx([wanted] * 2, abs=1)


def test_a_file_without_claims_and_a_cut_of_nothing_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("title: nothing\n")
    with pytest.raises(UserError, match="must have claims"):
        load(tmp_path / "empty.yaml")
    with pytest.raises(ValueError, match="must have a cut"):
        claim("shorter")


def test_the_shipped_file_is_read() -> None:
    assert [c.says for c in load(SHIPPED).timed] == ["oblivious", "shorter"]
