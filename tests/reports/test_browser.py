"""The HTML in a real browser: no violation of axe-core, no sideways scrolling, all within reach of the keyboard.

`make browser` brings the browser and axe-core from npm and runs this; elsewhere it is skipped, and says so.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fedaudit.reports.document import Document, compose
from fedaudit.reports.renderers.html import Html
from tests.reports.conftest import sections
from tests.reports.sample import result

TOOLS = Path(os.environ.get("BROWSER_TOOLS", ".browser")).resolve()
MANY = 40  # findings

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(shutil.which("node") is None, reason="no node: the HTML is not tried in a browser"),
    pytest.mark.skipif(
        not (TOOLS / "node_modules/axe-core").is_dir(),
        reason=f"no axe-core and Chromium in {TOOLS}: `make browser` brings them",
    ),
]


def of_many_findings() -> Document:
    """The sample, its findings repeated under ids of their own until there are MANY."""
    audited = result()
    sample, length = audited.findings, len(audited.findings)
    again = [sample[i % length].model_copy(update={"id": f"{sample[i % length].id}-{i}"}) for i in range(MANY)]
    audited.findings = [*sample, *again[length:]]
    return compose(audited, sections())


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    page = tmp_path_factory.mktemp("page") / "report.html"
    page.write_bytes(Html().render(of_many_findings()))
    script = Path(__file__).with_name("browser.mjs")
    command = ["node", str(script), str(TOOLS), str(page)]
    if folder := os.environ.get("SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        command.append(folder)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_axe_core_finds_no_violation_in_light_or_dark_wide_or_narrow(seen: dict[str, Any]) -> None:
    assert [(v["width"], v["scheme"]) for v in seen["views"]] == [
        (1280, "light"),
        (1280, "dark"),
        (390, "light"),
        (390, "dark"),
    ]
    assert [v["violations"] for v in seen["views"]] == [[]] * 4


def test_the_page_loads_within_two_seconds_without_a_fault_or_the_network(seen: dict[str, Any]) -> None:
    assert [v["faults"] for v in seen["views"]] == [[]] * 4
    assert max(v["milliseconds"] for v in seen["views"]) < 2000


def test_nothing_makes_the_page_scroll_sideways_even_unfolded(seen: dict[str, Any]) -> None:
    assert max(v["sideways"] for v in seen["views"]) <= 0


def test_every_image_of_a_gallery_is_reached_enlarged_and_left_by_the_keyboard(seen: dict[str, Any]) -> None:
    assert seen["reached"] == seen["images"] > 0
    assert seen["first"] and seen["next"] and seen["first"] != seen["next"] and seen["closed"]


def test_links_of_page_1_lead_somewhere_tables_sort_and_charts_tell_their_values(seen: dict[str, Any]) -> None:
    assert seen["links"] and all(seen["links"])
    assert seen["sorted"]["up"] != seen["sorted"]["down"]
    assert sorted(seen["sorted"]["up"]) == sorted(seen["sorted"]["down"])
    assert seen["values"] > 0
