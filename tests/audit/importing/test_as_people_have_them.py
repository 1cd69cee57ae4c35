"""What people bring as it lies on their disks: labels from 1, class folders, functions that build networks."""

import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from fedaudit.audit.case.truth import describe_left_out, example_shape, list_classes, load_truth
from fedaudit.audit.cli.app import name_next
from fedaudit.audit.cli.main import app
from fedaudit.audit.importing.first_subject import write_first_subject
from fedaudit.audit.importing.recorders.plain import Inbox
from fedaudit.audit.settings.subject import RecordedSubject
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.yaml import read_yaml

BUILDS = """
from torch import nn


def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
"""


def record(folder: Path) -> Path:
    """Two clients of a network of three outputs, on images of two by two pixels."""
    inbox = Inbox(folder / "in box")
    model = {"1.weight": np.full((3, 4), 0.1, "f4"), "1.bias": np.zeros(3, "f4")}
    inbox.message(0, "downlink", "server", ["client"], {"global_model": model})
    for name in ("north", "south"):
        sent = {"local_model": {k: v + 1 for k, v in model.items()}, "num_examples": {"count": 3}}
        inbox.message(0, "uplink", inbox.client(name), ["server"], sent)
    return inbox.folder


def hold(folder: Path, labels: list[int]) -> Path:
    folder.mkdir(exist_ok=True)
    for k, name in enumerate(("north", "south", "own")):
        np.savez(folder / f"{name}.npz", x=np.full((3, 1, 2, 2), k / 4, "f4"), y=np.array(labels))
    return folder


def test_labels_from_one_make_no_class_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="labels of truth go from 1 to 3, and the network has 3 outputs") as error:
        write_first_subject(record(tmp_path), hold(tmp_path / "truth", [1, 2, 3]))
    assert error.value.hint == "labels count from 0: subtract 1 from each y"


@pytest.mark.parametrize(("labels", "classes"), [([0, 1, 2], 3), ([1, 2, 2], 3), ([0, 1, 4], 5)])
def test_labels_that_may_count_from_nothing_are_taken_as_they_are(
    labels: list[int], classes: int, tmp_path: Path
) -> None:
    write_first_subject(record(tmp_path), hold(tmp_path / "truth", labels))
    (tmp_path / "a.yaml").write_text(write_first_subject(tmp_path / "in box", tmp_path / "truth"))
    assert len(read_yaml(tmp_path / "a.yaml")["examples"]["classes"]) == classes


def test_truth_in_class_folders_is_labelled_as_torchvision_labels_it(tmp_path: Path) -> None:
    for name in ("north/10/a.png", "north/2/b.png", "north/.ipynb_checkpoints/c.png", "__MACOSX/north/2/d.png"):
        (tmp_path / "truth" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (2, 2)).save(tmp_path / "truth" / name)
    (tmp_path / "truth" / "north" / "2" / "Thumbs.db").write_bytes(b"x")
    truth = tmp_path / "truth"
    assert list_classes(truth) == ["10", "2"] and example_shape(truth) == [1, 2, 2]
    subject = {"title": "t", "examples": {"classes": list_classes(truth), "shape": [1, 2, 2]}}
    found = load_truth(truth, RecordedSubject.model_validate(subject), {"client/0": "north"})
    assert found.examples.y.tolist() == [0, 1]
    assert describe_left_out(truth) == [
        f"{truth}: Left out, as no images of a class: __MACOSX.",
        f"{truth}/north: Left out, as no images of a class: .ipynb_checkpoints, 2/Thumbs.db.",
    ]


def test_a_function_that_builds_the_network_is_named_in_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    record(tmp_path)
    hold(tmp_path / "truth", [0, 1, 2])
    (tmp_path / "nets_of_theirs.py").write_text(BUILDS)
    given = ["--from", "in box", "--truth", "truth", "--model", "nets_of_theirs:build"]
    told = CliRunner().invoke(app, ["init", *given, "my subject.yaml"])
    assert told.exit_code == 0 and "model: nets_of_theirs:build  # stated" in Path("my subject.yaml").read_text()
    (line,) = [x for x in told.stdout.splitlines() if x.startswith("next: fedaudit ")]
    taken = CliRunner().invoke(app, [*shlex.split(line)[2:], "--trust-plugins", "--out", "a run"])
    assert taken.exit_code == 0, taken.output
    assert taken.stdout.splitlines()[-1] == "next: fedaudit run 'a run' --trust-plugins"


def test_a_folder_that_save_pretrained_wrote_is_the_network(tmp_path: Path) -> None:
    (tmp_path / "my model").mkdir()
    (tmp_path / "a.yaml").write_text(write_first_subject(record(tmp_path), model=str(tmp_path / "my model")))
    assert read_yaml(tmp_path / "a.yaml")["model"] == {"name": "hf", "path": str(tmp_path / "my model")}


@pytest.mark.parametrize("option", ["--model", "--truth"])
def test_without_an_inbox_there_is_nothing_to_state_of_it(option: str, tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["init", str(tmp_path / "a.yaml"), option, str(tmp_path)])
    assert told.exit_code == 2 and f"{option} says what an inbox cannot show" in told.stderr


def test_the_next_command_can_be_pasted_into_a_shell() -> None:
    assert (
        name_next("run", Path("a run"), "--data", "hf=my $model")
        == "next: fedaudit run 'a run' --data 'hf=my $model'"
    )
