"""Replays show what an attack can do; they set a severity only where clients sent the same and it leaks too."""

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from fedaudit.attacks.evidence import REPLAYED, WHOLE, Baseline, Evidence
from fedaudit.attacks.measure import MEASURES
from fedaudit.audit.verdict.findings import _summarise
from fedaudit.audit.verdict.judge import judge
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.audit.verdict.replays import describe_disagreement, settle_controls
from fedaudit.reports.result import Outcome, Severity

POLICY = load_policy("default")
GRADED = [m.name for m in MEASURES.values() if m.unit == "fraction" and m.higher_is_worse]


def shown(measure: str, value: float, near: float, trials: int, n: float = 1, origin: str = REPLAYED) -> Evidence:
    return Evidence(
        measure=measure,
        value=value,
        unit=MEASURES[measure].unit,
        trials=trials,
        interval=(max(0.0, value - near), min(1.0, value + near)),
        baselines=(Baseline(name="chance", value=0.03),),
        condition={"n": n, "origin": origin},
    )


def sent(value: float, near: float, n: float = 1) -> Evidence:
    return shown("named", value, near, 400, n, "recorded")


SURE = shown("named", 0.95, 0.02, 500)


class Condition(dict[str, float | str]):
    """Counts how often anybody reads it."""

    read: ClassVar[int] = 0

    def items(self) -> Any:
        Condition.read += 1
        return super().items()


def test_replays_of_many_sizes_are_settled_in_work_that_grows_as_they_do() -> None:
    def count(sizes: int) -> int:
        rows = [shown("named", 0.9, 0.02, 500, n, o) for n in range(sizes) for o in (REPLAYED, "recorded")]
        rows = [replace(e, condition=Condition(e.condition)) for e in rows]
        Condition.read = 0
        assert {e.control for e in settle_controls(rows)} == {"none"} and not describe_disagreement(rows)
        return Condition.read

    assert 0 < count(80) <= 2.1 * count(40)


@pytest.mark.parametrize("measure", GRADED)
@pytest.mark.parametrize("origin", [REPLAYED, WHOLE])
def test_replays_alone_set_no_severity_whatever_they_measure(measure: str, origin: str) -> None:
    verdict = judge([shown(measure, 0.99, 0.005, 500, origin=origin)], POLICY)
    assert verdict.outcome == Outcome.INCONCLUSIVE and "replays alone" in verdict.reason


def test_replays_of_cells_that_clients_sent_are_graded_with_them() -> None:
    verdict = judge([SURE, sent(0.8, 0.5)], POLICY)
    assert (verdict.outcome, verdict.severity) == (Outcome.DEMONSTRATED, Severity.CRITICAL)
    assert verdict.where == "n = 1, origin = recorded"


def test_a_row_that_no_client_sent_is_never_quoted_as_what_happened() -> None:
    (quoted,) = judge([SURE, sent(0.8, 0.5)], POLICY).by
    assert (quoted.value, quoted.condition["origin"]) == (0.8, "recorded")


def test_replays_of_cells_that_nobody_sent_are_controls() -> None:
    few = sent(0.03, 0.02, n=500)
    assert judge([SURE, few], POLICY).outcome == Outcome.NOT_DEMONSTRATED
    assert judge([few], POLICY).outcome == Outcome.INCONCLUSIVE  # and without them nothing shows a power


def test_noise_that_clients_send_is_not_condemned_by_replays_that_leak() -> None:
    verdict = judge([SURE, sent(0.03, 0.02)], POLICY)
    assert verdict.outcome == Outcome.INCONCLUSIVE and "does not model what this method sends" in verdict.reason


def test_so_few_trials_that_they_agree_with_anything_let_no_replay_set_a_severity() -> None:
    verdict = judge([SURE, sent(0.03, 0.97)], POLICY)
    assert verdict.outcome == Outcome.NOT_DEMONSTRATED


def test_the_very_cells_made_again_are_compared_and_never_graded() -> None:
    leak, none = replace(SURE, condition={"n": 40.0, "origin": WHOLE}), sent(0.03, 0.02, n=40)
    assert "does not model" in judge([leak, none], POLICY).reason
    like = replace(none, condition={"n": 40.0, "origin": WHOLE})
    assert judge([SURE, like, none], POLICY).outcome == Outcome.NOT_DEMONSTRATED


def test_other_n_are_not_compared() -> None:
    assert "does not model" not in judge([SURE, sent(0.03, 0.02, n=20)], POLICY).reason


def test_the_largest_n_in_words_is_one_that_clients_sent() -> None:
    large = shown("named", 0.767, 0.02, 500, n=20)
    quoted = judge([SURE, sent(0.8, 0.5), large, sent(0.03, 0.02, n=19)], POLICY)
    summary = _summarise(settle_controls([SURE, sent(0.8, 0.5), large, sent(0.03, 0.02, n=19)]), quoted)
    assert "76.7" not in summary and "n = 20" not in summary
    assert summary.replace("\u00a0", " ").endswith(
        "The largest n at which it was seen to beat guessing is 1 (named 80 %)."
    )
    assert "n = 19" not in summary
