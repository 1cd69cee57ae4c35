"""A result with signs that hide something: no renderer prints them, and HTML runs and loads nothing."""

import re

import pytest

from fedaudit.audit.settings import catalog
from fedaudit.reports.document import compose
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
        "base-uri": "'none'",
        "form-action": "'none'",
    }
