"""What a plugin of somebody's own hands back is held against its contract at once, in a sentence."""

from typing import Any

import numpy as np
import pytest

from fedaudit.attacks.attack import Attack
from fedaudit.attacks.counts.count_recovery import CountRecovery
from fedaudit.attacks.evidence import Evidence, Series
from fedaudit.attacks.people import PeopleCount, Share
from fedaudit.audit.phases.one_attack import _measure
from fedaudit.fl.threats.threat import Harm

PEOPLE: dict[str, Any] = {
    "harm": Harm.MEMBERSHIP,
    "hit_means": "named",
    "tested": {0: (3, 4)},
    "hit": {0: (3,)},
    "held": {0: 9},
    "luck": Share(hits=1, trials=10),
}


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("held", 9, "PeopleCount.held must be Mapping[int, int], got 9"),
        ("tested", {0: [3, 4]}, "PeopleCount.tested must be Mapping[int, tuple[int, ...]], got {0: [3, 4]}"),
        ("held", {0: np.int64(9)}, "PeopleCount.held must be Mapping[int, int], got {0: np.int64(9)}"),
        ("luck", 0.1, "PeopleCount.luck must be Share, got 0.1"),
        ("harm", "membership", "PeopleCount.harm must be Harm, got 'membership'"),
    ],
    ids=["held", "tested", "numpy", "luck", "harm"],
)
def test_a_field_of_another_type_is_named_with_what_was_expected_and_found(
    field: str, value: Any, sentence: str
) -> None:
    assert PeopleCount(**PEOPLE).held == {0: 9}
    with pytest.raises(TypeError) as refused:
        PeopleCount(**PEOPLE | {field: value})
    assert str(refused.value) == sentence


def test_a_number_of_evidence_that_no_file_can_hold_is_named() -> None:
    with pytest.raises(TypeError, match=r"Evidence.trials must be int, got np.int64\(3\)"):
        Evidence(measure="auc", value=0.5, unit="fraction", trials=np.int64(3), interval=None)  # type: ignore[arg-type]


class Nothing(Attack):
    card = CountRecovery.card

    def run(self, view: Any, knowledge: Any, rng: Any) -> Any:
        return {}

    def measure(self, claim: Any, truth: Any, rng: Any) -> Any:
        return None


class Lines(Nothing):
    def measure(self, claim: Any, truth: Any, rng: Any) -> Any:
        return []

    def curves(self, claim: Any, truth: Any) -> Any:
        return [Series(name="ours", x=3, y=[1.0])]  # type: ignore[arg-type]


def test_a_method_that_returns_something_else_is_named_with_its_contract() -> None:
    with pytest.raises(TypeError, match=r"Nothing.measure\(\) must return list\[Evidence\], got None"):
        _measure(Nothing(), {}, None, np.random.default_rng(0))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Series.x must be Sequence\[float\], got 3"):
        _measure(Lines(), {}, None, np.random.default_rng(0))  # type: ignore[arg-type]
