"""Image files as arrays: a few formats that Pillow decodes by itself, and no more pixels than a data set has.

Pillow looks at the content and not at the name: an EPS file called `a.png` would start Ghostscript. So the
formats are named, and the size is read before a pixel is.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.fl.runtime.errors import UserError

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP")
MOST_PIXELS = 50_000_000


def is_grey(path: Path) -> bool:
    """Whether an image that `read_image` reads has no colours."""
    from PIL import Image

    with Image.open(path, formats=FORMATS) as image:
        return image.mode in ("1", "L", "LA", "I;16")


def read_image(path: Path, *, grayscale: bool, size: int | None = None) -> NDArray[np.uint8]:
    """Pixels [height, width, channels], uint8; `size` makes them square by bilinear interpolation.

    Raises UserError for a file that is no image of these formats, is damaged or holds over 50 million pixels.
    """
    from PIL import Image, UnidentifiedImageError

    def refuse(problem: Any) -> UserError:
        return UserError(f"cannot read the image {path}: {problem}", hint="remove it or save it again, as PNG")

    try:
        with Image.open(path, formats=FORMATS) as image:
            width, height = image.size
            if width * height > MOST_PIXELS:
                raise refuse(f"it has {width:,} x {height:,} pixels, and {MOST_PIXELS:,} are read at most")
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
    return pixels.reshape(*pixels.shape[:2], -1)
