"""Every data set: arrays of the declared shapes and labels, the same each time; absent files are a sentence."""

from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.audit.settings import catalog
from fedaudit.fl.data.dataset import Dataset
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure

NAMES = catalog.names("datasets")


def fields_by_name(name: str) -> dict[str, Field[Any]]:
    return {f.name: f for f in fields(catalog.load("datasets", name).Config)}


def reads_files(name: str) -> bool:
    return "path" in fields_by_name(name)


FILES = [n for n in NAMES if reads_files(n)]
EMBEDDED = [n for n in NAMES if n not in FILES]


def made(name: str, **settings: object) -> Dataset:
    return configure(catalog.load("datasets", name), settings, "federation.dataset")


def test_some_read_files_and_some_come_with_the_package() -> None:
    assert len(FILES) > 5 and "digits" in EMBEDDED


@pytest.mark.parametrize("name", FILES)
def test_an_absent_path_is_a_sentence_that_names_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        made(name, path=str(tmp_path / "absent")).load()
    assert "absent" in str(error.value) and error.value.hint
    assert not (tmp_path / "absent").exists()  # nothing was downloaded


@pytest.mark.parametrize("name", NAMES)
def test_files_that_a_plan_follows_from_are_named_whether_or_not_they_are_there(
    name: str, tmp_path: Path
) -> None:
    """All that is read lies at the user's path or below it, or is named after it; without one there is a usual
    place."""
    if name in EMBEDDED:
        assert made(name).list_files() == []
        return
    path = tmp_path / "absent"
    files = made(name, path=str(path)).list_files()
    assert files and all(file == path or path in file.parents or file.stem == "absent.schema" for file in files)
    if fields_by_name(name)["path"].default is None:
        usual = made(name).list_files()
        assert usual and not any(path in file.parents for file in usual)


@pytest.mark.parametrize("name", EMBEDDED)
def test_examples_and_labels_are_what_the_contract_says_and_the_same_each_time(name: str) -> None:
    try:
        first, again = made(name).load(), made(name).load()
    except UserError as error:
        assert error.hint  # an image archive that another package would have to fetch
        return
    for part, same in ((first.train, again.train), (first.test, again.test)):
        assert part.x.shape == (len(part), *first.shape) and len(part)
        assert not first.task.misfit(part.y, len(part)) and first.task.fits_names(part.y, len(first.classes))
        if first.columns is None:
            assert part.x.dtype in (np.int64, np.float32) and np.isfinite(part.x).all()
        else:
            assert not first.columns.misfit(part.x)
        assert part.x.ndim != 4 or 0 <= part.x.min() < part.x.max() <= 1  # of images alone
        assert np.array_equal(part.x, same.x) and np.array_equal(part.y, same.y)
    assert first.about.endswith(".") and made(name).title
