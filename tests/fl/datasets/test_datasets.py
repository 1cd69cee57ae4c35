"""Loaders: what comes out of files in their true formats, and which files are refused."""

import gzip
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from fedaudit.fl.data.dataset import Data, Dataset
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure, load

RNG = np.random.default_rng(2)


def read(name: str, **settings: Any) -> Data:
    made: Dataset = configure(load("fedaudit.fl.datasets", name, Dataset), settings, "federation.dataset")
    return made.load()


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">2xBB{array.ndim}I", 8, array.ndim, *array.shape) + array.tobytes()


def mnist_files(
    folder: Path, zipped: bool = False, prefix: tuple[str, str] = ("train-", "t10k-"), top: int = 10
) -> dict[str, np.ndarray]:
    """Four small IDX files; returns their arrays by file name."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for part, n in zip(prefix, (12, 5), strict=True):
        for kind, array in (
            ("images-idx3", RNG.integers(0, 256, (n, 28, 28), dtype=np.uint8)),
            ("labels-idx1", RNG.integers(0, top, n, dtype=np.uint8)),
        ):
            name = f"{part}{kind}-ubyte"
            raw = idx(array)
            path = folder / (name + ".gz" * zipped)
            path.write_bytes(gzip.compress(raw) if zipped else raw)
            written[name] = array
    return written


def test_digits_are_those_of_scikit_learn_and_split_alike_every_time() -> None:
    data, again, bunch = read("digits"), read("digits"), load_digits()
    assert data.shape == (1, 8, 8) and (len(data.train), len(data.test)) == (1437, 360)
    assert np.array_equal(data.train.x, again.train.x)
    everything = np.concatenate([data.train.x, data.test.x])[:, 0] * 16
    rows = lambda a: sorted(map(bytes, a.astype(np.uint8).reshape(len(a), -1)))  # noqa: E731
    assert rows(everything) == rows(bunch.images)
    share = np.bincount(data.test.y) / np.bincount(bunch.target)
    assert np.abs(share - 0.2).max() < 0.01
    x = (data.train.x - data.mean[0]) / data.std[0]
    assert abs(x.mean()) < 1e-5 and abs(x.std() - 1) < 1e-5


def test_faces_come_first_and_both_classes_are_equally_many() -> None:
    data = read("faces", test_fraction=0.25)
    assert data.shape == (1, 25, 25) and data.classes == ("face", "no face")
    assert np.bincount(data.train.y).tolist() == [75, 75]
    assert np.bincount(data.test.y).tolist() == [25, 25]
    assert data.train.x.dtype == np.float32 and 0 <= data.train.x.min() < data.train.x.max() <= 1
    from skimage.data import lfw_subset

    known = {bytes(f.astype(np.float32)) for f in lfw_subset()[:100]}
    assert all((bytes(x) in known) == (y == 0) for x, y in zip(data.train.x, data.train.y, strict=True))


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("below", ["", "raw", "FashionMNIST/raw"])
def test_fashion_mnist_reads_idx_files_plain_or_zipped_also_in_torchvisions_layout(
    tmp_path: Path, zipped: bool, below: str
) -> None:
    written = mnist_files(tmp_path / below, zipped)
    data = read("fashion_mnist", path=str(tmp_path))
    assert data.shape == (1, 28, 28) and len(data.classes) == 10 and data.mean == (0.1307,)
    pixels = np.round(data.train.x[:, 0] * 255).astype(np.uint8)
    assert np.array_equal(pixels, written["train-images-idx3-ubyte"])
    assert np.array_equal(data.test.y, written["t10k-labels-idx1-ubyte"])


def test_our_idx_reader_and_torchvisions_agree(tmp_path: Path) -> None:
    from fedaudit.fl.runtime.vision import torchvision

    mnist_files(tmp_path / "FashionMNIST" / "raw")
    theirs = torchvision.datasets.FashionMNIST(str(tmp_path), train=True)
    ours = read("fashion_mnist", path=str(tmp_path)).train
    assert np.array_equal(theirs.data.numpy(), np.round(ours.x[:, 0] * 255))
    assert np.array_equal(theirs.targets.numpy(), ours.y)


def test_fashion_mnist_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"looked for train-images.* in {tmp_path}") as caught:
        read("fashion_mnist", path=str(tmp_path))
    assert "dataset-fashion-mnist" in caught.value.hint and "download: true" in caught.value.hint


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda raw: raw[:-1], "not an IDX file of bytes, or is cut short"),
        (lambda raw: raw[:5], "not an IDX file of bytes, or is cut short"),
        (lambda raw: b"", "not an IDX file of bytes, or is cut short"),
        (lambda raw: b"\0\0\x0d" + raw[3:], "not an IDX file of bytes"),
        (lambda raw: idx(np.zeros((4, 28, 28), np.uint8)), "do not belong together"),
        (lambda raw: idx(np.zeros(12, np.uint8)), "do not belong together"),
    ],
)
def test_broken_idx_files_are_refused(tmp_path: Path, break_it: Any, message: str) -> None:
    mnist_files(tmp_path)
    file = tmp_path / "train-images-idx3-ubyte"
    file.write_bytes(break_it(file.read_bytes()))
    with pytest.raises(UserError, match=message):
        read("fashion_mnist", path=str(tmp_path))


def test_a_file_that_unfolds_without_end_is_read_no_further_than_it_says(tmp_path: Path) -> None:
    mnist_files(tmp_path, zipped=True)
    file = tmp_path / "train-images-idx3-ubyte.gz"
    file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes()) + bytes(200_000_000)))
    tracemalloc.start()
    with pytest.raises(UserError, match="or too long"):
        read("fashion_mnist", path=str(tmp_path))
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()


def test_a_broken_zip_and_labels_beyond_the_classes_are_refused(tmp_path: Path) -> None:
    mnist_files(tmp_path / "a", zipped=True)
    file = tmp_path / "a" / "t10k-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(UserError, match="cannot read"):
        read("fashion_mnist", path=str(tmp_path / "a"))
    mnist_files(tmp_path / "b")
    (tmp_path / "b" / "t10k-labels-idx1-ubyte").write_bytes(idx(np.full(5, 10, np.uint8)))
    with pytest.raises(UserError, match="has label 10, expected 0 to 9"):
        read("fashion_mnist", path=str(tmp_path / "b"))


GOOD: dict[str, Any] = {
    "x_train": RNG.integers(0, 256, (6, 5, 4), dtype=np.uint8),
    "y_train": np.array([0, 1, 2, 0, 1, 2]),
    "x_test": RNG.integers(0, 256, (2, 5, 4), dtype=np.uint8),
    "y_test": np.array([1, 2]),
}


def npz(folder: Path, **changes: Any) -> Data:
    np.savez(folder / "mine.npz", **{k: v for k, v in (GOOD | changes).items() if v is not None})
    return read("npz", path=str(folder / "mine.npz"))


def test_npz_takes_bytes_floats_and_tokens(tmp_path: Path) -> None:
    data = npz(tmp_path)
    assert data.shape == (1, 5, 4) and data.classes == ("0", "1", "2")
    assert np.array_equal(np.round(data.train.x[:, 0] * 255), GOOD["x_train"])
    colour = {k: RNG.random((n, 3, 5, 5)) for k, n in (("x_train", 6), ("x_test", 2))}
    data = npz(tmp_path, **colour, classes=np.array(["a", "b", "c"]), owner_train=np.arange(6))
    assert data.shape == (3, 5, 5) and data.classes == ("a", "b", "c")
    assert data.mean == pytest.approx(colour["x_train"].mean((0, 2, 3)), abs=1e-6)
    assert data.train.owner is not None and data.train.owner.tolist() == list(range(6))
    tokens = npz(tmp_path, x_train=np.arange(18).reshape(6, 3), x_test=np.arange(6).reshape(2, 3))
    assert tokens.shape == (3,) and tokens.train.x.dtype == np.int64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, "has no y_test"),
        ({"x_train": np.full((6, 5, 4), np.nan)}, "x_train has NaN"),
        ({"x_train": np.full((6, 5, 4), 2.0)}, "x_train has values from 2 to 2, expected 0 to 1"),
        ({"x_train": np.zeros((6, 5, 4), dtype=np.int32)}, r"x_train has int32 \[6, 5, 4\]"),
        ({"x_train": np.full((6, 20), np.inf)}, "x_train has NaN"),
        ({"x_train": np.zeros((5, 5, 4))}, "x_train has 5 examples, expected 6 as in y_train"),
        ({"x_test": np.zeros((2, 5, 5))}, r"x_test has float32 \[1, 5, 5\] an example"),
        ({"y_train": np.array([0, 1, 2, -1, 0, 0])}, "y_train has labels from -1 to 2"),
        ({"y_train": np.full(6, np.nan)}, "y_train has NaN or infinite in places, expected finite numbers"),
        ({"y_train": np.eye(3)[[0, 1, 2, 0, 1, 2]]}, r"y_train has \[6, 3\], a column a class"),
        ({"y_train": np.zeros((6, 2)) + 0.5}, "which could be times and events, or two numbers"),
        ({"y_train": np.array([0, 1, 2, 10**9, 0, 0])}, "expected 0 to 9999"),
        ({"classes": np.array(["a", "b"])}, "y_train has labels from 0 to 2, expected 0 to 1"),
        ({"owner_train": np.arange(3)}, r"owner_train has int64 \[3\]"),
    ],
)
def test_npz_refuses_wrong_arrays_naming_the_key(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        npz(tmp_path, **changes)


def test_npz_never_unpickles(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*mine.npz: it holds an array of Python objects"):
        npz(tmp_path, x_train=np.array([{"run": "me"}] * 6, dtype=object))


def test_npz_refuses_other_files(tmp_path: Path) -> None:
    path = tmp_path / "one.npy"
    np.save(path, np.zeros(3))
    with pytest.raises(UserError, match="it holds one array"):
        read("npz", path=str(path))
    path.write_bytes(b"not numpy at all")
    with pytest.raises(UserError, match="cannot read"):
        read("npz", path=str(path))
    with pytest.raises(UserError, match="cannot read"):
        read("npz", path=str(tmp_path / "missing.npz"))


def images(folder: Path, size: tuple[int, int] = (10, 8)) -> None:
    for name, colour in (("cat", (255, 0, 0)), ("dog", (0, 0, 255))):
        (folder / name).mkdir(parents=True)
        for i in range(5):
            Image.new("RGB", size, colour).save(folder / name / f"{i}.png")


def test_image_folder_takes_its_classes_from_the_folder_names(tmp_path: Path) -> None:
    images(tmp_path)
    data = read("image_folder", path=str(tmp_path), size=6, test_fraction=0.4)
    assert data.classes == ("cat", "dog") and data.shape == (3, 6, 6)
    assert (len(data.train), len(data.test)) == (6, 4)
    for x, y in zip(data.train.x, data.train.y, strict=True):
        assert (x.mean((1, 2)) == ([1, 0, 0] if y == 0 else [0, 0, 1])).all()
    grey = read("image_folder", path=str(tmp_path), size=6, grayscale=True)
    assert grey.shape == (1, 6, 6)
    assert np.unique(grey.train.x).tolist() == pytest.approx([29 / 255, 76 / 255])  # ITU-R 601


def test_image_folder_refuses_what_it_cannot_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a folder of images"):
        read("image_folder", path=str(tmp_path / "missing"))
    images(tmp_path)
    (tmp_path / "cat" / "0.png").write_bytes(b"not an image")
    with pytest.raises(UserError, match=r"cannot read the image .*0.png"):
        read("image_folder", path=str(tmp_path))


def test_a_class_with_one_image_cannot_be_split(tmp_path: Path) -> None:
    images(tmp_path)
    for i in range(4):
        (tmp_path / "dog" / f"{i}.png").unlink()
    with pytest.raises(UserError, match="cannot be held out of 6 examples"):
        read("image_folder", path=str(tmp_path))
