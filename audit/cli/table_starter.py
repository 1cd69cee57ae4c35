"""What `fedaudit init --from FILE` writes: a first schema of a table, each guess marked, and a config."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedaudit.fl.data.guess_schema import Guess, guess_schema
from fedaudit.fl.data.table_file import guess_delimiter, read_table
from fedaudit.reports.visible import visible_name

CONFIG = """\
# A first audit of a table of your own. `fedaudit plan {out}` says what it will do and about how long that takes,
# `fedaudit run {out}` does it. `fedaudit show {out}` prints every setting that is not written here.
title: {title}
system: {{name: "", purpose: "", controller: "", author: ""}}      # page 1 prints what you state, or "not stated"
seed: 7                                            # the same seed gives the same numbers

federation:
  dataset: {{name: csv, path: {path}, schema: {schema}}}
  clients: 6                                       # guessed
  partition: iid                                   # guessed: rows are dealt out at random; natural: by owner
  model: tab_mlp                                   # or logreg, or yours: "mymodule:MyModel"
  holdout: {{auxiliary: 0.3, reference: 0.3}}        # rows for the attacker, and for controls

method: {{name: fedavg, rounds: 10, local_epochs: 2, batch_size: 20, lr: 0.05}}    # guessed
record: all                                        # what attacks may read

attacks: auto                                      # every attack that applies, as far as the budget goes
budget: 3                                           # minutes of one core
"""


def write_first_table(path: Path, out: Path, schema: Path) -> tuple[str, str]:
    """The text of a schema and of a config for a CSV file. Raises UserError for a file that cannot be read."""
    delimiter = guess_delimiter(path)
    guess = guess_schema(read_table(path, delimiter))
    config = CONFIG.format(
        out=out,
        title=_quote(f"Audit of {visible_name(path.stem)}"),
        path=_quote(str(path)),
        schema=_quote(str(schema)),
    )
    return "\n".join(_write_schema(guess, visible_name(path.name), delimiter)) + "\n", config


def _write_schema(guess: Guess, name: str, delimiter: str) -> Iterator[str]:
    yield f"# What the columns of {name} are, guessed from its entries: correct what is wrong."
    yield "# A number without low and high has those of rows that no client holds. Levels are guessed from all"
    yield "# rows: state those that are known without looking at clients' rows."
    label = guess.label[0] if len(guess.label) == 1 else list(guess.label)
    yield f"label: {_quote(label)}  # guessed: {guess.why['label']}"
    yield f"task: {guess.task}  # guessed; or classify, several, regression, survival"
    yield f"owner: {_quote(guess.owner)}  # guessed: {guess.why['owner']}"
    if delimiter != ",":
        yield f"delimiter: {_quote(delimiter)}  # seen"
    for key, names in (("identifiers", guess.identifiers), ("left_out", guess.left_out)):
        if names:
            yield f"{key}:  # guessed: no network is given them"
            yield from (f"  - {_quote(one)}  # {guess.why[one]}" for one in names)
    yield "columns:  # unit: mg and sensitive: true may be added"
    for column, fields in guess.columns.items():
        inside = ", ".join(f"{key}: {value if key == 'kind' else _quote(value)}" for key, value in fields.items())
        yield f"  {_quote(column)}: {{{inside}}}  # guessed: {guess.why[column]}"


def _quote(value: Any) -> str:
    """As YAML has it; of JSON's ways of writing text a part."""
    return json.dumps(value, ensure_ascii=False)
