"""Every setting with values that it cannot have: one sentence with its path and what was expected, all ours."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import SimulatedConfig, load
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.settings import fields

WRONG = (1.5, 1e30, 10**30, -1, True, None, "fast", "Poisson", "", [], [1], [None], [[1]], {}, {"name": 3}, b"x")
OURS = re.compile(r"( must |is missing$|unknown key |: no '|takes no settings|belongs to a | does not make )")
BEGINNING = {"federation": {"dataset": "digits"}, "method": {"name": "fedavg"}}


def list_sentences(kind: str) -> Iterator[tuple[str, str]]:
    """Place and sentence of every value that is refused, of all plugins of a kind or of the config itself."""
    places = [("", name) for name in SimulatedConfig.model_fields]
    if kind != "config":
        made = {name: getattr(catalog.load(kind, name), "Config", None) for name in catalog.names(kind)}
        places = [(name, key) for name, declared in made.items() if declared for key in fields(declared)]
    for name, key in places:
        for value in WRONG:
            try:
                if name:
                    catalog.settings(kind, name, {key: value}, "here")
                else:
                    validate(SimulatedConfig, BEGINNING | {key: value}, Path("c.yaml"))
            except UserError as error:
                yield f"{kind} {name}.{key} {value!r}", error.sentence


@pytest.mark.parametrize("kind", ["config", *catalog.SHELVES])
def test_what_is_wrong_with_a_setting_is_said_in_words_of_ours(kind: str) -> None:
    strange = {place: words for place, words in list_sentences(kind) if not OURS.search(words)}
    assert not strange


@pytest.mark.parametrize(
    ("line", "sentence", "hint"),
    [
        (
            "federation: {dataset: digits, clients: ten}",
            "federation.clients must be a whole number, got 'ten'",
            "",
        ),
        ("federation: {dataset: digits, clients: 1e30}", "federation.clients must be <= 1000000", ""),
        ("federation: {dataset: Digits}", "no 'Digits' in fl/datasets/", "did you mean 'digits'?"),
        ("Federation: {dataset: digits}", "unknown key Federation", "did you mean 'federation'?"),
        ("federation: {dataset: digits, empty_round: SKIP}", "federation.empty_round must be", "mean 'skip'?"),
        ("federation: {dataset: digits, time_model: {}}", "must be 'none' or have a name, got {}", ""),
        ("method: {name: FEDAVG}", "no 'FEDAVG' in fl/methods/", "did you mean 'fedavg'?"),
        ("method: {name: fedavg, rounds: 1.5}", "method.rounds must be a whole number, got 1.5", "rounds of the"),
        ("method: {name: fedavg, rounds: 1.0e+30}", "method.rounds must be a whole number below 2^63", ""),
        ("method: {name: fedavg, optimiser: ADAM}", "must be 'sgd', 'adam' or 'adamw'", "did you mean 'adam'?"),
        (
            "matrix: {adversaries: [adaptive], malicious: []}",
            "matrix.malicious must have at least 1 entry, got []",
            "",
        ),
    ],
)
def test_a_wrong_value_is_said_with_its_line_what_it_may_be_and_what_was_meant(
    line: str, sentence: str, hint: str, tmp_path: Path
) -> None:
    key = line.partition(":")[0]
    others = {"federation": "federation: {dataset: digits}", "method": "method: fedavg"}
    lines = ["title: X", *(text for name, text in others.items() if name != key.lower()), line]
    (tmp_path / "c.yaml").write_text("\n".join(lines))
    with pytest.raises(UserError) as refused:
        load(tmp_path / "c.yaml")
        catalog.settings(
            "methods", "fedavg", load(tmp_path / "c.yaml").require_simulated().method.settings, "method"
        )
    assert sentence in refused.value.sentence and hint in refused.value.hint
    if not line.startswith("method: {name: fedavg,"):
        assert refused.value.sentence.startswith(f"{tmp_path / 'c.yaml'}:{len(lines)}: ")


def test_a_list_of_three_numbers_that_is_empty_says_how_many_there_are() -> None:
    with pytest.raises(UserError, match=r"^clock\.tiers must have at least 3 entries, got \[\]"):
        catalog.settings("devices", "counted", {"tiers": []}, "clock")


def test_a_setting_keeps_its_own_hint_beside_what_was_meant() -> None:
    with pytest.raises(UserError) as refused:
        catalog.settings("methods", "fedavg", {"weighting": "Samples"}, "method")
    assert refused.value.hint.startswith("did you mean 'samples'?; weighting: how the server weights clients")


@pytest.mark.parametrize("key", ["rounds", "lr", "batch_size"])
def test_null_true_and_lists_are_no_numbers(key: str) -> None:
    for value in (None, True, [1], {"a": 1}, "x"):
        with pytest.raises(UserError, match=rf"^method\.{key} must be a( whole)? number, got "):
            catalog.settings("methods", "fedavg", {key: value}, "method")


@pytest.mark.parametrize(
    ("key", "value", "instead"),
    [
        ("absence", {}, "matrix: {availabilities"),
        ("prototype_aggregator", "capped_mean", "{name: prototypes, rule: capped_mean}"),
        ("claims", ["a.yaml"], "fedaudit dp claims FILE"),
        ("sections", ["a:B"], "report: [json"),
        ("report", {"formats": ["json"], "show": "full"}, "`show`"),
        ("record", {"rounds": "all"}, "every N with those, a list of rounds, or model"),
        ("replay", {"update_steps": [1]}, "[[examples, steps, how many], ...]"),
        ("replay", {"update_groups": 3}, "[[examples, steps, how many], ...]"),
        ("federation", {"dataset": "digits", "train_limit": 9}, "limit: [2000, 500]"),
        ("federation", {"dataset": "digits", "test_limit": 9}, "limit: [2000, 500]"),
        ("matrix", {"adversaries": ["adaptive"], "assumed": ["half"]}, "{name: krum, id: krum-f0, f: 0}"),
        ("matrix", {"adversaries": ["adaptive"], "breakdown": True}, "malicious: [1, 2, 4]"),
        ("matrix", {"adversaries": ["adaptive"], "prototype_aggregators": []}, "{name: prototypes"),
    ],
)
def test_a_key_that_is_gone_is_refused_with_what_stands_in_its_place(
    key: str, value: object, instead: str
) -> None:
    with pytest.raises(UserError) as refused:
        validate(SimulatedConfig, BEGINNING | {key: value}, "c.yaml")
    assert instead in refused.value.hint
