"""The contract of an accountant: what was released in, an upper bound on the privacy loss out.

The ledger says what happened; an accountant says what it costs. It must refuse what it was not made
for, never guess: a release it cannot cover has no bound. Bounds have one direction: never too low.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

from fl.errors import UserError
from fl.ledger import Adjacency, Mechanism, Release, Sampling, Unit
from fl.plugin import Plugin


@dataclass(frozen=True, kw_only=True)
class Card:
    """What an accountant is, for `fedaudit list accountants` and beside every bound."""

    title: str
    source: str  # paper and theorem
    adjacency: tuple[Adjacency, ...]  # neighbouring datasets it can speak of


@dataclass(frozen=True, kw_only=True)
class Bound:
    """epsilon at the delta asked for, not rounded; infinity where nothing bounds the loss."""

    epsilon: float
    spoiled_by: tuple[str, ...] = ()  # kinds released without noise, or without a clip
    note: str = ""


class Accountant(Plugin):
    """Subclasses set `card` and write refuses() and compose()."""

    card: Card

    @abstractmethod
    def refuses(self, release: Release) -> str | None:
        """Why this release cannot be accounted for, as a sentence without a full stop; else None."""

    @abstractmethod
    def compose(self, releases: Sequence[Release], delta: float) -> Bound:
        """The cost of noised releases that refuses() accepts, all of one unit and adjacency."""

    def epsilon(self, releases: Sequence[Release], delta: float) -> Bound:
        """The cost of all releases of one sender that one observer could read.

        No release costs 0; a release without noise costs infinity, and the bound names it. Raises
        UserError for a delta outside [0, 1) and for a release whose numbers mean nothing.
        """
        if not 0 <= delta < 1:
            raise UserError(f"delta must be at least 0 and below 1, got {delta}",
                            hint="at delta = 1 every mechanism is private; use 1e-5")  # fmt: skip
        for release in releases:
            if reason := invalid(release):
                raise UserError(f"ledger: round {release.round}, {release.kind}: {reason}",
                                hint="restore the ledger, or simulate again")  # fmt: skip
        spoilers = tuple(dict.fromkeys(r.kind for r in releases if not r.noise_multiplier))
        if spoilers:
            return Bound(epsilon=math.inf, spoiled_by=spoilers)
        for release in releases:
            if reason := self.refuses(release):
                return Bound(epsilon=math.inf, note=f"Not covered: {reason}.")
        return self.compose(releases, delta)


def invalid(release: Release) -> str | None:
    """What is wrong with a release's fields, which come from a file that anyone may have written."""
    for name, known in (("mechanism", Mechanism), ("unit", Unit), ("adjacency", Adjacency),
                        ("sampling", Sampling)):  # fmt: skip
        value = getattr(release, name)
        if value not in get_args(known):
            return f"{name} must be one of {', '.join(get_args(known))}, got {value!r}"
    for name, most in (("noise_std", math.inf), ("sensitivity", math.inf), ("sample_rate", 1.0)):
        value = getattr(release, name)
        if value is None and name == "sensitivity":
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and 0 <= value <= min(most, 1e300)):
            return f"{name} must be a finite number >= 0{' and <= 1' if most == 1 else ''}, got {value!r}"
    return None


def seen_as(release: Release, unit: Unit, adjacency: Adjacency) -> Release:
    """A release as it protects `unit` under `adjacency`: its sensitivity converted, never lowered.

    Replacing is removing and adding, so it doubles an add-or-remove sensitivity. Changing one record
    leaves its client in place with another vector inside the same clip: a replacement as well. Noise
    for one record says nothing about a whole client: such a release counts as not noised.
    """
    if release.mechanism == "none" or release.sensitivity is None:
        return release
    if unit == "client" and release.unit == "record":
        return replace(
            release, mechanism="none", kind=f"{release.kind} (noised for one record only)"
        )
    if release.adjacency == "replace_one":
        factor = 1.0
    else:
        factor = 2.0 if adjacency == "replace_one" or release.unit != unit else 1.0
    return replace(
        release, unit=unit, adjacency=adjacency, sensitivity=release.sensitivity * factor
    )
