"""PDF: A4, tagged (PDF/UA-1) and archivable (PDF/A-2b), set by typst.

All text reaches typst as a JSON file beside the template, never as typst markup, so nothing in a
result can be read as a command. Fonts: Libertinus Serif and DejaVu Sans Mono, which typst carries,
and matplotlib's DejaVu Sans for signs that they lack; a machine's own fonts are never used.
"""

import dataclasses
import importlib.resources
import itertools
import json
import tempfile
import textwrap
from pathlib import Path
from typing import Any, ClassVar, assert_never

from reports import charts
from reports.document import Document, ReportError
from reports.format import OUTCOMES, SEVERITIES
from reports.gallery import enlarge, strips
from reports.markup import spans
from reports.renderer import Renderer
from reports.result import Figure, Gallery
from reports.section import Block, Bullets, Callout, Chart, Code, Heading, Images, KeyValues, Paragraph, Table
from reports.typeset import LONG_LINE, LONG_WORD, breakable, column_widths, font_folder, printable


class Pdf(Renderer):
    suffix: ClassVar[str] = "pdf"

    def render(self, document: Document) -> bytes:
        import typst

        files: dict[str, bytes] = {}
        chapters = []
        for chapter in document.chapters:
            blocks = [_encode(b, files) for b in chapter.blocks]
            for block, following in itertools.pairwise(blocks):
                # a paragraph that leads to a table must not stay behind on the page before
                block["leads"] = following["kind"] in ("table", "bullets", "code")
            card = chapter.card
            chapters.append({"title": card.title, "new_page": card.new_page, "blocks": blocks})
        headline = document.result.headline
        content = {
            "title": document.result.title,
            "running_title": textwrap.shorten(document.result.title, 80, placeholder=" …"),
            "running_subject": textwrap.shorten(document.subject, 110, placeholder=" …"),
            "subject": document.subject,
            "date": document.date,
            "time": document.created.timetuple()[:6],
            "severity": headline.severity.value,
            "outcome": OUTCOMES[headline.outcome],
            "labels": {s.value: label for s, label in SEVERITIES.items()},
            "chapters": chapters,
        }
        template = importlib.resources.files("reports") / "templates" / "report.typ"
        files["report.typ"] = template.read_bytes()
        files["document.json"] = json.dumps(printable(content)).encode()
        fonts = typst.Fonts(include_system_fonts=False, font_paths=[font_folder()])
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                Path(folder, name).write_bytes(text)
            try:
                out: bytes = typst.compile(
                    str(Path(folder, "report.typ")),
                    root=folder,  # typst reads nothing outside it
                    font_paths=fonts,
                    pdf_standards=["ua-1", "a-2b"],
                )
            except typst.TypstError as error:
                raise ReportError(f"typst cannot set the PDF: {error.message}") from error
        return out


def _encode(block: Block, files: dict[str, bytes]) -> dict[str, Any]:
    """A block as JSON for the template; its images go into `files`, referred to by name."""
    kind = type(block).__name__.lower()
    match block:
        case Paragraph(text=text):
            return {"kind": kind, "spans": _spans(text)}
        case Bullets(items=items):
            return {"kind": kind, "items": [_spans(i) for i in items]}
        case Table():
            rows = [[breakable(c) for c in row] for row in block.rows]
            return {
                **dataclasses.asdict(block),
                "kind": kind,
                "rows": rows,
                "columns": column_widths(block),
                "breakable": len(rows) > 12 or sum(len(c) for row in rows for c in row) > 1500,
            }
        case Code(text=text):
            return {"kind": kind, "text": breakable(text, LONG_LINE)}
        case Callout(title=title, text=text, severity=severity):
            return {"kind": kind, "title": title, "text": breakable(text, LONG_WORD), "severity": severity.value}
        case Chart(figure=figure):
            name = _add(files, charts.svg(figure), "svg")
            return {"kind": kind, **_words(figure), "file": name}
        case Images(gallery=gallery):
            parts = [
                {
                    "columns": s.columns,
                    "rows": [
                        {"name": k, "files": [_add(files, enlarge(p), "png") for p in row]}
                        for k, row in s.rows.items()
                    ],
                }
                for s in strips(gallery)
            ]
            return {"kind": kind, **_words(gallery), "strips": parts}
        case KeyValues(items=facts):
            return {"kind": kind, "items": {k: breakable(v) for k, v in facts.items()}}
        case Heading(text=text, level=level, badge=badge):
            return {"kind": kind, "text": breakable(text, LONG_WORD), "level": level, "badge": badge}
        case _:
            assert_never(block)


def _words(drawn: Figure | Gallery) -> dict[str, str]:
    return {"title": drawn.title, "caption": drawn.caption, "alt": drawn.alt or drawn.title}


def _spans(text: str) -> list[tuple[str, str]]:
    return [(kind, breakable(part, LONG_WORD)) for kind, part in spans(text)]


def _add(files: dict[str, bytes], content: bytes, suffix: str) -> str:
    name = f"{len(files):05d}.{suffix}"
    files[name] = content
    return name
