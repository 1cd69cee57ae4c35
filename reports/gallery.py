"""Galleries cut to the page: long rows become several strips of at most ten images."""

import base64
import io
import itertools
from dataclasses import dataclass

from fedaudit.reports.document import ReportError
from fedaudit.reports.exhibits import Gallery

PER_STRIP = 10


@dataclass(frozen=True, kw_only=True)
class Strip:
    """Some columns of a gallery; images are PNG in base64, named rows in the gallery's order."""

    columns: list[str]
    rows: dict[str, list[str]]


def strips(gallery: Gallery) -> list[Strip]:
    """The gallery in strips of nearly equal length, so that the last is not a lone image."""
    length = len(next(iter(gallery.rows.values())))
    columns = gallery.columns or [str(i + 1) for i in range(length)]
    count = -(-length // PER_STRIP)
    edges = [i * length // count for i in range(count + 1)]
    return [
        Strip(columns=columns[a:b], rows={k: row[a:b] for k, row in gallery.rows.items()})
        for a, b in itertools.pairwise(edges)
    ]


def enlarge(encoded: str, side: int = 240) -> bytes:
    """A PNG (base64) repeated pixel by pixel until its shorter side has at least `side` pixels.

    Viewers smooth small images; copies of a pixel stay crisp. Returns PNG bytes.
    Raises ReportError for a damaged image.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(base64.b64decode(encoded)), formats=["PNG"]) as opened:
            image = opened.convert("L" if opened.mode in ("L", "1") else "RGB")
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ReportError(f"a gallery image cannot be read as PNG: {error}") from error
    factor = max(1, -(-side // min(image.size)))
    size = (image.width * factor, image.height * factor)
    out = io.BytesIO()
    image.resize(size, Image.Resampling.NEAREST).save(out, format="PNG", optimize=False)
    return out.getvalue()
