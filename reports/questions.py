"""Questions: what an audit asks about people's data and about the model, and how each was answered.

The one table that coverage, the verdict, the plan, the annexes and the limits are read from. A question is an
artifact, an observer, an aim and the rounds of which messages were recorded.
"""

from enum import StrEnum

from pydantic import Field

from fedaudit.fl.threats.threat import Aim
from fedaudit.reports.record import Record


class State(StrEnum):
    """How a question stands."""

    DEMONSTRATED = "demonstrated"  # an attack worked on recorded messages
    BOUNDED = "bounded"  # at most a tolerable number of people could be exposed
    INCONCLUSIVE = "inconclusive"  # asked, and no answer
    NOT_ASKED = "not_asked"  # an attack exists, and was left out, failed, or had no recorded round
    NO_ATTACK = "no_attack"  # none exists here for this kind, modality and size


class Question(Record):
    """One row of the table."""

    id: str  # "membership.server.local_prototypes"
    aim: Aim
    observer: str  # a position: "server", "client", "next_client", "mediator", "public"
    kind: str  # the artifact; of robustness, the server's rule
    rounds: str  # of which messages were read: "all 15 rounds", "round 15 of 15"
    required: bool  # the word waits for it
    state: State
    why: str  # what the state rests on, as a sentence
    findings: list[str] = Field(default_factory=list)  # ids, those that answer it first
    tolerable: float = 0.0  # share of people
    at_most: int | None = None  # people who could be exposed, at 95 % confidence; None: no bound
    people: int = 0  # of so many
    more: int | None = None  # people that must be tested besides, to settle it; None: no number would
    seconds: float | None = None  # how long that takes, about
    accepted: str = ""  # by whom, until when, and why

    @property
    def is_answered(self) -> bool:
        return self.state in (State.DEMONSTRATED, State.BOUNDED)

    @property
    def is_open(self) -> bool:
        """Whether the verdict still waits for it."""
        return self.required and not self.is_answered and not self.accepted


class HeadCount(Record):
    """How many people the demonstrated findings expose beyond luck, and between which numbers (95 %)."""

    expected: float
    interval: tuple[int, int]
    people: int
