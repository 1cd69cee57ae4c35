"""Traffic: bytes that cannot be true, what a coded message is stated to take beside the least it needs.

Sparse and quantised messages are recorded as whole arrays, and whoever makes one says in how many bytes it is
sent (fl/recording/coded.py). However they are coded, numbers that are not 0 take a bit each or, of d different
ones, log2(d) bits; of a model it may be what it changed by that is sent. So a sum that was counted for messages
which are all recorded is held against that. What a client already holds a server need not send again: what
downloads are said to take is *declared* where it is less.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import ceil, log2
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaudit.audit.case.case import ObservedFederation
from fedaudit.audit.controls.lab import Lab
from fedaudit.audit.observer.check import Check, Seen
from fedaudit.fl.artifact import Artifact, Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.recorder import manifest, read_message
from fedaudit.reports.result import Finding, Severity

Arrays = Mapping[str, NDArray[Any]]
SAME = 1e-4  # of the largest number of an array
MOST_ROUNDS = 3  # with coded messages of a channel that are read
DECLARED = (
    "Declared, not checked: {:,} bytes of {} to clients in a round. Its numbers need at least {:,} to somebody "
    "who holds none of them; what clients hold already is the method's word."
)


class Traffic(Check):
    """One result for every kind that clients send in fewer bytes than its numbers need."""

    def inspect(self, federation: ObservedFederation, lab: Lab | None) -> Iterator[Seen]:
        if federation.artifacts is None:
            return
        for u in find_understatements(federation.artifacts):
            is_down = u.channel == Channel.DOWNLINK
            yield DECLARED.format(u.stated, u.kind, u.least) if is_down else describe(u)


class Understated(NamedTuple):
    """Messages of one kind on one channel that take more bytes than is stated, in the first such round."""

    channel: Channel
    kind: Kind
    stated: int
    least: int


def describe(understated: Understated) -> Finding:
    """The result of messages that clients sent."""
    _, kind, stated, least = understated
    return Finding(
        id=f"understated-{kind}",
        title="Messages take more bytes than is stated",
        summary=f"{kind} is stated to take {stated:,} bytes in a round; its numbers need at least {least:,}, "
        "however they are coded.",
        severity=Severity.LOW,
        reason="Nobody is exposed by that; every account of traffic and of time rests on it.",
        artifacts=[str(kind)],
        does_not_show="how many bytes are sent; the times that follow from them are too short as well",
        remedy="count the bytes of the code that is sent",
    )


def find_understatements(folder: Path) -> list[Understated]:
    """By channel and kind, from the first MOST_ROUNDS rounds of a channel that have coded messages."""
    stated: dict[tuple[int, str], dict[str, tuple[int, int]]] = defaultdict(dict)  # kind -> messages, bytes
    lines: dict[tuple[int, str], list[Mapping[str, Any]]] = defaultdict(list)
    for line in manifest(folder):
        if "traffic" in line:
            kinds = stated[line["round"], line["channel"]]
            count, size = kinds.get(line["traffic"], (0, 0))
            kinds[line["traffic"]] = (count + line["messages"], size + line["bytes"])
        elif "message" in line:
            lines[line["round"], line["channel"]].append(line)
    understated: dict[tuple[str, str], Understated] = {}
    rounds_read: dict[str, int] = defaultdict(int)
    for (round, channel), kinds in sorted(stated.items()):
        here = lines[round, channel]
        kept = {k: sum(k in line["kinds"] for line in here) for k in kinds}
        # a broadcast is one message in many copies
        whole = [k for k, n in kept.items() if n and (n == kinds[k][0] or channel == Channel.DOWNLINK)]
        total, plain = sum(kinds[k][1] for k in whole), sum(line["bytes"] for line in here)
        if not whole or total >= plain or rounds_read[channel] == MOST_ROUNDS:
            continue
        rounds_read[channel] += 1
        needed: dict[str, int] = defaultdict(int)
        known = [a.payload for x in lines[round, Channel.DOWNLINK] for a in _models(folder, x)]
        for message in here:
            for a in read_message(folder, message):
                changes = [_change(a.payload, w) for w in known if channel != Channel.DOWNLINK]
                needed[a.kind] += min(map(count_least_bytes, [a.payload, *changes]))
        for k in whole:
            if kinds[k][1] < needed[k]:
                found = Understated(Channel(channel), Kind(k), kinds[k][1], needed[k])
                understated.setdefault((channel, k), found)
    return [understated[key] for key in sorted(understated)]


def _models(folder: Path, line: Mapping[str, Any]) -> list[Artifact]:
    """The global model in a message, if it holds one."""
    kept = Kind.GLOBAL_MODEL in line["kinds"]
    return [a for a in read_message(folder, line) if a.kind == Kind.GLOBAL_MODEL] if kept else []


def _change(sent: Arrays, start: Arrays) -> Arrays:
    """What a model changed by; other arrays as they are."""
    alike = {k for k, v in sent.items() if k in start and start[k].shape == v.shape}
    return {k: np.subtract(v, start[k], dtype=np.float64) if k in alike else v for k, v in sent.items()}


def count_least_bytes(payload: Arrays) -> int:
    """The fewest bytes that any code takes for the numbers that are not 0, their places known.

    Numbers that differ by SAME of their array's range are one: a change was added to a model and rounded.
    """
    bits = 0
    for array in payload.values():
        values = np.sort(np.asarray(array, np.float64).ravel())
        near = SAME * float(np.abs(values).max(initial=0.0))
        values = values[np.abs(values) > near]
        different = 1 + int((np.diff(values) > near).sum())
        bits += len(values) * max(1, ceil(log2(different)))
    return bits // 8
