"""A pipe among the files of a data set or of a model is refused at once: nobody ever writes into it."""

import os
import signal
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from fedaudit.audit.settings import catalog
from fedaudit.fl.data.dataset import FILES, read_data
from fedaudit.fl.data.hf_folder import open_folder
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.runtime.special_files import refuse_special

SETTINGS = [
    (name, key)
    for name in catalog.names("datasets")
    for key in FILES
    if key in {f.name for f in fields(catalog.load("datasets", name).Config)}
]


@pytest.fixture(autouse=True)
def _ends() -> Iterator[None]:
    signal.alarm(30)
    yield
    signal.alarm(0)


@pytest.mark.parametrize("where", [".", "train/cat"])
@pytest.mark.parametrize(("name", "key"), SETTINGS)
def test_no_data_set_waits_at_a_pipe(name: str, key: str, where: str, tmp_path: Path) -> None:
    (tmp_path / "data" / where).mkdir(parents=True)
    pipe = tmp_path / "data" / where / "pipe.txt"
    os.mkfifo(pipe)
    given = {"path": str(tmp_path / "absent")} | {key: str(pipe if where == "." else tmp_path / "data")}
    known = {f.name for f in fields(catalog.load("datasets", name).Config)}
    dataset = configure(catalog.load("datasets", name), {k: v for k, v in given.items() if k in known}, "data")
    with pytest.raises(UserError, match="is a pipe, a socket or a device"):
        read_data(dataset)


def test_most_data_sets_name_files() -> None:
    assert {"npz", "image_folder", "jsonl", "text_folder", "mnist", "femnist"} <= {name for name, _ in SETTINGS}


def test_no_model_waits_at_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(UserError, match="is a pipe"):
        open_folder(str(tmp_path))


def test_links_are_followed_and_one_that_leads_back_ends(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "back").symlink_to(tmp_path / "here")
    (tmp_path / "here" / "a.txt").write_text("a")
    refuse_special(tmp_path / "here")
    refuse_special(tmp_path / "absent")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "here" / "b.txt").symlink_to(tmp_path / "pipe")
    with pytest.raises(UserError, match=r"b\.txt is a pipe"):
        refuse_special(tmp_path / "here")
    refuse_special(tmp_path / "here", below=False)
