"""The contract of a report section: an audit result in, a list of blocks out.

A section formats: it has no thresholds and computes nothing. Renderers know only blocks, so a new
section needs no change to a renderer, and a new renderer no change to a section.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Literal

from reports.result import AuditResult, Figure, Gallery, Severity


@dataclass(frozen=True, kw_only=True)
class Card:
    title: str  # the section's heading
    order: int  # gaps of 10 leave room
    new_page: bool = False  # where pages exist


@dataclass(frozen=True)
class Paragraph:
    text: str  # plain text; `code` in backticks and *emphasis* are the only marks


@dataclass(frozen=True)
class Heading:
    text: str
    level: Literal[2, 3] = 2  # the section's title is level 1
    badge: Severity | None = None  # shown beside the heading


@dataclass(frozen=True, kw_only=True)
class Table:
    header: list[str]
    rows: list[list[str]]
    caption: str  # says what to see
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


@dataclass(frozen=True)
class Code:
    text: str
    language: str = "text"


@dataclass(frozen=True)
class Chart:
    figure: Figure


@dataclass(frozen=True)
class Images:
    gallery: Gallery


Block = Paragraph | Heading | Table | Bullets | KeyValues | Callout | Code | Chart | Images


class Section(ABC):
    """Subclasses set `card` and write `build`. An empty section says why it is empty."""

    card: Card

    @abstractmethod
    def build(self, result: AuditResult) -> list[Block]: ...
