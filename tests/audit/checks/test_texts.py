"""Checks of text: a vocabulary of clients' words, people in several texts, copies, noise that spares rows."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedaudit.audit.case.case import Split
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.checks.text_uploads import count_directions, count_still_rows
from fedaudit.audit.checks.texts import PrivateVocabulary, RepeatedTexts, TextUnit
from fedaudit.audit.observer.check import Check
from fedaudit.audit.settings import catalog
from fedaudit.fl.artifact import Artifact, Channel, Party
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.data.tokens import Tokens
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release, Unit, to_line
from fedaudit.reports.result import Severity

TEXTS = np.array([[5, 6, 1, 0], [5, 6, 1, 0], [7, 8, 1, 0], [9, 5, 6, 1]])


def case(**changes: Any) -> Any:
    """Two clients of two texts each; the first two texts are equal, and person 0 has the first and the third."""
    arrays = Arrays(x=TEXTS, y=np.zeros(4, np.int64), owner=np.array([0, 1, 0, 2]))
    schema = Tokens(pieces=tuple("abcdefghij"), origin="the clients' notes", private=True)
    data = Data(train=arrays, test=arrays.take(np.arange(0)), classes=("a",), schema=schema)
    given = {
        "data": data,
        "artifacts": None,
        "examples": Split(parts={0: np.array([0, 2]), 1: np.array([1, 3])}),
        "card": SimpleNamespace(uplink=(Kind.ADAPTER, Kind.NUM_EXAMPLES), relay=()),
    }
    return SimpleNamespace(**given | changes)


def grade(check: Check, of: Any) -> list[Severity]:
    return [r.severity for r in check.check(of, None).results]


def test_a_vocabulary_of_clients_words_is_found_and_one_of_public_text_is_not() -> None:
    found = case()
    assert grade(PrivateVocabulary(), found) == [Severity.MEDIUM]
    public = replace(found.data, schema=replace(found.data.schema, private=False))
    assert grade(PrivateVocabulary(), case(data=public)) == []


def entered(folder: Path, *units: Unit, source: str = "dp_sgd", noise: float = 1.0) -> Path:
    """A run's messages, beside a ledger with a line for each of these units."""
    fields: dict[str, Any] = {"round": 0, "kind": Kind.ADAPTER, "sender": "client/0", "observers": ("server",)}
    fields |= {"mechanism": "gaussian", "noise_std": noise, "sensitivity": 1.0, "source": source}
    lines = [to_line(Release(**fields, unit=unit)) for unit in units]
    RunDir(folder).ledger.write_text("".join(f"{line}\n" for line in lines))
    return RunDir(folder).artifacts


@pytest.mark.parametrize("source", ["dp_sgd", "noised_activations", "discrete_laplace", "a team's own"])
def test_a_bound_for_texts_is_not_one_for_people_who_have_several(source: str, tmp_path: Path) -> None:
    told = case(artifacts=entered(tmp_path, "client", "record", source=source))
    assert grade(TextUnit(), told) == [Severity.MEDIUM]
    assert "1 of 3 people" in TextUnit().check(told, None).results[0].summary
    alone = replace(told.data, train=replace(told.data.train, owner=np.arange(4)))
    assert grade(TextUnit(), case(data=alone, artifacts=told.artifacts)) == []


def test_where_no_noise_is_for_a_text_no_bound_is_below_a_person(tmp_path: Path) -> None:
    assert grade(TextUnit(), case()) == []
    assert grade(TextUnit(), case(artifacts=tmp_path / "artifacts")) == []
    assert grade(TextUnit(), case(artifacts=entered(tmp_path, "client"))) == []
    assert grade(TextUnit(), case(artifacts=entered(tmp_path, "record", noise=0.0))) == []


def test_images_of_which_people_have_several_are_no_exception(tmp_path: Path) -> None:
    images = replace(
        case().data, train=replace(case().data.train, x=np.zeros((4, 1, 2, 2), np.float32)), schema=None
    )
    [found] = TextUnit().check(case(data=images, artifacts=entered(tmp_path, "record")), None).results
    assert "images" in images.gives and "1 of 3 people" in found.summary
    assert found.title == "The mathematical limit is one of an example, and people have several"


def test_a_text_that_two_clients_hold_or_an_adversary_has_is_found() -> None:
    assert grade(RepeatedTexts(), case()) == [Severity.LOW]
    parts = {0: np.array([0, 2]), 1: np.array([3])}
    assert grade(RepeatedTexts(), case(examples=Split(parts=parts))) == []
    known = Split(parts=parts, auxiliary=np.array([1]))
    assert "1 stand among those" in RepeatedTexts().check(case(examples=known), None).results[0].summary


@pytest.mark.parametrize(
    "name", ["private_vocabulary", "text_unit", "repeated_texts", "sparse_noise", "adapter_reach"]
)
def test_a_check_of_text_says_nothing_of_images(name: str) -> None:
    x = np.zeros((4, 1, 2, 2), np.float32)
    arrays = Arrays(x=x, y=np.zeros(4, np.int64))
    images = Data(train=arrays, test=arrays, classes=("a",))
    check: Check = catalog.load("checks", name)()
    assert check.check(case(data=images, artifacts=None), None).results == []


def sent(kind: Kind, **payload: Any) -> Artifact:
    return Artifact(
        id="r0/client-0.uplink/x",
        kind=kind,
        channel=Channel.UPLINK,
        round=0,
        sender=Party.client(0),
        seen_by=("server",),
        payload=payload,
    )


def test_rows_that_did_not_move_are_counted_without_padding() -> None:
    change = np.zeros((30, 4))
    assert count_still_rows(sent(Kind.MODEL_DELTA, embed=change), None) == 0  # nothing moved: nothing was sent
    change[[3, 9]] = 1.0
    assert count_still_rows(sent(Kind.MODEL_DELTA, embed=change), None) == 27
    noised = change + np.random.default_rng(0).normal(size=change.shape)
    assert count_still_rows(sent(Kind.MODEL_DELTA, embed=noised), None) == 0
    start = np.random.default_rng(1).normal(size=change.shape)
    model = sent(Kind.LOCAL_MODEL, embed=start + change)
    assert count_still_rows(model, sent(Kind.GLOBAL_MODEL, embed=start)) == 27


def test_directions_are_rows_of_a_in_the_first_block_over_all_rounds_and_of_a_frozen_one_its_rank() -> None:
    a, b = np.ones((4, 16)), np.ones((16, 4))
    names = {f"blocks.{i}.{m}.lora_A.weight": a for i in (0, 1) for m in "qv"}
    assert count_directions(sent(Kind.ADAPTER, **names), 6) == 2 * 4 * 6
    frozen = {f"blocks.{i}.q.lora_B.weight": b for i in (0, 1)}
    assert count_directions(sent(Kind.ADAPTER, **frozen), 6) == 4
