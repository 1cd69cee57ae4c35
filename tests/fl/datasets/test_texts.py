"""Data sets of text: owners stay together, canaries are where they say, files of a user are read as data."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.audit.settings import catalog
from fedaudit.fl.data.dataset import Data, read_data
from fedaudit.fl.data.population import populate
from fedaudit.fl.data.tokenizer import Tokenizer
from fedaudit.fl.partitions.people import People
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.runtime.streams import Streams


def load(name: str, **settings: Any) -> Data:
    return read_data(configure(catalog.load("datasets", name), settings, "dataset"))


def texts(data: Data) -> list[str]:
    assert data.schema is not None
    return [data.schema.decode(row) for row in data.train.x]


def test_notes_have_a_patient_each_and_no_patient_is_in_both_parts() -> None:
    data = load("notes", patients=50)
    assert data.is_text and data.train.owner is not None and data.test.owner is not None
    assert not set(data.train.owner) & set(data.test.owner)
    assert 50 <= len(data.train) + len(data.test) <= 200
    for text, label in zip(texts(data), data.train.y, strict=True):
        assert data.classes[label] in text  # the label is the diagnosis
    assert max(int((row != 0).sum()) for row in data.train.x) <= 48 and (data.train.x == 1).sum(1).tolist() == [
        1
    ] * len(data.train)


def test_a_patients_notes_are_by_one_name() -> None:
    data = load("notes", patients=30)
    owner = data.train.owner
    assert owner is not None
    known = dict.fromkeys(owner.tolist())
    for text, o in zip(texts(data), owner.tolist(), strict=True):
        names = {w.strip(",:.") for w in text.split() if w[0].isupper()} - {"The", "Note", "We", "Dose", "No"}
        known[o] = names if known[o] is None else known[o] & names  # type: ignore[operator]
    assert all(known.values())


def test_rare_diseases_are_rare_or_absent_as_set() -> None:
    assert load("notes", patients=200, rare=0).train.y.max() < 6
    rare = (load("notes", patients=400, rare=0.1).train.y >= 6).mean()
    assert 0.04 < rare < 0.2


def test_canaries_are_in_as_many_notes_as_they_say_and_controls_in_none() -> None:
    data = load("notes", patients=40, canaries=3, controls=2)
    everything = texts(data)
    for canary in data.canaries:
        held = [i for i, text in enumerate(everything) if f"{canary.prefix} {canary.secret}" in text]
        assert len(held) == canary.copies
        assert all(data.train.owner[i] == canary.owner for i in held)  # type: ignore[index]
    assert [c.copies for c in data.canaries] == [1, 4, 16, 0, 0]
    assert len({row.tobytes() for row in data.train.x[data.train.owner >= 40]}) == 21  # type: ignore[operator]


def test_whoever_has_a_planted_secret_is_trained_on_in_full_and_first() -> None:
    data = load("notes", patients=40, canaries=6, copies=(4,))
    owner = data.train.owner
    assert owner is not None
    for each, own in ((None, 0.3), (16, 0.0)):
        split = People(People.Config(each=each))
        found = populate(data, split, 3, Streams(0), auxiliary=0.4, reference=0.4, own=own)
        trained = np.concatenate(found.parts)
        assert (owner[trained] >= 40).sum() == 24  # 6 secrets in 4 notes each
        assert len(trained) == len(np.unique(trained)) and not np.isin(trained, found.auxiliary).any()
    plain = load("notes", patients=40)
    assert np.array_equal(plain.train.x, data.train.x[24:])  # the other notes are those there are without secrets


def test_help_pages_are_windows_in_the_notes_vocabulary() -> None:
    pages, notes = load("help_pages", vocabulary=1500), load("notes", patients=20, vocabulary=1500)
    assert pages.schema == notes.schema and pages.schema is not None and not pages.schema.private
    assert (pages.train.x == 1).sum(1).tolist() == [1] * len(pages.train)
    private = load("notes", patients=20, vocabulary=700, vocabulary_from="clients").schema
    assert private is not None and private.private and private != load("notes", vocabulary=700).schema


def test_lines_of_json_are_read_with_labels_and_owners(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    lines = [f'{{"text": "word {i} here", "label": "{"ab"[i % 2]}", "owner": "p{i // 2}"}}' for i in range(10)]
    file.write_text("\n".join(lines))
    data = load("jsonl", path=str(file))
    assert data.classes == ("a", "b") and len(data.train) + len(data.test) == 10 and len(data.test) == 2
    assert data.schema is not None and "here" in Tokenizer(data.schema).tokens.decode(data.train.x[0])
    file.write_text('{"text": "a b"}\n{"text": "c d", "label": "x"}')
    with pytest.raises(UserError, match="line 1 has no label"):
        load("jsonl", path=str(file))
    file.write_text('{"text": "a b"}\n{"txt": "c d"}')
    with pytest.raises(UserError, match="line 2 is no object with a text"):
        load("jsonl", path=str(file))


def test_a_folder_of_texts_has_a_class_a_folder(tmp_path: Path) -> None:
    for label in ("left", "right"):
        (tmp_path / label).mkdir()
        for i in range(5):
            (tmp_path / label / f"{i}.txt").write_text(f"go {label} now, {i}")
    data = load("text_folder", path=str(tmp_path))
    assert data.classes == ("left", "right") and len(data.train) == 8
    with pytest.raises(UserError, match="not a folder of texts"):
        load("text_folder", path=str(tmp_path / "left"))


@pytest.mark.parametrize("alpha", [None, 0.3])
def test_no_patient_is_of_two_clients(alpha: float | None) -> None:
    data = load("notes", patients=60)
    partition = configure(People, {"alpha": alpha}, "partition")
    parts = populate(data, partition, 5, Streams(2)).parts
    owners = [set(data.train.owner[rows].tolist()) for rows in parts]  # type: ignore[index]
    assert sum(map(len, owners)) == len(set.union(*owners))
    shares = [np.bincount(data.train.y[rows], minlength=8) for rows in parts]
    if alpha is None:
        assert max(map(len, owners)) - min(map(len, owners)) <= 1
    else:
        assert max(s.max() / max(1, s.sum()) for s in shares) > 0.4


def test_people_are_dealt_only_where_somebody_owns_the_examples() -> None:
    with pytest.raises(UserError, match="whose the examples are"):
        populate(load("help_pages"), People(), 3, Streams(1))
    parts = populate(load("notes", patients=60), configure(People, {"each": 4}, "p"), 3, Streams(1)).parts
    assert [len(p) for p in parts] == [4, 4, 4]
