"""PDF, HTML and JSON of the sample: whole, accessible, self-contained, literal and repeatable."""

import base64
import hashlib
import html
import io
import itertools
import re

import pytest

from fedaudit.reports.document import compose
from fedaudit.reports.renderers.html import Html
from fedaudit.reports.renderers.json import Json
from fedaudit.reports.renderers.pdf import Pdf
from fedaudit.reports.result import AuditResult
from tests.reports.conftest import sections
from tests.reports.sample import result
from tests.reports.sample_findings import HOSTILE

pypdf = pytest.importorskip("pypdf")


def squeeze(text: str) -> str:
    """Text without what line breaking changes: spaces, and invisible break marks."""
    return re.sub(r"[\s\u200b]+", "", text)


@pytest.fixture(scope="module")
def pdf(rendered):
    return pypdf.PdfReader(io.BytesIO(rendered["pdf"]))


@pytest.fixture(scope="module")
def pdf_text(pdf):
    return squeeze("".join(page.extract_text() for page in pdf.pages))


@pytest.fixture(scope="module")
def page(rendered):
    return rendered["html"].decode()


@pytest.fixture(scope="module")
def page_text(page):
    body = re.sub(r"<(style|svg|script).*?</\1>", "", page, flags=re.DOTALL)
    return squeeze(html.unescape(re.sub(r"<[^>]*>", "", body)))


def test_the_pdf_is_tagged_titled_and_claims_both_standards(pdf):
    root = pdf.trailer["/Root"]
    assert root["/MarkInfo"]["/Marked"]
    assert "/StructTreeRoot" in root
    assert root["/Lang"] == "en-GB"
    assert pdf.metadata.title == "Privacy audit of FedProto on handwritten digits"
    assert pdf.metadata.creation_date.isoformat() == "2026-03-05T14:07:00+00:00"  # not the clock
    metadata = root["/Metadata"].get_data().decode()
    assert "<pdfuaid:part>1</pdfuaid:part>" in metadata
    assert "<pdfaid:part>2</pdfaid:part>" in metadata
    assert "<pdfaid:conformance>B</pdfaid:conformance>" in metadata


def test_every_image_of_the_pdf_has_an_alternative_text(pdf):
    figures = [e for e in structure(pdf.trailer["/Root"]["/StructTreeRoot"]) if e.get("/S") == "/Figure"]
    assert len(figures) >= 5
    assert all(str(f.get("/Alt", "")).strip() for f in figures)


def structure(node):
    """Every element of a PDF's structure tree."""
    if isinstance(node, pypdf.generic.ArrayObject):
        for child in node:
            yield from structure(child.get_object())
    elif isinstance(node, pypdf.generic.DictionaryObject):
        yield node
        if "/K" in node:
            yield from structure(node["/K"].get_object())


def test_every_font_of_the_pdf_is_embedded(pdf):
    for sheet in pdf.pages:
        for font in sheet["/Resources"].get("/Font", {}).values():
            descendant = font.get_object()["/DescendantFonts"][0].get_object()
            descriptor = descendant["/FontDescriptor"].get_object()
            assert any(key.startswith("/FontFile") for key in descriptor)


def test_the_decision_and_every_finding_are_in_pdf_and_html(pdf_text, page_text):
    audited = result()
    for text in (audited.decision.sentence, *(f.title for f in audited.findings)):
        assert squeeze(text) in pdf_text
        assert squeeze(text) in page_text


def test_markup_in_a_title_prints_as_it_stands(pdf_text, page_text, page):
    assert squeeze(HOSTILE) in pdf_text
    assert squeeze(HOSTILE) in page_text
    assert page.lower().count("<script") == 1  # ours


def test_markup_in_every_text_of_a_result_prints_as_it_stands():
    poisoned = poison(result().model_dump())
    document = compose(AuditResult.model_validate(poisoned), sections())
    page = Html().render(document).decode()
    assert page.lower().count("<script") == 1  # ours
    assert "&lt;script&gt;" in page
    sheets = pypdf.PdfReader(io.BytesIO(Pdf().render(document))).pages
    assert squeeze("<script>#panic()") in squeeze("".join(s.extract_text() for s in sheets))


def poison(value, key=""):
    """The same result with hostile text after every free text."""
    if key == "rows":
        return value  # images
    if isinstance(value, dict):
        return {k: poison(v, k) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [poison(v, key) for v in value]
    # what a reader of the file refuses when it is not one of a few words
    fixed = {
        "id",
        "finding",
        "created",
        "kind",
        "source",
        "control",
        "state",
        "cells",
        "strip",
        "severity",
        "outcome",
        "measure",
        "unit",
        "position",
        "conduct",
        "status",
    }
    if isinstance(value, str) and type(value) is str and key not in fixed and len(value) < 300:
        return value + " <script>#panic() $x$ \"'> \\ {{1}} {% x %} `"
    return value


def test_signs_without_a_glyph_are_named_in_the_pdf(pdf_text, page_text):
    assert squeeze("naïve Größe, ε ≤ 1, [U+6F22][U+5B57] and") in pdf_text
    assert "漢字" in page_text


def test_infinity_is_said_in_words(pdf_text, page_text):
    for text in (pdf_text, page_text):
        assert squeeze("none: proto_counts is released without noise") in text
    assert squeeze("PSNR infinite no interval none 12") in page_text  # a control, which only a screen has


def test_a_finding_that_showed_nothing_is_never_given_the_severity_none(page):
    title = re.escape("Likelihood-ratio attack: nobody is known to be hit beyond luck")
    (heading,) = re.findall(rf"<h3[^>]*>(?:(?!</h3>).)*{title}(?:(?!</h3>).)*</h3>", page)
    assert "badge" not in heading


def test_the_html_may_load_nothing_and_run_no_script_but_its_own(page):
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', page)
    assert html.unescape(policy).split("; ") == [
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        "img-src data:",
        "font-src data:",
        f"script-src 'sha256-{digest}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    assert "fetch" not in script and "http" not in script


def test_the_html_needs_no_network(page):
    for target in re.findall(r'\b(?:src|href|action|data|poster)="([^"]*)"', page):
        assert target.startswith(("#", "data:image/png;base64,")), target
    assert "@import" not in page and "url(http" not in page and "<link" not in page
    without = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"\son\w+=", re.sub(r">[^<]*<", "><", without))


def test_the_html_can_be_read_aloud(page):
    assert '<html lang="en-GB">' in page and page.count("<h1>") == 1
    levels = [int(n) for n in re.findall(r"<h([1-6])", page)]
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert all(re.search(r'\balt="[^"]+"', tag) for tag in re.findall(r"<img[^>]*>", page))
    drawn = [
        tag for tag in re.findall(r"<svg[^>]*>", page) if 'aria-hidden="true"' not in tag
    ]  # bars repeat words
    assert drawn and all('aria-label="' in tag for tag in drawn)
    regions = re.findall(r'role="region" aria-label="([^"]+)"', page)
    assert regions and all(regions) and len(regions) == page.count('role="region"')
    bodies = re.findall(r"<tbody>(.*?)</tbody>", page, flags=re.DOTALL)
    rows = [row for body in bodies for row in re.findall(r"<tr>(.*?)</tr>", body, flags=re.DOTALL)]
    assert rows and all(row.startswith('<th scope="row"') for row in rows)
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_every_reference_inside_a_chart_finds_its_target(page):
    ids = set(re.findall(r'\sid="([^"]+)"', page))
    used = set(re.findall(r'href="#([^"]+)"', page)) | set(re.findall(r"url\(#([^)]+)\)", page))
    assert used and used <= ids


def test_the_json_reads_back_as_the_same_result(rendered):
    assert AuditResult.model_validate_json(rendered["json"]) == result()
    assert b'"epsilon": "Infinity"' in rendered["json"]


def test_the_schema_of_the_result_is_public_and_closed():
    schema = AuditResult.model_json_schema()
    assert schema["additionalProperties"] is False
    assert {"headline", "findings", "policy", "reproduction"} <= set(schema["required"])


@pytest.mark.sample(2)
@pytest.mark.parametrize("renderer", [Html, Json, Pdf])
def test_the_same_result_gives_the_same_bytes(renderer, rendered):
    again = compose(AuditResult.model_validate_json(rendered["json"]), sections())
    assert renderer().render(again) == rendered[renderer.suffix]


@pytest.mark.nightly
def test_another_result_gives_other_bytes(rendered):
    changed = result()
    changed.created = "2026-03-05T14:08:00Z"
    document = compose(changed, sections())
    assert Pdf().render(document) != rendered["pdf"]
    assert Html().render(document) != rendered["html"]
