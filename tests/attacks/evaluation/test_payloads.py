"""A record is found in a message whatever its type, container, layout and disguise; and nobody's else is."""

import base64
import gzip
import io
import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save
from sklearn.datasets import load_breast_cancer, load_digits, load_iris

from fedaudit.attacks.evaluation.payloads import find_in_payload, find_unopened, subtract_arrays

IMAGES = (load_digits().images[:40, None] / 16).astype(np.float32)
IMAGE = IMAGES[3]
GREY = np.rint(255 * IMAGE).astype(np.uint8)
COLOURS = np.random.default_rng(0).random((12, 3, 8, 6)).astype(np.float32)
ROWS = load_breast_cancer().data.astype(
    np.float32
)  # thirty columns in other units: all rows are alike at one scale
FLOWERS = load_iris().data.astype(np.float32)
WEIGHTS = np.random.default_rng(1).normal(0, 0.1, 500).astype(np.float32)
DTYPES = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16")


def find(values: Any, records: np.ndarray[Any, Any] = IMAGES) -> set[int]:
    payload = {"a": WEIGHTS, "b": np.asarray(values), "c": WEIGHTS[::-1].copy()}
    return {x.record for x in find_in_payload(payload, records)}


def as_bytes(data: bytes) -> np.ndarray[Any, Any]:
    return np.frombuffer(data, np.uint8)


def save_picture(pixels: np.ndarray[Any, Any], kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def save_numpy(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_of_every_type_are_read(dtype: str) -> None:
    scale = 100 if np.dtype(dtype).kind in "iu" else 1
    assert find((scale * IMAGE).astype(dtype)) == {3}
    assert find(as_bytes((scale * IMAGE).astype(dtype).tobytes())) == {3}


LAYOUTS: dict[str, Callable[[], Any]] = {
    "rows of a matrix": lambda: IMAGES[3:4].reshape(1, -1).repeat(2, 0),
    "a column": lambda: np.stack([WEIGHTS[:64], IMAGE.ravel(), WEIGHTS[64:128]], 1),
    "turned": lambda: np.ascontiguousarray(IMAGE[0].T),
    "reversed": lambda: IMAGE.ravel()[::-1].copy(),
    "turned and reversed": lambda: np.ascontiguousarray(IMAGE[0].T).ravel()[::-1].copy(),
    "scaled": lambda: 7 - 1e-3 * IMAGE,
    "in the midst of others": lambda: np.r_[WEIGHTS, IMAGE.ravel(), WEIGHTS],
    "imaginary": lambda: 1j * IMAGE,
    "a mask": lambda: IMAGES[3] > 0.5,
}


@pytest.mark.parametrize("way", LAYOUTS)
def test_numbers_in_every_layout_are_read(way: str) -> None:
    assert find(LAYOUTS[way]()) == ({3} if way != "a mask" else set())


@pytest.mark.parametrize("axes", [(0, 1, 2), (1, 2, 0), (0, 2, 1), (2, 1, 0)])
def test_channels_stand_first_or_last(axes: tuple[int, ...]) -> None:
    assert find(np.ascontiguousarray(COLOURS[5].transpose(axes)), COLOURS) == {5}


CONTAINERS: dict[str, Callable[[], bytes]] = {
    "float32 behind a header of five bytes": lambda: b"raw:\x00" + IMAGE.tobytes(),
    "float64, high byte first": lambda: IMAGE.astype(">f8").tobytes(),
    "float16": lambda: IMAGE.astype("f2").tobytes(),
    "bfloat16": lambda: (IMAGE.view(np.uint32) >> 16).astype("<u2").tobytes(),
    "JSON": lambda: json.dumps({"patient": {"name": "x", "scan": (16 * IMAGE).tolist()}}).encode(),
    "JSON with a key twice": lambda: (
        json.dumps({"scan": (16 * IMAGE).tolist()})[:-1] + ', "scan": 1' + "0" * 400 + "}"
    ).encode(),
    "JSON of base64": lambda: json.dumps({"scan": base64.b64encode(GREY.tobytes()).decode()}).encode(),
    "base64": lambda: base64.b64encode(IMAGE.tobytes()),
    "base64 for addresses, in lines": lambda: b"\n".join(
        base64.urlsafe_b64encode(x.tobytes()) for x in (WEIGHTS, IMAGE)
    ),
    "hexadecimal": lambda: GREY.tobytes().hex().encode(),
    "text": lambda: " ".join(f"{x:.4f}" for x in IMAGE.ravel()).encode(),
    "a table of text": lambda: "\n".join("id," + ",".join(map(str, row)) for row in IMAGE[0].tolist()).encode(),
    "npz": lambda: save_numpy(a=WEIGHTS, b=IMAGE),
    "safetensors": lambda: save({"scan": IMAGE}),
    "gzip": lambda: gzip.compress(GREY.tobytes()),
    "PNG": lambda: save_picture(GREY[0]),
    "PNG in colour": lambda: save_picture(np.stack([GREY[0]] * 3, -1)),
    "an address of a picture": lambda: b"data:image/png;base64," + base64.b64encode(save_picture(GREY[0])),
    "BMP": lambda: save_picture(GREY[0], "BMP"),
}


@pytest.mark.parametrize("way", CONTAINERS)
def test_bytes_are_read_as_what_they_hold(way: str) -> None:
    assert find(as_bytes(CONTAINERS[way]())) == {3}


def test_bytes_that_were_packed_into_whole_numbers_are_read() -> None:
    assert find(GREY.reshape(-1).view(np.int64)) == {3}


def test_what_is_not_opened_is_named() -> None:
    payload = {
        "model": WEIGHTS,
        "note": as_bytes(b"\x80\x05 begins like a pickle and is none"),
        "state": as_bytes(pickle.dumps({"scan": [1, 2, 3]})),
        "table": as_bytes(save_numpy(a=WEIGHTS)[:-30]),
        "names": np.array(["a", "b"]),
    }
    found = find_unopened(payload)
    assert found.keys() == {"state", "table", "names"} and "pickle of" in found["state"]


def test_a_row_of_a_table_is_found_and_neither_others_nor_a_mean() -> None:
    sent = np.concatenate([WEIGHTS, ROWS[7], WEIGHTS, ROWS[:40].mean(axis=0), np.median(ROWS, axis=0)])
    assert find(sent, ROWS[:200]) == {7}
    assert find(sent, ROWS[100:300]) == set()
    assert find(3 - 2 * ROWS[7].astype("f8"), ROWS[:200]) == {7}


def test_a_row_of_few_values_is_known_by_values_that_few_have() -> None:
    assert find(np.array([5.0, 3.0, 1.0, 0.0]), FLOWERS) == set()  # anybody's
    odd = FLOWERS + np.random.default_rng(2).normal(0, 0.01, FLOWERS.shape).astype(np.float32)
    assert find(odd[[9, 50]], odd) == {9, 50} and find(odd[[9, 50]].T.copy(), odd) == {9, 50}
    assert find(odd[9] + np.float32(0.001), odd) == set()


def test_copies_of_one_record_are_all_found() -> None:
    twice = np.concatenate([IMAGES[:10], IMAGES[3:4]])
    assert find(2 * IMAGE, twice) == {3, 10}


def test_trained_and_random_numbers_are_nobodys() -> None:
    rng = np.random.default_rng(3)
    for values in (
        rng.normal(size=5000),
        rng.integers(0, 256, 5000).astype(np.uint8),
        rng.integers(0, 17, 5000),
        as_bytes(rng.bytes(3000)),
        IMAGES.mean(axis=0),
        np.zeros(500),
    ):
        assert find(values) == find(values, ROWS[:100]) == set()


def test_a_change_is_taken_of_numbers_of_every_type() -> None:
    start = {"w": np.zeros(2, np.float32), "n": np.array(250, np.uint8), "flag": np.array(True), "v": np.zeros(2)}
    sent = {"w": np.ones(2, np.float32), "n": np.array(3, np.uint8), "flag": np.array(False), "v": np.zeros(3)}
    assert {k: v.tolist() for k, v in subtract_arrays(sent, start).items()} == {
        "w": [1, 1],
        "n": -247,
        "flag": -1,
    }


def test_what_chance_puts_somewhere_is_nobodys() -> None:
    """Rows of yes and no stand among so many yes and no; among few they are known."""
    rng = np.random.default_rng(4)
    table = (rng.random((300, 30)) < 0.5).astype(np.float32)
    assert find((rng.random(50_000) < 0.5).astype(np.uint8), table) == set()
    assert find((rng.random(50_000) < 0.5).astype(np.uint8), table[:, :8]) == set()
    wide = np.concatenate([table[:100], table[100:200]], axis=1)
    assert find(wide[[3, 50]].astype(np.uint8), wide) == {3, 50}
