"""A plugin of somebody's own that lacks what its contract asks for is refused in a sentence when it is loaded."""

from dataclasses import replace
from typing import Any

import pytest

from fedaudit.attacks.attack import Attack
from fedaudit.attacks.counts.count_recovery import CountRecovery
from fedaudit.audit.observer.check import Check
from fedaudit.audit.settings import catalog
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.wire.protection import Protection

CARD = CountRecovery.card


class NoCard(Attack):
    def run(self, view: Any, knowledge: Any, rng: Any) -> Any: ...
    def measure(self, claim: Any, truth: Any, rng: Any) -> Any: ...


class Whole(NoCard):
    card = CARD


class NoRun(Attack):
    card = CARD

    def measure(self, claim: Any, truth: Any, rng: Any) -> Any: ...


class NoMeasure(Attack):
    card = CARD

    def run(self, view: Any, knowledge: Any, rng: Any) -> Any: ...


class FewerArguments(Whole):
    def count_people(self, claim: Any, truth: Any) -> Any: ...  # type: ignore[override]


class CardOfAnotherSort(Whole):
    card = {"title": "x"}  # type: ignore[assignment]


class SetOfKinds(Whole):
    card = replace(CARD, requires=frozenset({Kind.NUM_EXAMPLES}))  # type: ignore[arg-type]


class NoApply(Protection):
    title = "Rounded"

    def describe(self) -> str:
        return "rounds"


class NoTitle(Protection):
    def apply(self, sending: Any) -> None: ...
    def describe(self) -> str:
        return "rounds"


class NoInspect(Check):
    """Nothing."""


def refuse(kind: str, cls: type) -> UserError:
    with pytest.raises(UserError) as refused:
        catalog.load(kind, f"{__name__}:{cls.__name__}", f"{kind}[0]")
    assert refused.value.key == f"{kind}[0]"
    return refused.value


def test_a_plugin_that_has_everything_is_taken() -> None:
    assert catalog.load("attacks", f"{__name__}:Whole") is Whole


def test_a_class_without_its_card_or_title_is_told_what_to_write() -> None:
    error = refuse("attacks", NoCard)
    assert (
        error.sentence == "attacks[0]: NoCard has no card" and error.hint == "write card = Card(...) in the class"
    )
    error = refuse("protections", NoTitle)
    assert error.sentence == "protections[0]: NoTitle has no title" and 'title = "..."' in error.hint


@pytest.mark.parametrize(
    ("kind", "cls", "method", "line"),
    [
        ("attacks", NoRun, "run", "def run(self, view, knowledge, rng)"),
        ("attacks", NoMeasure, "measure", "def measure(self, claim, truth, rng)"),
        ("protections", NoApply, "apply", "def apply(self, sending)"),
        ("checks", NoInspect, "inspect", "def inspect(self, federation, lab)"),
    ],
    ids=["run", "measure", "apply", "inspect"],
)
def test_a_class_without_a_method_is_told_its_signature(kind: str, cls: type, method: str, line: str) -> None:
    error = refuse(kind, cls)
    assert error.sentence.endswith(f"has no {method}()") and error.hint == f"write {line} in the class"


def test_a_method_that_takes_something_else_is_told_how_it_is_called() -> None:
    error = refuse("attacks", FewerArguments)
    assert "FewerArguments has a count_people() that takes something else" in error.sentence
    assert error.hint == "it is called as def count_people(self, claim, truth, rng)"


def test_a_card_of_another_sort_is_shown() -> None:
    error = refuse("attacks", CardOfAnotherSort)
    assert "CardOfAnotherSort has card = {'title': 'x'}" in error.sentence and "Card(...)" in error.hint


def test_a_field_of_a_card_says_its_type_and_what_was_found() -> None:
    error = refuse("attacks", SetOfKinds)
    assert "Card.requires must be tuple[Kind, ...], got frozenset(" in error.sentence


def test_what_is_derived_from_another_class_is_named_in_english() -> None:
    assert "is not an Attack" in refuse("attacks", NoApply).sentence
    assert "is not a Protection" in refuse("protections", NoRun).sentence
