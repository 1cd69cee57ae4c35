"""The site in a real browser: no violation of axe-core, no sideways scrolling, nothing from the network.

`make docs` builds it and `make browser` brings the browser and runs this; elsewhere it is skipped, and says so.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.test_house import ROOT

TOOLS = Path(os.environ.get("BROWSER_TOOLS", ".browser")).resolve()
PAGES = (
    *("index", "start", "own-federation", "attacks", "reference/attacks", "reference/python", "gallery"),
    *("notebooks/1-first-audit", "notebooks/3-inversion"),
)

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(shutil.which("node") is None, reason="no node: the site is not tried in a browser"),
    pytest.mark.skipif(
        not (TOOLS / "node_modules/axe-core").is_dir(),
        reason=f"no axe-core and Chromium in {TOOLS}: `make browser` brings them",
    ),
    pytest.mark.skipif(not (ROOT / "site/index.html").is_file(), reason="no site: `make docs` builds it"),
]


def test_pages_pass_axe_fit_their_width_and_load_nothing_from_the_network() -> None:
    shots = os.environ.get("SCREENSHOTS", "")
    command = ["node", str(Path(__file__).with_name("site.mjs")), str(TOOLS), str(ROOT / "site"), shots]
    done = subprocess.run([*command, *(f"{p}.html" for p in PAGES)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    views = json.loads(done.stdout)
    assert len(views) == 4 * len(PAGES)
    assert [v for v in views if v["violations"] or v["faults"] or v["sideways"] > 0] == []
