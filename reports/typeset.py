"""Text and tables made to fit the PDF: places to break long words, signs the fonts have, widths."""

import functools
import importlib.resources
import re
from pathlib import Path
from typing import Any

from fedaudit.reports.section import Table, words

LONG_TOKEN = 22  # characters; a longer one in a table cell may break inside a word
LONG_NAME = 12  # and one longer than this after a sign: the narrowest columns take no more
LONG_WORD = 40  # in running text
LONG_LINE = 88  # of code: what fits the page
NO_SPACE = "\u200b"  # takes no room and lets a line end


def column_widths(table: Table) -> list[float]:
    """Widths for typst: 0 fits the content, other numbers share the rest in proportion."""
    if table.widths:
        return table.widths
    longest = [max((len(words(row[i])) for row in table.rows), default=0) for i in range(len(table.header))]
    # the square root keeps one very long column from squeezing the others to nothing
    shares = [0.0 if n <= 14 else min(n, 400) ** 0.5 for n in longest]
    if any(shares):
        return shares
    return [3.0 + max(n, len(h)) for n, h in zip(longest, table.header, strict=True)]


def breakable(text: str, limit: int = LONG_TOKEN, names: int | None = None) -> str:
    """Text whose long tokens (paths, hashes) carry invisible places to break a line; those above `names` after
    a sign alone.
    """

    def split(match: re.Match[str]) -> str:
        token = match[0]
        if len(token) > limit:
            return re.sub(r"([/_.\-=:,;]|\w{12})(?=.)", rf"\1{NO_SPACE}", token)
        return re.sub(r"(?<=\w)([/_])(?=\w)", rf"\1{NO_SPACE}", token)

    return re.sub(rf"\S{{{min(limit, names or limit) + 1},}}", split, text)


def printable(value: Any) -> Any:
    """Every text in it, with a sign that no font of ours has written as [U+1F600].

    PDF/UA and PDF/A forbid text without a glyph, and a reader should not meet an empty box.
    """
    match value:
        case str():
            known = _signs()
            return "".join(c if ord(c) in known or c == "\n" else _code_point(c) for c in value)
        case dict():
            return {printable(k): printable(v) for k, v in value.items()}
        case list() | tuple():
            return [printable(v) for v in value]
        case _:
            return value


def _code_point(sign: str) -> str:
    return {"\t": "    ", "\r": "", NO_SPACE: sign}.get(sign, f"[U+{ord(sign):04X}]")


def own_fonts() -> Path:
    """Where Audit Sans is: the signs of European languages out of Adobe's Source Sans 3, under another name, as
    its licence (fonts/OFL.txt) asks of what was changed.
    """
    return Path(str(importlib.resources.files("fedaudit.reports"))) / "fonts"


def font_folder() -> str:
    """Where matplotlib keeps the fonts it ships."""
    import matplotlib

    return f"{matplotlib.get_data_path()}/fonts/ttf"


@functools.cache
def _signs() -> frozenset[int]:
    """Code points of DejaVu Sans, the widest of the fonts used."""
    from matplotlib.ft2font import FT2Font

    return frozenset(FT2Font(f"{font_folder()}/DejaVuSans.ttf").get_charmap())
