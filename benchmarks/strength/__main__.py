"""How strong attacks are where leaks are certain, beside what is asked: python -m benchmarks.strength.

Rows M1 to M19 of docs/attacks.md on Fashion-MNIST. A row is made of pieces, each of which leaves one file below
--out when it went to its end and is not made again: the same command goes on where it was stopped. Exits with 1
where a number misses what is asked.
"""

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path

from benchmarks.paper_tables.table import known
from benchmarks.strength import generated, gradients, inversions, members, poisoned, stated
from benchmarks.strength.figure import Figure, Piece
from fedaudit.audit.cli.show import print_table
from fedaudit.fl.runtime import durable, workers
from fedaudit.fl.runtime.errors import UserError

PIECES: tuple[Piece, ...] = (
    *inversions.PIECES,
    *members.PIECES,
    *gradients.PIECES,
    *generated.PIECES,
    *poisoned.PIECES,
    *stated.PIECES,
)
HEADER = ("row", "what", "asked", "found [95 %]", "trials", "")
SAYS = {True: "reached", False: "NOT REACHED", None: ""}


def figures(piece: Piece, out: Path) -> list[Figure]:
    """From the piece's file, where there is one."""
    file = out / f"{piece.name}.json"
    if not file.exists():
        print(f"{piece.name} ...", file=sys.stderr, flush=True)
        started = time.process_time()
        with workers.one_thread():
            made = piece.make(out)
        seconds = time.process_time() - started
        kept = {"seconds": seconds, "figures": [dataclasses.asdict(f) for f in made]}
        durable.write(file, json.dumps(kept, indent=1).encode())
    found = json.loads(file.read_text(encoding="utf-8"))["figures"]
    return [Figure(**{**f, "interval": tuple(f["interval"]) if f["interval"] else None}) for f in found]


def chosen(rows: str, pieces: str) -> list[Piece]:
    """Those of these rows, or of these names; all where nothing is named. UserError for an unknown one."""
    numbers = {r for p in PIECES for r in p.rows}
    wanted = {known(r, numbers, "row") for r in rows.split(",") if r}
    named = {known(p, [q.name for q in PIECES], "piece") for p in pieces.split(",") if p}
    return [p for p in PIECES if (not wanted or wanted & set(p.rows)) and (not named or p.name in named)]


def number(figure: Figure) -> int:
    return int(figure.row.removeprefix("M"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", default="", help="M1,M5,...; all")
    parser.add_argument("--pieces", default="", help="names of pieces; all of the rows")
    parser.add_argument("--list", action="store_true", help="print the pieces and their rows")
    parser.add_argument("--out", type=Path, default=Path("runs/strength"), help="folder; runs/strength")
    given = parser.parse_args()
    try:
        todo = chosen(given.rows, given.pieces)
        if given.list:
            print_table(("piece", "rows"), [(p.name, ", ".join(p.rows)) for p in todo])
            return
        found = [f for p in todo for f in figures(p, given.out)]
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    found = [f for f in sorted(found, key=number) if not given.rows or f.row in given.rows.split(",")]
    rows = [(f.row, f.what, f.asked, f.found, str(f.trials or ""), SAYS[f.reached]) for f in found]
    print_table(HEADER, rows)
    raise SystemExit(any(f.reached is False for f in found))


if __name__ == "__main__":
    main()
