"""Compose: an audit result and some sections to the ordered document that renderers print.

Nothing is ever dropped: a section that raises, or returns something no renderer could print, fails
the whole report and names itself. A section that has nothing to tell is left out; the pages to decide by come
first, and the others are appendices with letters.
"""

import base64
import binascii
import hashlib
import string
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import get_args

from fedaudit.reports.exhibits import Gallery
from fedaudit.reports.format import date, moment, plural
from fedaudit.reports.result import AuditResult, Figure
from fedaudit.reports.section import Block, Card, Chart, Folded, Pictures, Section, Table
from fedaudit.reports.visible import visible

LETTERS = [*string.ascii_uppercase, *(f"A{c}" for c in string.ascii_uppercase)]
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


class ReportError(Exception):
    """A report that cannot be written whole, and which section is to blame."""


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """What one section said."""

    card: Card
    blocks: tuple[Block, ...]


@dataclass(frozen=True, kw_only=True)
class Document:
    """A report before it has a format. `result` is there for the cover and for the JSON renderer."""

    result: AuditResult
    chapters: tuple[Chapter, ...]
    digest: str = ""  # SHA-256 of audit.json
    source: str = "audit.json"  # the file that its findings are about

    @property
    def front(self) -> tuple[Chapter, ...]:
        return tuple(c for c in self.chapters if c.card.front)

    @property
    def appendices(self) -> tuple[Chapter, ...]:
        return tuple(c for c in self.chapters if not c.card.front)

    @property
    def created(self) -> datetime:
        return moment(self.result.created)

    @property
    def date(self) -> str:
        return date(self.result.created)

    @property
    def foot(self) -> str:
        """What every page is of: first digits of the audit's digest, the policy, and data that are of nobody."""
        digits = " ".join(self.digest[i : i + 4] for i in range(0, 16, 4))
        invented = " · invented data, about no person" if self.result.scope.is_invented else ""
        return f"Audit {digits} · {self.policy}{invented}"

    @property
    def policy(self) -> str:
        """By which it is judged; empty where nothing is."""
        policy = self.result.policy
        return f"policy {policy.name} {policy.version}" if policy.name else ""

    def find_letter(self, title: str) -> str:
        """The letter of an appendix; empty where there is none."""
        return next((x for x, c in zip(LETTERS, self.appendices, strict=False) if c.card.title == title), "")

    @property
    def subject(self) -> str:
        scope = self.result.scope
        parts = [scope.method, scope.dataset, scope.model]
        return ", ".join([*parts, plural(scope.clients, "client"), plural(scope.rounds, "round")])


def compose(result: AuditResult, sections: Sequence[Section | type[Section]]) -> Document:
    """Build every section, given as class or object, in reading order (card.order, then title).

    No renderer meets a control sign or an override of the direction of writing: `visible` names them.

    Raises ReportError, naming the section, when a section raises or returns a block
    that cannot be printed; and naming the figure or gallery whose finding does not exist.
    """
    _check_result(result)
    digest = hashlib.sha256(result.dump()).hexdigest()
    shown = result.model_dump()
    if (safe := visible(shown)) != shown:
        result = AuditResult.model_validate(safe)
    if not sections:
        raise ReportError("a report needs at least one section, got none")
    built = [s() if isinstance(s, type) else s for s in sections]
    ordered = sorted(built, key=lambda s: (not s.card.front, s.card.order, s.card.title))
    chapters = tuple(c for s in ordered if (c := _build(s, result)).blocks)
    if not chapters:
        raise ReportError("no section has anything to say of this result")
    return Document(result=result, chapters=chapters, digest=digest)


def _build(section: Section, result: AuditResult) -> Chapter:
    name = f"{type(section).__module__}.{type(section).__qualname__}"
    where = f"report section {section.card.title!r} ({name})"
    try:
        blocks = tuple(section.build(result))
    except Exception as error:
        raise ReportError(f"{where} failed: {type(error).__name__}: {error}") from error
    for block in blocks:
        if fault := _fault(block):
            raise ReportError(f"{where}: {fault}")
    return Chapter(card=section.card, blocks=blocks)


def _check_result(result: AuditResult) -> None:
    try:
        moment(result.created)
    except ValueError as error:
        raise ReportError(f"`created` must be an ISO 8601 time, got {result.created!r}") from error
    if not result.title.strip():
        raise ReportError("`title` is empty; every page and the PDF's own title show it")
    known = {f.id for f in result.findings}
    for gallery in result.galleries:
        if gallery.finding not in known:
            raise ReportError(f"gallery {gallery.title!r}: no finding {gallery.finding!r}")
    for figure in result.figures:
        if figure.finding and figure.finding not in known:
            raise ReportError(f"figure {figure.id!r}: no finding {figure.finding!r}")


def _fault(block: object) -> str:
    """Why a block cannot be printed; empty when it can."""
    match block:
        case Table(header=header, rows=rows, align=align, widths=widths):
            if not header or any(len(row) != len(header) for row in rows):
                return f"table {block.caption!r}: every row must have {len(header)} cells"
            if align and (len(align) != len(header) or set(align) - set("lrc")):
                return f"table {block.caption!r}: align must be l, r or c a column, got {align!r}"
            if widths and len(widths) != len(header):
                return f"table {block.caption!r}: {len(widths)} widths, {len(header)} columns"
            return ""
        case Chart(figure=figure):
            return _figure_fault(figure)
        case Pictures(gallery=gallery):
            return _gallery_fault(gallery)
        case Folded(blocks=blocks):
            return next((fault for b in blocks if (fault := _fault(b))), "")
        case _ if isinstance(block, get_args(Block)):
            return ""
        case _:
            return f"{type(block).__name__} is not a block; see reports/section.py"


def _figure_fault(figure: Figure) -> str:
    if not figure.series:
        return f"figure {figure.id!r} has no series"
    for s in figure.series:
        for name, values in (("y", s.y), ("low", s.low), ("high", s.high)):
            if values is not None and len(values) != len(s.x):
                return f"figure {figure.id!r}, {s.name!r}: {len(s.x)} x but {len(values)} {name}"
        if (s.low is None) != (s.high is None):
            return f"figure {figure.id!r}, {s.name!r}: an interval needs both low and high"
    return ""


def _gallery_fault(gallery: Gallery) -> str:
    lengths = {len(row) for row in gallery.rows.values()}
    if len(lengths) != 1 or 0 in lengths:
        return f"gallery {gallery.title!r}: rows must have equal, nonzero length, got {lengths}"
    if gallery.columns and len(gallery.columns) not in lengths:
        return f"gallery {gallery.title!r}: {len(gallery.columns)} column labels, rows of {lengths}"
    for name, row in gallery.rows.items():
        for image in row:
            try:
                good = base64.b64decode(image, validate=True).startswith(PNG_MAGIC)
            except (binascii.Error, ValueError):
                good = False
            if not good:
                return f"gallery {gallery.title!r}, row {name!r}: an image is not a PNG in base64"
    return ""
