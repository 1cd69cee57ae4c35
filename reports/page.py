"""The two pages one signs: every word and number of theirs, made once (audit/verdict/page.py) and stored.

Renderers choose the layout and no word. Four states have a fill each, everywhere: exposed is solid, clear an
empty frame, open hatched, and what cannot be tested here dotted.
"""

from typing import Literal

from pydantic import Field

from fedaudit.reports.record import Record

Fill = Literal["exposed", "clear", "open", "cannot"]
FILLS: dict[Fill, str] = {
    "exposed": "exposed",
    "clear": "clear: a limit is known",
    "open": "open: not known",
    "cannot": "cannot be tested here",
}
NO_LIMIT = "no limit"
MOST_FACES = 8  # people in the strip of pictures
# Words that stand on the pages whatever was found
LABELS = {
    "kicker": "Federated learning audit · decision",
    "stated": "The owner stated these; the audit checked none of them.",
    "shown": "What the audit showed",
    "at_least": "at least",
    "at_most": "at most",
    "odds": "success of an attempt",
    "severity": "severity",
    "hit": "hit",
    "not_excluded": "not excluded",
    "success": "success",
    "interval": "95 % interval",
    "guessing": "guessing",
    "decide": "What you can decide",
    "own_audit": "each option is measured by an audit of its own",
    "option": "option",
    "new": "new",
    "verdict": "its verdict",
    "people": "people",
    "cost": "accuracy and traffic",
    "stopped": "stopped (clear)",
    "reduced": "reduced",
    "left": "left",
    "untested": "not known",
    "worse": "rated worse",
    "new_harm": "new harm",
    "accuracy": "Change of accuracy in points (at worst); traffic of the run.",
    "until": "until",
    "signing": "Who decides ticks a row. The officer signs that advice was given, the engineer that the audit is "
    "of this system.",
    "because": "because",
    "required": "required",
    "questions": "Ten questions a signer asks",
    "behind": "what stands behind page 1",
    "appendix": "appendix",
    "readers": "Who could learn what",
    "readers_note": "the worst answer over all messages that a reader gets; numbers are harms of page 1",
    "words": "Words used",
    "appendices": "Appendices",
}
SIGNATURES = (
    "Decided by (controller)",
    "Advised by (data protection officer)",
    "Confirmed by (engineer)",
    "Date, review by",
)


class Odds(Record):
    """How often an attempt succeeds, with its 95 % interval, and what guessing gets. Shares."""

    value: float
    low: float
    high: float
    guess: float


class People(Record):
    """So many of so many people are hit at least, and at most; None: there is no limit."""

    at_least: int = 0
    at_most: int | None = None
    of: int = 0


class PageHarm(People):
    """A row of page 1: what a reader does, of how many people. One without a severity is clear."""

    reader: str  # whose verb phrase `what` is: "The server"
    what: str
    note: str = ""
    unit: Literal["people", "clients", "answers", ""] = ""  # "": certain, and about nobody alone
    severity: str = ""
    odds: Odds | None = None

    @property
    def fill(self) -> Fill:
        return "exposed" if self.severity else "clear"

    @property
    def grade(self) -> str:
        """The word at the end of the row."""
        return self.severity or "clear"

    @property
    def instead(self) -> str:
        """What stands in place of a number of people."""
        return {"clients": "about clients, not single people", "": "certain"}.get(self.unit, "")

    @property
    def success(self) -> str:
        return f"{100 * self.odds.value:.0f}\u00a0%" if self.odds else ""

    @property
    def least(self) -> str:
        return self._count(self.at_least)

    @property
    def most(self) -> str:
        return NO_LIMIT if self.at_most is None else self._count(self.at_most)

    def _count(self, number: int) -> str:
        return f"{number:,}\u00a0%" if self.unit == "answers" else f"{number:,}"


class Coverage(Record):
    """How many questions stand how, and how many of those the policy requires."""

    title: str = ""
    states: dict[Fill, int] = Field(default_factory=dict)
    required: dict[Fill, int] = Field(default_factory=dict)
    text: str = ""


class Mark(Record):
    """What an option does to a harm: its own severity stands beside it."""

    state: Literal["stopped", "reduced", "left", "worse", "untested"]
    severity: str = ""


class PageOption(People):
    """A row of what can be decided: the run as it is, or one option with what its own audit says."""

    letter: str
    name: str
    what: str
    marks: list[Mark] = Field(default_factory=list)  # one a harm of page 1
    new: str = ""  # severity of the worst harm that only it shows
    word: str = ""  # of its own audit; empty: not measured
    accuracy: str = ""
    traffic: str = ""
    recommended: bool = False

    @property
    def least(self) -> str:
        return f"{self.at_least:,}" if self.word else ""

    @property
    def most(self) -> str:
        if not self.word:
            return ""
        return NO_LIMIT if self.at_most is None else f"{self.at_most:,}"


class Strip(Record):
    """A few people's pictures in rows: what each row is, and which row of the result's gallery that is."""

    title: str
    gallery: int  # place in the result
    rows: dict[str, str]
    caption: str


class Answer(Record):
    """A question that whoever signs asks, and where the proof is."""

    question: str
    answer: str  # at most 40 words
    where: str  # title of a section


class ReaderRow(Record):
    """What one reader could learn: a fill and its words for each harm; no fill where that is no question."""

    reader: str
    cells: list[tuple[Fill | Literal[""], str]]


class Page(Record):
    """Both pages; without answers those of an audit of an older version, which had none."""

    sentence: str = ""  # of the banner, people first
    people: People = Field(default_factory=People)
    scope: str = ""
    harms: list[PageHarm] = Field(default_factory=list)
    summary: str = ""  # how many harms, by whom
    strip: list[tuple[str, int]] = Field(default_factory=list)  # severity and how many harms have it
    more: str = ""  # harms that have no row
    bar: str = ""  # what forbids a deployment, as a sentence
    bounded: list[PageHarm] = Field(default_factory=list)
    pictures: Strip | None = None
    coverage: Coverage = Field(default_factory=Coverage)
    options: list[PageOption] = Field(default_factory=list)
    recommendation: str = ""
    against: str = ""  # how to deploy all the same; a blank for the option follows
    answers: list[Answer] = Field(default_factory=list)
    columns: list[str] = Field(default_factory=list)  # harms of the table of readers
    readers: list[ReaderRow] = Field(default_factory=list)
    words: dict[str, str] = Field(default_factory=dict)

    @property
    def emphasis(self) -> tuple[str, str, str]:
        """The sentence in three parts, of which the middle is how many people."""
        for number in (self.people.at_least, self.people.at_most):
            phrase = f"{number:,} of {self.people.of:,} people" if number is not None else "\0"
            before, found, after = self.sentence.partition(phrase)
            if found:
                return before, found, after
        return "", "", self.sentence

    @property
    def units(self) -> str:
        """What the bars count."""
        units = {h.unit for h in (*self.harms, *self.bounded)}
        if "people" in units:
            return f"people, of {self.people.of:,}{', or answers' if 'answers' in units else ''}"
        return "share of answers" if "answers" in units else ""

    def choose_marks(self) -> list[str]:
        """Kinds of marks that stand in the table of options, for its legend."""
        used = {m.state for o in self.options for m in o.marks}
        marks = [m for m in ("stopped", "reduced", "left", "untested", "worse") if m in used]
        return marks + (["new_harm"] if any(o.new for o in self.options) else [])
