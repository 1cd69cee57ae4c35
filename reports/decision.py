"""The decision: what a person who must sign needs of an audit, as audit.json holds it."""

from enum import StrEnum

from pydantic import Field

from fedaudit.reports.page import Page
from fedaudit.reports.record import Record


class Word(StrEnum):
    """What the policy says of a deployment; there is no "safe"."""

    READY = "ready"
    WITH_CONDITIONS = "ready_with_conditions"
    NOT_READY = "not_ready"
    CANNOT_TELL = "cannot_tell"

    @property
    def words(self) -> str:
        """The word as every page, command and export prints it."""
        return TITLES[self]

    @property
    def exit_code(self) -> int:
        """The exit code of every command that gives a verdict; 2 is an error and no verdict."""
        return EXIT_CODES[self]


TITLES = {
    Word.READY: "Ready",
    Word.WITH_CONDITIONS: "Ready with conditions",
    Word.NOT_READY: "Not ready",
    Word.CANNOT_TELL: "Cannot tell",
}
EXIT_CODES = {Word.READY: 0, Word.WITH_CONDITIONS: 0, Word.NOT_READY: 1, Word.CANNOT_TELL: 3}


class Risk(Record):
    """One thing that could happen, whoever can do it: to people, to the model, or what was seen or proved."""

    finding: str = ""  # id of the worst; empty: no attack of this run shows it
    also: list[str] = Field(default_factory=list)  # ids of the others
    what: str  # a sentence without statistics
    who: str = ""  # can do it
    # of so many people (clients, or per cent of answers) so many are hit; none of what is certain, see `note`
    unit: str = ""
    at_least: int = 0
    at_most: int | None = None
    people: int = 0
    cells: list[str] = Field(default_factory=list)  # ids of the questions that show it; none of a fact
    note: str = ""
    severity: str


class DeploymentDecision(Record):
    """The verdict. What a reviewer added to the policy (a bar, waivers, a baseline, requirements) is in it."""

    word: Word
    rule: str  # of the policy; empty: none held
    sentence: str  # all that the word rests on, at length
    risks: list[Risk]
    page: Page = Field(default_factory=Page)  # what whoever signs reads
    more: str = ""  # what more time would answer, as sentences
    bar: str = ""  # the lowest severity that forbids a deployment; empty: none does
    failing: list[str] = Field(default_factory=list)  # ids of findings at or above the bar, accepted by nobody
    accepted: dict[str, str] = Field(default_factory=dict)  # id -> who answers for it, until when and why
    known: list[str] = Field(default_factory=list)  # ids: no worse than in the reviewer's baseline
    unmet: list[str] = Field(default_factory=list)  # what the reviewer required and did not get, as sentences

    @property
    def line(self) -> str:
        """The verdict in one line."""
        return f"{self.word.words}. {self.page.sentence or self.sentence}"
