"""The contract of an accountant: what was released in, an upper bound on the privacy loss out.

The ledger says what happened; an accountant says what it costs. It must refuse what it was not made
for, never guess: a release it cannot cover has no bound. Bounds have one direction: never too low.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, TypeVar

from pydantic import Field

from fedaudit.audit.accounting.child import Exceeded, call
from fedaudit.audit.accounting.terms import CREDITED, Term, Terms, terms
from fedaudit.fl.ledger import MEMBER, Adjacency, Release, invalid
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import Plugin
from fedaudit.fl.runtime.ranges import Positive
from fedaudit.fl.runtime.settings import settings

T = TypeVar("T")
Protected = Literal["client", "person", "record"]  # units of bounds, the largest first


@dataclass(frozen=True, kw_only=True)
class Card:
    """What an accountant is, for `fedaudit tools list accountants` and beside every bound."""

    title: str
    source: str  # paper and theorem
    adjacency: tuple[Adjacency, ...]  # neighbouring datasets it can speak of


@dataclass(frozen=True, kw_only=True)
class Bound:
    """epsilon at the delta given, not rounded; infinity where nothing bounds the loss."""

    epsilon: float
    spoiled_by: tuple[str, ...] = ()  # kinds released without noise, or without a clip
    unbounded: str = ""  # another reason why there is no bound, as a phrase
    note: str = ""
    engine: str = ""  # title of the accountant that computed it, where another one chose
    lower: float | None = None  # no bound below this can hold, where an engine knows one
    inconclusive: bool = False  # past a cap: the engine says nothing, the loss may well be bounded
    disagrees: str = ""  # how another engine contradicts it, as a sentence; empty: none does


UNCREDITED_LAW = (
    "clients are drawn neither by a coin each nor in a fixed number, as where a round in which nobody answers is "
    "drawn again (federation.empty_round: redraw)"
)
NOTHING = Bound(epsilon=math.inf, unbounded="nothing is accounted for")


class Accountant(Plugin):
    """Subclasses set `card` and write refuses() and compose()."""

    card: Card

    @abstractmethod
    def refuses(self, release: Release) -> str | None:
        """Why this release cannot be accounted for, as a sentence without a full stop; else None."""

    @abstractmethod
    def compose(self, releases: Sequence[Release], delta: float) -> Bound:
        """The cost of noised releases that refuses() accepts, all of one unit and adjacency."""

    def cross_check(self, bound: Bound, releases: Sequence[Release], delta: float) -> Bound:
        """The bound with what other engines say of it; called for the worst sender only."""
        return bound

    def epsilon(self, releases: Sequence[Release], delta: float) -> Bound:
        """The cost of all releases of one sender that one observer could read.

        Where nothing is accounted for nothing is bounded. A release without noise costs infinity too, and
        the bound names it. Raises UserError for a delta outside [0, 1) and for a release whose numbers mean
        nothing.
        """
        if not 0 <= delta < 1:
            raise UserError(
                f"delta must be at least 0 and below 1, got {delta}",
                hint="at delta = 1 every mechanism is private; use 1e-5",
            )
        for release in releases:
            if reason := invalid(release):
                raise UserError(
                    f"ledger: round {release.round}, {release.kind}: {reason}",
                    hint="restore the ledger, or simulate again",
                )
        if not any(r.count for r in releases):
            return NOTHING
        spoilers = tuple(dict.fromkeys(r.kind for r in releases if not r.noise_multiplier))
        if spoilers:
            return Bound(epsilon=math.inf, spoiled_by=spoilers)
        for release in releases:
            if reason := self.refuses(release):
                return Bound(epsilon=math.inf, unbounded=reason, note=f"Not covered: {reason}.")
        found = self.compose(releases, delta)
        if delta == 0 and math.isinf(found.epsilon):
            return replace(found, unbounded="nothing bounds Gaussian noise at a delta of 0")
        return found


class Numerical(Accountant):
    """An accountant that computes in a child process with a cap, past which it is inconclusive.

    Subclasses set `card` and `function`, a module-level function of (terms, delta) to a Bound.
    """

    @settings
    class Config:
        seconds: Positive = Field(default=60.0, description="processor time that one bound may take, in seconds")
        gigabytes: Positive = Field(default=8.0, description="address space a bound may take, in gigabytes")

    function: Callable[[Terms, float], Bound]
    least_delta: float = 0.0  # below it rounding could make a bound too low

    def declines(self, counts: Terms) -> str:
        """Why these terms cannot be composed, as a phrase; empty where they can. Every way in asks it."""
        return ""

    def compose(self, releases: Sequence[Release], delta: float) -> Bound:
        return self.cost(terms(releases), delta)

    def cost(self, counts: Terms, delta: float) -> Bound:
        """The bound of terms; infinite where this accountant was not made for them."""
        if reason := self.declines(counts):
            return Bound(epsilon=math.inf, unbounded=reason, note=f"Not covered: {reason}.")
        if not counts:
            return Bound(epsilon=0.0)
        if delta == 0:
            return Bound(epsilon=math.inf, note=f"{self.card.title} needs a delta above 0.")
        if delta < self.least_delta:
            why = f"below a delta of {self.least_delta:g} rounding could make its bound too low"
            return Bound(epsilon=math.inf, inconclusive=True, note=f"{self.card.title} is inconclusive: {why}.")
        try:
            return compute_apart(type(self).function, self.config, counts, delta)
        except Exceeded as reason:
            note = f"{self.card.title} is inconclusive: {reason}."
            return Bound(epsilon=math.inf, inconclusive=True, note=note)


def compute_in_turn(accountant: Accountant, groups: Sequence[Sequence[Release]], delta: float) -> list[Bound]:
    """What each of these groups of releases costs. A child process that is asked for it imports no torch."""
    return [accountant.epsilon(group, delta) for group in groups]


def compute_apart(
    function: Callable[[Terms, float], T], caps: Numerical.Config, counts: Terms, delta: float
) -> T:
    """function(counts, delta) in a child process; raises Exceeded past a cap.

    Phases, observers and options ask for the same terms again and again: what they give is kept.
    """
    kept: T = _compute_once(function, caps, tuple(counts.items()), delta)
    return kept


@lru_cache(maxsize=1000)
def _compute_once(
    function: Callable[[Terms, float], T],
    caps: Numerical.Config,
    counts: tuple[tuple[Term, int], ...],
    delta: float,
) -> T:
    return call(function, caps.seconds, caps.gigabytes, dict(counts), delta)


def seen_as(release: Release, unit: Protected, adjacency: Adjacency) -> Release:
    """A release as it protects `unit` under `adjacency`: its sensitivity converted, never lowered.

    A person's releases are those of each of its records.

    Replacing is removing and adding, so it doubles an add-or-remove sensitivity. Changing one record
    leaves its client in place with another vector inside the same clip: a replacement as well. Noise
    for one record says nothing about a whole client: such a release counts as not noised. Poisson
    sampling is not credited for a replacement: its amplification is known for add-or-remove only.
    """
    if release.mechanism == "none" or release.sensitivity is None:
        return release
    unit = "record" if unit == "person" else unit
    if unit == "client" and release.unit == "record":
        return replace(release, mechanism="none", kind=f"{release.kind} (noised for one record only)")
    replaced = adjacency == "replace_one" or release.unit != unit
    factor = 2.0 if replaced and release.adjacency != "replace_one" else 1.0
    found = release
    if (release.unit, release.adjacency, factor) != (unit, adjacency, 1.0):
        found = replace(release, unit=unit, adjacency=adjacency, sensitivity=release.sensitivity * factor)
    if release.sampling == "poisson" and (replaced or release.adjacency == "replace_one"):
        return replace(found, sampling="unknown")
    return found


def explain_full_count(release: Release, roles: Collection[str], adjacency: Adjacency) -> str:
    """Why a release of clients of whom some are drawn counts as if all took part, as a phrase; else empty."""
    if release.unit != "client" or not release.noise_multiplier:
        return ""
    if release.uncredited_rate < 1:
        source, rate = release.source or "its maker", release.uncredited_rate
        return f"{source} counts on clients drawn at rate {rate:g}, and the run does not draw them so"
    if release.sampling == "unknown":
        return UNCREDITED_LAW
    if release.sampling not in CREDITED or release.sample_rate == 1:
        return ""
    if not release.sender.endswith("/*"):
        return "noise that a client adds itself is there only when the client is"
    if any(role in roles for role in release.participation_seen_by):
        return "the observer sees who takes part"
    if release.sampling == "poisson" and adjacency == "replace_one":
        return "coins hide that one is there or not, and here one is replaced"
    return ""


def observe_release(release: Release, roles: Collection[str]) -> Release:
    """The release towards an observer of these roles: sampling it can see through is not credited.

    A line of one named client exists only because that client took part, so for clients as the unit
    only lines of "client/*" can be amplified. Where a fixed number is drawn, as many are drawn with one
    client less: somebody else is in the place of the one that is gone, so that this counts as a replacement.
    Members who know each other see through the draw in rounds of their own: what is left is credited to Gaussian
    noise alone (audit/accounting/terms.py).
    Of noise that clients make together, an observer who made a part of it, or reads one message, counts the rest.
    """
    release = _drop_own_shares(release, roles)
    seen = any(role in roles for role in release.participation_seen_by)
    if MEMBER in release.participation_seen_by and not seen:
        if "client/*" not in roles:
            release = replace(release, participation_seen_by=_without_members(release))
        elif release.mechanism not in ("gaussian", "none"):
            seen = True
    named = release.unit == "client" and not release.sender.endswith("/*")
    sized = release.sampling == "fixed_without_replacement" and release.adjacency != "replace_one"
    if release.sampling in CREDITED and (seen or named):
        return replace(release, sampling="unknown")
    if sized and release.sample_rate < 1 and release.mechanism != "none" and release.sensitivity is not None:
        return replace(release, adjacency="replace_one", sensitivity=2 * release.sensitivity)
    return release


def _without_members(release: Release) -> tuple[str, ...]:
    return tuple(role for role in release.participation_seen_by if role != MEMBER)


def _drop_own_shares(release: Release, roles: Collection[str]) -> Release:
    """A line of noise made together with the shares that hide this sender from that observer.

    A client knows its own share, and those of its colluders. The server and the public made none, and are taken
    to collude with nobody. Who reads the very message reads noise of one share.
    """
    if not release.shared:
        return release
    client = "client/*" in roles
    single = "server" in roles and "server" in release.observers
    single = single or (client and any(o.startswith("client/") for o in release.observers))
    colluders = release.colluders if client else 0
    left = release.counted_shares(single, colluders)
    std = release.noise_std * math.sqrt(left / release.aggregated)
    made = release.shares or release.aggregated
    return replace(release, noise_std=std, aggregated=left, shares=made, colluders=colluders)
