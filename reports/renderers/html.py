"""HTML: one self-contained file that reads well on a screen, on paper and aloud.

No network, no script: style inline, charts as inline SVG, images as data. The template escapes
every text of the result; only our own charts are inserted as markup.
"""

import importlib.resources
import re
from typing import ClassVar

import jinja2
from markupsafe import Markup

from reports import charts
from reports.document import Document
from reports.format import OUTCOMES, SEVERITIES
from reports.gallery import strips
from reports.markup import spans
from reports.renderer import Renderer
from reports.result import Figure
from reports.typeset import LONG_TOKEN

_IDS = (
    (re.compile(r'\bid="([^"]+)"'), r'id="{prefix}-\1"'),
    (re.compile(r'href="#([^"]+)"'), r'href="#{prefix}-\1"'),
    (re.compile(r"url\(#([^)]+)\)"), r"url(#{prefix}-\1)"),
)


class Html(Renderer):
    suffix: ClassVar[str] = "html"

    def render(self, document: Document) -> bytes:
        templates = importlib.resources.files("reports") / "templates"
        environment = jinja2.Environment(
            autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        environment.globals.update(spans=spans, strips=strips, severities=SEVERITIES, outcomes=OUTCOMES)
        environment.filters["kind"] = lambda block: type(block).__name__
        environment.filters["chart"] = inline_chart
        environment.filters["fail"] = _fail
        environment.filters["long"] = lambda cell: any(len(w) > LONG_TOKEN for w in cell.split())
        template = environment.from_string((templates / "report.html").read_text("utf-8"))
        style = Markup((templates / "report.css").read_text("utf-8"))
        return template.render(document=document, result=document.result, style=style).encode()


def inline_chart(figure: Figure, prefix: str) -> Markup:
    """A chart as an <svg> element: ids made unique in the page, style rules left to the page."""
    text = charts.svg(figure).decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r'^<svg[^>]*?viewBox="([^"]+)"[^>]*>', r'<svg viewBox="\1">', text)
    for pattern, replacement in _IDS:
        text = pattern.sub(replacement.format(prefix=prefix), text)
    svg = Markup(text.replace(" xlink:href=", " href="))
    return svg.replace("<svg ", Markup('<svg role="img" aria-label="{}" ').format(figure.alt), 1)


def _fail(message: str) -> str:
    raise TypeError(message)
