"""Image files: what is read, and what starts another program or fills the memory if it were."""

import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedaudit.fl.data.images import describe_strays, is_grey, list_class_folders, read_image
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.vision import torchvision
from tests.test_house import FILES

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"


def png(width: int, height: int) -> bytes:
    """A PNG that says its size and holds no pixel."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    )


def test_pixels_are_those_that_were_saved(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert np.array_equal(read_image(tmp_path / "a.png", grayscale=False), pixels / np.float32(255))
    grey, wanted = (
        read_image(tmp_path / "a.png", grayscale=True),
        np.asarray(Image.fromarray(pixels).convert("L")),
    )
    assert grey.shape == (5, 7, 1) and np.array_equal(grey[..., 0], wanted / np.float32(255))
    assert read_image(tmp_path / "a.png", grayscale=False, size=4).shape == (4, 4, 3)


RAMP = np.array([[0, 51], [102, 255]], np.uint8)
SAVED = {  # mode -> how the same grey ramp is saved in it, and the ending of its file
    "L": (lambda: Image.fromarray(RAMP), "png"),
    "LA": (lambda: Image.merge("LA", (Image.fromarray(RAMP), Image.fromarray(RAMP[::-1].copy()))), "png"),
    "P": (lambda: Image.fromarray(RAMP).convert("P"), "png"),
    "RGBA": (lambda: Image.merge("RGBA", [Image.fromarray(RAMP)] * 4), "png"),
    "CMYK": (lambda: Image.fromarray(RAMP).convert("RGB").convert("CMYK"), "tif"),
    "I;16": (lambda: Image.fromarray(RAMP.astype(np.uint16) * 257), "png"),
    "I": (lambda: Image.fromarray(RAMP.astype(np.int32) * 257), "tif"),
    "F": (lambda: Image.fromarray(RAMP.astype(np.float32) / 255), "tif"),
}


@pytest.mark.parametrize("mode", SAVED)
def test_the_same_image_in_any_mode_has_the_same_numbers(mode: str, tmp_path: Path) -> None:
    make, ending = SAVED[mode]
    path = tmp_path / f"a.{ending}"
    make().save(path)
    with Image.open(path) as image:
        assert image.mode == mode
    for grayscale in (True, False):
        found = read_image(path, grayscale=grayscale)
        assert found.dtype == np.float32 and found.shape == (2, 2, 1 if grayscale else 3)
        assert np.abs(found - RAMP[..., None] / 255).max() < 1e-6
    assert is_grey(path) == (mode not in ("RGBA", "CMYK"))
    assert read_image(path, grayscale=True, size=4).max() == pytest.approx(1, abs=1e-6)


def test_an_image_of_one_bit_is_black_and_white(tmp_path: Path) -> None:
    Image.fromarray(RAMP > 100).save(tmp_path / "a.png")
    assert read_image(tmp_path / "a.png", grayscale=True)[..., 0].tolist() == [[0, 0], [1, 1]]
    assert is_grey(tmp_path / "a.png")


def test_a_palette_of_colours_is_not_grey(tmp_path: Path) -> None:
    Image.new("RGB", (2, 2), (255, 0, 0)).convert("P", palette=Image.Palette.ADAPTIVE).save(tmp_path / "a.png")
    assert not is_grey(tmp_path / "a.png") and read_image(tmp_path / "a.png", grayscale=False)[0, 0].tolist() == [
        1,
        0,
        0,
    ]


def test_twelve_bits_in_sixteen_keep_their_steps(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 1], [2, 4095]], np.uint16)).save(tmp_path / "a.png")
    assert (read_image(tmp_path / "a.png", grayscale=True)[..., 0] * 65535).round().tolist() == [
        [0, 1],
        [2, 4095],
    ]


@pytest.mark.parametrize(
    ("numbers", "phrase"),
    [
        (np.array([[-1024, 3071]], np.int32), "its numbers are from -1024 to 3071, not from 0 to 65535"),
        (np.array([[0, 70_000]], np.int32), "from 0 to 70000, not from 0 to 65535"),
        (np.array([[0, 255]], np.float32), "its numbers are from 0 to 255, not from 0 to 1"),
        (np.array([[0, np.nan]], np.float32), "from nan to nan, not from 0 to 1"),
    ],
    ids=["Hounsfield units", "more than 16 bits", "floats to 255", "no number"],
)
def test_numbers_of_which_nobody_knows_what_is_white_are_refused(
    numbers: np.ndarray, phrase: str, tmp_path: Path
) -> None:
    Image.fromarray(numbers).save(tmp_path / "a.tif")
    with pytest.raises(UserError, match=phrase):
        read_image(tmp_path / "a.tif", grayscale=True)


def test_classes_and_images_are_listed_as_torchvision_lists_them(tmp_path: Path) -> None:
    for name in ("10/b.png", "10/a.PNG", "2/x/c.png", "2/d.jpg", "B/e.png", "a/f.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(RAMP).save(tmp_path / name)
    found, theirs = list_class_folders(tmp_path), torchvision.datasets.ImageFolder(str(tmp_path))
    assert list(found.classes) == theirs.classes == ["10", "2", "B", "a"] and found.left_out == []
    assert [(str(path), found.classes.index(name)) for path, name in found.images] == theirs.samples


def test_hidden_folders_and_what_systems_leave_are_no_classes_and_named(tmp_path: Path) -> None:
    for name in ("a/1.png", ".ipynb_checkpoints/1.png", "__MACOSX/a/1.png", "a/.ipynb_checkpoints/2.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(RAMP).save(tmp_path / name)
    for name in ("a/Thumbs.db", "a/.DS_Store", "notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    found = list_class_folders(tmp_path)
    assert found.classes == ("a",) and [path.name for path, _ in found.images] == ["1.png"]
    assert sorted(found.left_out) == [
        ".ipynb_checkpoints",
        "__MACOSX",
        "a/.DS_Store",
        "a/.ipynb_checkpoints/2.png",
        "a/Thumbs.db",
        "notes.txt",
    ]
    assert describe_strays(found.left_out).startswith("Left out, as no images of a class: ")
    assert describe_strays(found.left_out).endswith(" and 3 more.") and describe_strays([]) == ""


def test_no_other_program_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.check_call", lambda *_, **__: pytest.fail("a program was started"))
    for name in ("a.png", "a.eps"):
        (tmp_path / name).write_bytes(EPS)
        with pytest.raises(UserError, match=r"cannot read the image .*: it is none of PNG, "):
            read_image(tmp_path / name, grayscale=True)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (png(20_000, 20_000), "too many pixels; 50,000,000 are read at most"),
        (png(9_000, 9_000), r"9,000 x 9,000 pixels, and 50,000,000 are read at most"),
        (png(8, 8), "cannot read the image"),
        (png(8, 8)[:20], "cannot read the image"),
        (b"", "it is none of"),
    ],
    ids=["400 megapixels", "81 megapixels", "no pixels", "cut off", "empty"],
)
def test_what_is_too_large_or_damaged_is_refused_in_a_sentence(
    content: bytes, problem: str, tmp_path: Path
) -> None:
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(UserError, match=problem) as error:
        read_image(tmp_path / "a.png", grayscale=True)
    assert error.value.hint


def test_images_are_opened_by_format_wherever_they_are() -> None:
    opened: Callable[[str], list[str]] = re.compile(r"Image\.open\((.*)\)").findall
    calls = {p.name: found for p in FILES if (found := opened(p.read_text()))}
    assert set(calls) == {"images.py", "gallery.py", "payloads.py"}
    assert all("formats=" in call for found in calls.values() for call in found)
