"""The decision: what a person who must sign needs of an audit, as audit.json holds it."""

from enum import StrEnum

from pydantic import Field

from fedaudit.reports.record import Record


class Word(StrEnum):
    """What the policy says of a deployment; there is no "safe"."""

    READY = "ready"
    WITH_CONDITIONS = "ready_with_conditions"
    NOT_READY = "not_ready"
    CANNOT_TELL = "cannot_tell"


class Odds(Record):
    """How often something succeeds, for one size of group or over all."""

    group: float | None  # examples behind a message; None: over all
    value: float  # fraction
    interval: tuple[float, float] | None
    guess: float | None  # the strongest blind adversary
    graded: bool  # the place that set the severity


class Risk(Record):
    """One thing that could happen; findings of the same harm share it."""

    finding: str  # id of the worst
    also: list[str] = Field(default_factory=list)  # ids of the others
    what: str  # a sentence without statistics
    who: str  # can do it
    whom: str  # it touches
    odds: list[Odds] = Field(default_factory=list)  # none: nothing to estimate, see `note`
    note: str = ""
    severity: str


class KeyNumber(Record):
    """One of the numbers that a decision hangs on."""

    shown: str  # "30 of 575"
    text: str


class Answer(Record):
    """A question that whoever signs asks, and where the proof is."""

    question: str
    answer: str
    where: str  # title of a section


class Decision(Record):
    word: Word
    rule: str  # of the policy; empty: none held
    sentence: str  # what the word rests on
    numbers: list[KeyNumber]
    risks: list[Risk]
    answers: list[Answer]
