"""The audit result: everything a report says, as one validated document, `audit.json`.

Sections read this and compute nothing. The schema is public: `fedaudit show --schema result`.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from fedaudit.attacks.evidence import Evidence, Series
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.threats.threat import Harm
from fedaudit.reports.absence import Absence
from fedaudit.reports.bound import PrivacyBound
from fedaudit.reports.decision import DeploymentDecision, Word
from fedaudit.reports.exhibits import Gallery, RowTables, Texts
from fedaudit.reports.exposed import PartyExposure
from fedaudit.reports.imported import ImportRecord, UnverifiedAttack
from fedaudit.reports.questions import Question, RuleQuestion
from fedaudit.reports.record import Record, SealRecord, Taxon, Threat
from fedaudit.reports.robustness import Robustness
from fedaudit.reports.system import System

SCHEMA_VERSION = 1


class Severity(StrEnum):
    """How bad a finding is, by the policy. "none" is: nothing demonstrated. There is no "safe"."""

    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    NONE = "none"

    @property
    def rank(self) -> int:
        return list(Severity)[::-1].index(self)


class Outcome(StrEnum):
    """Whether something looked; what it found, severity and limits say."""

    RAN = "ran"
    NOT_APPLICABLE = "not_applicable"
    FAILED = "failed"  # an error; never improves a score


class Finding(Record):
    """Whatever was looked at, an attack, a check, a bound, a lint or a rule: what was found, and how bad that is.

    `title` is a sentence; `reason` says what set the severity, or why nothing could be looked at. Whoever looks
    states all of it; a policy may rate it otherwise (GradingPolicy.rate).
    """

    id: str  # "upcnn", "dp-exact-server-client", "lint-L10"
    title: str
    source: Literal["attack", "disclosure", "accountant", "lint", "robustness"] = "disclosure"
    method: str = ""  # title of the attack or accountant
    reference: str = ""  # its paper
    outcome: Outcome = Outcome.RAN
    severity: Severity = Severity.NONE  # none: it is as it should be
    summary: str  # what was done, what came out, compared with what
    reason: str = ""
    # of an attack that counts people: what happens to most of them, to so many at least, of so many
    harm: Harm | None = None
    at_least: int = 0
    people: int = 0
    threat: Threat | None = None
    artifacts: list[str] = Field(default_factory=list)  # the kinds that an attack opened in this run
    shown_by: list[str] = Field(default_factory=list)  # ids of other findings that show the same leak
    part_of: str = ""  # id of the finding that leads those of its leak; empty: it leads, or stands alone
    evidence: list[Evidence] = Field(default_factory=list)
    taxonomy: list[Taxon] = Field(default_factory=list)  # its row of audit/verdict/taxonomy.py
    does_not_show: str = ""
    remedy: str = ""
    seconds: float = 0.0

    @property
    def is_demonstrated(self) -> bool:
        """Whether it counts as a demonstrated finding: others that show the same leak do not count again."""
        return self.severity is not Severity.NONE and not self.part_of

    @property
    def account(self) -> str:
        """What was hit or is wrong, then what was done and measured; nothing twice."""
        return " ".join(dict.fromkeys(filter(None, (self.reason, self.summary))))


_ORDER = [Outcome.FAILED, Outcome.RAN, Outcome.NOT_APPLICABLE]


def worst_first(findings: Sequence[Finding]) -> list[Finding]:
    """The order everywhere: severest first; of one severity, what failed before what showed nothing, what does
    not apply last; an attack that was seen to work before a bound that does not exist. What shows the same leak
    as another finding comes right after it."""
    ordered = sorted(findings, key=lambda f: (-f.severity.rank, _ORDER.index(f.outcome), f.source != "attack"))
    leading = {f.id for f in ordered if not f.part_of}
    below: dict[str, list[Finding]] = {}
    for finding in ordered:
        below.setdefault(finding.part_of, []).append(finding)
    alone = [f for f in ordered if f.part_of not in leading]
    return [g for f in alone for g in (f, *(below.get(f.id, []) if not f.part_of else []))]


class Withheld(Record):
    """Pictures that this result does not show, since they are of people's data."""

    finding: str  # id of the finding they belong to; empty: of a section
    title: str
    pictures: int
    sha256: str  # of their rows, as the phase wrote them


class Figure(Record):
    """A figure to draw: the numbers, not the image."""

    id: str
    finding: str = ""  # id of the finding it belongs to; empty: belongs to a section
    kind: Literal["line", "points", "bar", "spans", "roc", "moves"] = "line"
    title: str
    caption: str
    alt: str
    x_label: str
    y_label: str
    x_log: bool = False
    y_log: bool = False
    series: list[Series]


class ClaimCondition(Record):
    """One thing a claim needs that cannot be computed from its numbers, or that was."""

    text: str = Field(description="what must hold")
    status: Literal["checked", "assumed", "contradicted"] = Field(
        default="assumed",
        description="checked: it was seen to hold; assumed: nobody looked; contradicted: it does not",
    )
    because: str = Field(description="why")


class ClaimOutcome(StrEnum):
    """What is known of a claim. There is no "proved": it holds under assumptions that are listed."""

    HOLDS = "holds under its assumptions"
    REFUTED = "refuted"
    UNDECIDED = "cannot be decided"


class ClaimRow(Record):
    """One claim re-computed under one set of assumptions."""

    name: str
    delta: float
    multiplier: float  # z; 0 where nothing is noised
    epsilon: list[float]  # exact, rounded up, in the order of ClaimRecord.releases
    formula: float | None = None  # what the cited theorem gives for one release
    recovered: float | None = None  # probability that rounding gives the number back
    lower: float | None = None  # no analysis can go below this, where that is known
    how: str = ""  # how it was computed, where sampling is credited


class ClaimRecord(Record):
    """A published or contractual claim, re-scored. inf: nothing bounds the loss."""

    id: str
    title: str
    source: str
    words: str  # what is claimed, in the claim's own terms
    outcome: ClaimOutcome
    verdict: str  # the outcome and what it rests on, one sentence
    severity: Severity
    claimed: str  # "(3, 0.01)"
    claimed_epsilon: float | None = None
    exact: float | None = None  # one release under what holds, at most; None: not about differential privacy
    bound: PrivacyBound | None = None  # of all releases; declared at best, since nothing ran
    lower: float = 0.0  # all releases, at least; computed where the claim is above or below
    empirical: float | None = None  # a lower bound shown by measurement
    empirical_text: str = ""
    conditions: list[ClaimCondition] = Field(default_factory=list)
    releases: list[str] = Field(default_factory=list)  # headings of the epsilons of a row
    rows: list[ClaimRow] = Field(default_factory=list)
    sampled: list[ClaimRow] = Field(default_factory=list)
    needed: list[list[str]] = Field(default_factory=list)  # target, setting, noise
    table: list[list[str]] = Field(default_factory=list)  # of a claim about something else; the header first
    notes: list[str] = Field(default_factory=list)


class NoiseCheck(Record):
    """One test of the noise itself."""

    name: str
    passed: bool
    text: str
    failure_rate: float  # chance that a correct mechanism fails; 0: the test is certain

    @property
    def is_tried(self) -> bool:
        """Whether there was enough noise to test; `passed` says nothing otherwise."""
        return not self.text.startswith("not tried")


class NoiseAuditRecord(Record):
    """The noise on one kind: what the ledger says of it, and what the tests of it say."""

    id: str
    kind: str
    protection: str
    mechanism: str
    unit: str
    adjacency: str
    delta: float
    multiplier: float  # noise / sensitivity, as the ledger has it
    claimed: float | None = None  # epsilon that the protection advertises, where it does
    # exact, if the ledger is right; infinite in audit.json where it is not
    single: float  # of one release
    releases: int  # how many the run's worst sender made
    composed: float  # of all of them
    at_least: float | None = None  # of all of them, by the noise that was measured; None: not known
    failure_rate: float  # chance that a correct mechanism is refuted by anything here
    refuted: bool
    sentence: str
    checks: list[NoiseCheck] = Field(default_factory=list)
    not_audited: str = ""  # why nothing could be tried, as a sentence


class CellEffect(Record):
    """What an option's own audit says of one question of the audited run."""

    cell: str  # its id
    state: Literal["exposed", "clear", "open", "unasked"]  # unasked: nothing of it is sent any more
    limits: str  # "at least 51, at most 102 of 719"


class HarmEffect(Record):
    """What an option's own audit says of a row of page 1, or of a new one."""

    what: str  # the row, or the new one, in words
    state: Literal["stopped", "left", "open", "new"]  # stopped: clear, or nothing of it is sent any more
    severity: Severity = Severity.NONE  # with the option, where it is left or new
    at_most: int | None = None  # people who could still be hit, where it is stopped by a limit


class Alternative(Record):
    """One option beside the audited run, which comes first: what it leaves, what it costs, whether to take it."""

    name: str
    protections: list[str]  # in words
    settings: list[str] = Field(default_factory=list)  # of the method, where they differ, in words
    finished: bool = True
    word: Word | None = None  # of its own audit
    answered: int = 0  # questions of its own audit
    asked: int = 0  # of so many
    # people who could be hit at most, of the worst question that the audited run exposes; None: there is no limit
    at_most: int | None = None
    people: int = 0  # of so many
    surely_hit: int = 0  # people who are hit at least with it, at any harm
    limit: int | None = None  # and at most, at any that the policy asks about; None: there is none
    unanswered: list[str] = Field(default_factory=list)  # that the audited run answers, in words
    accuracy: float | None = None
    accuracy_interval: tuple[float, float] | None = None
    accuracy_change: float | None = None
    accuracy_change_interval: tuple[float, float] | None = None
    time: float | None = None  # simulated seconds of the whole run; None: there is no clock
    eligible: bool = False  # answers what the audited run answers, at a tolerable cost
    recommended: bool = False  # at most one is
    place: int = 0  # among the options, the best first
    why_not: str = ""  # a sentence; empty of the audited run and of what is recommended
    severity: Severity = Severity.NONE  # worst that was demonstrated with it
    bound: PrivacyBound | None = None  # towards the server; None: no accountant ran
    effects: list[HarmEffect] = Field(default_factory=list)  # in the order of page 1, new ones last
    cells: list[CellEffect] = Field(default_factory=list)  # of every question of the audited run
    # what the run took: bytes, simulated time, who was heard, as the summary measures name it
    measures: dict[str, float] = Field(default_factory=dict)


class History(Record):
    """One measured round. Accuracy is a fraction of the whole test set."""

    round: int
    accuracy: float | None = None
    class_accuracy: list[float] | None = None
    selected: int = 0
    delivered: int = 0
    rejected: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    values: dict[str, float] = Field(default_factory=dict)  # weight_diversity, train_loss, ...


class AuditScope(Record):
    """What was audited, in words and numbers a reviewer can check."""

    method: str
    method_source: str
    method_text: str  # what it is, one or two sentences
    dataset: str
    dataset_text: str
    clients: int
    clients_text: str  # partition and availability in words
    rounds: int
    model: str
    parameters: int
    training: dict[str, str] = Field(default_factory=dict)
    protections: list[str] = Field(default_factory=list)
    threats: list[Threat] = Field(default_factory=list)
    class_names: list[str] = Field(default_factory=list)
    has_classes: bool = True  # else `class_names` are those of groups that other labels make
    is_invented: bool = False  # the data are of nobody; every page says so
    counts: list[list[int]] = Field(default_factory=list)  # [client][class], auditor's knowledge


class Headline(Record):
    severity: Severity
    sentence: str  # the worst finding


class ReproductionRecord(Record):
    command: str
    config: str  # resolved config, YAML
    seed: int
    versions: dict[str, str]
    hardware: dict[str, str]
    hashes: dict[str, str]  # file -> sha256
    inputs: dict[str, str] = Field(default_factory=dict)  # data, packages and plugins -> sha256
    threads: str = ""  # as a phrase
    commit: str = ""  # of the checkout that ran
    started: str
    seconds: dict[str, float]  # by phase


class PolicyLine(Record):
    """One line of a policy in words, and why it is so."""

    what: str  # "membership: at most 5 % of people"
    reason: str


class PolicyRecord(Record):
    name: str
    version: str
    lines: list[PolicyLine]
    sha256: str = ""  # of what it says
    owner: str = ""  # whose it is, by its digest
    fixed: str = ""  # when, before the first attack ran, ISO 8601; empty: it was not
    first_evidence: str = ""  # when, ISO 8601
    panel: int = 0  # number of its panel, the attacks without which nothing is limited; 0: it has none
    panel_sha256: str = ""  # of what that asks for


class AuditResult(Record):
    schema_version: int = SCHEMA_VERSION
    title: str
    created: str  # ISO 8601, UTC
    system: System = Field(default_factory=System)  # as its owner states it
    headline: Headline
    decision: DeploymentDecision | None = None  # None: a report of claims alone, or an audit of an older version
    scope: AuditScope
    exposures: list[PartyExposure]
    questions: list[Question] = Field(default_factory=list)  # what was asked of people's data, and how it stands
    rule_questions: list[RuleQuestion] = Field(default_factory=list)  # and of the model
    findings: Annotated[list[Finding], AfterValidator(worst_first)]
    figures: list[Figure] = Field(default_factory=list)
    galleries: list[Gallery] = Field(default_factory=list)
    texts: list[Texts] = Field(default_factory=list)
    rows: list[RowTables] = Field(default_factory=list)
    withheld: list[Withheld] = Field(default_factory=list)
    bounds: list[PrivacyBound] = Field(default_factory=list)
    noise_audits: list[NoiseAuditRecord] = Field(default_factory=list)
    imported: ImportRecord | None = None  # of a recorded federation
    unverified: list[UnverifiedAttack] = Field(default_factory=list)  # what attacks assert and nobody could check
    robustness: Robustness | None = None  # the matrix of attacks on the model by rules of the server
    absence: Absence | None = None  # what clients that do not answer cost
    alternatives: list[Alternative] = Field(default_factory=list)  # the audited run comes first
    recommendation: str = ""  # which of them, and why, or why none; empty where options were not asked for
    history: list[History] = Field(default_factory=list)
    summary_metrics: dict[str, float] = Field(default_factory=dict)
    limits: list[str] = Field(default_factory=list)
    policy: PolicyRecord
    reproduction: ReproductionRecord
    seal: SealRecord | None = None
    extra: dict[str, Any] = Field(default_factory=dict)  # for sections of a user's own

    @property
    def cells(self) -> list[Question | RuleQuestion]:
        """Both tables of questions."""
        return [*self.questions, *self.rule_questions]

    @property
    def verdict(self) -> DeploymentDecision:
        """The decision; raises UserError for a report of claims alone and for an audit of an older version."""
        if self.decision is None:
            raise UserError(f"{self.title!r} holds no verdict", hint="`fedaudit run RUN --phase score` makes one")
        return self.decision

    def dump(self) -> bytes:
        """audit.json, which says nothing of who signed it."""
        return self.model_copy(update={"seal": None}).model_dump_json(indent=1).encode() + b"\n"
