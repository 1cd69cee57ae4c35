"""The contract of a report section: an audit result in, a list of blocks out.

A section formats: it has no thresholds and computes nothing. Renderers know only blocks, so a new
section needs no change to a renderer, and a new renderer no change to a section. What a section that has
nothing to tell returns is an empty list, and it is left out.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from fedaudit.reports.exhibits import Gallery, Texts
from fedaudit.reports.page import Page
from fedaudit.reports.result import AuditResult, Figure, Severity


@dataclass(frozen=True, kw_only=True)
class Card:
    title: str  # the section's heading
    order: int  # gaps of 10 leave room
    new_page: bool = False  # where pages exist
    front: bool = False  # one of the pages to decide by; all others are lettered appendices behind them


@dataclass(frozen=True)
class Paragraph:
    text: str  # plain text; `code` in backticks and *emphasis* are the only marks
    small: bool = False  # set like the words of a table


@dataclass(frozen=True)
class Heading:
    text: str
    level: Literal[2, 3] = 2  # the section's title is level 1
    badge: Severity | None = None  # shown beside the heading
    anchor: str = ""  # what links to it say: the id of a finding


@dataclass(frozen=True)
class Bar:
    """A share drawn as a bar, with its words beside it."""

    share: float  # 0 to 1
    text: str


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell with more than words: from top to bottom badge, first words, bars, a small note."""

    lead: str = ""  # heavy
    text: str = ""
    bars: tuple[Bar, ...] = ()
    note: str = ""
    badge: Severity | None = None
    tint: Literal[0, 1, 2, 3, 4, 5] = 0  # how strongly coloured; the words say the same
    ring: bool = False  # framed; the words say so as well


def words(cell: str | Cell) -> str:
    """All that a cell says."""
    if isinstance(cell, str):
        return cell
    parts = (cell.badge or "", cell.lead, cell.text, *(b.text for b in cell.bars), cell.note)
    return " ".join(p for p in parts if p)


@dataclass(frozen=True, kw_only=True)
class Table:
    header: list[str]
    rows: Sequence[Sequence[str | Cell]]  # the first cell of a row is its header
    caption: str  # says what to see
    numbered: bool = True  # else the caption is only read aloud
    align: str = ""  # one of l, r, c a column; empty: first left, rest right
    widths: list[float] = field(default_factory=list)  # relative; empty: by content


@dataclass(frozen=True)
class Bullets:
    items: list[str]


@dataclass(frozen=True, kw_only=True)
class KeyValues:
    """A short two-column list of facts."""

    items: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Callout:
    """One boxed statement: the headline, or a warning."""

    title: str
    text: str
    severity: Severity


@dataclass(frozen=True, kw_only=True)
class DecisionPage:
    """The page that is signed. All its words are in `page`, but the word itself and what the owner states."""

    page: Page
    word: str
    tone: Literal["stop", "wait", "care", "go"]
    stated: dict[str, list[str]]  # head -> lines
    gallery: Gallery | None  # that the page's strip is of


@dataclass(frozen=True, kw_only=True)
class AnswerPage:
    """The page behind it."""

    page: Page


@dataclass(frozen=True)
class Blanks:
    """Places to fill in by hand."""

    items: list[str]


@dataclass(frozen=True)
class Folded:
    """Blocks that a screen shows when asked for. Paper has them in full, or not at all: then they are in the run
    folder as well.
    """

    title: str
    blocks: list["Block"]
    on_paper: bool = False


@dataclass(frozen=True)
class Code:
    text: str
    language: str = "text"


@dataclass(frozen=True)
class Chart:
    figure: Figure


@dataclass(frozen=True)
class Pictures:
    gallery: Gallery


@dataclass(frozen=True)
class Sentences:
    texts: Texts


Plain = Paragraph | Heading | Table | Bullets | KeyValues | Callout | Code | Chart | Pictures | Sentences
Block = Plain | DecisionPage | AnswerPage | Blanks | Folded


class Section(ABC):
    """Subclasses set `card` and write `build`."""

    card: Card

    @abstractmethod
    def build(self, result: AuditResult) -> list[Block]: ...
