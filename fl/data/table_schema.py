"""The schema of a CSV file: which columns are given to a network, which is predicted, and whose a row is.

    label: outcome            # or several: [time, event] of survival, findings of 0 and 1
    task: classify
    owner: patient            # rows of one owner stay together
    identifiers: [record]     # columns that name somebody; they are left out
    columns:
      age: {kind: number, unit: years, step: 1, missing: true}
      ward: {kind: category, levels: [surgery, cardiology]}

Every column of the file stands in one of these places. Levels and ranges that a column does not have are those of
public rows.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import Field

from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.settings import check_settings, settings
from fedaudit.fl.runtime.special_files import refuse_special
from fedaudit.fl.runtime.yaml import read_yaml

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?")


@settings
class TableSchema:
    """The keys of a schema file."""

    columns: dict[str, dict[str, Any]] = Field(min_length=1, description="column -> kind, unit, step, levels ...")
    label: str | tuple[str, ...] = Field(description="column that is predicted, or several")
    task: str = Field(default="classify", description="what is predicted: a name of fl/tasks/")
    classes: tuple[str | int, ...] = Field(
        default=(), description="entries of the label, in the order of classes; empty: in alphabetical order"
    )
    owner: str | None = Field(
        default=None, description="column that says whose a row is; null: each is another's"
    )
    identifiers: tuple[str, ...] = Field(default=(), description="columns that name a row or a person: left out")
    left_out: tuple[str, ...] = Field(default=(), description="other columns that no network is given")
    distinct: tuple[str, ...] = Field(
        default=(),
        description="columns without two equal entries that identify nobody, and so are no identifiers",
    )
    delimiter: str = Field(default=",", min_length=1, max_length=1, description="sign between entries")
    missing: tuple[str, ...] = Field(default=MISSING, description="entries that stand for a missing value")

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.label,) if isinstance(self.label, str) else self.label

    def roles(self) -> Iterator[tuple[str, str]]:
        """Each column that is named, with the key that names it."""
        for key, names in (
            ("columns", self.columns),
            ("label", self.labels),
            ("owner", () if self.owner is None else (self.owner,)),
            ("identifiers", self.identifiers),
            ("left_out", self.left_out),
        ):
            yield from ((name, key) for name in names)


def read_schema(path: Path, header: Sequence[str] | None = None) -> TableSchema:
    """The schema of a file; with the header of its table it has a place for every column and for no other.

    Raises UserError naming the file and the key that is wrong.
    """
    refuse_special(path)
    if not path.is_file():
        raise UserError(f"no schema {path}", hint="`fedaudit init --from FILE` writes a first one")
    given = read_yaml(path)
    if not isinstance(given, Mapping):
        raise UserError(
            f"{path} holds no keys", hint="columns: and label:; `fedaudit init --from FILE` writes one"
        )
    with name_schema(path):
        found = check_settings(TableSchema, given)
        if header is not None:
            _check_places(found, header)
    return found


@contextmanager
def name_schema(path: Path) -> Iterator[None]:
    """Errors of a schema's keys name its file, and no key of the config."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{path}: {error.sentence}", hint=error.hint) from error


def _check_places(schema: TableSchema, header: Sequence[str]) -> None:
    places: dict[str, str] = {}
    for name, key in schema.roles():
        if name not in header:
            near = difflib.get_close_matches(name, header, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"its columns: {', '.join(header[:12])}"
            raise UserError(f"{key} names a column {name!r:.60} that the table does not have", hint=hint)
        if name in places and {key, places[name]} != {"owner", "identifiers"}:
            raise UserError(
                f"column {name!r:.60} stands in {places[name]} and in {key}",
                hint="what is predicted or names somebody is not given to the network as well",
            )
        places[name] = key
    if left := [name for name in header if name not in places]:
        raise UserError(
            f"column {left[0]!r:.60} of the table has no place in the schema",
            hint=f"add it to columns, or to left_out: [{', '.join(left[:6])}]",
        )
    if unknown := set(schema.distinct) - set(schema.columns):
        raise UserError(f"distinct names {min(unknown)!r:.60}, which is not one of columns", hint="take it out")
