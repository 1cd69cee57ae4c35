"""A result with signs that hide something: no renderer prints them, and HTML runs and loads nothing."""

import re
import unicodedata
import xml.etree.ElementTree as ET

import pytest

from fedaudit.audit.settings import catalog
from fedaudit.reports.document import compose
from fedaudit.reports.visible import visible, visible_line, visible_name
from tests.reports.sample import result

HIDDEN = "seen\x1b[2J\r\u202edesrever\u2066\x9b"


@pytest.mark.parametrize("name", catalog.names("renderers"))
def test_no_renderer_prints_a_sign_that_hides_something(name: str) -> None:
    strange = result()
    strange.title += HIDDEN
    for finding in strange.findings:
        finding.title += HIDDEN
        finding.summary += HIDDEN
    for figure in strange.figures:
        figure.title += HIDDEN
        figure.x_label += HIDDEN
    sections = [catalog.load("sections", s) for s in catalog.names("sections")]
    rendered: bytes = catalog.load("renderers", name)().render(compose(strange, sections))
    if name == "pdf":
        assert rendered.startswith(b"%PDF")
    else:
        text = rendered.decode()
        assert "U+202E" in text.replace("\\", "") and not re.search(
            "[\x1b\r\u202e\u2066\x9b]|\\\\u(001b|202e|009b|2066)", text
        )


def test_html_may_load_nothing_and_run_one_script_that_is_named_by_its_hash() -> None:
    document = compose(result(), [catalog.load("sections", "decision")])
    page = catalog.load("renderers", "html")().render(document).decode()
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)">', page)
    assert policy is not None and page.index(policy[0]) < page.index("<style>")
    allowed = dict(part.split(maxsplit=1) for part in policy[1].split("; "))
    assert allowed.pop("default-src") == "'none'"
    assert re.fullmatch("'sha256-[A-Za-z0-9+/]{43}='", allowed.pop("script-src"))  # of our one script
    assert allowed == {
        "style-src": "'unsafe-inline'",
        "img-src": "data:",
        "font-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


# format signs that are drawn: marks of numbers in Arabic, Syriac and Kaithi, joiners of hieroglyphs
DRAWN = {*"\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"}
DRAWN |= {chr(i) for i in range(0x13430, 0x13440)}
WITHOUT_INK = {*"\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"}  # letters and marks by name only


def test_every_sign_of_control_of_format_or_without_ink_is_hidden_and_no_other() -> None:
    for sign in map(chr, range(0x110000)):
        category = unicodedata.category(sign)
        if category == "Cn":
            continue
        hides = category in ("Cc", "Cf", "Cs", "Zl", "Zp") and sign not in DRAWN
        assert (visible_name(sign) != sign) == (hides or sign in WITHOUT_INK), f"U+{ord(sign):04X}"


def test_a_text_keeps_its_lines_a_line_its_tabs_and_joiners_and_a_name_none_of_them() -> None:
    text = "a\tb\nc\u200bd\u200de"
    assert visible(text) == "a\tb\nc[U+200B]d\u200de"
    assert visible_line(text) == "a\tb[U+000A]c[U+200B]d\u200de"
    assert visible_name(text) == "a[U+0009]b[U+000A]c[U+200B]d[U+200D]e"
    assert visible_name("Müller, 葛󠄀城 ❤️ 100\u00a0%") == "Müller, 葛󠄀城 ❤️ 100\u00a0%"


def test_no_title_begins_a_line_of_a_junit_file() -> None:
    strange = result()
    strange.title += "\n::warning::Ready to deploy"
    for finding in strange.findings:
        finding.title += "\n::warning::Ready to deploy"
        finding.summary += "\n::warning::Ready to deploy"
    rendered = catalog.load("renderers", "junit")().render(
        compose(strange, [catalog.load("sections", "decision")])
    )
    assert "Ready to deploy" in ET.fromstring(rendered).attrib.get("name", "") + rendered.decode()
    assert not re.search(r"^\s*::", rendered.decode(), re.M)
