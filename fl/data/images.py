"""Image files as arrays: a few formats that Pillow decodes by itself, and no more pixels than a data set has.

Pillow looks at the content and not at the name: an EPS file called `a.png` would start Ghostscript. So the
formats are named, and the size is read before a pixel is. Folders of classes are listed in torchvision's order.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaudit.fl.runtime.errors import UserError

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP")
MOST_PIXELS = 50_000_000
SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # as torchvision has them
STRAY = ("__MACOSX", "Thumbs.db", "desktop.ini")  # what systems leave beside images, besides hidden names


class Mode(NamedTuple):
    """How pixels of one of Pillow's modes are read."""

    is_grey: bool
    white: int = 0  # the number that is white, in modes of more than 8 bits; else Pillow turns them into bytes


MODES = {
    **dict.fromkeys(
        ("1", "L", "LA", "La"), Mode(is_grey=True)
    ),  # alpha is left out, as torchvision's loader does
    **dict.fromkeys(("I;16", "I;16L", "I;16B", "I;16N", "I"), Mode(is_grey=True, white=65535)),
    "F": Mode(is_grey=True, white=1),
    **dict.fromkeys(("P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr"), Mode(is_grey=False)),
}


def is_grey(path: Path) -> bool:
    """Whether an image that `read_image` reads has no colours, in its palette neither."""
    from PIL import Image

    with Image.open(path, formats=FORMATS) as image:
        if image.mode not in ("P", "PA"):
            return image.mode in MODES and MODES[image.mode].is_grey
        red, green, blue = (np.asarray(channel) for channel in image.convert("RGB").split())
        return bool(np.array_equal(red, green) and np.array_equal(red, blue))


def read_image(path: Path, *, grayscale: bool, size: int | None = None) -> NDArray[np.float32]:
    """Pixels [height, width, channels] from 0 to 1; `size` makes them square by bilinear interpolation.

    Bytes are divided by 255, 16 bits by 65535, and so are 32 bits that hold no more; floating-point numbers are
    from 0 to 1. Raises UserError for a file that is no image of these formats and modes, is damaged, holds
    numbers outside of them or over 50 million pixels.
    """
    from PIL import Image, UnidentifiedImageError

    def refuse(problem: Any) -> UserError:
        return UserError(f"cannot read the image {path}: {problem}", hint="remove it or save it again, as PNG")

    try:
        with Image.open(path, formats=FORMATS) as image:
            width, height = image.size
            if width * height > MOST_PIXELS:
                raise refuse(f"it has {width:,} x {height:,} pixels, and {MOST_PIXELS:,} are read at most")
            if (mode := MODES.get(image.mode)) is None:
                raise refuse(f"its mode is {image.mode}, and it is read of {', '.join(MODES)}")
            if mode.white:
                numbers = np.asarray(image).astype(np.float32)
                low, high = float(numbers.min()), float(numbers.max())
                if not (low >= 0 and high <= mode.white):
                    raise refuse(f"its numbers are from {low:g} to {high:g}, not from 0 to {mode.white}")
                plain = Image.fromarray(numbers / np.float32(mode.white))
            else:
                plain = image.convert("L" if grayscale else "RGB")
            if size is not None:
                plain = plain.resize((size, size), Image.Resampling.BILINEAR)
            pixels = np.asarray(plain)
    except UnidentifiedImageError as error:
        raise refuse(f"it is none of {', '.join(FORMATS)}") from error
    except Image.DecompressionBombError as error:
        raise refuse(f"it has too many pixels; {MOST_PIXELS:,} are read at most") from error
    except (OSError, ValueError, SyntaxError) as error:
        raise refuse(error) from error
    if pixels.dtype == np.uint8:
        pixels = pixels.astype(np.float32) / np.float32(255)
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    return pixels if grayscale or pixels.shape[2] == 3 else np.repeat(pixels, 3, axis=2)


class ClassFolders(NamedTuple):
    """Images below a folder that holds one folder a class, in torchvision's order."""

    classes: tuple[str, ...]
    images: list[tuple[Path, str]]  # with the class of each
    left_out: list[str]  # names of what is no image of a class, below the folder


def list_class_folders(root: Path) -> ClassFolders:
    """Classes by name and their images, folder by folder; hidden names and what systems leave are left out."""
    below = sorted(root.iterdir(), key=lambda path: path.name)
    classes = [path for path in below if path.is_dir() and not is_stray(path.name)]
    images, left_out = list[tuple[Path, str]](), [path.name for path in below if path not in classes]
    for folder in classes:
        for path in _walk(folder):
            if path.suffix.lower() in SUFFIXES and not any(map(is_stray, path.relative_to(folder).parts)):
                images.append((path, folder.name))
            else:
                left_out.append(path.relative_to(root).as_posix())
    return ClassFolders(tuple(path.name for path in classes), images, left_out)


def describe_strays(names: Sequence[str]) -> str:
    """What was left out, as a sentence; empty where nothing was."""
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return f"Left out, as no images of a class: {', '.join(names[:3])}{more}." if names else ""


def _walk(folder: Path) -> Iterator[Path]:
    for place, _, files in sorted(os.walk(folder, followlinks=True)):
        yield from (Path(place) / name for name in sorted(files))


def is_stray(name: str) -> bool:
    """Whether a file or folder is hidden, or left by a system or an archive."""
    return name.startswith(".") or name in STRAY
