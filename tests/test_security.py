"""SECURITY.md: every test that it names exists."""

import re
from pathlib import Path

from tests.test_house import ROOT


def test_every_line_of_the_threat_model_names_tests_that_exist() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ")][2:]
    source = "\n".join(p.read_text() for p in Path(ROOT / "tests").rglob("test_*.py"))
    defined = set(re.findall(r"^def (test_\w+)\(", source, flags=re.M))
    assert len(rows) >= 12
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row.split("|")[-2])
        assert named and set(named) <= defined, (row, set(named) - defined)
