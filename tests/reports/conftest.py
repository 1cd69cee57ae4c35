"""The sample report, composed and rendered once."""

import pytest

from fedaudit.fl.runtime import plugin
from fedaudit.reports.document import Document, compose
from fedaudit.reports.renderer import Renderer
from fedaudit.reports.section import Section
from tests.reports.sample import result


def sections() -> list[Section]:
    names = plugin.names("fedaudit.reports.sections")
    return [plugin.load("fedaudit.reports.sections", name, Section)() for name in names]


@pytest.fixture(scope="session")
def document() -> Document:
    return compose(result(), sections())


@pytest.fixture(scope="session")
def rendered(document: Document) -> dict[str, bytes]:
    names = plugin.names("fedaudit.reports.renderers")
    classes = [plugin.load("fedaudit.reports.renderers", name, Renderer) for name in names]
    return {c.suffix: c().render(document) for c in classes}
