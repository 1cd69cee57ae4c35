"""One set of assumptions about what a claim releases, and what it amounts to for an accountant.

A sensitivity belongs to a unit and to neighbours; where the claim protects another unit or speaks of other
neighbours it is converted, never downwards (audit/accounting/accountant.py, seen_as). A record's sensitivity
becomes that of a client with k records by k (the triangle inequality). Where a fixed number is drawn, somebody
else is drawn in the place of a unit that is not, who may send the opposite: adding, removing or zeroing out one
then counts as a replacement. In a tree of n leaves one contribution is in at most ceil(log2 n) + 1 nodes (Kairouz
et al. arXiv:2103.00039, sec. 4), so it is noised by z / sqrt of that.
"""

import math
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from fedaudit.audit.accounting.accountant import seen_as
from fedaudit.audit.accounting.terms import CREDITED, Term
from fedaudit.audit.settings.spec import Group, Number, Whole
from fedaudit.fl.ledger import Adjacency, Mechanism, Release, Unit

Role = Literal["claimed", "actual", "measured", "other"]
DRAWN = {"poisson": "Poisson", "fixed_without_replacement": "fixed number", "shuffle": "shuffled batches"}
# how releases are made -> the noise that a claim which ships has with it; what others cost is not computed
NOISE_OF: dict[str, Mechanism] = {
    **dict.fromkeys((*DRAWN, "tree"), "gaussian"),
    **dict.fromkeys(("shuffled", "tuned"), "randomized_response"),
}
Positive = Annotated[Number, Field(gt=0)]


class Tuning(Group):
    """The best of a random number of runs is released."""

    mean: Number = Field(gt=1, le=1e6, description="how many runs, on average")
    shape: Number = Field(
        default=1.0,
        gt=-1,
        le=1e3,
        description="eta of their negative binomial number; 1: geometric, 0: logarithmic",
    )


class Setting(Group):
    """One set of assumptions about a release."""

    name: str = Field(max_length=200, description="in the words of the report")
    role: Role = Field(
        default="other",
        description="claimed: what the claim assumes; actual: what holds; measured: a sensitivity that was "
        "reached, so that it bounds from below; other: shown only",
    )
    mechanism: Mechanism | None = Field(default=None, description="of the noise; default: that of the claim")
    noise: Number | None = Field(
        default=0.0, ge=0, description="standard deviation or scale; 0: none; null: not published"
    )
    sensitivity: Positive | None = Field(default=None, description="of one release; null: nothing bounds it")
    epsilon: Positive | None = Field(
        default=None, description="instead of noise: pure differential privacy of one release, as stated"
    )
    rho: Positive | None = Field(
        default=None, description="instead of noise: zero-concentrated privacy of one Gaussian release"
    )
    attained: bool = Field(
        default=True,
        description="whether some neighbours differ by all of the sensitivity; false: it may be loose",
    )
    delta: Number | None = Field(default=None, ge=0, lt=1, description="default: that of the claim")
    spacing: Positive | None = Field(default=None, description="of numbers that rounding recovers")
    unit: Unit | None = Field(default=None, description="that the sensitivity is of; default: that of the claim")
    adjacency: Adjacency | None = Field(
        default=None, description="that the sensitivity is of; default: that of the claim"
    )
    records: Annotated[Whole, Field(ge=1, le=10**4)] | None = Field(
        default=None,
        description="of one client, where the sensitivity is a record's and the claim is of clients; not sampled",
    )
    sampling: Literal["none", "poisson", "fixed_without_replacement", "shuffle"] = Field(
        default="none",
        description="hidden from the observer; shuffle: every unit once in a random batch of each epoch",
    )
    rate: Number = Field(default=1.0, gt=0, le=1, description="of the sampling")
    batches: Annotated[Whole, Field(ge=2, le=10**7)] | None = Field(
        default=None, description="of an epoch, of whatever sizes, with sampling: shuffle; each is a release"
    )
    releases: Annotated[Whole, Field(ge=1, le=10**9)] | None = Field(
        default=None, description="how many; default: the most that the claim lists"
    )
    tree: Annotated[Whole, Field(ge=1, le=10**9)] | None = Field(
        default=None, description="leaves of the binary tree that is noised (DP-FTRL); a release is one tree"
    )
    shuffled: Annotated[Whole, Field(ge=2, le=10**7)] | None = Field(
        default=None, description="reports mixed by a shuffler before anybody reads them"
    )
    tuned: Tuning | None = Field(default=None, description="of the best of several runs; default: one run")

    @model_validator(mode="after")
    def _require_one_noise(self) -> "Setting":
        said = [k for k in ("noise", "epsilon", "rho") if k in self.model_fields_set]
        if len(said) > 1:
            raise ValueError(f"must have one of {' and '.join(said)}")
        if self.rate < 1 and self.sampling in ("none", "shuffle"):
            number = " (sampling: shuffle takes batches, their number)" if self.sampling == "shuffle" else ""
            raise ValueError(f"must say how it samples where it has a rate{number}")
        if (self.batches is None) == (self.sampling == "shuffle"):
            raise ValueError("must have batches with sampling: shuffle, and only then")
        if len(ways := self.list_ways()) > 1:
            raise ValueError(f"must have one of {' and '.join(ways)}: what they cost together is not computed")
        return self

    def list_ways(self) -> list[str]:
        """Which of the ways it has that a release may be made, by their names."""
        named = ("records", "tree", "shuffled", "tuned")
        return [*([self.sampling] if self.sampling != "none" else []), *(k for k in named if getattr(self, k))]

    def explain_refusal(self, mechanism: Mechanism) -> str:
        """Which noise it has to have, and why, as a phrase; empty where it has it. `mechanism` is the claim's."""
        noise = _scale(self, self.mechanism or mechanism)[0]
        odd = [w for w in self.list_ways() if NOISE_OF.get(w, noise) != noise and noise != "none"]
        if not odd:
            return ""
        words = NOISE_OF[odd[0]].replace("_", " ")
        return f"{words} noise with {odd[0]}: what {noise.replace('_', ' ')} costs so is not computed"

    @property
    def plain(self) -> bool:
        """Whether its cost has a closed form for every number of releases."""
        return self.sampling == "none" and self.shuffled is None and self.tuned is None

    def describe_draw(self) -> str:
        """How units are sampled, as a phrase; empty where they are not."""
        if self.sampling == "none":
            return ""
        how = f"{self.batches:,} an epoch" if self.batches else f"rate {self.rate:.3g}"
        return f"{DRAWN[self.sampling]}, {how}"

    @property
    def published(self) -> bool:
        return self.noise is not None or self.epsilon is not None or self.rho is not None


class Noised(NamedTuple):
    """One release as an accountant reads it."""

    term: Term  # z = 0: nothing bounds the loss
    floor: Term | None  # a release that surely costs no more, without fixed-size sampling; None: none is known
    in_full: Term | None = None  # one that costs no less, without sampling; None: `term` without its sampling
    zeroed: bool = False  # fixed number, zeroed out: the draw itself may show more than `floor`


def assume_noise(s: Setting, mechanism: Mechanism, unit: str, adjacency: str) -> Noised:
    """One release of these assumptions, towards neighbours of that unit and adjacency ("unstated": its own)."""
    mechanism, scale, sensitivity = _scale(s, s.mechanism or mechanism)
    own = s.adjacency or (adjacency if adjacency != "unstated" else _choose_neighbours(s))
    stated = towards = own if adjacency == "unstated" else adjacency
    of: Unit = s.unit or ("client" if unit == "client" else "record")
    protected: Unit = of if unit == "unstated" else "client" if unit == "client" else "record"
    sampled = s.sampling in CREDITED and s.rate < 1
    fixed = sampled and s.sampling == "fixed_without_replacement"
    grouped = protected == "client" and of == "record" and s.records is not None
    nodes = 1 if s.tree is None else (s.tree - 1).bit_length() + 1
    complete = 1 if s.tree is None else s.tree.bit_length()  # nodes over the first leaf that are ever released
    one = Release(
        round=0,
        kind="claim",
        sender="claim",
        observers=(),
        mechanism=mechanism,
        noise_std=scale / math.sqrt(nodes),
        sensitivity=None if sensitivity is None else sensitivity * (s.records or 1 if grouped else 1),
        unit="client" if grouped else of,
        adjacency="replace_one" if own == "replace_one" else "add_or_remove_one",
        sampling=s.sampling,
        sample_rate=s.rate,
    )
    zeroed = fixed and towards == "zero_out" and own != "replace_one" and protected == of
    if fixed and towards == "add_or_remove_one":  # as many are drawn with one unit less
        towards = "replace_one"
    plainly = seen_as(one, protected, "replace_one" if towards == "replace_one" else "add_or_remove_one")
    seen = seen_as(one, protected, "replace_one") if fixed else plainly
    z = float(seen.noise_multiplier)
    if not sampled:
        plain = Term(seen.mechanism, z, "none", 1.0)
        reached = protected == of or grouped  # a record may change less of its client's update than all of it
        return Noised(plain, plain._replace(z=z * math.sqrt(nodes / complete)) if reached else None)
    credited = fixed or seen.sampling == "poisson"
    term = Term(seen.mechanism, z, seen.sampling if credited else "none", float(s.rate) if credited else 1.0)
    # a Poisson-sampled record that is replaced by a zero, or the only one of its client, costs no more
    below = z if fixed else 0.0 if own == "replace_one" or seen.mechanism == "none" else one.noise_multiplier
    if fixed and stated == "zero_out":  # where all others send zeros
        below = one.noise_multiplier if zeroed and seen.mechanism != "none" else 0.0
    floor = Term(mechanism, float(below), "poisson", float(s.rate)) if below > 0 and protected == of else None
    # the draw is the same with a unit that is zeroed out
    same = float(plainly.noise_multiplier) if stated == "zero_out" and seen.mechanism != "none" else 0.0
    in_full = Term(seen.mechanism, same, "none", 1.0) if fixed and same else None
    return Noised(term, floor, in_full, zeroed)


def _scale(s: Setting, mechanism: Mechanism) -> tuple[Mechanism, float, float | None]:
    if s.epsilon is not None:
        return "randomized_response", 1 / s.epsilon, 1.0
    if s.rho is not None:
        return "gaussian", 1 / math.sqrt(2 * s.rho), 1.0
    return mechanism, s.noise or 0.0, s.sensitivity


def _choose_neighbours(s: Setting) -> Adjacency:
    return "replace_one" if s.sampling == "fixed_without_replacement" else "add_or_remove_one"
