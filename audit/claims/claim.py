"""Claims: what a paper or a contract says about privacy, as a file of claims in YAML.

A claim states its noise, its formula and what it promises; `settings` are the assumptions under which
it is computed again (audit/claims/scores.py). Every number in a claim is the claimant's or a measured
one; everything else is computed.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from audit.settings.errors import validate
from audit.settings.spec import Number, Whole
from audit.settings.yaml import read_yaml
from fl.ledger import Mechanism

Role = Literal["claimed", "actual", "measured", "other"]
Positive = Annotated[Number, Field(gt=0)]


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Promise(_Group):
    """What is promised."""

    epsilon: Positive | None = Field(default=None, description="null: no number is given")
    delta: Number = Field(default=0.0, ge=0, le=1, description="as the claim states it")


class Setting(_Group):
    """One set of assumptions about a release."""

    name: str = Field(description="in the words of the report")
    role: Role = Field(default="other", description="claimed, actual, measured or other")
    noise: Number = Field(default=0.0, ge=0, description="standard deviation or scale; 0: none")
    sensitivity: Positive | None = Field(default=None, description="null: nothing bounds it")
    delta: Number | None = Field(default=None, ge=0, lt=1, description="default: that of the claim")
    spacing: Positive | None = Field(default=None, description="of numbers that rounding recovers")
    sampling: Literal["none", "poisson", "fixed_without_replacement"] = Field(
        default="none", description="with participation hidden from the observer"
    )
    rate: Number = Field(default=1.0, gt=0, le=1, description="of the sampling")
    releases: Whole = Field(default=1, ge=1, description="how many, where sampling is credited")


class Condition(_Group):
    """Something the claim needs that cannot be computed from its numbers."""

    text: str = Field(description="what must hold")
    holds: bool = Field(description="whether it does")
    because: str = Field(description="why")


class Target(_Group):
    """A guarantee to find the noise for."""

    epsilon: Positive = Field(description="of the guarantee")
    delta: Number = Field(gt=0, lt=1, description="of the guarantee")
    sensitivity: Positive = Field(default=1.0, description="of one release")
    releases: Whole = Field(default=1, ge=1, description="how many")


class Claim(_Group):
    """One claim."""

    id: str = Field(description="short, for tables")
    title: str = Field(description="one line")
    source: str = Field(description="the document and place")
    words: str = Field(description="what is claimed")
    promise: Promise = Field(default=Promise(), description="epsilon and delta as stated")
    theorem: Literal["none", "classical", "central_limit"] = Field(
        default="none", description="the formula the claim used, see audit/dp/formulas.py"
    )
    mechanism: Mechanism = Field(default="gaussian", description="of the noise")
    unit: Literal["record", "client", "unstated"] = Field(default="unstated", description="protected")
    adjacency: Literal["add_or_remove_one", "replace_one", "unstated"] = Field(
        default="unstated", description="neighbouring data sets"
    )
    units: Whole | None = Field(default=None, ge=1, description="how many there are; delta < 1 / that")
    composes: bool = Field(default=False, description="whether the claim counts its releases")
    releases: dict[str, Annotated[Whole, Field(ge=1)]] = Field(
        default={"1 release": 1}, min_length=1, max_length=6, description="heading -> how many"
    )
    settings: tuple[Setting, ...] = Field(min_length=1, max_length=40, description="assumptions")
    conditions: tuple[Condition, ...] = Field(default=(), description="stated by the reviewer")
    targets: tuple[Target, ...] = Field(default=(), description="guarantees to find noise for")
    empirical: str = Field(default="", description="what was measured, in words")
    notes: tuple[str, ...] = Field(default=(), description="further sentences")

    @model_validator(mode="after")
    def _has_the_truth(self) -> "Claim":
        for role in ("claimed", "actual"):
            if sum(s.role == role for s in self.settings) > 1:
                raise ValueError(f"must have at most one setting of role {role}")
        if not any(s.role == "actual" and s.sampling == "none" for s in self.settings):
            raise ValueError("must have a setting of role actual, without sampling")
        return self

    def setting(self, role: Role) -> Setting | None:
        return next((s for s in self.settings if s.role == role), None)


class Claims(_Group):
    """A file of claims."""

    title: str = Field(description="of the report")
    claims: tuple[Claim, ...] = Field(min_length=1, max_length=200, description="a list of claims")


def load(path: Path) -> Claims:
    """A file of claims; raises UserError for the first thing wrong with it."""
    return validate(Claims, read_yaml(path), path)
