"""What the Python interface gives back: tables of records, and charts, which notebooks show by themselves."""

import csv
import html
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

from fedaudit.attacks.evidence import Evidence
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.charts import svg
from fedaudit.reports.format import plural
from fedaudit.reports.result import Figure

R = TypeVar("R")
Row = dict[str, Any]
MOST_ROWS = 100  # that a notebook shows


class Chart:
    """Figures of an audit, as vector graphics. A notebook shows them."""

    def __init__(self, figures: Sequence[Figure]) -> None:
        self.figures = tuple(figures)

    def save(self, path: str | Path) -> None:
        """Write the chart as SVG.

        Raises UserError for another suffix, and where there is not exactly one figure.
        """
        write_file(path, {".svg": self._draw_one})

    def _draw_one(self) -> bytes:
        if len(self.figures) != 1:
            raise UserError(
                f"there are {len(self.figures):,} figures here, and a file holds one",
                hint="Chart([chart.figures[0]]).save(...)",
            )
        return svg(self.figures[0])

    def _repr_html_(self) -> str:
        return "\n".join(_show(f) for f in self.figures)

    def __repr__(self) -> str:
        return f"<Chart: {'; '.join(f.title for f in self.figures) or 'nothing to draw'}>"


class Table(Sequence[R], Generic[R]):
    """Records in rows. An index is a position or, where records have names, a name.

    `make_row` says what a record looks like as a row: numbers and text, by column. `draw` makes its figures, and
    `name` is its name.
    """

    def __init__(
        self,
        records: Sequence[R],
        make_row: Callable[[R], Row],
        *,
        name: Callable[[R], str] | None = None,
        draw: Callable[[Sequence[R]], Sequence[Figure]] | None = None,
    ) -> None:
        self._records, self._make_row, self._name, self._draw = tuple(records), make_row, name, draw

    @overload
    def __getitem__(self, key: int | str) -> R: ...

    @overload
    def __getitem__(self, key: slice) -> "Table[R]": ...

    def __getitem__(self, key: int | str | slice) -> "R | Table[R]":
        if isinstance(key, slice):
            return Table(self._records[key], self._make_row, name=self._name, draw=self._draw)
        if isinstance(key, int):
            return self._records[key]
        names = {self._name(r): r for r in self._records} if self._name else {}
        if key not in names:
            raise UserError(f"there is no row {key!r}", hint=f"there are: {', '.join(names) or 'none'}")
        return names[key]

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[R]:
        return iter(self._records)

    def to_dicts(self) -> list[Row]:
        """One dictionary a record: column -> number or text."""
        return [self._make_row(r) for r in self._records]

    def to_frame(self) -> Any:
        """A pandas DataFrame, one row a record. Raises UserError where pandas is not installed."""
        try:
            import pandas
        except ImportError:
            raise UserError(
                "a frame needs pandas, which is not installed",
                hint="pip install fedaudit[frames], or use to_dicts()",
            ) from None
        return pandas.DataFrame(self.to_dicts())

    def save(self, path: str | Path) -> None:
        """Write the rows, as .csv, .json or .html by the name of the file. Raises UserError for another."""
        writers = {
            ".csv": lambda: make_csv(self.to_dicts()),
            ".json": lambda: make_json(self.to_dicts()),
            ".html": lambda: make_page(make_html(self.to_dicts())),
        }
        write_file(path, writers)

    def plot(self) -> Chart:
        """Draw what the records hold. Raises UserError where they hold nothing that can be drawn."""
        figures = self._draw(self._records) if self._draw else ()
        if not figures:
            raise UserError("these rows hold nothing that can be drawn", hint="to_dicts() has their numbers")
        return Chart(figures)

    def _repr_html_(self) -> str:
        return make_html(self.to_dicts())

    def __repr__(self) -> str:
        lines = [
            ", ".join(f"{k}={v!r}" for k, v in row.items() if v not in (None, "")) for row in self.to_dicts()
        ]
        return "\n".join([f"<{plural(len(lines), 'row')}>", *lines[:MOST_ROWS]])


def write_file(path: str | Path, writers: Mapping[str, Callable[[], bytes]]) -> None:
    """Write what the writer of the file's suffix gives. Raises UserError for another suffix."""
    path, known = Path(path), list(writers)
    if path.suffix not in writers:
        raise UserError(
            f"this is saved as {' or '.join(known)}, got {path.name}",
            hint=f'save("{path.stem or "mine"}{known[0]}")',
        )
    path.write_bytes(writers[path.suffix]())


def make_csv(rows: Sequence[Row]) -> bytes:
    """Rows with a head; columns that a row does not have stay empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(k for row in rows for k in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def make_json(values: Any) -> bytes:
    """Numbers and text as JSON, indented."""
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()


def make_page(shown: str) -> bytes:
    """What a notebook shows, as a page of its own."""
    style = "body{font-family:sans-serif;margin:2em}td,th{padding:.2em .6em;text-align:left}"
    return f'<!doctype html><meta charset="utf-8"><style>{style}</style>{shown}\n'.encode()


def describe_evidence(e: Evidence) -> Row:
    """One measurement as a row."""
    low, high = e.interval or (None, None)
    return {
        "measure": e.measure,
        "place": e.place,
        "control": e.control,
        "value": e.value,
        "low": low,
        "high": high,
        "unit": e.unit,
        "trials": e.trials,
        "baseline": e.strongest.value if e.strongest else None,
        "baseline_name": e.strongest.name if e.strongest else "",
    }


def make_html(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table in HTML, with all text escaped."""
    if not rows:
        return "<p>No rows.</p>"
    columns = list(dict.fromkeys(k for row in rows for k in row))
    head = "".join(f"<th>{html.escape(c.replace('_', ' '))}</th>" for c in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_write(row.get(c)))}</td>" for c in columns) + "</tr>"
        for row in rows[:MOST_ROWS]
    )
    more = f"<p>{len(rows) - MOST_ROWS:,} rows more.</p>" if len(rows) > MOST_ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _write(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _show(figure: Figure) -> str:
    """A figure with its caption; an SVG stands in a page without its XML prolog."""
    drawing, words = svg(figure).decode(), html.escape(f"{figure.title}. {figure.caption}")
    return f"<figure>{drawing[drawing.index('<svg') :]}<figcaption>{words}</figcaption></figure>"
