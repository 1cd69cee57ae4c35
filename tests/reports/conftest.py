"""The sample report, composed and rendered once."""

import pytest

from fl import plugin
from reports.document import Document, compose
from reports.renderer import Renderer
from reports.section import Section
from tests.reports.sample import result


def sections() -> list[Section]:
    names = plugin.names("reports.sections")
    return [plugin.load("reports.sections", name, Section)() for name in names]


@pytest.fixture(scope="session")
def document() -> Document:
    return compose(result(), sections())


@pytest.fixture(scope="session")
def rendered(document: Document) -> dict[str, bytes]:
    names = plugin.names("reports.renderers")
    classes = [plugin.load("reports.renderers", name, Renderer) for name in names]
    return {c.suffix: c().render(document) for c in classes}
