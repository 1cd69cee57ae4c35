"""Questions: what an audit asks about people's data and about the model, and how each stands.

Two tables, which coverage, the verdict, the plan, the annexes and the limits are read from: who reads what,
by what can happen to people (`Question`), and each rule of the server by what attackers or absence do to the
model (`RuleQuestion`).
"""

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum

from pydantic import Field

from fedaudit.fl.threats.threat import Aim, Harm
from fedaudit.reports.record import Record


class State(StrEnum):
    """How a question stands."""

    EXPOSED = "exposed"  # more are hit than is tolerable
    CLEAR = "clear"  # no more are hit than is tolerable, by all attacks that had to run
    OPEN = "open"  # neither is known


class Cell(Record):
    """One row of either table."""

    id: str
    required: bool  # the word waits for it
    state: State
    why: str  # what the state rests on, or what is missing, as a sentence
    findings: list[str] = Field(default_factory=list)  # ids, those that answer it first
    tolerable: float = 0.0  # share of people, or of the model's answers
    next_attack: str = ""  # the quickest that was left out and is missing
    seconds: float | None = None  # how long that takes, about
    accepted: str = ""  # by whom, until when, and why

    @property
    def is_answered(self) -> bool:
        return self.state is not State.OPEN

    @property
    def is_exposed(self) -> bool:
        return self.state is State.EXPOSED

    @property
    def is_open(self) -> bool:
        """Whether the verdict still waits for it."""
        return self.required and not self.is_answered and not self.accepted


class GroupLimits(Record):
    """A group of people of whom more are hit, or might be, than is tolerable of a group."""

    name: str  # "class 3 of client 2", "rarest tenth"
    people: int
    at_least: int
    at_most: int | None = None
    attack: str


class Question(Cell):
    """What can happen to people by whatever somebody reads: `at_least` are hit, by any attack, and `at_most`."""

    harm: Harm
    observer: str  # a position: "server", "client", "next_client", "mediator", "public"
    kinds: list[str] = Field(default_factory=list)  # of messages that are read, in which it is looked for
    at_least: int = 0  # people who were hit because their data were in, by any attack, beyond luck
    at_most: int | None = None  # people who are, by any attack of the panel, at 95 % confidence; None: no limit
    people: int = 0  # of so many; of facts about clients, clients
    # of the attack that decides `at_least`: people it hit, of so many tested, and the share it hits by luck
    hits: int = 0
    tested: int = 0
    luck: float | None = None
    earned: str = ""  # how the limit of a clear one was earned, in at most ten words
    is_untestable: bool = False  # open, and of something that is read there is no attack
    groups: list[GroupLimits] = Field(default_factory=list)  # that stand worse than is tolerable
    is_refuting: bool = False  # a verified epsilon, since more people were hit than it allows
    more: int | None = None  # people that must be tested besides, to settle it; None: no number would

    @property
    def has_limit(self) -> bool:
        """Whether it is known that not everybody could be exposed."""
        return self.at_most is not None and (not self.at_most or self.at_most < self.people)

    @property
    def cannot_test(self) -> bool:
        """Whether nobody is known to be hit, and there is no attack on something that is read."""
        return self.is_untestable and not self.at_least

    @property
    def surely_hit(self) -> int:
        """People who are hit at least, in all or in one group."""
        return max([self.at_least, *(g.at_least for g in self.groups)])

    @property
    def allowed(self) -> int:
        """The tolerable number of people."""
        return count_allowed(self.people, self.tolerable)


class RuleQuestion(Cell):
    """What attackers that the config declares, or absence, cost the model under one rule of the server."""

    aim: Aim
    rule: str
    malicious: float = 0.0  # share of the clients, in the worst run; 0: nobody is
    at_least: float = 0.0  # share of answers that is lost, by the paired interval
    at_most: float | None = None  # None: nothing was measured


def count_allowed(people: int, share: float) -> int:
    """A tolerable share of people in people, rounded down."""
    return math.floor(share * people + 1e-9)


def describe_limits(cell: Cell) -> str:
    """Both limits in words: "at least 51, at most 102 of 719 people", "at least 6 % of answers"."""
    if isinstance(cell, Question):
        units = "clients" if cell.harm is Harm.CLIENT_FACT else "people"
        of = f" of {cell.people:,} {units}"
        least, most = f"at least {cell.at_least:,}", f"at most {cell.at_most or 0:,}"
    else:
        assert isinstance(cell, RuleQuestion)
        of = " of answers"
        least, most = f"at least {100 * cell.at_least:.3g} %", f"at most {100 * (cell.at_most or 0):.3g} %"
    return f"{least}{of}, no limit known" if cell.at_most is None else f"{least}, {most}{of}"


def name_cell(cell: Cell) -> str:
    """What one question asks, in a few words: "membership", "backdoor"."""
    if isinstance(cell, Question):
        return cell.harm.label
    assert isinstance(cell, RuleQuestion)
    return str(cell.aim)


def list_harms(cells: Iterable[Cell]) -> str:
    """What is asked in some questions, each once: "membership, reconstruction"; empty without any."""
    return ", ".join(dict.fromkeys(name_cell(c) for c in cells))


def count_states(cells: Sequence[Cell]) -> str:
    """How many questions stand in which state: "1 exposed, 4 open"; empty without any."""
    counts = ((sum(c.state is state for c in cells), state.value) for state in State)
    return ", ".join(f"{count:,} {words}" for count, words in counts if count)


def describe_answered(cells: Sequence[Cell]) -> str:
    """How many questions are answered and how, and how many of the others the verdict waits for."""
    if not cells:
        return "No question could be asked."
    text = f"Of {len(cells):,} {'question' if len(cells) == 1 else 'questions'}, {count_states(cells)}."
    left = sum(c.is_open for c in cells)
    return f"{text} {left:,} required {'question is' if left == 1 else 'questions are'} open." if left else text
