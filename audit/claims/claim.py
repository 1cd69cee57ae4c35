"""Claims: what a paper or a contract says about privacy, as a file of claims in YAML.

A claim states its noise, its formula and what it promises; `settings` are the assumptions under which
it is computed again (audit/claims/scores.py). Every number in a claim is the claimant's or a measured
one; everything else is computed.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from fedaudit.audit.claims.setting import Positive, Role, Setting
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.spec import Group, Number, Whole
from fedaudit.fl.ledger import Adjacency, Mechanism
from fedaudit.fl.runtime.yaml import read_yaml
from fedaudit.reports.result import ClaimCondition


class Promise(Group):
    """What is promised."""

    epsilon: Positive | None = Field(default=None, description="null: no number is given")
    delta: Number = Field(default=0.0, ge=0, le=1, description="as the claim states it")
    finite: bool = Field(
        default=False, description="differential privacy without a number: any finite epsilon would keep it"
    )

    @model_validator(mode="after")
    def _require_one_promise(self) -> "Promise":
        if self.finite and self.epsilon is not None:
            raise ValueError("must have a number or be finite, not both")
        return self


class NoiseTarget(Group):
    """A guarantee to find the noise for."""

    epsilon: Positive = Field(description="of the guarantee")
    delta: Number = Field(gt=0, lt=1, description="of the guarantee")
    sensitivity: Positive = Field(default=1.0, description="of one release")
    releases: Whole = Field(default=1, ge=1, description="how many")


class Claim(Group):
    """One claim."""

    id: str = Field(description="short, for tables")
    title: str = Field(description="one line")
    source: str = Field(description="the document and place")
    words: str = Field(description="what is claimed")
    promise: Promise = Field(default=Promise(), description="epsilon and delta as stated")
    theorem: Literal["none", "classical", "central_limit"] = Field(
        default="none", description="the formula the claim used, see audit/accounting/formulas.py"
    )
    mechanism: Mechanism = Field(default="gaussian", description="of the noise")
    unit: Literal["record", "client", "unstated"] = Field(default="unstated", description="protected")
    adjacency: Adjacency | Literal["unstated"] = Field(
        default="unstated",
        description="neighbouring data sets; zero_out: one unit's contribution is replaced by zero",
    )
    units: Whole | None = Field(default=None, ge=1, description="how many there are; delta < 1 / that")
    composes: bool = Field(default=False, description="whether the claim counts its releases")
    releases: dict[str, Annotated[Whole, Field(ge=1)]] = Field(
        default={"1 release": 1}, min_length=1, max_length=6, description="heading -> how many"
    )
    settings: tuple[Setting, ...] = Field(min_length=1, max_length=40, description="assumptions, a row each")
    conditions: tuple[ClaimCondition, ...] = Field(default=(), description="assumptions that no number decides")
    targets: tuple[NoiseTarget, ...] = Field(default=(), description="guarantees to find noise for")
    empirical: str = Field(default="", description="what was measured, in words")
    notes: tuple[str, ...] = Field(default=(), description="further sentences")

    @model_validator(mode="after")
    def _can_be_judged(self) -> "Claim":
        for role in ("claimed", "actual", "measured"):
            if sum(s.role == role for s in self.settings) > 1:
                raise ValueError(f"must have at most one setting of role {role}")
        if self.setting("claimed") is None and self.setting("actual") is None:
            raise ValueError("must have a setting of role claimed or actual")
        for s in self.settings:
            if refused := s.explain_refusal(self.mechanism):
                raise ValueError(f"must have {refused} (setting {s.name!r})")
        return self

    def setting(self, role: Role) -> Setting | None:
        return next((s for s in self.settings if s.role == role), None)

    @property
    def judged(self) -> Setting:
        """What holds, as far as the claim's file knows: the actual setting, else the claimed one."""
        found = self.setting("actual") or self.setting("claimed")
        assert found is not None  # validated
        return found

    def delta(self, s: Setting) -> float:
        return self.promise.delta if s.delta is None else s.delta

    def count(self, s: Setting) -> int:
        """How many releases a setting costs, all together."""
        return s.releases or max(self.releases.values())


class TimedClaim(Group):
    """A claim about devices and their times, which the simulated clock decides (audit/claims/clock.py)."""

    id: str = Field(description="short, for tables")
    title: str = Field(description="one line")
    source: str = Field(description="the document and place")
    words: str = Field(description="what is claimed")
    says: Literal["oblivious", "shorter"] = Field(
        description="that the server learns nothing of devices, or that freezing makes rounds shorter"
    )
    cut: Number | None = Field(default=None, gt=0, lt=1, description="with says: shorter, by which share")
    notes: tuple[str, ...] = Field(default=(), description="further sentences")

    @model_validator(mode="after")
    def _require_amount(self) -> "TimedClaim":
        if (self.cut is None) == (self.says == "shorter"):
            raise ValueError("must have a cut with says: shorter, and only then")
        return self


class ClaimFile(Group):
    """A file of claims."""

    title: str = Field(description="of the report")
    claims: tuple[Claim, ...] = Field(default=(), max_length=200, description="claims about differential privacy")
    timed: tuple[TimedClaim, ...] = Field(default=(), max_length=20, description="claims about devices' times")

    @model_validator(mode="after")
    def _require_claims(self) -> "ClaimFile":
        if not self.claims and not self.timed:
            raise ValueError("must have claims")
        return self


def load(path: Path) -> ClaimFile:
    """A file of claims; raises UserError for the first thing wrong with it."""
    return validate(ClaimFile, read_yaml(path), path)
