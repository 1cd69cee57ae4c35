"""The forms of the JSON files that phases leave for each other: what a received one must look like."""

from typing import Annotated, Any, Literal

from annotated_types import Ge
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from fedaudit.attacks.evidence import Assertion, Evidence, RowExhibit, Series, TextExhibit
from fedaudit.attacks.people import PeopleCount
from fedaudit.fl.threats.threat import Aim

Count = Annotated[int, Ge(0)]


class Form(BaseModel):
    """Base of all of them: unknown keys are refused, and a form costs nothing before something is read by it."""

    model_config = ConfigDict(extra="forbid", defer_build=True)


class Environment(Form):
    """environment.json."""

    versions: dict[str, str] = Field(min_length=1)
    hardware: dict[str, str]


class TrainedOn(Form):
    """data.json: SHA-256 of the data and of who holds what."""

    data: str
    population: str


class PhaseEntry(Form):
    """One entry of phases.json."""

    started: str
    seconds: FiniteFloat | None  # None: did not end
    settings: dict[str, Any]


class Threat(Form):
    model_config = ConfigDict(extra="allow")  # fl/threats/threat.py says what more
    position: str
    knows: list[str]


class AttackCard(Form):
    """What a file of evidence says of its attack."""

    model_config = ConfigDict(extra="allow")  # settings of a card that are not read back
    title: str
    source: str
    aim: Aim
    threat: Threat
    reads: list[str]


class ImageFile(Form):
    title: str
    caption: str
    columns: list[str]
    rows: dict[str, list[str]]  # PNG, base64


class AttackFile(Form):
    """evidence/NN-NAME.json."""

    name: str
    card: AttackCard
    observer: str
    status: Literal["ran", "unverified", "not_applicable", "failed"]
    reason: str
    assertions: list[Assertion]
    evidence: list[Evidence]
    people: list[PeopleCount]  # by harm, and kind of message where it reads several; of facts, clients
    remedy: str  # for what was found here; the card's where it is empty
    galleries: list[ImageFile]
    texts: list[TextExhibit]
    rows: list[RowExhibit] = []
    curves: list[Series]
    read: list[str]
    rounds: dict[str, list[Count]]  # kind -> rounds of the messages that it opened
    seconds: FiniteFloat


class IssueEntry(Form):
    """One thing that is wrong with a ledger."""

    check: str
    what: str
    times: Count


class VerifiedFile(Form):
    """evidence/ledger.json."""

    issues: list[IssueEntry]
    declared: bool
    assumed: list[str]
    law: str
    cohort: str = ""


class FaultEvent(Form):
    """Something that failed in a round with relays."""

    model_config = ConfigDict(extra="allow")
    event: str
    time: FiniteFloat
    client: Count


class MetricsLine(Form):
    """One line of metrics.jsonl; methods add values of their own."""

    model_config = ConfigDict(extra="allow")
    round: Count
    accuracy: FiniteFloat | None = None
    class_accuracy: list[FiniteFloat] | None = None
    correct: str = Field(default="", pattern="^([0-9a-f]{2})*$")  # a bit a test example, of the last round
    selected: Count = 0
    delivered: Count = 0
    rejected: Count = 0
    bytes_up: Count = 0
    bytes_down: Count = 0
    bytes_relay: Count = 0
    phase: str = ""
    compromised: list[Count] = []
    kept: dict[str, dict[str, float]] = {}
    too_few: list[str] = []
    steps: FiniteFloat = 0
    clock: FiniteFloat = 0
    round_length: FiniteFloat = 0
    samples_used: FiniteFloat = 0
    weight_diversity: FiniteFloat = 0
    asr: FiniteFloat = 0
    heard: list[Count] = []
    heard_slow: Count = 0
    requests: Count = 0
    events: list[FaultEvent] = []
