"""Sets of protections in one order: answers, people, accuracy where it differs beyond chance, cost."""

from typing import Any

from fedaudit.audit.verdict.trade_offs import Standing, rank
from fedaudit.reports.decision import Word


def order(**standings: dict[str, Any]) -> list[str]:
    given = {"left": 0, "people": 0, "accuracy": 0.9, "interval": None, "cost": 0.0}
    made = {name: Standing(name=name, **{"word": None, **given, **own}) for name, own in standings.items()}
    assert rank(list(made)[::-1], made.__getitem__) == rank(list(made), made.__getitem__)
    return rank(list(made), made.__getitem__)


def test_a_better_word_comes_before_everything_else() -> None:
    told = order(
        exposed={"word": Word.NOT_READY},
        unsure={"word": Word.CANNOT_TELL},
        ready={"word": Word.READY, "people": 9},
    )
    assert told == ["ready", "unsure", "exposed"]


def test_fewer_answers_that_forbid_come_first_then_fewer_people_then_accuracy() -> None:
    told = order(
        worse={"accuracy": 0.8},
        good={},
        many={"people": 5},
        two={"left": 2},
        one={"left": 1, "people": float("inf")},
    )
    assert told == ["good", "worse", "many", "one", "two"]


def test_accuracies_within_the_interval_of_the_best_are_alike_and_the_cheaper_comes_first() -> None:
    best = {"accuracy": 0.90, "interval": (0.88, 0.92), "cost": 3.0}
    told = order(best=best, near={"accuracy": 0.885, "cost": 1.0}, far={"accuracy": 0.87, "cost": 0.0})
    assert told == ["near", "best", "far"]


def test_of_equal_cost_the_accuracy_decides_within_the_interval_too() -> None:
    wide = {"interval": (0.5, 1.0)}
    assert order(b={"accuracy": 0.7, **wide}, a={"accuracy": 0.6, **wide}) == ["b", "a"]


def test_an_accuracy_that_nobody_measured_comes_last_of_its_equals() -> None:
    assert order(unknown={"accuracy": None}, measured={"accuracy": 0.1}) == ["measured", "unknown"]
