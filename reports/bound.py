"""The bound on a privacy loss, as every page shows it: one object with one status.

An epsilon is put into words by reports/bound_text.py alone, and a bound that is refuted, or that nothing
limits, has none: no page can show a number that another page refutes.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Literal

from pydantic import Field, model_validator

from fedaudit.reports.record import Record

LARGEST_FIRST = ("client", "person", "record", "unstated")  # units


class Status(StrEnum):
    """What is known of a bound. "verified" is evidence, never proof: no counterexample was found."""

    VERIFIED = (
        "verified"  # the ledger was made again, and neither a replay nor a test of the noise speaks against it
    )
    DECLARED = "declared"  # somebody says so, and some of it could not be checked
    REFUTED = "refuted"  # the verifier, a test of the noise or a replay speaks against it
    NONE = "none"  # something that depends on the data is released in clear, or nothing could be computed


class Reason(Record):
    """Why a bound has its status."""

    source: Literal["ledger", "accountant", "cap", "verifier", "noise test", "replay", "assumption", "plan"]
    sentence: str
    place: str = ""  # the kind, channel or point of release that it is about
    round: int | None = None
    pair: str = ""  # the neighbouring data that show it
    ratio: float | None = None  # distance of their releases, as a multiple of the declared sensitivity


class PrivacyBound(Record):
    """An upper limit on the privacy loss towards one observer, for one unit, with its status.

    `epsilon` is finite for what is verified or declared, and infinite for everything else. A refuted value stands
    in the sentence of its first reason and nowhere else.
    """

    observer: str  # "server", "another client", "public"
    unit: str  # "client", "person" or "record"
    adjacency: str  # "add_or_remove_one", "replace_one", or "zero_out" (its message is there either way)
    delta: float
    epsilon: float
    status: Status
    reasons: list[Reason] = Field(default_factory=list)
    accountant: str
    releases: int = 0  # of the client or record with the largest loss
    colluders: int = 0  # clients that put together what they know, with the observer, where noise is shared
    population: str = ""  # of whom it speaks: "10 clients"
    pairs: int = 0  # neighbouring data that were played; none of them is a counterexample of a verified bound
    tests: int = 0  # of the noise, all of which a verified bound passed
    declared_by: str = "the ledger"  # where it is declared
    assumes: str = ""
    note: str = ""
    replaced: float | None = None  # where data are zeroed out: the bound where others are in their place
    uncredited: str = ""  # why the draw of clients makes it no smaller, as a phrase

    @model_validator(mode="after")
    def _check(self) -> "PrivacyBound":
        if math.isfinite(self.epsilon) != self.holds:
            raise ValueError(f"a bound that is {self.status} cannot have epsilon {self.epsilon:g}")
        if self.replaced is not None and not self.holds:
            raise ValueError(
                f"a bound that is {self.status} cannot have epsilon {self.replaced:g} for replaced data"
            )
        if self.status is not Status.VERIFIED and not self.reasons:
            raise ValueError(f"a bound that is {self.status} needs a reason")
        return self

    @property
    def holds(self) -> bool:
        """Whether there is an epsilon, verified or declared."""
        return self.status in (Status.VERIFIED, Status.DECLARED)

    @property
    def is_open(self) -> bool:
        """Whether the accountant ran past its cap, so that the loss may well be bounded."""
        return self.status is Status.NONE and any(r.source == "cap" for r in self.reasons)

    @property
    def clear_kinds(self) -> list[str]:
        """Kinds that are released without noise, which is why there is no bound."""
        return [r.place for r in self.reasons if r.source == "ledger"]


def choose_bound(bounds: Sequence[PrivacyBound], observer: str) -> PrivacyBound | None:
    """The bound to quote where there is room for one: the smallest that holds, of the largest unit.

    Where none holds, one that is refuted before one that never was.
    """
    found = [b for b in bounds if b.observer == observer]
    return min(
        found,
        key=lambda b: (not b.holds, b.status is not Status.REFUTED, LARGEST_FIRST.index(b.unit), b.epsilon),
        default=None,
    )


def group_observers(bounds: Sequence[PrivacyBound]) -> list[tuple[str, PrivacyBound]]:
    """Bounds that differ in nothing but their observer, once, with the names of all of these."""
    groups: dict[str, list[PrivacyBound]] = {}
    for b in bounds:
        groups.setdefault(b.model_dump_json(exclude={"observer"}), []).append(b)
    return [(", ".join(dict.fromkeys(b.observer for b in alike)), alike[0]) for alike in groups.values()]
