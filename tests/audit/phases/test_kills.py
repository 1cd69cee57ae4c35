"""A whole audit that is killed at moments drawn by chance; `make kills` does a hundred, over eight configs."""

import random
from pathlib import Path

import pytest

from tests.audit.phases.kills import CONFIGS, kills


@pytest.mark.nightly
def test_an_audit_that_is_killed_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    found = kills(CONFIGS["scaffold"], 2, tmp_path, random.Random(3))
    assert (found.kills, found.different, found.failed) == (2, (), "") and found.passes
