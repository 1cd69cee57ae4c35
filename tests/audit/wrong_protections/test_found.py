"""Every wrong protection here is named by the verifier, a lint, the replay or a test of noise; no correct one is.

The protections were written before their author had read a check. Of those in `DECLARED` nothing but their own
generator is noticed, which leaves every bound declared.
"""

import importlib
import inspect
from pathlib import Path

import pytest

from fedaudit.fl.clients.selection import Selection
from fedaudit.fl.data.participation import Availability
from fedaudit.fl.method import Method
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import Plugin
from tests.audit.wrong_protections.audited import HERE, audited

WRONG = (
    "small_noise",
    "reused_noise",
    "wrong_clip",
    "false_lines",
    "channels",
    "wrong_law",
    "central",
    "participation",
    "of_every_kind",
)
REFUSED = {
    "DebugArray": "added the array 'debug'",
    "SquaredWeights": "does more than take the unweighted mean",
    "LargestFirstLater": "has no rounds in which clients answer together",
    "KeepsTheCleanMean": "does more than take the unweighted mean",
}  # before anything trains
DECLARED = ("LowBits", "CoarseNoise", "HalfPrecision", "TakesBack", "CentredNoise")
LINES = {"verifier"}  # who has to find what
BY = {
    "RecordsInstead": LINES,
    "ReplacedUnpaid": LINES,
    "ServerUnseen": LINES,
    "EveryOtherLine": LINES,
    "AmplifiedByHand": LINES,
    "SomebodyElse": LINES,
    "FirstRoundOnly": LINES,
    "CountsUnlisted": LINES,
    "SameLineTwice": LINES,
    "CheapClaim": {"lints"},
    "LossBesides": LINES,
    "SizeInTheCount": LINES,
    "OneCoinForAll": LINES,
    "RateTooLow": LINES,
    "StopsWhenGood": {"lints"},
    "LargestFirst": {"lints"},
    "SelectsByLabels": {"lints"},
    "OneAlwaysComes": LINES,
    "TakesTurns": LINES,
    "ExactlyHalf": LINES,
    "NeverTwice": LINES,
    "TwoRoundsAsOne": LINES,
}  # all others: the replay and the tests of noise
COINS = {"availability: full": "availability: {name: bernoulli, p: 0.5}\n  empty_round: skip"}
COUNTED = {"weighting: uniform": "weighting: samples"}
LONGER = {"rounds: 4,": "rounds: 20,"}  # one number a message
CHANGES = {
    "SkipsFewAnswers": COINS,
    "LargestFirstLater": {"name: fedavg,": "name: fedasync,"},
    "AmplifiedByHand": COINS,  # where nobody is drawn, there is nothing to be credited with
    "CountsCalledNoised": COUNTED,
    "CountsUnlisted": COUNTED,
    "SizeInTheCount": COUNTED,
    "OneSidedCounts": COUNTED | LONGER,
    "PlusMinusOne": COUNTED | LONGER,
    "FromTheStart": {"model: logreg": "model: {name: mlp, hidden: [16]}"},  # torch draws fewer than 16 otherwise
    "GenerousClasses": {"name: fedavg,": "name: fedavg_fd,"},
}
CENTRAL = "{name: central_dp, clip_norm: 1.0}"


def plugins(*modules: str) -> list[type[Plugin]]:
    found: list[type[Plugin]] = []
    for name in modules:
        module = importlib.import_module(f"{HERE}.{name}")
        own = [c for _, c in inspect.getmembers(module, inspect.isclass) if c.__module__ == module.__name__]
        found += sorted(own, key=lambda c: inspect.getsourcelines(c)[1])
    return found


def setup(cls: type[Plugin]) -> tuple[str, dict[str, str]]:
    """The protections of the config, and what else changes in it."""
    name, changes = f'"{cls.__module__}:{cls.__name__}"', CHANGES.get(cls.__name__, {})
    if issubclass(cls, Availability):
        return CENTRAL, {
            "availability: full": f"availability: {name}\n  empty_round: skip",
            "rounds: 4,": "rounds: 8,",
        }
    if issubclass(cls, Selection):
        return "dp_gaussian", changes | {"availability: full": f"availability: full\n  selection: {name}"}
    if issubclass(cls, Method):
        return CENTRAL if cls.__name__ in REFUSED else "dp_gaussian", {"name: fedavg,": f"name: {name},"}
    if cls.__name__ == "GenerousClasses":
        name += f', "{HERE}.correct:Plain"'
    return name, changes


@pytest.mark.sample(1)
@pytest.mark.dear("Diameter")
@pytest.mark.parametrize("cls", plugins(*WRONG), ids=lambda c: c.__name__)
def test_a_wrong_protection_is_named(cls: type[Plugin], tmp_path: Path) -> None:
    protections, changes = setup(cls)
    if cls.__name__ in REFUSED:
        with pytest.raises(UserError, match=REFUSED[cls.__name__]):
            audited(protections, tmp_path, changes)
        return
    seen = audited(protections, tmp_path, changes)
    by = {who for who in ("verifier", "lints", "noise") if getattr(seen, who)}
    if cls.__name__ in DECLARED:
        assert not by, f"{cls.__name__} is found now: take it out of DECLARED"
        assert seen.has_own_generator and not seen.verified
        return
    assert by >= BY.get(cls.__name__, {"noise"}), seen


@pytest.mark.sample(1)
@pytest.mark.parametrize("cls", plugins("correct"), ids=lambda c: c.__name__)
def test_a_correct_protection_is_not_condemned(cls: type[Plugin], tmp_path: Path) -> None:
    protections, changes = setup(cls)
    seen = audited(protections, tmp_path, changes)
    assert not seen.named, seen
    assert not seen.not_audited, seen


def test_every_exception_names_a_plugin() -> None:
    names = {c.__name__ for c in plugins(*WRONG, "correct")}
    assert {*DECLARED, *REFUSED, *BY, *CHANGES} <= names
    assert len(plugins(*WRONG)) >= 20 and len(plugins("correct")) >= 10
    assert all(c.__doc__ for c in plugins(*WRONG, "correct"))
