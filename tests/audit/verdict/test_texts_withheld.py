"""Sentences in a report: as words with marks where they may be shown, and as kinds of words where not."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from fedaudit.attacks.text.span_check import SpanCheck
from fedaudit.audit.settings import catalog
from fedaudit.audit.verdict.disclosure import withhold
from fedaudit.audit.verdict.findings import list_texts
from fedaudit.reports.document import compose
from fedaudit.reports.result import AuditResult
from fedaudit.reports.section import Section
from tests.attacks.text.text_world import TextWorld
from tests.reports.sample import result

NAMES = [f"Name{i}" for i in range(280)]


@pytest.fixture(scope="module")
def shown() -> AuditResult:
    """The sample's first finding, with texts that span_check read."""
    world = TextWorld(planted=0)
    attack = SpanCheck()
    claim = attack.run(world.artifacts, world.knowledge, np.random.default_rng(0))
    exhibits = [dataclasses.asdict(e) for e in attack.exhibits(claim, world)]
    file: dict[str, Any] = {"name": "span_check", "evidence": [], "texts": exhibits}
    found = result()
    return found.model_copy(update={"texts": list_texts(file | {"name": found.findings[0].id})})


def render(found: AuditResult, kind: str) -> bytes:
    sections: list[type[Section]] = [catalog.load("sections", name) for name in ("text_pairs", "limits")]
    made: bytes = catalog.load("renderers", kind)().render(compose(found, sections))
    return made


def read_pdf(data: bytes) -> str:
    import io

    from pypdf import PdfReader

    return "".join(page.extract_text() for page in PdfReader(io.BytesIO(data)).pages)


def test_texts_stand_in_the_report_as_words_with_marks(shown: AuditResult) -> None:
    (texts,) = shown.texts
    assert 3 <= len(texts.pairs) <= 6 and all(w.mark == "right" for p in texts.pairs for w in p.claimed)
    name = next(w.strip() for w in texts.pairs[0].original if w.strip() in NAMES)
    page = render(shown, "html").decode()
    assert f'<u class="right">{name}</u>' in page
    assert name in read_pdf(render(shown, "pdf"))


def test_what_is_withheld_is_in_no_file_and_how_much_was_read_is(shown: AuditResult) -> None:
    hidden = withhold(shown, "redacted", {})
    words = {w.strip() for p in shown.texts[0].pairs for w in p.original}
    assert {w for w in words if w in NAMES}
    files = [hidden.model_dump_json(), render(hidden, "html").decode(), read_pdf(render(hidden, "pdf"))]
    for text in files:
        assert not [
            w for w in words if f"{w}<" in text or f" {w} " in text or f'"{w}"' in text or f' {w}"' in text
        ]
    assert "[name]" in files[1] and "[number]" in files[1] and "[name]" in files[2].replace("\n", " ")
    marks = [[w.mark for w in p.claimed] for p in hidden.texts[0].pairs]
    assert marks == [[w.mark for w in p.claimed] for p in shown.texts[0].pairs]
    assert withhold(shown, "full", {}).texts == shown.texts
