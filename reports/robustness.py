"""What a matrix of attacks by rules came to, as audit.json and evidence/matrix.json hold it."""

from pydantic import Field

from fedaudit.attacks.evidence import Evidence
from fedaudit.fl.threats.threat import Aim
from fedaudit.reports.exhibits import Gallery
from fedaudit.reports.record import Record, Taxon, Threat

LEAST_SEEDS = 5  # a certificate is about the expectation over trainings


class MatrixCell(Record):
    """One attack under one rule, over all seeds, beside the same rule with nobody malicious."""

    setting: str  # method and partition
    rule: str
    family: str  # the same rule whatever the number of malicious clients: "krum (f = m)"
    assumed: int | None  # malicious clients that the rule assumes
    adversary: str  # its label
    title: str  # the adversary in words
    malicious: int
    accuracy: float  # mean over seeds, fraction of the test set
    clean: float
    by_seed: list[tuple[float, float]]  # attacked, clean
    severity: str = ""  # of this cell alone, by what it takes at least; empty: nothing for sure
    evidence: list[Evidence] = Field(default_factory=list)
    folders: list[str] = Field(default_factory=list)  # of its runs, inside the run folder

    def find(self, measure: str) -> Evidence | None:
        return next((e for e in self.evidence if e.measure == measure), None)


class DefenceCost(Record):
    """What a rule costs with nobody malicious, beside the mean."""

    setting: str
    rule: str
    assumed: int | None
    accuracy: float
    worst_class: float
    evidence: list[Evidence] = Field(default_factory=list)  # none for the mean itself
    severity: str = ""


class Breakdown(Record):
    """The fewest malicious clients, of those tried, that take a tenth of a rule's clean accuracy."""

    setting: str
    family: str
    tried: list[int]
    least: list[int | None]  # of each seed; None: none of those tried


class Certificate(Record):
    """A score under attack beside the most that the noise in the ledger lets any attack reach."""

    setting: str
    rule: str
    title: str  # the adversary in words
    malicious: int
    score: str  # in words: "errors", "attack success"
    seeds: int
    clean: float  # mean over seeds, with the same clients honest
    measured: float
    interval: tuple[float, float] | None  # Student's over seeds; None below two
    ceiling: float  # at the upper end of the interval of `clean`
    folders: list[str] = Field(default_factory=list)

    @property
    def above(self) -> float | None:
        """By how much the measured score is surely above the ceiling; None where the seeds are too few to say."""
        return None if self.interval is None or self.seeds < LEAST_SEEDS else self.interval[0] - self.ceiling


class DataCertificate(Record):
    """What a rule answers rightly, and would whatever some clients had trained on in one round."""

    setting: str
    rule: str
    malicious: int
    share: float  # of each of their batches that is poisoned
    scale: float  # of what they send
    images: str  # in words: "as they are"
    seeds: int
    right: float  # share of these images, mean over seeds
    certified: list[tuple[float, float]]  # length of the trigger, share certified; the last is the attack's own


class MovedPrototypes(Record):
    """Shared prototypes of the last round, with nobody malicious and with forged ones among them, in a plane."""

    title: str
    classes: list[str]
    before: list[tuple[float, float]]
    after: list[tuple[float, float]]
    kept: float  # share of their variance that the plane holds


class NotRun(Record):
    """Runs of the matrix that came to no end, for one reason."""

    cells: list[str]
    reason: str
    failed: bool  # an error; else the attack or rule does not apply


class TriedAdversary(Record):
    """Who was tried, for the words of findings."""

    name: str
    title: str
    source: str
    does: str
    remedy: str
    threat: Threat
    taxonomy: list[Taxon]
    aim: Aim


class Needs(Record):
    """What a rule must read of every single client, which sums alone would hide."""

    rule: str
    kinds: list[str] = Field(default_factory=list)  # none: it works on sums, and so under secure aggregation


class ReplayedRound(Record):
    """The one round of a recorded federation whose uploads were replayed."""

    round: int
    heard: int  # clients whose uploads it has
    weights: str  # how the mean weighs them, in words
    examples: int = 0  # of the auditor's, on which models were measured; 0: none was
    why: str = ""  # no model was measured, as a sentence; empty where models were


class Displacement(Record):
    """How far forged uploads moved what a rule makes of one recorded round."""

    rule: str
    adversary: str  # its label
    title: str  # the adversary in words
    malicious: int
    spreads: float  # distance from what the rule makes of the recorded uploads, over their spread


class Robustness(Record):
    """The whole matrix; controls are cells of `planted`."""

    clients: int
    chance: float  # accuracy of always answering the most frequent class
    seeds: list[int]
    cells: list[MatrixCell] = Field(default_factory=list)
    costs: list[DefenceCost] = Field(default_factory=list)
    planted: list[MatrixCell] = Field(default_factory=list)
    bypassed: dict[str, list[str]] = Field(default_factory=dict)  # setting -> what malicious clients leave out
    needs: list[Needs] = Field(default_factory=list)  # of every rule
    breakdown: list[Breakdown] = Field(default_factory=list)
    certificates: list[Certificate] = Field(default_factory=list)
    uncertified: str = ""  # why there are none, as a phrase
    data_certificates: list[DataCertificate] = Field(default_factory=list)
    data_uncertified: dict[str, list[str]] = Field(default_factory=dict)  # why as a phrase -> settings with rules
    not_run: list[NotRun] = Field(default_factory=list)
    adversaries: dict[str, TriedAdversary] = Field(default_factory=dict)  # by label
    triggered: list[Gallery] = Field(default_factory=list)  # test images with a trigger, and what is answered
    prototypes: list[MovedPrototypes] = Field(default_factory=list)
    advice: list[str] = Field(default_factory=list)  # sentences, from cells that ran
    replayed: ReplayedRound | None = None  # set where no federation was run
    displaced: list[Displacement] = Field(default_factory=list)  # of a replayed round
