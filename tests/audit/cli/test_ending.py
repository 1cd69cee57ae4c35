"""What commands say last."""

from fedaudit.audit.cli.ending import describe_accuracy


def test_simulate_states_the_last_and_the_best_accuracy() -> None:
    rounds = [{"round": 0, "accuracy": 0.5}, {"round": 1, "accuracy": 0.905}, {"round": 2, "accuracy": None}]
    text = describe_accuracy(rounds).replace("\u00a0", " ")
    assert text == "accuracy: 90.5 % after round 2 of 3; best 90.5 % after round 2"
    assert "after round 1 of 1;" in describe_accuracy(rounds[:1])


def test_a_method_without_a_shared_model_has_none() -> None:
    assert describe_accuracy([{"round": 0}]).startswith("1 round; no accuracy")
