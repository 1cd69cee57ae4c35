"""What clients held out of their own examples, as truth/heldout brings it, is what membership is held against."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydantic import TypeAdapter

from fedaudit.attacks.people import PeopleCount
from fedaudit.audit.case.recorded import RecordedCase
from fedaudit.audit.case.truth import TruthFile, example_shape, list_classes, load_truth
from fedaudit.audit.observer.truth import KnownTruth
from fedaudit.audit.phases.attack import Bench, attack_once
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.subject import ExampleLayout, RecordedSubject
from fedaudit.audit.verdict.people import UNLIKE, bound_people
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.threats.threat import Harm
from tests.attacks.world import digits as images_of_digits
from tests.audit.importing.inboxes import INBOXES, digits
from tests.audit.importing.test_inboxes import state, take

NAME = "page: FedAvg, no optional key, no counts"
SUBJECT = RecordedSubject(title="a", examples=ExampleLayout(classes=["a", "b"], shape=[1, 2, 2]))
NODES = {"client/0": "north", "client/1": "south"}


def write(folder: Path, name: str, values: list[int]) -> None:
    """Examples of one grey each."""
    folder.mkdir(parents=True, exist_ok=True)
    x = np.repeat(np.array(values, np.uint8), 4).reshape(-1, 1, 2, 2)
    np.savez(folder / f"{name}.npz", x=x, y=np.zeros(len(values), np.int64))


def hold_out(folder: Path) -> int:
    """Twenty people of each client's own two classes whom nobody has."""
    x, y = images_of_digits()
    parts, own = digits()
    taken = {row.tobytes() for some, _ in (*parts, own) for row in some}
    free = np.array([row.tobytes() not in taken for row in x])
    (folder / "truth" / "heldout").mkdir()
    for k in range(len(parts)):
        rows = np.concatenate([np.flatnonzero(free & (y == (2 * k + i) % 10))[:20] for i in range(2)])
        np.savez(folder / "truth" / "heldout" / f"client-{k}.npz", x=x[rows], y=y[rows])
    return 40 * len(parts)


def count(folder: Path) -> tuple[RecordedCase, PeopleCount]:
    """Whom a threshold on the loss flags in what was imported."""
    run, config, _ = take(folder, INBOXES[NAME], state(folder, INBOXES[NAME]))
    case = RecordedCase(config, run.artifacts, run.truth)
    attack = catalog.load("attacks", "loss_threshold")()
    found: Any = attack_once(attack, "loss_threshold", Bench(case, [attack.card], config.replay))
    people = TypeAdapter(list[PeopleCount]).validate_python(found["people"])
    return case, next(p for p in people if p.harm is Harm.MEMBERSHIP and p.kind == "local_model")


def test_an_import_is_measured_against_the_people_whom_its_clients_held_out(tmp_path: Path) -> None:
    INBOXES[NAME].write(tmp_path / "a")
    _, bare = count(tmp_path / "a")
    assert not bare.is_alike and bound_people(bare, alpha=0.01).reason == UNLIKE
    INBOXES[NAME].write(tmp_path / "b")
    every = hold_out(tmp_path / "b")
    case, people = count(tmp_path / "b")
    assert {k: len(rows) for k, rows in case.examples.unseen.items()} == dict.fromkeys(range(5), 40)
    assert all(len(set(case.examples.parts[k]) & set(case.examples.unseen[k])) == 0 for k in range(5))
    assert people.is_alike and 0 < people.luck.trials <= every
    assert bound_people(people, alpha=0.01).at_most is not None
    unseen = KnownTruth(case, {}, {}).unseen([2])
    assert unseen.is_alike and sorted(np.unique(unseen.images.y).tolist()) == [4, 5]


@pytest.mark.parametrize(
    ("name", "values", "phrase"),
    [
        ("west", [9], "heldout: truth of 'west', and no client of the inbox has that name"),
        ("own", [9], "heldout: truth of 'own', and no client of the inbox has that name"),
        ("north", [9, 8, 2], "heldout/north: example 2 is held out, and client 'north' holds the same"),
        ("north", [9, 3], "heldout/north: example 1 is held out, and client 'south' holds the same"),
    ],
)
def test_who_is_held_out_of_no_client_or_trained_on_is_refused(
    name: str, values: list[int], phrase: str, tmp_path: Path
) -> None:
    for client, some in (("north", [1, 2]), ("south", [3, 4]), ("own", [5, 6])):
        write(tmp_path, client, some)
    write(tmp_path / "heldout", name, values)
    with pytest.raises(UserError) as error:
        load_truth(tmp_path, SUBJECT, NODES)
    assert phrase in str(error.value.args[0]) and error.value.hint


def test_held_out_examples_are_named_as_clients_are_and_have_the_forms_that_theirs_have(tmp_path: Path) -> None:
    write(tmp_path, "north", [1, 2])
    write(tmp_path, "own", [5, 6])
    (tmp_path / "heldout" / "client-0" / "b").mkdir(parents=True)
    Image.new("L", (2, 2), 7).save(tmp_path / "heldout" / "client-0" / "b" / "1.png")
    write(tmp_path / "heldout", "south", [8, 9, 10])
    found = load_truth(tmp_path, SUBJECT, NODES)
    again = TruthFile.from_bytes(found.to_bytes())
    for one in (found, again):
        assert one.owner.tolist() == [0, 0, -1, -1, 0, 1, 1, 1]
        assert one.held_out.tolist() == [False] * 4 + [True] * 4
        assert one.examples.y.tolist() == [0, 0, 0, 0, 1, 0, 0, 0]


def test_what_is_held_out_says_neither_shape_nor_classes_of_a_first_subject(tmp_path: Path) -> None:
    for place, size in (("west/cat", 3), ("heldout/west/dog", 5)):
        (tmp_path / place).mkdir(parents=True)
        Image.new("L", (size, size)).save(tmp_path / place / "1.png")
    assert example_shape(tmp_path) == [1, 3, 3] and list_classes(tmp_path) == ["cat"]
