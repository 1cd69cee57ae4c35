"""Measured beside published: what the finished runs of a table give, as blocks and as Markdown."""

import json
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.paper_tables import finished
from benchmarks.paper_tables.table import Table
from fedaudit.audit.case.metrics import summary
from fedaudit.audit.case.run_folder import RunDir, difference
from fedaudit.audit.evidence.phase import FIXED, read_phases
from fedaudit.audit.settings.resolve import resolve
from fedaudit.fl.runtime.errors import UserError

# Papers print these in percent or points; we measure fractions
PERCENT = ("accuracy_", "personal_", "class_std", "worst_class_", "asr_", "max_drop", "avg_drop", "avg_increase")
NONE = "–"


@dataclass(frozen=True, kw_only=True)
class Finished:
    """One run of a cell that went to its end, with its metrics round by round."""

    column: str
    row: str
    seed: int
    rounds: int
    history: list[dict[str, Any]]

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.column, self.row, self.seed, self.rounds

    def used(self, what: str) -> float:
        """The sum over all rounds of a number that each round has."""
        return sum(float(record.get(what, 0)) for record in self.history)

    def within(self, what: str, limit: float) -> "Finished":
        """The same run up to the last round by which it had used no more than `limit`."""
        sums = accumulate(float(record.get(what, 0)) for record in self.history)
        return replace(self, history=self.history[: sum(s <= limit * (1 + 1e-9) for s in sums)])

    def value(self, statistic: str) -> float | None:
        """A statistic in the unit papers print; "NAME@N" looks at the first N rounds only.

        rounds_to_80 and time_to_80: until the accuracy is 80 %; None where it never is.
        """
        name, _, within = statistic.partition("@")
        try:
            history = self.history[: int(within)] if within else self.history
        except ValueError:
            raise UserError(
                f"statistic {statistic!r}: {within!r} is not a number of rounds",
                hint="write it as accuracy_best@100",
            ) from None
        if target := re.fullmatch(r"(rounds|time)_to_(\d+)", name):
            hit = find_round_of_accuracy(history, int(target[2]) / 100)
            return None if hit is None else hit[target[1] == "time"]
        if last := re.fullmatch(r"accuracy_last(\d+)_mean", name):
            return 100 * last_mean(history, int(last[1]))
        found = summary(history)
        if name not in found:
            return None
        return found[name] * 100 if name.startswith(PERCENT) else found[name]


class Collected(NamedTuple):
    """What lies below a table's folder."""

    runs: list[Finished]
    outdated: list[Path]  # made with settings that are no longer the table's


@dataclass(frozen=True, kw_only=True)
class Block:
    """One statistic of one column, at one number of rounds."""

    column: str
    title: str
    text: str
    header: tuple[str, ...]
    rows: list[list[str]]


def collect(table: Table, folder: Path) -> Collected:
    """All finished runs of a table: below `folder`, and those that come with the table."""
    runs, outdated = [], []
    for column in table.columns:
        for row in table.rows_of(column):
            for path in sorted((folder / column / row).glob("seed-*-r*")):
                named = re.fullmatch(r"seed-(\d+)-r(\d+)", path.name)
                run = RunDir(path)
                entry = read_phases(run.path).get("simulate")
                if named is None or entry is None or entry["seconds"] is None:
                    continue
                seed, rounds = int(named[1]), int(named[2])
                if not _current(table, column, row, seed, rounds, entry["settings"]):
                    outdated.append(path)
                    continue
                lines = run.inside(run.metrics.absolute()).read_text().splitlines()
                history = [json.loads(line) for line in lines]
                runs.append(Finished(column=column, row=row, seed=seed, rounds=rounds, history=history))
    here = {r.key for r in runs}
    runs += [found for found in kept(table) if found.key not in here]
    return Collected(runs, outdated)


def kept(table: Table) -> list[Finished]:
    """The finished cells that come with a table."""
    return [
        Finished(column=k.column, row=k.row, seed=k.seed, rounds=k.rounds, history=k.history)
        for k in finished.read(table)
    ]


def _current(table: Table, column: str, row: str, seed: int, rounds: int, settings: dict[str, Any]) -> bool:
    """Whether a run was made with the table's present settings; where its data lay does not matter."""
    found = settings["federation"]["dataset"]
    data = {found["name"]: {k: v for k, v in found.items() if k != "name"}}
    expected = resolve(table.cell(column, row, rounds=rounds, seed=seed, data=data))
    return difference(settings, {k: expected[k] for k in FIXED}) is None


def blocks(table: Table, runs: Sequence[Finished], rows: Iterable[str] | None = None) -> list[Block]:
    """A block for every column and number of rounds that `runs` hold and every statistic."""
    keep = list(table.rows if rows is None else rows)
    found = []
    for column in table.columns:
        for rounds in sorted({r.rounds for r in runs if r.column == column}):
            here = [r for r in runs if (r.column, r.rounds) == (column, rounds)]
            found += [_block(table, column, rounds, s, here, keep) for s in table.header.statistics]
    return found


def _block(
    table: Table, column: str, rounds: int, statistic: str, runs: list[Finished], keep: list[str]
) -> Block:
    last = statistic.startswith("accuracy_") and not statistic.startswith("accuracy_last50")
    header = ("row", "ours", *(["ours, last 50 rounds"] if last else []), "published", "difference", "seeds")
    lines = []
    for row in table.rows_of(column):
        if row not in keep:
            continue
        values = _values(table, row, statistic, runs)
        published = table.published(column, row, statistic)
        ref = table.rows[row].relative_to
        cells = [f"{row} minus {ref}" if ref else row, _mean_sd(values.values())]
        if last:
            cells.append(_mean_sd(_values(table, row, "accuracy_last50_mean", runs).values()))
        cells.append(NONE if published is None else f"{published:g}")
        gap = NONE
        if values and published is not None:
            gap = f"{statistics.fmean(values.values()) - published:+.2f}"
        cells.append(gap)
        ran = any(r.row == row for r in runs)  # and may have no value: an accuracy that is never reached
        cells.append(", ".join(map(str, sorted(values))) or ("no value" if ran else "not run"))
        lines.append(cells)
    return Block(
        column=column,
        title=f"{column}, {statistic}, {rounds} rounds",
        text=_rounds(table, rounds),
        header=header,
        rows=lines,
    )


def _values(table: Table, row: str, statistic: str, runs: list[Finished]) -> dict[int, float]:
    """Seed -> value; of a row that is relative to another, the difference at the same seed."""
    own = {r.seed: v for r in runs if r.row == row and (v := r.value(statistic)) is not None}
    other = table.rows[row].relative_to
    if other is None:
        return own
    base = {r.seed: v for r in runs if r.row == other and (v := r.value(statistic)) is not None}
    return {seed: own[seed] - base[seed] for seed in own if seed in base}


def _mean_sd(values: Iterable[float]) -> str:
    """Mean and sample standard deviation over seeds; one seed has no deviation."""
    found = list(values)
    if not found:
        return NONE
    mean = f"{statistics.fmean(found):.2f}"
    return mean if len(found) < 2 else f"{mean} ± {statistics.stdev(found):.2f}"


def _rounds(table: Table, rounds: int) -> str:
    text = f"{rounds} of the paper's {table.rounds} rounds were run."
    if rounds < table.rounds:
        text += " The published numbers belong to the full length; the difference includes that."
    return text


def markdown(table: Table, collected: Collected, found: Sequence[Block]) -> str:
    """The table as one page."""
    header = table.header
    lines = [f"# {header.title}", "", f"Source: {header.source}", ""]
    if header.note:
        lines += [header.note.strip(), ""]
    lines += ["Ours: mean ± sample standard deviation over the seeds. Accuracies are in percent.", ""]
    for block in found:
        lines += [
            f"## {block.title}",
            "",
            block.text,
            "",
            _line(block.header),
            _line(["---"] * len(block.header)),
            *map(_line, block.rows),
            "",
        ]
    shown = {b.column for b in found}
    rows = {line[0].partition(" minus ")[0] for b in found for line in b.rows}
    notes = {f"column {k}": c.note for k, c in table.columns.items() if k in shown}
    notes |= {f"row {k}": r.note for k, r in table.rows.items() if k in rows}
    if any(notes.values()):
        lines += ["## Notes", "", *(f"* {k}: {' '.join(n.split())}" for k, n in notes.items() if n)]
        lines += [""]
    for path in collected.outdated:
        lines += [f"Left out, made with other settings than the table's now: {path}", ""]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"


def last_mean(history: Sequence[Mapping[str, Any]], count: int) -> float:
    """Mean accuracy of the last `count` rounds that were measured."""
    return statistics.fmean([float(r["accuracy"]) for r in history if r.get("accuracy") is not None][-count:])


def find_round_of_accuracy(
    history: Sequence[Mapping[str, Any]], accuracy: float
) -> tuple[int, float | None] | None:
    """(rounds, simulated time) until the accuracy is first reached; None: never. Time None: not kept."""
    for i, record in enumerate(history):
        if (record.get("accuracy") or 0.0) >= accuracy:
            return i + 1, summary(history[: i + 1]).get("simulated_time")
    return None
