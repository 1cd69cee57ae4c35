"""Tables on a terminal: whatever a command prints, no word is broken and nothing is lost."""

import itertools
import re
import sys

import numpy as np
import pytest

from fedaudit.audit.cli.app import fold
from fedaudit.audit.cli.show import print_table

WORDS = (
    "a",
    "infinite",
    "epsilon",
    "0.123",
    "per-round",
    "membership.server.local_model",
    "3.4e-05",
    "",
    "(none)",
)
WIDTHS = (40, 80, 200)


def printed(
    header: list[str],
    rows: list[list[str]],
    width: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> list[str]:
    with monkeypatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        patch.setattr(sys.stdout, "isatty", lambda: True)
        print_table(header, rows)
    return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()


def check_table(header: list[str], rows: list[list[str]], width: int, lines: list[str]) -> None:
    """Every word stands whole in the output, and only a first cell or a word is wider than the terminal."""
    wanted = sorted(word for row in rows for cell in row for word in cell.split())
    found = [word for line in lines for word in line.split()]
    assert all(found.count(word) >= wanted.count(word) for word in set(wanted)), (width, lines)
    whole = {row[0] for row in rows}
    assert all(len(line.rstrip()) <= width or line in whole or len(line.split()) <= 2 for line in lines), lines


@pytest.mark.parametrize("width", WIDTHS)
def test_no_word_of_any_table_is_broken_and_none_is_lost(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(width)
    for columns, _ in itertools.product((1, 2, 4, 9), range(5)):
        header = [f"column{i}" for i in range(columns)]
        cells = [[" ".join(rng.choice(WORDS, rng.integers(1, 9))) for _ in header] for _ in range(4)]
        rows = [[f"row{i}", *row[1:]] for i, row in enumerate(cells)]
        check_table(header, rows, width, printed(header, rows, width, monkeypatch, capsys))


@pytest.mark.parametrize("columns", range(2, 10))
def test_no_word_is_broken_where_words_just_fit_and_sentences_do_not(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Long cells beside short ones are folded further, and not the short ones as well."""
    more = [f"after {n}" for n in range(columns - 2)]
    header = ["observer", "adjacency", "computed by", *more]
    rows = [["another client", "add or remove one", "Tightest that applies", *["none"] * len(more)]] * 2
    for width in range(30, 120):
        lines = printed(header, rows, width, monkeypatch, capsys)
        check_table(header, rows, width, lines)
        assert not re.search("\u2026", "".join(lines)), (width, lines)


def test_a_narrow_table_stays_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(["name", "what"], [["one", "two words"]], 80, monkeypatch, capsys)
    assert [line.split() for line in lines] == [["name", "what"], ["one", "two", "words"]]


def test_long_sentences_are_broken_between_words_and_commands_stay_whole() -> None:
    rows = fold("  open: " + " ".join(["clients-not-recorded"] * 9), 40).split("\n")
    assert all(len(row) <= 40 for row in rows) and len(rows) == 9
    assert all(row.startswith("    c") for row in rows[1:])
    whole = "next: fedaudit run " + "x" * 90
    assert fold(whole, 40) == whole and fold("short", 40) == "short"
