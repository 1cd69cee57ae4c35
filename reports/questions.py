"""Questions: what an audit asks about people's data and about the model, and how each was answered.

The one table that coverage, the verdict, the plan, the annexes and the limits are read from. A question is an
artifact, an observer, an aim and the rounds of which messages were recorded.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum

from pydantic import Field

from fedaudit.fl.threats.threat import Aim
from fedaudit.reports.record import Record

MESSAGES = "messages"  # the kind of a question about no content: that a message is sent, and when


class State(StrEnum):
    """How a question stands."""

    DEMONSTRATED = "demonstrated"  # an attack succeeded on recorded messages
    BOUNDED = "bounded"  # at most a tolerable number of people could be exposed
    INCONCLUSIVE = "inconclusive"  # asked, and no answer
    NOT_ASKED = "not_asked"  # an attack exists, and was left out, failed, or had no recorded round
    NO_ATTACK = "no_attack"  # none exists here for this kind, modality and size

    @property
    def words(self) -> str:
        return "no attack exists" if self is State.NO_ATTACK else self.value.replace("_", " ")


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
    at_least: int = 0  # people who were hit because their data were in, by any attack, beyond luck
    at_most: int | None = None  # people who are, by any attack of the panel, at 95 % confidence; None: no limit
    people: int = 0  # of so many
    is_refuting: bool = False  # a verified epsilon, since more people were hit than it allows
    more: int | None = None  # people that must be tested besides, to settle it; None: no number would
    next_attack: str = ""  # the quickest that was left out and would ask it
    seconds: float | None = None  # how long either takes, about
    accepted: str = ""  # by whom, until when, and why

    @property
    def is_answered(self) -> bool:
        return self.state in (State.DEMONSTRATED, State.BOUNDED)

    @property
    def is_exposed(self) -> bool:
        """Whether more people were hit because their data were in than is tolerable, or an epsilon allows."""
        return self.is_refuting or self.at_least > count_allowed(self.people, self.tolerable)

    @property
    def has_limit(self) -> bool:
        """Whether it is known that not everybody could be exposed."""
        return self.at_most is not None and (not self.at_most or self.at_most < self.people)

    @property
    def artifact(self) -> str:
        """The artifact in words, with its rounds where these are not all."""
        what = "whether and when a client sends" if self.kind == MESSAGES else self.kind.replace("_", " ")
        return what if self.rounds.startswith(("all ", "the only")) else f"{what} ({self.rounds})"

    @property
    def is_open(self) -> bool:
        """Whether the verdict still waits for it."""
        return self.required and not self.is_answered and not self.accepted


class HeadCount(Record):
    """How many people the demonstrated findings expose beyond luck, and between which numbers (95 %)."""

    expected: float
    interval: tuple[int, int]
    people: int


def count_allowed(people: int, share: float) -> int:
    """A tolerable share of people in people, rounded down."""
    return math.floor(share * people + 1e-9)


def count_by_aim(questions: Iterable[Question]) -> str:
    """How many questions there are of each aim: "membership 7, inversion 2"; empty without any."""
    counts = Counter(str(q.aim) for q in questions)
    return ", ".join(f"{aim} {count:,}" for aim, count in sorted(counts.items(), key=lambda c: -c[1]))


def count_states(questions: Sequence[Question]) -> str:
    """How many questions stand in which state: "4 inconclusive, 9 not asked"; empty without any."""
    counts = ((sum(q.state is state for q in questions), state.words) for state in State)
    return ", ".join(f"{count:,} {words}" for count, words in counts if count)


def describe_answered(questions: list[Question]) -> str:
    """How many questions are answered, and in which ways the others are not."""
    if not questions:
        return "No question could be asked."
    answered = [q for q in questions if q.is_answered]
    others = [q for q in questions if not q.is_answered]
    text = f"{len(answered):,} of {len(questions):,} questions answered"
    text += f": {count_states(answered)}." if answered else "."
    text += f" The others: {count_states(others)}." if others else ""
    left = sum(q.is_open for q in questions)
    return f"{text} {left:,} required {'question is' if left == 1 else 'questions are'} open." if left else text
