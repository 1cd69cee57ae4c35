"""The three columns of an empirical audit, as three types that nothing converts into each other.

A bound holds with a stated confidence, whatever the noise was, or under the assumption it names. An
estimate follows from a model that was fitted. A credible value follows from a prior. Only a bound can
refute a claim.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Lower:
    """With `confidence`, the mechanism as executed loses at least `epsilon` at `delta`."""

    audit: str  # "one run", "two-point game", ...
    epsilon: float  # 0: no leakage demonstrated
    delta: float
    confidence: float
    trials: int
    ceiling: float  # the most these trials could have shown
    assumes: str = ""  # what the bound is conditional on; empty: nothing but independent trials
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """The epsilon of a model fitted to scores. Says nothing about how wrong it may be."""

    audit: str
    epsilon: float
    delta: float
    trials: int
    model: str  # what was fitted


@dataclass(frozen=True, kw_only=True)
class Credible:
    """The posterior puts `level` on losses above `epsilon`, given its prior."""

    audit: str
    epsilon: float
    delta: float
    level: float
    trials: int
    prior: str


Number = Lower | Fitted | Credible
