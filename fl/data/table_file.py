"""A CSV file as text: its header and its rows, and what is wrong with a file in one sentence and a hint."""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedaudit.fl.runtime.errors import UserError

DELIMITERS = (",", ";", "\t", "|")
MOST_BYTES = 300_000_000
MOST_CELLS = 20_000_000
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
WRITTEN = {"\t": "tab"}  # how a delimiter is called in sentences


@dataclass(frozen=True)
class TableFile:
    """The text of a CSV file. Cells are stripped of blanks around them."""

    path: Path
    header: tuple[str, ...]
    rows: list[list[str]]  # each as long as the header
    lines: list[int]  # of each row: where it ends in the file, from 1

    def column(self, name: str) -> list[str]:
        place = self.header.index(name)
        return [row[place] for row in self.rows]


def is_number(text: str) -> bool:
    return NUMBER.fullmatch(text) is not None


def order(text: str) -> tuple[bool, float, str]:
    """What entries are sorted by: numbers by their value, before texts."""
    return (False, float(text), text) if is_number(text) else (True, 0.0, text)


def read_table(path: Path, delimiter: str = ",") -> TableFile:
    """All rows of a file in UTF-8, with or without a mark at its begin; empty lines are left out.

    Raises UserError for one that is missing, too large, no such text, or without a header or rows as long as it.
    """
    require_file(path)
    if (size := path.stat().st_size) > MOST_BYTES:
        raise UserError(
            f"{path} has {size / 1e6:,.0f} MB, and {MOST_BYTES / 1e6:,.0f} MB are read at most",
            hint="draw fewer rows: what an audit measures needs thousands, not millions",
        )
    rows, lines = _read_lines(path, delimiter)
    if not rows:
        raise UserError(f"{path} is empty", hint="its first line names the columns, each other one is a row")
    header = tuple(rows.pop(0))
    lines.pop(0)
    _check_header(path, header, delimiter)
    if not rows:
        raise UserError(f"{path} has a header and no rows", hint="each line below the header is a row")
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(header):
            raise UserError(
                f"{path}, line {line}: {len(row)} entries, and the header has {len(header)}",
                hint="put entries that hold the delimiter in double quotes",
            )
    return TableFile(path, header, rows, lines)


def require_file(path: Path) -> None:
    """Raise UserError where no file is there."""
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "is not there"
        raise UserError(f"{path} {what}", hint="name the CSV file, seen from where the command is started")


def guess_delimiter(path: Path) -> str:
    """The sign that stands most often in the first line; a comma where none does or nothing can be read."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            first = file.readline(100_000)
    except (OSError, ValueError):
        return ","
    return max(DELIMITERS, key=first.count)


def _read_lines(path: Path, delimiter: str) -> tuple[list[list[str]], list[int]]:
    rows, lines, cells = list[list[str]](), list[int](), 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True, skipinitialspace=True)
            for row in reader:
                if not any(map(str.strip, row)):
                    continue
                rows.append([cell.strip() for cell in row])
                lines.append(reader.line_num)
                if (cells := cells + len(row)) > MOST_CELLS:
                    raise UserError(
                        f"{path} has more than {MOST_CELLS:,} entries",
                        hint="draw fewer rows, or leave columns out",
                    )
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not text in UTF-8: byte {error.start:,} is {error.object[error.start]:#04x}",
            hint="save it as CSV UTF-8; a spreadsheet (.xlsx) is no CSV",
        ) from error
    except csv.Error as error:
        raise UserError(
            f"{path}, line {reader.line_num}: {error}",
            hint='a double quote inside of an entry is written twice: ""',
        ) from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}", hint="check who may read it") from error
    return rows, lines


def _check_header(path: Path, header: Sequence[str], delimiter: str) -> None:
    if len(header) == 1 and (others := [d for d in DELIMITERS if d != delimiter and d in header[0]]):
        found = max(others, key=header[0].count)
        raise UserError(
            f"{path} has one column, {header[0]!r:.60}, where {WRITTEN.get(delimiter, delimiter)!r} parts them",
            hint=f'say `delimiter: "{found}"` in the schema'.replace("\t", "\\t"),
        )
    if all(map(is_number, header)):
        raise UserError(
            f"{path} has no header: all entries of its first line are numbers",
            hint="name the columns in the first line",
        )
    if "" in header:
        raise UserError(
            f"{path}: column {header.index('') + 1} has no name",
            hint="name it in the first line; pandas writes no such column with to_csv(index=False)",
        )
    if twice := next((name for name in header if header.count(name) > 1), ""):
        places = [i + 1 for i, name in enumerate(header) if name == twice]
        raise UserError(
            f"{path}: columns {places[0]} and {places[1]} are both called {twice!r:.60}",
            hint="give every column a name of its own",
        )
