"""What clients that do not answer cost each method, as audit.json and evidence/absence.json hold it."""

from pydantic import Field

from fedaudit.reports.record import Record
from fedaudit.reports.robustness import NotRun

AXES = {  # axis -> its words
    "answering": "probability p that a client answers",
    "persistence": "rounds s for which who answers stays the same",
}
MEASURES = {  # measure -> its words; fractions
    "accuracy": "accuracy, mean of the last five rounds",
    "worst_class": "accuracy of the worst class, last five rounds",
    "class_std": "standard deviation of the classes' accuracies, over rounds",
    "round_drop": "mean drop of accuracy from a round to the next, where it drops",
}


class Curve(Record):
    """One measure of one method along one axis."""

    method: str
    axis: str
    measure: str
    x: list[float]
    values: list[list[float]]  # at each x, by seed


class Difference(Record):
    """A number over seeds, with Student's interval; None for one seed."""

    value: float
    interval: tuple[float, float] | None
    seeds: int


class Beside(Record):
    """Accuracy of one method at one place: what is lost, and how it compares with fedavg."""

    method: str
    axis: str
    x: float
    accuracy: float
    drop: Difference  # from everybody answering, seed by seed
    over_fedavg: Difference | None  # above 0: more than fedavg, seed by seed; None of fedavg itself


class Return(Record):
    """The only holders of a class leave and return."""

    method: str
    label: str  # of the class
    holders: list[list[int]]  # by seed
    leave: int
    back: int
    recall: list[list[float]]  # by seed, by round
    before: list[float]  # by seed: mean over the five rounds before they leave
    lost: list[int | None]  # rounds until a tenth of that is left, by seed; None: it never came to that
    regained: list[int | None]  # rounds after the return until nine tenths of it are there again; None: never
    drop: Difference  # from `before` to the mean of the last five rounds of the absence


class Absence(Record):
    seeds: list[int]
    curves: list[Curve] = Field(default_factory=list)
    beside: list[Beside] = Field(default_factory=list)
    returns: list[Return] = Field(default_factory=list)
    not_run: list[NotRun] = Field(default_factory=list)
