"""What an attack hands back to be judged and printed: numbers beside baselines, images, curves.

These records are the same from the attack through evidence/*.json and audit.json to the report: plain
dataclasses that pydantic validates as they are. Nothing here imports more than the table of measures.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fedaudit.attacks.measure import find_measure
from fedaudit.fl.runtime.records import check_types

# What stands under "origin" in a condition, besides "recorded": messages that a client of the auditor sent
REPLAYED = "replayed"
UNPROTECTED = "replayed, without the protections"  # shows whether an attack works at all
WHOLE = "replayed, all of the cell"  # of the very examples behind a recorded message

ROUNDING = 1e-9  # how far an end of an interval may lie on the wrong side of its value


def is_replay(origin: str) -> bool:
    """Whether the auditor had a client send it, with the run's protections or without."""
    return origin.startswith(REPLAYED)


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """What a baseline gets in the same trials. Raises ValueError for a value that no measurement gives."""

    name: str  # "class mean", "wrong prototype, same class", "chance"
    value: float
    interval: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        _check_value(self.name, self.value, self.interval)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One measured agreement of claim and truth. Never a verdict: the policy decides what it means.

    Raises ValueError where the measure has no row in attacks/measure.py, its unit or direction is another, or no
    measurement gives such a value; TypeError names a field of another type.
    """

    measure: str  # a name of attacks/measure.py: "rank1", "ssim", "auc", "count_exact_match"
    value: float
    unit: str  # "fraction", "dB", "index"
    trials: int
    interval: tuple[float, float] | None  # at `confidence`, already corrected for `looks`
    baselines: tuple[Baseline, ...] = ()
    confidence: float = 0.95
    looks: int = 1  # how many comparisons this interval was corrected for
    control: Literal["none", "positive", "negative"] = "none"
    condition: Mapping[str, int | float | str] = field(default_factory=dict)  # {"n": 5}; groups a curve
    higher_is_worse: bool = True
    note: str = ""

    def __post_init__(self) -> None:
        check_types(self)
        row = find_measure(self.measure)
        if (self.unit, self.higher_is_worse) != (row.unit, row.higher_is_worse):
            raise ValueError(
                f"measure {row.name} is in unit {row.unit!r} with higher_is_worse={row.higher_is_worse} "
                f"(attacks/measure.py), got {self.unit!r} and {self.higher_is_worse}"
            )
        _check_value(self.measure, self.value, self.interval)
        if self.trials < 0 or self.looks < 1 or not 0 < self.confidence < 1:
            raise ValueError(
                f"{self.measure}: {self.trials} trials, {self.looks} comparisons and confidence "
                f"{self.confidence:g} cannot be"
            )

    @property
    def strongest(self) -> Baseline | None:
        """The baseline that does best; None where there was none."""
        if not self.baselines:
            return None
        return (max if self.higher_is_worse else min)(self.baselines, key=lambda b: b.value)

    @property
    def place(self) -> str:
        """The condition in words, "n = 5, origin = recorded"; evidence of one place is judged together."""
        return ", ".join(f"{k} = {v if isinstance(v, str) else f'{v:,.6g}'}" for k, v in self.condition.items())


def _check_value(name: str, value: float, interval: tuple[float, float] | None) -> None:
    """Raises ValueError for NaN, and for an interval that does not hold its value."""
    low, high = (value, value) if interval is None else interval
    if not low - ROUNDING <= value <= high + ROUNDING:  # nor is NaN anywhere
        raise ValueError(f"{name} is {value:g}, and its interval {low:g} to {high:g}")


@dataclass(frozen=True, kw_only=True)
class Assertion:
    """What an adversary asserts of one client, in words, for who may look where the auditor may not."""

    client: int
    says: str  # "classes two and five"
    check: str  # what has to be seen to check it: "how many examples of each class it owns"


@dataclass(frozen=True, kw_only=True)
class ImageGallery:
    """Images for the report: equal-length rows, each [k, C, H, W] in [0, 1]."""

    title: str
    caption: str  # says what to see
    rows: Mapping[str, Any]  # arrays: "original", "reconstruction", "class mean", ...
    columns: tuple[str, ...] = ()  # a label over each column


Mark = Literal["right", "elsewhere", "wrong", "missed"]


@dataclass(frozen=True, kw_only=True)
class TextPair:
    """A client's text above what was claimed of it. A word begins with a space where it is not part of the one
    before.
    """

    name: str  # "client 3, best"
    original: tuple[str, ...]  # its words
    claimed: tuple[tuple[str, Mark], ...]  # words of the claim, then the original's that it misses


@dataclass(frozen=True, kw_only=True)
class TextExhibit:
    """Texts for the report."""

    title: str
    caption: str  # says what to see
    pairs: Sequence[TextPair]


@dataclass(frozen=True, kw_only=True)
class RowPair:
    """A client's row of a table beside what was claimed of it, column by column, as a person reads them."""

    name: str  # "client 3, best"
    columns: tuple[str, ...]
    original: tuple[str, ...]  # with units
    claimed: tuple[str, ...]
    apart: tuple[float, ...]  # of each column, from 0 to 1: by its range, or whether the category is another


@dataclass(frozen=True, kw_only=True)
class RowExhibit:
    """Rows of a table for the report."""

    title: str
    caption: str  # says what to see
    pairs: Sequence[RowPair]


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line or set of points of a figure; an attack's are ROC curves, false against true positives."""

    name: str  # "n = 5"
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None  # the lower and upper ends of an interval
    high: Sequence[float] | None = None
    blind: bool = False  # a baseline: drawn dashed and grey
