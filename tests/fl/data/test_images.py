"""Image files: what is read, and what starts another program or fills the memory if it were."""

import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedaudit.fl.data.images import read_image
from fedaudit.fl.runtime.errors import UserError
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
    assert np.array_equal(read_image(tmp_path / "a.png", grayscale=False), pixels)
    grey = read_image(tmp_path / "a.png", grayscale=True)
    assert grey.shape == (5, 7, 1) and np.array_equal(
        grey[..., 0], np.asarray(Image.fromarray(pixels).convert("L"))
    )
    assert read_image(tmp_path / "a.png", grayscale=False, size=4).shape == (4, 4, 3)


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
    assert set(calls) == {"images.py", "gallery.py"}
    assert all("formats=" in call for found in calls.values() for call in found)
