"""The policy: a versioned file of rules that turns evidence into an outcome, a severity and a reason.

Every rule names a measure, a threshold on the end of its interval that speaks against the attack,
and why the threshold is where it is. Files lie in audit/policy/; a config may name another by path.
"""

import importlib.resources
import math
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.yaml import read_yaml
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.decision import Word
from fedaudit.reports.result import Policy as PolicyRecord
from fedaudit.reports.result import PolicyRule as RuleRecord
from fedaudit.reports.result import Severity

Statistic = Literal["value", "excess", "residual_risk"]


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Condition(_Group):
    """One threshold on one measure."""

    measure: str = Field(description="a measure's name or a pattern such as tpr_at_fpr_*")
    statistic: Statistic = Field(description="value, excess or residual_risk")
    at_least: float | None = Field(default=None, description="smallest value for which it holds")
    above: float | None = Field(default=None, description="it holds for any larger value")
    units: tuple[str, ...] = Field(default=(), description="only evidence in these units")

    @model_validator(mode="after")
    def _one_threshold(self) -> "Condition":
        if (self.at_least is None) == (self.above is None):
            raise ValueError("must have at_least or above, one of them")
        return self

    def holds(self, number: float) -> bool:
        if self.at_least is not None:
            return number >= self.at_least
        return self.above is not None and number > self.above

    def words(self) -> str:
        statistic = "" if self.statistic == "value" else f" {self.statistic.replace('_', ' ')}"
        sign, threshold = (">=", self.at_least) if self.at_least is not None else (">", self.above)
        assert threshold is not None
        shown = "infinity" if math.isinf(threshold) else f"{threshold:g}"
        units = f" (unit {' or '.join(self.units)})" if self.units else ""
        name = "any measure" if self.measure == "*" else self.measure
        return f"{name}{units}{statistic} {sign} {shown}"


class Rule(_Group):
    """A severity for evidence that meets all conditions in one place."""

    id: str = Field(description="a name that findings cite")
    severity: Severity = Field(description="critical, high, medium or low")
    all: tuple[Condition, ...] = Field(min_length=1, description="conditions that must all hold")
    reason: str = Field(min_length=10, description="why the threshold is where it is")

    def words(self) -> str:
        return " and ".join(c.words() for c in self.all)


class Power(_Group):
    """When an attack that found nothing had trials enough to say so."""

    largest_detectable: float = Field(gt=0, le=1, description="share of what guessing leaves")
    reason: str = Field(min_length=10, description="why")


class Ground(_Group):
    """What decides for one word of the decision: one condition on the whole audit."""

    id: str = Field(description="a name that the decision cites")
    verdict: Literal[Word.NOT_READY, Word.CANNOT_TELL, Word.WITH_CONDITIONS] = Field(
        description="not_ready, cannot_tell or ready_with_conditions"
    )
    demonstrated: Severity | None = Field(default=None, description="a finding at or above it was demonstrated")
    ran_below: int | None = Field(default=None, ge=1, description="fewer attacks ran")
    attacked_below: float | None = Field(
        default=None, gt=0, le=1, description="a smaller share of what was sent was attacked"
    )
    open_above: int | None = Field(default=None, ge=0, description="more findings are inconclusive or failed")
    reason: str = Field(min_length=10, description="why")

    @model_validator(mode="after")
    def _one_condition(self) -> "Ground":
        given = [
            c for c in (self.demonstrated, self.ran_below, self.attacked_below, self.open_above) if c is not None
        ]
        if len(given) != 1:
            raise ValueError(
                "must have one of demonstrated, ran_below, attacked_below and open_above, "
                f"got {len(given)} of them"
            )
        return self


class Policy(_Group):
    """A whole policy; rules are tried from the severest down."""

    name: str = Field(description="of the policy")
    version: str = Field(description="raised with every change of a rule")
    power: Power = Field(description="largest_detectable and its reason")
    rules: tuple[Rule, ...] = Field(min_length=1, description="a list of rules")
    decision: tuple[Ground, ...] = Field(
        default=(),
        description="grounds of the decision, tried in this order; left out: those of the default policy",
    )

    @model_validator(mode="after")
    def _distinct(self) -> "Policy":
        ids = [r.id for r in self.rules]
        if twice := [i for i in ids if ids.count(i) > 1]:
            raise ValueError(f"must have rules of different ids, got {twice[0]!r} twice")
        return self

    @model_validator(mode="after")
    def _knows_its_limits(self) -> "Policy":
        doubts = [g for g in self.decision if g.verdict is Word.CANNOT_TELL]
        for name in ("ran_below", "attacked_below", "open_above"):
            if self.decision and not any(getattr(g, name) is not None for g in doubts):
                raise ValueError(
                    f"decision must say cannot_tell for {name}: a word is never better than its evidence"
                )
        return self

    def worst_first(self) -> list[Rule]:
        """The order in which rules are tried; of one severity, as in the file."""
        return sorted(self.rules, key=lambda r: -r.severity.rank)

    def record(self) -> PolicyRecord:
        """As the report prints it."""
        rules = [
            RuleRecord(id=r.id, severity=r.severity, when=r.words(), reason=" ".join(r.reason.split()))
            for r in self.worst_first()
        ]
        return PolicyRecord(name=self.name, version=self.version, rules=rules)


def load_policy(name: str) -> Policy:
    """A policy of audit/policy/ by name, or any by path; raises UserError where it is not one."""
    if "/" in name or name.endswith((".yaml", ".yml")):
        return _read(Path(name))
    return _named(name)


@cache
def _named(name: str) -> Policy:
    """One of ours, read once a process."""
    found = importlib.resources.files("fedaudit.audit") / "policy" / f"{name}.yaml"
    if not found.is_file():
        folder = importlib.resources.files("fedaudit.audit") / "policy"
        known = sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name[-5:] == ".yaml")
        raise UserError(
            f"no policy {name!r} in audit/policy/",
            hint=f"known: {', '.join(known)}; or give the path of a .yaml file",
        )
    with importlib.resources.as_file(found) as path:
        return _read(path)


def _read(path: Path) -> Policy:
    return validate(Policy, read_yaml(path), path)
