"""What an attack claims of images, texts and rows of a table, beside what is true, as a report shows it."""

from typing import Literal

from pydantic import Field

from fedaudit.reports.record import Record


class MarkedWord(Record):
    """A word of a claimed text; it begins with a space where it is not part of the one before."""

    text: str
    mark: Literal["right", "elsewhere", "wrong", "missed"]


class Gallery(Record):
    """Images as PNG, base64. Rows have equal length; `alt` is what a screen reader says."""

    finding: str  # id of the finding it belongs to
    title: str
    caption: str
    alt: str
    columns: list[str] = Field(default_factory=list)
    rows: dict[str, list[str]]


class TextLines(Record):
    """A client's text, and what was claimed of it."""

    name: str
    original: list[str]
    claimed: list[MarkedWord]


class Texts(Record):
    """Texts of clients above what an attack claims of them, as words."""

    finding: str  # id of the finding it belongs to
    title: str
    caption: str
    redacted: bool = False  # words stand for what they were: [name], [number], [word]
    pairs: list[TextLines]


class RowLines(Record):
    """A client's row, and what was claimed of it, column by column."""

    name: str
    columns: list[str]
    original: list[str]
    claimed: list[str]
    apart: list[float]  # from 0 to 1


class RowTables(Record):
    """Rows of clients beside what an attack claims of them."""

    finding: str  # id of the finding it belongs to
    title: str
    caption: str
    redacted: bool = False  # values are left out
    pairs: list[RowLines]
