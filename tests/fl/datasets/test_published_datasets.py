"""Loaders of the published data sets, on small files in their true formats."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedaudit.fl.data.dataset import Data, Dataset
from fedaudit.fl.datasets._arrays import moments
from fedaudit.fl.datasets.emnist import CLASSES as EMNIST_CLASSES
from fedaudit.fl.datasets.leaf import LETTERS
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure, load
from tests.fl.datasets.test_datasets import mnist_files

RNG = np.random.default_rng(4)


def read(name: str, **settings: Any) -> Data:
    made: Dataset = configure(load("fedaudit.fl.datasets", name, Dataset), settings, "federation.dataset")
    return made.load()


def test_mean_and_deviation_are_those_of_numpy_channel_by_channel() -> None:
    x = RNG.random((5000, 3, 2, 3), dtype=np.float32)
    mean, std = moments(x)
    assert mean == pytest.approx(x.mean((0, 2, 3)), rel=1e-5)
    assert std == pytest.approx(x.std((0, 2, 3)), rel=1e-5)
    assert moments(np.ones((4, 1, 2, 2), np.float32))[1] == (1.0,)  # nothing is divided by zero


def test_mnist_reads_its_four_files(tmp_path: Path) -> None:
    written = mnist_files(tmp_path / "MNIST" / "raw", zipped=True)
    data = read("mnist", path=str(tmp_path))
    assert np.array_equal(np.round(data.test.x[:, 0] * 255), written["t10k-images-idx3-ubyte"])
    assert (data.mean, data.std) == ((0.1307,), (0.3081,))


def test_emnist_stands_upright_and_has_torchvisions_classes(tmp_path: Path) -> None:
    from fedaudit.fl.runtime.vision import torchvision

    prefix = ("emnist-balanced-train-", "emnist-balanced-test-")
    written = mnist_files(tmp_path, zipped=True, prefix=prefix, top=47)
    data = read("emnist", path=str(tmp_path))
    upright = written["emnist-balanced-train-images-idx3-ubyte"].transpose(0, 2, 1)
    assert np.array_equal(np.round(data.train.x[:, 0] * 255), upright)
    assert list(EMNIST_CLASSES) == torchvision.datasets.EMNIST.classes_split_dict["balanced"]


def records(path: Path, n: int, label_bytes: int, top: int) -> tuple[np.ndarray, np.ndarray]:
    """Write n records of CIFAR's binary version; returns labels [n, label_bytes] and [n, 3, 32, 32]."""
    labels = RNG.integers(0, top, (n, label_bytes), dtype=np.uint8)
    pixels = RNG.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)
    np.concatenate([labels, pixels.reshape(n, -1)], axis=1).tofile(path)
    return labels, pixels


@pytest.mark.parametrize("below", ["", "cifar-10-batches-bin"])
def test_cifar10_reads_the_official_binary_version(tmp_path: Path, below: str) -> None:
    folder = tmp_path / below
    folder.mkdir(exist_ok=True)
    batches = [records(folder / f"data_batch_{i}.bin", 3, 1, 10) for i in range(1, 6)]
    labels, pixels = records(folder / "test_batch.bin", 4, 1, 10)
    data = read("cifar10", path=str(tmp_path))
    assert data.shape == (3, 32, 32) and data.augment == "crop_flip" and data.classes[3] == "cat"
    assert np.array_equal(np.round(data.test.x * 255), pixels)
    assert np.array_equal(data.test.y, labels[:, 0])
    assert np.array_equal(data.train.y, np.concatenate([b[0][:, 0] for b in batches]))


def test_cifar100_takes_the_fine_label(tmp_path: Path) -> None:
    labels, _ = records(tmp_path / "train.bin", 6, 2, 100)
    records(tmp_path / "test.bin", 2, 2, 100)
    data = read("cifar100", path=str(tmp_path))
    assert len(data.classes) == 100 and np.array_equal(data.train.y, labels[:, 1])


def test_cifar_files_cut_short_or_of_another_set_are_refused(tmp_path: Path) -> None:
    for name in ("train.bin", "test.bin"):
        records(tmp_path / name, 2, 2, 100)
    file = tmp_path / "test.bin"
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    with pytest.raises(UserError, match="expected a multiple of 3074"):
        read("cifar100", path=str(tmp_path))
    file.write_bytes(b"\xc8\xc8" + whole[2:])
    with pytest.raises(UserError, match="has label 200, expected 0 to 99"):
        read("cifar100", path=str(tmp_path))


def test_a_forged_pickle_of_cifar_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    class Touch:
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
            return Path.touch, (tmp_path / "executed",)

    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"]:
        (folder / name).write_bytes(pickle.dumps(Touch()))
    with pytest.raises(UserError, match="CIFAR10 is not there: looked for cifar-10-batches-bin"):
        read("cifar10", path=str(tmp_path))
    assert not (tmp_path / "executed").exists()


def test_cinic10_trains_on_train_and_on_valid_when_asked(tmp_path: Path) -> None:
    for part, n in (("train", 3), ("valid", 2), ("test", 1)):
        for c, name in enumerate(("airplane", "cat")):
            folder = tmp_path / part / name
            folder.mkdir(parents=True)
            for i in range(n):
                Image.new("RGB", (32, 32), (c * 255, i, 0)).save(folder / f"{i}.png")
    data, more = (read("cinic10", path=str(tmp_path), with_valid=v) for v in (False, True))
    assert (len(data.train), len(more.train), len(data.test)) == (6, 10, 2)
    assert data.classes == ("airplane", "cat") and data.mean == (0.5, 0.5, 0.5)
    assert (more.train.x[:, 0, 0, 0] == more.train.y).all()
    (tmp_path / "test" / "cat").rename(tmp_path / "test" / "dog")
    with pytest.raises(UserError, match=r"has classes \['airplane', 'dog'\]"):
        read("cinic10", path=str(tmp_path))


def leaf(folder: Path, people: dict[str, tuple[list[Any], list[Any]]]) -> None:
    """One of LEAF's JSON files."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "users": list(people),
        "num_samples": [len(y) for _, y in people.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in people.items()},
    }
    (folder / f"all_data_{'_'.join(people)}.json").write_text(json.dumps(content))


def writer(n: int) -> tuple[list[Any], list[Any]]:
    return RNG.random((n, 784)).tolist(), RNG.integers(0, 62, n).tolist()


def test_femnist_keeps_leafs_split_and_numbers_the_writers_over_both_parts(tmp_path: Path) -> None:
    b, a, c = writer(4), writer(3), writer(2)
    leaf(tmp_path / "train", {"f2": b, "f1": a})
    leaf(tmp_path / "test", {"f3": c, "f1": a})
    data = read("femnist", path=str(tmp_path))
    assert data.shape == (1, 28, 28) and len(data.classes) == 62
    assert data.train.owner is not None and data.train.owner.tolist() == [1, 1, 1, 1, 0, 0, 0]
    assert data.test.owner is not None and data.test.owner.tolist() == [2, 2, 0, 0, 0]
    assert data.train.y.tolist() == b[1] + a[1]
    assert data.train.x[0].ravel() == pytest.approx(b[0][0])


def test_femnist_holds_out_a_fifth_of_every_writer_where_leaf_has_not_split(tmp_path: Path) -> None:
    leaf(tmp_path, {"a": writer(10), "b": writer(20)})
    leaf(tmp_path, {"c": writer(5)})
    data, again = read("femnist", path=str(tmp_path)), read("femnist", path=str(tmp_path))
    assert data.train.owner is not None and data.test.owner is not None
    assert np.bincount(data.train.owner).tolist() == [8, 16, 4]
    assert np.bincount(data.test.owner).tolist() == [2, 4, 1]
    assert np.array_equal(data.test.x, again.test.x)
    both = np.concatenate([data.train.x, data.test.x]).reshape(35, -1)
    assert len(np.unique(both, axis=0)) == 35


def test_shakespeare_becomes_the_numbers_of_leafs_letters(tmp_path: Path) -> None:
    assert len(LETTERS) == len(set(LETTERS)) == 80
    line = "To be, or not to be: that is the question. "
    leaf(tmp_path / "train", {"HAMLET": ([(line * 2)[:80]], ["!"])})
    leaf(tmp_path / "test", {"GHOST": (["\n" + "}" * 79], ["A"])})
    data = read("shakespeare", path=str(tmp_path))
    assert data.shape == (80,) and data.train.x.dtype == np.int64 and len(data.classes) == 80
    assert "".join(LETTERS[i] for i in data.train.x[0]) == (line * 2)[:80]
    assert data.train.y.tolist() == [2] and data.test.y.tolist() == [25]
    assert data.test.x[0].tolist() == [0] + [79] * 79  # newline first, brace last


def test_the_parts_of_an_unsplit_role_share_no_character(tmp_path: Path) -> None:
    text = "".join(RNG.choice(list(LETTERS[2:]), 1080))
    windows = [text[i : i + 80] for i in range(1000)]
    leaf(tmp_path, {"KING": (windows, list(text[80:1080]))})
    data = read("shakespeare", path=str(tmp_path))
    assert (len(data.train), len(data.test)) == (800, 200 - 79)
    starts = ["".join(LETTERS[i] for i in x) for x in (data.train.x[-1], data.test.x[0])]
    last, first = (windows.index(s) for s in starts)
    assert first - last == 80


@pytest.mark.parametrize(
    ("name", "people", "message"),
    [
        ("shakespeare", {"A": (["x" * 79 + "ö"], ["a"])}, "unknown character 'ö'; set vocabulary: 81"),
        ("shakespeare", {"A": (["short"], ["a"])}, "x must hold texts of 80 characters"),
        ("femnist", {"A": ([[0.5] * 783], [1])}, "expected rows of 784 numbers"),
        ("femnist", {"A": ([[1.5] * 784], [1])}, "expected rows of 784 numbers"),
        ("femnist", {"A": ([[0.5] * 784], [62])}, "whole numbers from 0 to 61"),
        ("femnist", {"A": ([[0.5] * 784], [])}, "A has 1 x and 0 y"),
        ("femnist", {"A": writer(1)}, "has no examples for testing"),
        ("femnist", {"A": ([], [])}, "has no examples for training"),
    ],
)
def test_leaf_files_with_other_content_are_refused(tmp_path: Path, name: str, people: Any, message: str) -> None:
    leaf(tmp_path, people)
    with pytest.raises(UserError, match=message):
        read(name, path=str(tmp_path))


def test_an_81st_class_stands_for_any_other_character(tmp_path: Path) -> None:
    for part in ("train", "test"):
        leaf(tmp_path / part, {"A": (["x" * 79 + "ö"], ["ß"])})
    data = read("shakespeare", path=str(tmp_path), vocabulary=81)
    assert data.train.x[0, -1] == 80 and data.train.y[0] == 80 and len(data.classes) == 81


def test_what_is_not_leafs_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no \*.json in"):
        read("femnist", path=str(tmp_path))
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(UserError, match=r"a.json is not LEAF's JSON: KeyError\('users'\)"):
        read("femnist", path=str(tmp_path))


@pytest.mark.parametrize("name", ["mnist", "emnist", "cifar10", "cifar100"])
def test_nothing_is_downloaded_unless_asked(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="is not there: looked for") as caught:
        read(name, path=str(tmp_path))
    assert "download: true" in caught.value.hint
    assert not any(tmp_path.iterdir())
