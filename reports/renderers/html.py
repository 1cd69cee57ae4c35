"""HTML: one self-contained file that reads well on a screen, on paper and aloud.

No network: style and script inline, charts as inline SVG, images as data; a content security policy forbids all
else, and of scripts every one but ours, by its hash. The template escapes every text of the result; only our own
charts are inserted as markup. Without a script everything can be read; with it tables sort and images enlarge.
"""

import base64
import functools
import hashlib
import html
import importlib.resources
import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

import jinja2
from markupsafe import Markup

from fedaudit.reports import charts
from fedaudit.reports.document import LETTERS, Document
from fedaudit.reports.format import OUTCOMES, SEVERITIES, number
from fedaudit.reports.gallery import strips
from fedaudit.reports.markup import spans
from fedaudit.reports.page import FILLS, LABELS, MOST_FACES, SIGNATURES
from fedaudit.reports.renderer import Renderer
from fedaudit.reports.result import Figure, Outcome
from fedaudit.reports.section import Block, Cell, Folded, Heading, words
from fedaudit.reports.typeset import LONG_TOKEN, own_fonts

_IDS = (
    (re.compile(r'\bid="([^"]+)"'), r'id="{prefix}-\1"'),
    (re.compile(r'href="#([^"]+)"'), r'href="#{prefix}-\1"'),
    (re.compile(r"url\(#([^)]+)\)"), r"url(#{prefix}-\1)"),
)
# Colours that a chart has of its own become the page's, so that they change with it in the dark
_COLOURS = {
    **{colour: f"var(--line-{i + 1})" for i, colour in enumerate(charts.COLOURS)},
    **dict.fromkeys(charts.GREYS, "var(--blind)"),
    "#000000": "var(--ink)",
    "#444444": "var(--muted)",
    "#e4e4e4": "var(--hair)",
    "#ffffff": "var(--paper)",
}
WEIGHTS = (
    ("Regular", 400, "normal"),
    ("Semibold", 600, "normal"),
    ("Bold", 700, "normal"),
    ("Italic", 400, "italic"),
)


class Html(Renderer):
    suffix: ClassVar[str] = "html"

    def render(self, document: Document) -> bytes:
        templates = importlib.resources.files("fedaudit.reports") / "templates"
        environment = jinja2.Environment(
            autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        environment.globals.update(
            spans=spans, strips=strips, severities=SEVERITIES, outcomes=OUTCOMES, letters=LETTERS
        )
        environment.globals.update(labels=LABELS, fills=FILLS, signatures=SIGNATURES, faces=MOST_FACES)
        environment.filters["kind"] = lambda block: type(block).__name__
        environment.filters["chart"] = inline_chart
        environment.filters["fail"] = _fail
        environment.filters["long"] = _long
        template = environment.from_string((templates / "report.html").read_text("utf-8"))
        style = Markup(_write_faces() + (templates / "report.css").read_text("utf-8"))
        script = (templates / "report.js").read_text("utf-8")
        linked = set(_list_anchors([b for c in document.chapters for b in c.blocks]))
        shown = [
            f for f in document.result.findings if f.outcome is not Outcome.NOT_APPLICABLE and f.id in linked
        ]
        return template.render(
            document=document,
            result=document.result,
            findings=shown,
            anchors=linked,
            style=style,
            script=Markup(script),
            policy=Markup(_policy(script)),
        ).encode()


@functools.cache
def _write_faces() -> str:
    """Our typeface, within the page."""
    rules = []
    for name, weight, slant in WEIGHTS:
        data = base64.b64encode((own_fonts() / f"AuditSans-{name}.ttf").read_bytes()).decode()
        rules.append(
            f'@font-face {{ font-family: "Audit Sans"; font-weight: {weight}; font-style: {slant}; '
            f"src: url(data:font/ttf;base64,{data}) }}\n"
        )
    return "".join(rules)


def _list_anchors(blocks: Sequence[Block]) -> Iterator[str]:
    """What can be linked to, in what is folded away too: a browser unfolds it."""
    for block in blocks:
        if isinstance(block, Folded):
            yield from _list_anchors(block.blocks)
        elif isinstance(block, Heading):
            yield block.anchor


def _policy(script: str) -> str:
    """What the page may load: its own style, its own script, images that are in it."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    loads = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:"
    return f"{loads}; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def inline_chart(figure: Figure, prefix: str) -> Markup:
    """A chart as an <svg> element: ids made unique in the page, colours left to the page, values that are told
    where one points at them.
    """
    text = charts.svg(figure).decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r'^<svg[^>]*?viewBox="([^"]+)"[^>]*>', r'<svg viewBox="\1">', text)
    text = re.sub(r'(<g id="value-(\d+)-(\d+)">)', lambda m: m[1] + _value(figure, int(m[2]), int(m[3])), text)
    text = re.sub(r"#[0-9a-f]{6}\b", lambda m: _COLOURS.get(m[0], m[0]), text)
    for pattern, replacement in _IDS:
        text = pattern.sub(replacement.format(prefix=prefix), text)
    svg = Markup(text.replace(" xlink:href=", " href="))
    return svg.replace("<svg ", Markup('<svg role="img" aria-label="{}" ').format(figure.alt or figure.title), 1)


def _value(figure: Figure, line: int, point: int) -> str:
    series = figure.series[line]
    text = f"{series.name}: {number(series.y[point])} at {number(series.x[point])}"
    return f"<title>{html.escape(text)}</title>"


def _long(cell: str | Cell) -> bool:
    return any(len(w) > LONG_TOKEN for w in words(cell).split())


def _fail(message: str) -> str:
    raise TypeError(message)
