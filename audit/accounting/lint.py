"""Noise lint: faults that make a differential-privacy bound mean less than it says.

A lint is a function named `l<number>_<what>` in a file of audit/accounting/lints/. It reads the RunRecord of a
run and returns a Flaw where the fault is there, else None. Its first docstring line is the fault in words.
A bound computed from a ledger with a flaw holds for the ledger, not for the run.
"""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fedaudit.fl.ledger import Release
from fedaudit.reports.bound import PrivacyBound
from fedaudit.reports.result import Finding, Severity


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What a lint may read. Empty fields are unknown: a lint that needs one is then silent."""

    releases: Sequence[Release]
    bounds: Sequence[PrivacyBound] = ()
    delta: float = 1e-5
    units: dict[str, int] = field(default_factory=dict)  # how many clients; records of the largest
    delivered: Sequence[int] = ()  # answers received, by round
    rounds: int = 0  # that were set
    # whether the lines come from the run's own wire, which names the generator of all noise that it drew itself
    witnessed: bool = False

    @property
    def noised(self) -> list[Release]:
        return [r for r in self.releases if r.mechanism != "none" and r.noise_std > 0]


@dataclass(frozen=True, kw_only=True)
class Flaw:
    """One fault found."""

    what: str  # a sentence: what was found, where, with its numbers
    remedy: str  # a sentence
    severity: Severity  # of relying on the bound
    reason: str  # why it is that bad, a sentence


Lint = Callable[[RunRecord], Flaw | None]


def lints() -> dict[str, Lint]:
    """Every lint by its id, in the order of their numbers."""
    package = importlib.import_module("fedaudit.audit.accounting.lints")
    found: dict[str, Lint] = {}
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"fedaudit.audit.accounting.lints.{info.name}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if (match := re.match(r"l(\d+)_", name)) and function.__module__ == module.__name__:
                found[f"L{match[1]}"] = function
    return dict(sorted(found.items(), key=lambda item: int(item[0][1:])))


def check(record: RunRecord) -> list[Finding]:
    """One finding a flaw, in the order of the lints."""
    return [
        Finding(
            id=f"lint-{name}",
            title=f"The mathematical limit means less than it says: {title_of(lint)}",
            source="lint",
            method=f"Noise lint {name}",
            severity=flaw.severity,
            reason=flaw.reason,
            summary=flaw.what,
            does_not_show="A flaw shows that a bound does not cover the run; it demonstrates no leak.",
            remedy=flaw.remedy,
        )
        for name, lint in lints().items()
        if (flaw := lint(record)) is not None
    ]


def title_of(lint: Lint) -> str:
    """The first line of its docstring, without the full stop."""
    return (inspect.getdoc(lint) or lint.__name__).splitlines()[0].removesuffix(".")


def describe(releases: Sequence[Release]) -> str:
    """Which releases, in words: "model_delta in rounds 0 to 9"."""
    kinds = list(dict.fromkeys(r.kind for r in releases))
    rounds = sorted({r.round for r in releases})
    more = f" and {len(kinds) - 3} more" if len(kinds) > 3 else ""
    when = f"round {rounds[0]}" if len(rounds) == 1 else f"rounds {rounds[0]} to {rounds[-1]}"
    return f"{', '.join(kinds[:3])}{more} in {when}"
