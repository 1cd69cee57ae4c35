"""Coverage: what of all attacks that exist, and of all that was sent, was looked at."""

from typing import Literal

from pydantic import Field

from fedaudit.reports.record import Record


class Untried(Record):
    """An attack that exists and is not part of this audit."""

    attack: str  # its name
    title: str
    applies: bool  # whether what it reads was sent to its adversary
    why: str  # it did not run, as a phrase; where it does not apply, a sentence


class Covered(Record):
    """One kind as one party could read it, and whether anything attacked it there."""

    kind: str
    party: str  # a position: "server", "client", "next_client", "mediator", "public"
    status: Literal["attacked", "elsewhere", "failed", "not_run", "not_applicable", "unread", "tells_nothing"]
    attacks: list[str] = Field(default_factory=list)  # ids of the findings
    why: str = ""


class Coverage(Record):
    ran: int
    applicable: int  # of all attacks that exist
    not_applicable: int
    inconclusive: int  # of those that ran
    failed: int
    untried: list[Untried] = Field(default_factory=list)
    artifacts: list[Covered] = Field(default_factory=list)
