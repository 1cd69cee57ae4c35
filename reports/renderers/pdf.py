"""PDF: A4, tagged (PDF/UA-1) and archivable (PDF/A-2b), set by typst.

All text reaches typst as a JSON file beside the template, never as typst markup, so nothing in a
result can be read as a command. Fonts: Audit Sans, which is ours (reports/typeset.py), DejaVu Sans Mono, which
typst carries, and matplotlib's DejaVu Sans for signs that they lack; a machine's own fonts are never used.
"""

import dataclasses
import importlib.resources
import itertools
import json
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, assert_never

from fedaudit.reports import charts
from fedaudit.reports.document import Document, ReportError
from fedaudit.reports.exhibits import Gallery
from fedaudit.reports.format import SEVERITIES
from fedaudit.reports.gallery import enlarge, strips
from fedaudit.reports.markup import spans
from fedaudit.reports.page import FILLS, LABELS, MOST_FACES, SIGNATURES, Page, PageHarm
from fedaudit.reports.renderer import Renderer
from fedaudit.reports.result import Figure
from fedaudit.reports.section import (
    AnswerPage,
    Blanks,
    Block,
    Bullets,
    Callout,
    Cell,
    Chart,
    Code,
    DecisionPage,
    Folded,
    Heading,
    KeyValues,
    Paragraph,
    Pictures,
    Sentences,
    Table,
    words,
)
from fedaudit.reports.typeset import (
    LONG_LINE,
    LONG_NAME,
    LONG_WORD,
    breakable,
    column_widths,
    font_folder,
    own_fonts,
    printable,
)

MOST_ROWS = 36  # of a table on paper; a screen has all


class Pdf(Renderer):
    suffix: ClassVar[str] = "pdf"

    def render(self, document: Document) -> bytes:
        out: bytes = _set(document, pdf_standards=["ua-1", "a-2b"])
        return out


def pages(document: Document, dots: float) -> list[bytes]:
    """Each page of the PDF as a PNG, at `dots` per inch."""
    found: bytes | list[bytes] = _set(document, format="png", ppi=dots)
    return [found] if isinstance(found, bytes) else found


def _set(document: Document, **options: Any) -> Any:
    import typst

    files: dict[str, bytes] = {}
    chapters = []
    for chapter in document.chapters:
        blocks = [_encode(b, files) for b in _unfold(chapter.blocks)]
        for block, following in itertools.pairwise(blocks):
            # a paragraph that leads to a table must not stay behind on the page before
            block["leads"] = following["kind"] in ("table", "bullets", "code")
        card = chapter.card
        chapters.append({"title": card.title, "new_page": card.new_page, "front": card.front, "blocks": blocks})
    content = {
        "title": document.result.title,
        "running_title": textwrap.shorten(document.result.title, 80, placeholder=" …"),
        "running_subject": textwrap.shorten(document.subject, 110, placeholder=" …"),
        "subject": document.subject,
        "date": document.date,
        "time": document.created.timetuple()[:6],
        "policy": document.policy,
        "scope": document.result.decision.page.scope if document.result.decision else "",
        "foot": document.foot,
        "page-labels": LABELS,
        "letters": {c.card.title: document.find_letter(c.card.title) for c in document.appendices},
        "page-fills": FILLS,
        "page-signatures": SIGNATURES,
        "labels": {s.value: label for s, label in SEVERITIES.items()},
        "chapters": chapters,
    }
    template = importlib.resources.files("fedaudit.reports") / "templates" / "report.typ"
    files["report.typ"] = template.read_bytes()
    files["document.json"] = json.dumps(printable(content)).encode()
    fonts = typst.Fonts(include_system_fonts=False, font_paths=[str(own_fonts()), font_folder()])
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            Path(folder, name).write_bytes(text)
        try:
            return typst.compile(
                str(Path(folder, "report.typ")),
                root=folder,  # typst reads nothing outside it
                font_paths=fonts,
                **options,
            )
        except typst.TypstError as error:
            raise ReportError(f"typst cannot set the PDF: {error.message}") from error


def _encode(block: Block, files: dict[str, bytes]) -> dict[str, Any]:
    """A block as JSON for the template; its images go into `files`, referred to by name."""
    kind = type(block).__name__.lower()
    match block:
        case Paragraph(text=text, small=small):
            return {"kind": kind, "spans": _spans(text), "small": small}
        case Bullets(items=items):
            return {"kind": kind, "items": [_spans(i) for i in items]}
        case Table():
            rows = [[_cell(c) for c in row] for row in block.rows[:MOST_ROWS]]
            if (more := len(block.rows) - MOST_ROWS) > 0:
                last = [f"and {more:,} more, in report.html and audit.json", *[""] * (len(block.header) - 1)]
                rows.append([_cell(c) for c in last])
            return {
                **dataclasses.asdict(block),
                "kind": kind,
                "rows": rows,
                "columns": column_widths(block),
                "breakable": len(rows) > 6 or sum(len(words(c)) for row in block.rows for c in row) > 1500,
            }
        case DecisionPage():
            return {
                "kind": kind,
                "word": block.word,
                "tone": block.tone,
                "stated": {k: [breakable(line) for line in lines] for k, lines in block.stated.items()},
                "page": _page(block.page),
                "faces": _faces(block, files),
            }
        case AnswerPage(page=page):
            return {"kind": kind, "page": _page(page)}
        case Blanks(items=items):
            return {"kind": kind, "items": items}
        case Folded():
            raise ReportError("what is folded away on a screen is not printed")
        case Code(text=text):
            return {"kind": kind, "text": breakable(text, LONG_LINE)}
        case Callout(title=title, text=text, severity=severity):
            return {"kind": kind, "title": title, "text": breakable(text, LONG_WORD), "severity": severity.value}
        case Chart(figure=figure):
            name = _add(files, charts.svg(figure), "svg")
            return {"kind": kind, **_words(figure), "file": name}
        case Pictures(gallery=gallery):
            parts = [
                {
                    "columns": s.columns,
                    "rows": [
                        {"name": k, "files": [_add(files, enlarge(p), "png") for p in row]}
                        for k, row in s.rows.items()
                    ],
                }
                for s in strips(gallery)[:1]
            ]
            return {"kind": kind, **_words(gallery), "strips": parts}
        case Sentences(texts=texts):
            pairs = [
                {
                    "name": p.name,
                    "original": breakable("".join(p.original).strip(), LONG_WORD),
                    "claimed": [{"text": w.text, "mark": w.mark} for w in p.claimed],
                }
                for p in texts.pairs
            ]
            return {"kind": kind, "title": texts.title, "caption": texts.caption, "pairs": pairs}
        case KeyValues(items=facts):
            return {"kind": kind, "items": {k: breakable(v) for k, v in facts.items()}}
        case Heading(text=text):
            return {**dataclasses.asdict(block), "kind": kind, "text": breakable(text, LONG_WORD)}
        case _:
            assert_never(block)


def _page(page: Page) -> dict[str, Any]:
    """The page as it is stored, with the words that follow from its numbers."""

    def harm(h: PageHarm) -> dict[str, Any]:
        told = {name: getattr(h, name) for name in ("fill", "grade", "instead", "least", "most", "success")}
        return h.model_dump() | told | {"what": breakable(h.what, LONG_WORD), "note": breakable(h.note)}

    return page.model_dump() | {
        "emphasis": page.emphasis,
        "units": page.units,
        "marks": page.choose_marks(),
        "harms": [harm(h) for h in page.harms],
        "bounded": [harm(h) for h in page.bounded],
        "options": [o.model_dump() | {"least": o.least, "most": o.most} for o in page.options],
        "answers": [a.model_dump() | {"spans": _spans(a.answer)} for a in page.answers],
    }


def _faces(block: DecisionPage, files: dict[str, bytes]) -> list[dict[str, Any]]:
    """Rows of the strip of pictures."""
    if block.gallery is None or block.page.pictures is None:
        return []
    return [
        {"name": name, "files": [_add(files, enlarge(p), "png") for p in block.gallery.rows[row][:MOST_FACES]]}
        for name, row in block.page.pictures.rows.items()
    ]


def _unfold(blocks: Sequence[Block]) -> Iterator[Block]:
    for block in blocks:
        if not isinstance(block, Folded):
            yield block
        elif block.on_paper:
            yield from _unfold(block.blocks)


def _cell(cell: str | Cell) -> str | dict[str, Any]:
    if isinstance(cell, str):
        return breakable(cell, names=LONG_NAME)
    return {
        "lead": breakable(cell.lead, names=LONG_NAME),
        "text": breakable(cell.text, names=LONG_NAME),
        "bars": [{"share": b.share, "text": b.text} for b in cell.bars],
        "note": breakable(cell.note),
        "badge": cell.badge,
        "tint": cell.tint,
        "ring": cell.ring,
    }


def _words(drawn: Figure | Gallery) -> dict[str, str]:
    return {"title": drawn.title, "caption": drawn.caption, "alt": drawn.alt or drawn.title}


def _spans(text: str) -> list[tuple[str, str]]:
    return [(kind, breakable(part, LONG_WORD)) for kind, part in spans(text)]


def _add(files: dict[str, bytes], content: bytes, suffix: str) -> str:
    name = f"{len(files):05d}.{suffix}"
    files[name] = content
    return name
