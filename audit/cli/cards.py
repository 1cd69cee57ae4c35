"""What `fedaudit tools list` prints: names in columns, or one card; in a pipe, a line each."""

import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from fedaudit.audit.cli.app import say
from fedaudit.audit.settings.index import Entry, entries
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError, suggest_name

MESSAGES = "messages"  # the one shelf that holds no plugins
WIDEST = 100  # longer lines are hard to read
GAP = 2  # between two columns
MARGIN = 26  # of names; a longer one stands on a line of its own


def _import_entries(kind: str) -> list[Entry]:
    from fedaudit.audit.settings import catalog

    return _list_messages() if kind == MESSAGES else catalog.entries(kind)


def _list_messages() -> list[Entry]:
    """What messages may contain: their arrays, whose data they are computed over, what a sum of them is."""
    return [
        Entry(
            name=k.value,
            title=k.words,
            source="",
            text=", ".join(f"{name} {shape}" for name, shape in k.arrays.items()),
            more={"data of": k.tells.value, "under secure aggregation": k.summed.value},
        )
        for k in Kind
    ]


def cards_of(what: str, kinds: Sequence[str]) -> tuple[list[Entry], bool]:
    """The cards of a kind, or the one card of that name, and whether it is one; raises UserError for neither."""
    if what in kinds:
        return entries(what, partial(_import_entries, what)), False
    known = {kind: entries(kind, partial(_import_entries, kind)) for kind in kinds}
    found = [
        replace(e, more={"kind": kind.removesuffix("s"), **e.more})
        for kind in kinds
        for e in known[kind]
        if e.name == what
    ]
    if found:
        return found, True
    names = [*kinds, *(e.name for k in kinds for e in known[k])]
    hint = suggest_name(what, names, f"kinds: {', '.join(kinds)}")
    raise UserError(f"{what!r} is neither a kind nor the name of a plugin or message", hint=hint)


def show(found: Sequence[Entry], whole: bool = False) -> None:
    """Print `whole` cards, which are wrapped in a pipe as well, or the names at a terminal."""
    width = min(shutil.get_terminal_size().columns, WIDEST)
    if whole:
        is_bold = sys.stdout.isatty()
        print("\n".join(line for e in found for line in (*card(e, _margin(found), width, bold=is_bold), "")))
        return
    if sys.stdout.isatty():
        for line in set_in_columns([e.name for e in found], width):
            say(line)
        say("")
        say("fedaudit tools list NAME")
        return
    more = list(dict.fromkeys(name for e in found for name in e.more))
    for e in found:
        row = [e.name, e.title, e.text, *(e.more.get(m, "") for m in more), e.source]
        say("\t".join(" ".join(cell.split()) for cell in row))


def set_in_columns(names: Sequence[str], width: int) -> list[str]:
    """Lines of at most `width` characters, read from top to bottom as `ls` has them."""
    for rows in range(1, len(names) + 1):  # the fewest that fit
        columns = [names[at : at + rows] for at in range(0, len(names), rows)]
        wide = [max(map(len, column)) + GAP for column in columns]
        if sum(wide) - GAP <= width or len(columns) == 1:
            break
    else:
        return []
    lines = [[column[i] for column in columns if i < len(column)] for i in range(rows)]
    return ["".join(f"{n:<{w}}" for n, w in zip(line, wide, strict=False)).rstrip() for line in lines]


def _margin(found: Sequence[Entry]) -> int:
    return min(MARGIN, max((len(e.name) for e in found), default=0) + 2)


def card(entry: Entry, margin: int, width: int, *, bold: bool = False) -> Iterator[str]:
    """Lines of at most `width` characters: the name at the left, what is known of it beside it."""
    facts = [entry.title, entry.text, *(f"{k}: {v}" for k, v in entry.more.items() if v)]
    facts += [f"source: {entry.source}"] if entry.source else []
    lines = [line for fact in facts if fact for line in _wrap(fact, width - margin)]
    head = f"\033[1m{entry.name}\033[0m" if bold else entry.name
    if len(entry.name) + 2 > margin:
        yield head
    else:
        yield head + " " * (margin - len(entry.name)) + lines.pop(0)
    yield from (" " * margin + line for line in lines)


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 20), subsequent_indent="  ")
