"""How a recorded federation came in: a part of the audit result."""

from typing import Literal

from pydantic import Field

from fedaudit.reports.record import Record

READERS = "readers"  # id of the statement of who could read a channel
# open: this record could not tell; declared: taken from its operator, since nothing recorded can
Status = Literal["holds", "contradicted", "open", "declared"]


class CheckedStatement(Record):
    """One statement about a recorded federation, held against its messages."""

    id: str  # "who", "aggregate"
    title: str
    status: Status
    text: str
    matrix: list[list[float]] = Field(default_factory=list)  # with who: loss of upload by row on data by column
    names: list[str] = Field(default_factory=list)  # of its rows and columns


class Asserted(Record):
    """What an adversary asserts of one client, for its operator to check."""

    client: int
    says: str
    check: str


class UnverifiedAttack(Record):
    """An attack that ran on messages whose senders' examples nobody told of: what it asserts, never a finding."""

    attack: str  # id of its finding
    title: str
    observer: str  # who reads: "server"
    claims: list[Asserted] = Field(default_factory=list)  # empty: images or scores, which have no words


class UnreadMessage(Record):
    """A message that no part of the audit read: what it holds is open, and never innocent."""

    message: str  # its file: artifacts/MESSAGE.safetensors, as it came
    sender: str  # "client/3"
    round: int
    kinds: list[str]
    why: str  # where what was found, and what was expected


class ImportRecord(Record):
    """How a recorded federation came in, and what of its operator's statements the messages bear out."""

    recorder: str
    messages: int
    bytes: int
    nodes: dict[str, str] = Field(default_factory=dict)  # client/3 -> node
    truth: int = 0  # clients whose examples were given
    clients: int = 0  # of how many
    canaries: list[str] = Field(default_factory=list)  # parties of the auditor's own: "client/3"
    sha256: str = ""  # of the inbox's manifest
    errors: list[str] = Field(default_factory=list)  # what the recorder could not keep
    unread: list[UnreadMessage] = Field(default_factory=list)  # messages that were set aside
    changes: list[str] = Field(default_factory=list)  # names and types of arrays in the run's copy, in sentences
    filters: dict[str, int] = Field(default_factory=dict)  # privacy filters that senders name -> messages
    checks: list[CheckedStatement] = Field(default_factory=list)

    @property
    def readers(self) -> str:
        """What its operator states of who could read a channel, in a sentence; empty: nothing."""
        return next((c.text for c in self.checks if c.id == READERS), "")
