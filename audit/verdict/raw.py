"""Examples that were sent as they are: the worst that can cross the wire, found without any attack.

A kind whose row says `raw` holds clients' own examples. Each sent one is held against those of its sender: it is
one of them where no value differs by half a step of 256 grey levels. Where nobody told what a client holds, or
nothing was kept, what the kind says of itself stands.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedaudit.audit.case.case import Case
from fedaudit.audit.case.messages import messages
from fedaudit.audit.verdict.judge import Fact, Subject, Verdict
from fedaudit.fl.artifact import Artifact, Channel, Role
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.recorder import manifest
from fedaudit.fl.threats.threat import Position, ThreatModel

HALF_A_STEP = 0.5 / 255


@dataclass(frozen=True, kw_only=True)
class Raw(Subject):
    """One kind that holds clients' examples, as it was sent."""

    kind: Kind
    clients: int  # that sent it
    readers: tuple[str, ...]  # roles that could read it
    sent: int  # examples in the messages that were kept
    compared: int  # of these, from clients whose examples are known
    exact: int  # of these, equal to one of their sender's

    @property
    def found(self) -> Sequence[Fact]:
        """How many are somebody's examples; where none could be compared, how many clients sent some."""
        return [Fact(measure="raw_examples_sent", value=self.exact if self.compared else self.clients)]

    def words(self, verdict: Verdict) -> Mapping[str, Any]:
        if self.compared:
            rows = f"{self.exact:,} of {self.compared:,} are examples of their sender, value for value"
        else:
            rows = "none could be compared with what its sender holds"
        return {
            "id": f"raw-{self.kind}",
            "title": "Clients' own examples are sent as they are"
            if self.found[0].value
            else "What clients sent as examples is not equal to any of theirs",
            "source": "disclosure",
            "summary": f"{self.clients} clients sent {self.kind.words}, {self.sent:,} in the messages kept: "
            f"{rows}. Read by: {', '.join(self.readers)}.",
            "threat": ThreatModel(position=Position.SERVER),
            "artifacts": [str(self.kind)],
            "does_not_show": "what can be told of examples that were changed before they were sent",
            "remedy": "send no examples: let clients train on what the server owns, or on synthetic examples "
            "made with a stated epsilon",
        }


def disclosed(case: Case) -> list[Raw]:
    """One subject for every raw kind that a client sent to anybody."""
    if case.artifacts is None:
        return []
    traffic = [
        line
        for line in manifest(case.artifacts)
        if "traffic" in line and Kind(line["traffic"]).raw and line["channel"] in (Channel.UPLINK, Channel.RELAY)
    ]
    found = []
    for kind in dict.fromkeys(Kind(line["traffic"]) for line in traffic):
        lines = [line for line in traffic if line["traffic"] == kind]
        kept = [a for a in messages(case.artifacts, {kind}, "all") if a.sender.role == Role.CLIENT]
        known = [a for a in kept if a.sender.index in case.parts]
        roles = dict.fromkeys(role for line in lines for role in line["seen_by"])
        found.append(
            Raw(
                kind=kind,
                clients=max(int(line["senders"]) for line in lines),
                readers=(*roles, *(["every client"] if kind in case.card.downlink else [])),
                sent=sum(len(a.payload["labels"]) for a in kept),
                compared=sum(len(a.payload["labels"]) for a in known),
                exact=sum(_exact(a, case) for a in known),
            )
        )
    return found


def _exact(sent: Artifact, case: Case) -> int:
    """How many examples of a message are its sender's."""
    assert sent.sender.index is not None
    own = case.data.train.take(case.parts[sent.sender.index])
    hits = 0
    for x, y in zip(sent.payload["images"], sent.payload["labels"], strict=True):
        same = own.x[own.y == y]
        if len(same) and np.shape(x) == same.shape[1:]:
            hits += bool((np.abs(same - x).reshape(len(same), -1).max(axis=1) <= HALF_A_STEP).any())
    return hits
