"""Raw rows: examples that were sent as they are, the worst that can cross the wire, found without any attack.

Every message of every client, and of a table also what a model changed, is held against the examples of its
sender (attacks/evaluation/payloads.py), whatever the kind, the names and the labels. Rows of a table are known by
what their columns have in common with rows that nobody trained on (raw_rows.py). What so few columns cannot tell
from chance is said, with the trial that would have found rows. Where nobody said what a client holds, or nothing
was kept, what the one kind that is clients' own examples says of itself stands.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples, Knowledge
from fedaudit.attacks.evaluation.laid_out import count_windows
from fedaudit.attacks.evaluation.payloads import (
    Numbers,
    find_records,
    read_numbers,
    read_spelled,
    subtract_arrays,
)
from fedaudit.attacks.evaluation.raw_rows import Limits, RowFinder
from fedaudit.attacks.modality import table
from fedaudit.audit.case.case import ObservedFederation, Split
from fedaudit.audit.case.messages import messages
from fedaudit.audit.controls.lab import Lab
from fedaudit.audit.observer.check import Check, Seen
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.kinds import DELTAS, UPDATES, Kind
from fedaudit.fl.recording.recorder import is_from_client, manifest
from fedaudit.reports import format as fmt
from fedaudit.reports.exhibits import RowLines, RowTables
from fedaudit.reports.result import Finding, Outcome, Severity

MOST_NUMBERS = 20_000_000  # of all clients' messages that are read, the newest first
TRIED = 20  # rows of a trial, at most
SHOWN = 3  # rows that a report has of a kind
LIMIT = (
    "examples in another order of their columns, with noise, in a code, or over several messages, and what can "
    "be learned from examples that were changed before they were sent"
)


class RawSamples(Check):
    """A result for every kind in which clients' examples stand; of tables also that none was found."""

    def inspect(self, federation: ObservedFederation, lab: Lab | None) -> Iterator[Seen]:
        if federation.artifacts is None:
            return
        data, parts = federation.data, federation.examples.parts
        sent = _list_sent(federation.artifacts)
        own = [a for a in sent.messages if a.sender.index in parts and len(parts[a.sender.number])]
        found = _Search(data, federation.examples, own, sent.starts)
        for kind in dict.fromkeys((*found.rows, *([Kind.SEED_SAMPLES] if sent.lines[Kind.SEED_SAMPLES] else ()))):
            readers = dict.fromkeys(role for line in sent.lines[kind] for role in line["seen_by"])
            yield describe(
                kind,
                clients=max((int(line["senders"]) for line in sent.lines[kind]), default=1),
                readers=(*readers, *(["every client"] if kind in federation.card.downlink else [])),
                sent=sum(count_rows(a) for a in sent.messages if a.kind is kind),
                compared=sum(count_rows(a) for a in own if a.kind is kind),
                equal=len(found.rows.get(kind, ())),
            )
            if found.is_table and kind in found.rows:
                yield found.show(kind)
        if found.left:
            yield (
                f"Not read for examples that stand in them: the oldest {fmt.plural(found.left, 'message')} of "
                f"clients, beyond {MOST_NUMBERS:,} numbers."
            )
        if own and found.is_table:
            yield from found.describe_table()


@dataclass(frozen=True)
class _Sent:
    """What clients sent: messages by the newest, the models they began with, and the lines that count them."""

    messages: list[Artifact]
    starts: Mapping[int, Artifact]
    lines: Mapping[Kind, list[Mapping[str, Any]]]


def _list_sent(folder: Path) -> _Sent:
    lines = defaultdict[Kind, list[Mapping[str, Any]]](list)
    for line in manifest(folder):
        if "traffic" in line and is_from_client(line):
            lines[Kind(line["traffic"])].append(line)
    recorded = messages(folder, {*(k for k, some in lines.items() if some), Kind.GLOBAL_MODEL}, "all")
    sent = [a for a in recorded if a.from_client and a.seen_by]
    starts = {a.round: a for a in recorded if a.kind == Kind.GLOBAL_MODEL and not a.from_client}
    return _Sent(sorted(sent, key=lambda a: (a.kind in UPDATES, -a.round)), starts, lines)


@dataclass(frozen=True)
class _Search:
    """Clients' examples, looked for in what each sent."""

    data: Data
    examples: Split
    sent: Sequence[Artifact]
    starts: Mapping[int, Artifact]
    finders: dict[tuple[int, bool], RowFinder] = field(default_factory=dict)

    @property
    def is_table(self) -> bool:
        return not self.data.is_text and len(self.data.shape) == 1

    @cached_property
    def _read(self) -> list[Artifact]:
        """Those that are read, the newest and smallest first."""
        numbers, found = 0, list[Artifact]()
        for a in self.sent:
            numbers += sum(v.size for v in a.payload.values())
            if found and numbers > MOST_NUMBERS:
                break
            found.append(a)
        return found

    @property
    def left(self) -> int:
        return len(self.sent) - len(self._read)

    @cached_property
    def rows(self) -> Mapping[Kind, set[int]]:
        """By kind the rows of the training data that stand in messages of it."""
        found: dict[Kind, set[int]] = {}
        for (client, kind), numbers in self._numbers.items():
            mine = self.examples.parts[client]
            x = self.data.train.x[mine]
            finder = self._find(client) if self.is_table else None
            there = {one.record for one in find_records(numbers, x, disguised=False, rows=finder)}
            if self.data.columns is not None:
                there |= self._find(client, as_input=True).find([v.values for v in numbers]).keys()
            if there:
                found.setdefault(kind, set()).update(mine[sorted(there)].tolist())
        return found

    @cached_property
    def _numbers(self) -> Mapping[tuple[int, Kind], list[Numbers]]:
        """By client and kind all numbers, what bytes spell, and of tables what was changed of a model.

        Of images a step on one example leaves a scaled copy in the change, which attacks ask about.
        """
        found: dict[tuple[int, Kind], list[Numbers]] = {}
        for a in self._read:
            plain = read_numbers(a.payload)
            is_model = self.is_table and a.kind in UPDATES and a.kind not in DELTAS
            start = self.starts.get(a.round) if is_model else None
            moved = [] if start is None else read_numbers(subtract_arrays(a.payload, start.payload))
            found.setdefault((a.sender.number, a.kind), []).extend([*plain, *read_spelled(plain), *moved])
        return found

    def show(self, kind: Kind) -> RowTables:
        """The first rows that stand in messages of a kind, beside what was read of them, column by column."""
        known = table.read_columns(
            Knowledge(
                classes=1,
                shape=self.data.shape,
                auxiliary=Examples(x=self._other_rows, y=np.zeros(len(self._other_rows), np.int64)),
                columns=self.data.columns,
            )
        )
        whose = {row: (k, i) for k, rows in self.examples.parts.items() for i, row in enumerate(rows.tolist())}
        pairs = list[RowLines]()
        for row in sorted(self.rows[kind])[:SHOWN]:
            client, place = whose[row]
            arrays, true = [v.values for v in self._numbers[client, kind]], self.data.train.x[row]
            read = [self._find(client).read_row(arrays, place)]
            if self.data.columns is not None:
                given = self._find(client, as_input=True).read_row(arrays, place)
                read.append(None if given is None else self.data.columns.read_input(given[None])[0])
            seen = [table.write_pair(f"client {client}", true, one, known) for one in read if one is not None]
            nearest = min(seen, key=lambda pair: sum(pair.apart))
            pairs.append(RowLines.model_validate(asdict(nearest)))
        many = fmt.plural(len(self.rows[kind]), "row")
        return RowTables(
            finding=f"raw-{kind}",
            title=f"Rows that stand in what clients sent: {kind.words}",
            caption=f"{fmt.sentence_case(many)} of the senders stand there; this is one of the first",
            pairs=pairs,
        )

    def _find(self, client: int, *, as_input: bool = False) -> RowFinder:
        """What looks for rows of a client's table in all that it sent; `as_input`: as a network is given them."""
        if (client, as_input) not in self.finders:
            public, held = self._public, self._other_rows
            mine = self.data.train.x[self.examples.parts[client]]
            spans: Sequence[slice] = ()
            if as_input and self.data.columns is not None:
                mine, public, held = (self.data.columns.model_input(x) for x in (mine, public, held))
                spans = self.data.columns.spans
            arrays = (v.values for (k, _), some in self._numbers.items() if k == client for v in some)
            windows = count_windows(arrays, mine.shape[1])
            self.finders[client, as_input] = RowFinder(mine, public, held, windows, spans)
        return self.finders[client, as_input]

    @property
    def _public(self) -> NDArray[Any]:
        """Rows that everybody has, by which columns may be scaled, as models' inputs are."""
        return self.data.test.x

    @cached_property
    def _other_rows(self) -> NDArray[Any]:
        """Rows of nobody who sent anything."""
        train, e = self.data.train.x, self.examples
        return np.concatenate(
            [self.data.test.x, train[e.reference], *(train[rows] for rows in e.unseen.values())]
        )

    def describe_table(self) -> Iterator[Seen]:
        """That none was found, with a trial, or what could not be told of these rows."""
        clients = sorted({a.sender.number for a in self._read})
        limits = {k: self._find(k).count_limits() for k in clients}
        worst = min(limits, key=lambda k: limits[k].alone)
        few = describe_few(worst, limits[worst])
        if self.rows:
            yield from filter(None, [few])
            return
        read = f"{fmt.plural(len(self._read), 'message')} of {fmt.plural(len(clients), 'client')} were read"
        yield Finding(
            id="raw-rows",
            title="Single rows of a client's table cannot be told apart from chance in what clients sent"
            if few
            else "No row of a client's table stands in what clients sent",
            outcome=Outcome.NOT_APPLICABLE if few else Outcome.RAN,
            summary=f"{read}, and none was found. {self._try(worst, limits[worst].enough)}",
            reason=few,
            artifacts=[*map(str, dict.fromkeys(a.kind for a in self._read))],
            does_not_show=LIMIT,
        )

    def _try(self, client: int, enough: int) -> str:
        """What is found of rows that are written behind a client's newest message, theirs and others'."""
        finder, held = self._find(client), self._other_rows
        n = min(max(TRIED, enough), len(finder.rows), len(held) - 1)
        if not enough or n < enough:
            return "So few rows could not be found wherever they stood."
        newest = [v.values for v in read_numbers(next(a for a in self._read if a.sender.index == client).payload)]
        written = np.asarray(finder.rows[:n], np.float32)
        nobody = RowFinder(held[:n], self._public, held[n:], finder.windows)
        hits, others = (len(f.find([*newest, written])) for f in (finder, nobody))
        return (
            f"As a trial {fmt.plural(n, 'row')} of client {client} were written behind its "
            f"newest message: {min(hits, n)} were found, and {others} of as many held-out rows."
        )


def describe_few(client: int, limits: Limits) -> str:
    """What cannot be told of a client's rows, as a sentence; empty where each can be told by itself."""
    if limits.alone > 1 / 2:
        return ""
    together = (
        f"{limits.enough} in a row could be" if limits.enough else "no number of them in a row could be either"
    )
    return (
        f"Rows of this table cannot be told apart from chance: by itself a row of client {client} would need "
        f"{limits.needed:.0f} bits among what it sent, which {fmt.percent(limits.alone)} of its rows have; "
        f"{together}."
    )


def describe(
    kind: Kind, *, clients: int, readers: Sequence[str], sent: int, compared: int, equal: int
) -> Finding:
    """The result of `sent` rows, of which `compared` could be held against their senders'; `equal` are there."""
    value = equal if compared else clients
    if kind is not Kind.SEED_SAMPLES:
        rows = f"{fmt.plural(equal, 'example')} of their senders stand among the numbers"
    elif compared:
        rows = f"{equal:,} of {compared:,} are examples of their sender"
    else:
        rows = "none could be compared with what its sender holds"
    stand = "are sent as they are" if kind is Kind.SEED_SAMPLES else "stand in what they send"
    many = f", {sent:,} in the messages kept" if kind is Kind.SEED_SAMPLES else ""
    return Finding(
        id=f"raw-{kind}",
        title=f"Clients' own examples {stand}"
        if value
        else "What clients sent as examples is not equal to any of theirs",
        summary=f"{clients} clients sent {kind.words}{many}: {rows}. Read by: {', '.join(readers)}.",
        severity=Severity.CRITICAL if value else Severity.NONE,
        reason="No attack is needed to have them, and none can show more." if value else "",
        at_least=equal if compared else 0,
        artifacts=[str(kind)],
        does_not_show=LIMIT,
        remedy="send no examples: let clients train on what the server owns, or on synthetic examples "
        "made with a stated epsilon",
    )


def count_rows(sent: Artifact) -> int:
    """How many rows a message has: as many as its longest array."""
    return max((len(v) for v in map(np.asarray, sent.payload.values()) if v.ndim), default=0)
