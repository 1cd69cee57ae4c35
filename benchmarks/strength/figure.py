"""Figures: a number that was reached beside what is asked of it (docs/attacks.md, rows M1 to M19)."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedaudit.attacks.evidence import Evidence


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number; what is asked is a least or a largest value, or both, and none where it is for comparison."""

    row: str  # "M1"
    what: str
    value: float
    least: float | None = None
    most: float | None = None
    interval: tuple[float, float] | None = None
    trials: int = 0  # 0: not counted

    @property
    def reached(self) -> bool | None:
        """None where nothing is asked."""
        if self.least is None and self.most is None:
            return None
        low = self.least is None or self.value >= self.least
        return low and (self.most is None or self.value <= self.most)

    @property
    def asked(self) -> str:
        if self.least is not None and self.most is not None:
            return f"{self.least:g} to {self.most:g}"
        if self.least is not None:
            return f">= {self.least:g}"
        return f"<= {self.most:g}" if self.most is not None else ""

    @property
    def found(self) -> str:
        ends = "" if self.interval is None else " [{:.3g}, {:.3g}]".format(*self.interval)
        return f"{self.value:.3g}{ends}"


@dataclass(frozen=True)
class Piece:
    """Figures of some rows that are made together, in a folder; kept under its name once it went to its end."""

    name: str
    rows: tuple[str, ...]
    make: Callable[[Path], list[Figure]]


def of(e: Evidence, row: str, what: str, *, least: float | None = None, most: float | None = None) -> Figure:
    """A figure of what an attack came to, with its interval and trials."""
    return Figure(row=row, what=what, value=e.value, least=least, most=most, interval=e.interval, trials=e.trials)
