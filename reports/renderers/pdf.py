"""PDF: A4, tagged (PDF/UA-1) and archivable (PDF/A-2b), set by typst.

All text reaches typst as a JSON file beside the template, never as typst markup, so nothing in a
result can be read as a command. Fonts: Libertinus Serif and DejaVu Sans Mono, which typst carries,
and matplotlib's DejaVu Sans for signs that they lack; a machine's own fonts are never used.
"""

import dataclasses
import functools
import importlib.resources
import itertools
import json
import re
import tempfile
import textwrap
from pathlib import Path
from typing import Any, ClassVar

from reports import charts
from reports.document import Document
from reports.format import OUTCOMES, SEVERITIES
from reports.gallery import enlarge, strips
from reports.markup import spans
from reports.renderer import Renderer
from reports.section import Block, Bullets, Callout, Chart, Code, Paragraph, Pictures, Table

LONG_TOKEN = 22  # characters; a longer one in a table cell may break inside
LONG_LINE = 88  # of code: what fits the page


class Pdf(Renderer):
    suffix: ClassVar[str] = ".pdf"

    def render(self, document: Document) -> bytes:
        import typst

        files: dict[str, bytes] = {}
        chapters = []
        for chapter in document.chapters:
            blocks = [_encode(b, files) for b in chapter.blocks]
            for block, following in itertools.pairwise(blocks):
                # a paragraph that leads to a table must not stay behind on the page before
                block["leads"] = following["kind"] in ("table", "bullets", "code")
            chapters.append({"title": chapter.card.title, "blocks": blocks})
        headline = document.result.headline
        content = {
            "title": document.result.title,
            "running_title": textwrap.shorten(document.result.title, 80, placeholder=" …"),
            "running_subject": textwrap.shorten(document.subject, 110, placeholder=" …"),
            "subject": document.subject,
            "date": document.date,
            "day": [document.created.year, document.created.month, document.created.day],
            "severity": headline.severity.value,
            "outcome": OUTCOMES[headline.outcome],
            "labels": {s.value: label for s, label in SEVERITIES.items()},
            "chapters": chapters,
        }
        template = importlib.resources.files("reports") / "templates" / "report.typ"
        files["report.typ"] = template.read_bytes()
        files["document.json"] = json.dumps(_printable(content)).encode()
        fonts = typst.Fonts(include_system_fonts=False, font_paths=[_font_folder()])
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                Path(folder, name).write_bytes(text)
            out: bytes = typst.compile(
                str(Path(folder, "report.typ")),
                root=folder,  # typst reads nothing outside it
                font_paths=fonts,
                pdf_standards=["ua-1", "a-2b"],
                timestamp=document.created,
            )
        return out


def _encode(block: Block, files: dict[str, bytes]) -> dict[str, Any]:
    """A block as JSON for the template; its pictures go into `files`, referred to by name."""
    kind = type(block).__name__.lower()
    match block:
        case Paragraph(text=text):
            return {"kind": kind, "spans": spans(text)}
        case Bullets(items=items):
            return {"kind": kind, "items": [spans(i) for i in items]}
        case Table():
            rows = [[_breakable(c) for c in row] for row in block.rows]
            return {
                **dataclasses.asdict(block),
                "kind": kind,
                "rows": rows,
                "columns": _columns(block),
                "breakable": len(rows) > 12 or sum(len(c) for row in rows for c in row) > 1500,
            }
        case Code(text=text):
            return {"kind": kind, "text": _breakable(text, LONG_LINE)}
        case Callout(title=title, text=text, severity=severity):
            return {"kind": kind, "title": title, "text": text, "severity": severity.value}
        case Chart(figure=figure):
            name = _add(files, charts.svg(figure), "svg")
            f = figure
            return {
                "kind": kind,
                "title": f.title,
                "caption": f.caption,
                "alt": f.alt,
                "file": name,
            }
        case Pictures(gallery=gallery):
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
            g = gallery
            return {
                "kind": kind, "title": g.title, "caption": g.caption, "alt": g.alt, "strips": parts
            }  # fmt: skip
        case _:
            return {"kind": kind, **dataclasses.asdict(block)}


def _add(files: dict[str, bytes], content: bytes, suffix: str) -> str:
    name = f"{len(files):05d}.{suffix}"
    files[name] = content
    return name


def _columns(table: Table) -> list[float]:
    """Widths for typst: 0 fits the content, other numbers share the rest in proportion."""
    if table.widths:
        return table.widths
    longest = [
        max((len(row[i]) for row in table.rows), default=0) for i in range(len(table.header))
    ]
    # the square root keeps one very long column from squeezing the others to nothing
    shares = [0.0 if n <= 14 else min(n, 400) ** 0.5 for n in longest]
    if any(shares):
        return shares
    return [3.0 + max(n, len(h)) for n, h in zip(longest, table.header, strict=True)]


def _breakable(text: str, limit: int = LONG_TOKEN) -> str:
    """Text whose long tokens (paths, hashes) carry invisible places to break a line."""

    def split(match: re.Match[str]) -> str:
        return re.sub(r"([/_.\-=:,;]|\w{12})(?=.)", "\\1\u200b", match[0])

    return re.sub(rf"\S{{{limit + 1},}}", split, text)


def _printable(value: Any) -> Any:
    """Every text in it, with a sign that no font of ours has written as [U+1F600].

    PDF/UA and PDF/A forbid text without a glyph, and a reader should not meet an empty box.
    """
    match value:
        case str():
            known = _signs()
            return "".join(c if ord(c) in known or c == "\n" else _code_point(c) for c in value)
        case dict():
            return {k: _printable(v) for k, v in value.items()}
        case list() | tuple():
            return [_printable(v) for v in value]
        case _:
            return value


def _code_point(sign: str) -> str:
    return {"\t": "    ", "\r": "", "\u200b": sign}.get(sign, f"[U+{ord(sign):04X}]")


def _font_folder() -> str:
    import matplotlib

    return f"{matplotlib.get_data_path()}/fonts/ttf"


@functools.cache
def _signs() -> frozenset[int]:
    """Code points of DejaVu Sans, the widest of the fonts used."""
    from matplotlib.ft2font import FT2Font

    return frozenset(FT2Font(f"{_font_folder()}/DejaVuSans.ttf").get_charmap())
