"""Raw samples: examples that were sent as they are, the worst that can cross the wire, found without any attack.

A kind whose row says `raw` holds clients' own examples. What was sent is held against those of its sender
(attacks/evaluation/payloads.py), whatever labels they are sent with. Where nobody told what a client holds, or
nothing was kept, what the kind says of itself stands.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedaudit.attacks.evaluation.payloads import find_in_payload
from fedaudit.audit.case.case import Examples, ObservedFederation
from fedaudit.audit.case.messages import messages
from fedaudit.audit.checks._check import Check, Seen
from fedaudit.audit.controls.lab import Lab
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card
from fedaudit.fl.recording.recorder import is_from_client, manifest
from fedaudit.reports.result import Finding, Severity


class RawSamples(Check):
    """One result for every raw kind that a client sent to anybody."""

    def inspect(self, federation: ObservedFederation, lab: Lab | None) -> Iterator[Seen]:
        if federation.artifacts is None:
            return
        traffic = [
            line
            for line in manifest(federation.artifacts)
            if "traffic" in line and Kind(line["traffic"]).raw and is_from_client(line)
        ]
        for k in dict.fromkeys(Kind(line["traffic"]) for line in traffic):
            lines = [line for line in traffic if line["traffic"] == k]
            yield _compare(federation.artifacts, federation.examples, federation.data, federation.card, k, lines)


def _compare(
    artifacts: Path, examples: Examples, data: Data, card: Card, kind: Kind, traffic: Sequence[Mapping[str, Any]]
) -> Finding:
    """Examples of one kind, in the lines of the manifest that count it, held against those of their senders."""
    recorded = [a for a in messages(artifacts, {kind}, "all") if a.from_client]
    comparable = [a for a in recorded if a.sender.index in examples.parts]
    roles = dict.fromkeys(role for line in traffic for role in line["seen_by"])
    return describe(
        kind,
        clients=max(int(line["senders"]) for line in traffic),
        readers=(*roles, *(["every client"] if kind in card.downlink else [])),
        sent=sum(map(count_rows, recorded)),
        compared=sum(map(count_rows, comparable)),
        equal=sum(count_own(a, data, examples) for a in comparable),
    )


def describe(
    kind: Kind, *, clients: int, readers: Sequence[str], sent: int, compared: int, equal: int
) -> Finding:
    """The result of `sent` examples, of which `compared` could be held against their senders' and `equal` are."""
    value = equal if compared else clients
    rows = (
        f"{equal:,} of {compared:,} are examples of their sender"
        if compared
        else "none could be compared with what its sender holds"
    )
    return Finding(
        id=f"raw-{kind}",
        title="Clients' own examples are sent as they are"
        if value
        else "What clients sent as examples is not equal to any of theirs",
        summary=f"{clients} clients sent {kind.words}, {sent:,} in the messages kept: {rows}. "
        f"Read by: {', '.join(readers)}.",
        severity=Severity.CRITICAL if value else Severity.NONE,
        reason="No attack is needed to have them, and none can show more." if value else "",
        artifacts=[str(kind)],
        does_not_show="what can be learned from examples that were changed before they were sent",
        remedy="send no examples: let clients train on what the server owns, or on synthetic examples "
        "made with a stated epsilon",
    )


def count_own(sent: Artifact, data: Data, examples: Examples) -> int:
    """How many examples of a message are its sender's."""
    return count_equal(sent, data.train.take(examples.parts[sent.sender.number]))


def count_equal(sent: Artifact, own: Arrays) -> int:
    """How many of these examples stand in a message, however they are written and whatever stands beside."""
    return min(len({x.record for x in find_in_payload(sent.payload, own.x)}), count_rows(sent))


def count_rows(sent: Artifact) -> int:
    """How many examples a message has: as many as its longest array has rows."""
    return max((len(v) for v in map(np.asarray, sent.payload.values()) if v.ndim), default=0)
