"""SECURITY.md: every row says who may do what, and names test files that there are."""

import re

from tests.test_house import ROOT


def test_every_row_of_the_threat_model_names_test_files_that_exist() -> None:
    rows = [line for line in (ROOT / "SECURITY.md").read_text().splitlines() if line.startswith("| ")][2:]
    assert len(rows) >= 13
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)`", row.split("|")[-2])
        assert named and all((ROOT / name).is_file() for name in named), row
