"""Correct noise of every shipped kind raises no more alarms than the stated rate, in the run's own shape."""

import pytest

from fedaudit.audit.canaries.run_payload import passed
from fedaudit.fl.kinds import Kind
from fedaudit.fl.protections.central_dp import CentralDP
from fedaudit.fl.protections.discrete_laplace import DiscreteLaplace
from fedaudit.fl.protections.dp_gaussian import DPGaussian
from fedaudit.fl.protections.laplace import Laplace
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Protection
from tests.audit.canaries.test_payload import KINDS, shape

ALPHA = 0.05
CORRECT: dict[str, Protection] = {
    "dp_gaussian": DPGaussian(DPGaussian.Config(kinds=KINDS, clip_norm=0.5, noise_multiplier=1.2)),
    "dp_gaussian of prototype rows": DPGaussian(
        DPGaussian.Config(kinds=(Kind.LOCAL_PROTOTYPES,), clip="row", most_rows=5)
    ),
    "laplace": Laplace(Laplace.Config(kinds=KINDS, clip_norm=2.0, scale=0.7)),
    "discrete_laplace": DiscreteLaplace(DiscreteLaplace.Config(scale=2.0)),
    "central_dp": CentralDP(CentralDP.Config(clip_norm=0.8, noise_multiplier=1.1)),
}


def alarms(protection: Protection, seed: int) -> list[str]:
    """What fails of the worst kind of one correct run."""
    streams = Streams(seed)
    tried = passed(shape(), [protection], streams)
    assert tried.swept is not None
    each = [[c.text for c in tried.checks(n.kind, streams, ALPHA) if not c.passed] for n in tried.swept.noises]
    assert each  # something was tested
    return max(each, key=len)


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_run_raises_no_alarm(name: str) -> None:
    assert not alarms(CORRECT[name], seed=1)


@pytest.mark.nightly
@pytest.mark.parametrize("name", CORRECT)
def test_200_correct_runs_raise_no_more_alarms_than_stated(name: str) -> None:
    kinds = 2 if "rows" not in name and name in ("dp_gaussian", "laplace") else 1
    kinds = 3 if name == "discrete_laplace" else kinds
    assert sum(bool(alarms(CORRECT[name], seed)) for seed in range(200)) <= ALPHA * 200 * kinds
