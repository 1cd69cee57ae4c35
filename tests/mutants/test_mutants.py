"""The list of faults fits the code: each can be put in, and the tests that are to notice it exist."""

import ast
from itertools import zip_longest
from pathlib import Path

import pytest
import yaml

from tests.mutants.mutants import ROOT, Mutant, put_in, read_mutants

MUTANTS = read_mutants()


def test_there_are_sixty_faults_or_more_with_names_of_their_own() -> None:
    assert len(MUTANTS) >= 60
    assert len({m.name for m in MUTANTS}) == len({(m.file, m.old, m.new) for m in MUTANTS}) == len(MUTANTS)


def test_every_fault_can_be_put_in_and_changes_what_the_file_says() -> None:
    for m in MUTANTS:
        text = (ROOT / m.file).read_text(encoding="utf-8")
        changed = m.apply(text)
        if m.file.endswith(".yaml"):
            assert yaml.safe_load(changed) != yaml.safe_load(text), m.name
        else:
            pairs = zip_longest(*(ast.parse(source).body for source in (changed, text)))
            assert any(a is None or b is None or ast.dump(a) != ast.dump(b) for a, b in pairs), m.name


def test_the_tests_that_are_to_notice_a_fault_exist() -> None:
    for m in MUTANTS:
        assert m.tests, m.name
        for name in m.tests:
            file, _, node = name.partition("::")
            assert (ROOT / file).exists(), f"{m.name}: {file}"
            assert not node or f"def {node.partition('[')[0]}(" in (ROOT / file).read_text(), f"{m.name}: {name}"


def test_a_text_that_is_not_there_once_is_refused() -> None:
    m = Mutant(name="a fault", file="a.py", old="1", new="2", tests=[])
    assert m.apply("x = 1") == "x = 2"
    for text in ("x = 3", "x = 1 + 1"):
        with pytest.raises(ValueError, match="mend the list"):
            m.apply(text)


def test_a_fault_is_taken_out_and_never_has_the_time_of_the_original(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("x = 1")
    before = file.stat().st_mtime_ns
    with put_in(Mutant(name="a fault", file="a.py", old="1", new="2", tests=[]), tmp_path, 0):
        assert file.read_text() == "x = 2"
        assert file.stat().st_mtime_ns - before >= 1_000_000_000
    assert (file.read_text(), file.stat().st_mtime_ns) == ("x = 1", before)
