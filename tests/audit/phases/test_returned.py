"""What a plugin of somebody's own hands back is held against its contract at once, in a sentence."""

from typing import Any

import numpy as np
import pytest
import yaml

from fedaudit.attacks.attack import Attack
from fedaudit.attacks.counts.count_recovery import CountRecovery
from fedaudit.attacks.evidence import Evidence, Series
from fedaudit.attacks.people import PeopleCount, Share
from fedaudit.audit.controls.control import Control, load_control, plant
from fedaudit.audit.controls.lab import Replays
from fedaudit.audit.phases.attack import _measure
from fedaudit.audit.settings.controls import Replay
from fedaudit.fl.aggregation.aggregator import RowRule
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.threats.adversary import Adversary
from fedaudit.fl.threats.adversary import Card as AdversaryCard
from fedaudit.fl.threats.threat import Harm
from tests.audit.simulated import simulated
from tests.audit.tiny import TEXT

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


class Planting(Control):
    def plant(self, lab: Any, recorded: Any, settings: Any) -> Any:
        return recorded

    def count_steps(self, clients: Any, settings: Any, training: Any) -> Any:
        return {}


class Sums:
    """A lab of nobody."""

    def among_others(self) -> "Sums":
        return self


@pytest.mark.parametrize("made", [None, {}, [], [1]], ids=["none", "mapping", "empty", "list"])
def test_a_control_that_returns_no_replays_is_told_so(made: Any) -> None:
    with pytest.raises(TypeError, match=r"Planting: plant\(\) must return Replays, got") as refused:
        plant(f"{__name__}:Planting", Sums(), made, Replay())  # type: ignore[arg-type]
    assert str(refused.value).endswith(repr(made))


def test_a_control_of_somebodys_own_plants_beside_ours() -> None:
    made = Replays()
    assert plant(f"{__name__}:Planting", Sums(), made, Replay()) is made  # type: ignore[arg-type]


def test_a_control_that_is_none_is_named_beside_those_that_are() -> None:
    with pytest.raises(UserError) as refused:
        load_control("update", "attacks[0]")
    assert refused.value.sentence == "attacks[0]: there is no control 'update', which its card names"
    assert "did you mean 'updates'?" in refused.value.hint
    with pytest.raises(UserError, match="no control 'effort'") as refused:
        load_control("effort")
    assert "known: activations, averages, condensed, memorised, pairs" in refused.value.hint


class Lines(Nothing):
    def measure(self, claim: Any, truth: Any, rng: Any) -> Any:
        return []

    def curves(self, claim: Any, truth: Any) -> Any:
        return [Series(name="ours", x=3, y=[1.0])]  # type: ignore[arg-type]


def test_a_method_that_returns_something_else_is_named_with_its_contract() -> None:
    with pytest.raises(TypeError, match=r"Nothing: measure\(\) must return list\[Evidence\], got None"):
        _measure(Nothing(), {}, None, np.random.default_rng(0))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Series.x must be Sequence\[float\], got 3"):
        _measure(Lines(), {}, None, np.random.default_rng(0))  # type: ignore[arg-type]


class Silent(Adversary):
    card = AdversaryCard(title="Silent", source="", does="", remedy="")

    def craft(self, client: Any, reply: Any, received: Any) -> Any:
        return None


class Undecided(RowRule):
    title = "Undecided"

    def combine(self, rows: Any, weights: Any, clients: Any, context: Any) -> Any:
        return {}


class Mute(FedAvg):
    def finish(self, client: Any, trained: Any) -> Any:
        return None


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"adversary": {"name": f"{__name__}:Silent", "clients": 1}},
            "Silent: craft() must return Reply, got None",
        ),
        ({"aggregator": f"{__name__}:Undecided"}, "Undecided: combine() must return Combined, got {}"),
        ({"method": {"name": f"{__name__}:Mute", "rounds": 1}}, "Mute: finish() must return Reply, got None"),
    ],
    ids=["adversary", "rule", "method"],
)
def test_code_in_training_that_returns_something_else_is_told_what_it_must_return(
    changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError) as refused:
        simulated(yaml.safe_load(TEXT) | {"workers": 0, **changes})
    assert refused.value.sentence == sentence and "return ..." in refused.value.hint
