"""The policy: a versioned file of rules that turns evidence into an outcome, a severity and a reason.

Every rule names a measure, a threshold on the end of its interval that speaks against the attack,
and why the threshold is where it is. Files lie in audit/policy/; a config may name another by path.
"""

import hashlib
import importlib.resources
import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.spec import Group
from fedaudit.audit.settings.yaml import read_yaml
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.threats.threat import Aim, Position
from fedaudit.reports.result import PolicyRecord as PolicyRecord
from fedaudit.reports.result import PolicyRule as RuleRecord
from fedaudit.reports.result import Severity

Statistic = Literal["value", "excess", "residual_risk"]
MOST_TOLERABLE = 0.05  # of people, in any policy
FLOOR_AIMS = (Aim.EXFILTRATION, Aim.MEMBERSHIP, Aim.ATTRIBUTE, Aim.INVERSION, Aim.RECONSTRUCTION)
FLOOR_OBSERVERS = (Position.SERVER, Position.CLIENT, Position.PUBLIC)  # whom no policy may leave out


class Condition(Group):
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


class Rule(Group):
    """A severity for evidence that meets all conditions in one place."""

    id: str = Field(description="a name that findings cite")
    severity: Severity = Field(description="critical, high, medium or low")
    all: tuple[Condition, ...] = Field(min_length=1, description="conditions that must all hold")
    reason: str = Field(min_length=10, description="why the threshold is where it is")

    def words(self) -> str:
        return " and ".join(c.words() for c in self.all)


class DeploymentBar(Group):
    """Which demonstrated findings forbid a deployment."""

    not_ready: Severity = Field(description="a demonstrated finding of this severity or a worse one forbids it")
    reason: str = Field(min_length=10, description="why")


class Demand(Group):
    """Questions that must be answered, or accepted by name, before a verdict is given."""

    aims: tuple[Aim, ...] = Field(min_length=1, description="what is asked")
    observers: tuple[Position, ...] = Field(
        default=tuple(Position), description="who could read it; left out: all"
    )
    where: Literal["everywhere", "clients_are_persons"] = Field(
        default="everywhere", description="of which federations: config key system.clients"
    )
    reason: str = Field(min_length=10, description="why")


class Tolerance(Group):
    """The share of people, or of a model's answers, up to which a question is bounded."""

    aims: tuple[Aim, ...] = Field(min_length=1, description="of these questions")
    share: float = Field(ge=0, le=MOST_TOLERABLE, description="of all people of the run")
    reason: str = Field(min_length=10, description="why")


class Demands(Group):
    """What a verdict waits for, and how much of a harm is tolerable."""

    required: tuple[Demand, ...] = Field(min_length=1, description="questions that must be answered")
    tolerable: tuple[Tolerance, ...] = Field(min_length=1, description="shares of people, by aim")

    @model_validator(mode="after")
    def _asks_what_nobody_may_leave_out(self) -> "Demands":
        for observer in FLOOR_OBSERVERS:
            if lacking := [a for a in FLOOR_AIMS if not self.requires(a, observer, are_persons=False)]:
                raise ValueError(
                    f"required must ask {', '.join(lacking)} of the {observer}: what a policy does not ask it "
                    "cannot call ready (a single question is accepted by a waiver)"
                )
        return self

    @model_validator(mode="after")
    def _tolerates_every_aim_once(self) -> "Demands":
        given = [a for t in self.tolerable for a in t.aims]
        if lacking := [a for a in Aim if given.count(a) != 1]:
            raise ValueError(
                f"tolerable must name each aim once, and names {lacking[0]} {given.count(lacking[0])} times"
            )
        return self

    def requires(self, aim: Aim, observer: str, are_persons: bool) -> bool:
        """Whether a verdict waits for such a question."""
        return any(
            aim in d.aims and observer in d.observers and (d.where == "everywhere" or are_persons)
            for d in self.required
        )

    def tolerate(self, aim: Aim) -> float:
        """Share up to which a question with that aim is bounded."""
        return next(t.share for t in self.tolerable if aim in t.aims)


class PanelRow(Group):
    """Attacks that must have run on what they are about, before there is an upper limit."""

    aims: tuple[Aim, ...] = Field(min_length=1, description="of these questions")
    attacks: tuple[str, ...] = Field(min_length=1, description="names of attacks, as they come with fedaudit")
    kinds: tuple[str, ...] = Field(
        default=(), description="of messages; left out: all that the attacks are about"
    )
    most_examples: int | None = Field(
        default=None,
        ge=1,
        description="only where some client holds at most so many examples; left out: everywhere",
    )
    reason: str = Field(min_length=10, description="why")

    def names(self, aim: Aim, kind: str, fewest: int | None) -> bool:
        """Whether it is about such a question, where no client holds fewer than `fewest` (None: unknown)."""
        is_small = self.most_examples is None or fewest is None or fewest <= self.most_examples
        return aim in self.aims and (not self.kinds or kind in self.kinds) and is_small


class Panel(Group):
    """The attacks without all of which there is no upper limit, by aim and kind of message."""

    number: int = Field(ge=1, description="raised with every change")
    rows: tuple[PanelRow, ...] = Field(min_length=1, description="a list of rows")

    def list_attacks(self, aim: Aim, kind: str, fewest: int | None = None) -> list[str]:
        """Their names. Whoever asks selects those that can read that kind."""
        named = (row.attacks for row in self.rows if row.names(aim, kind, fewest))
        return [*dict.fromkeys(name for some in named for name in some)]

    @property
    def sha256(self) -> str:
        """Digest of what it asks for, whatever the reasons."""
        rows = [row.model_dump(mode="json", exclude={"reason"}) for row in self.rows]
        return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


class GradingPolicy(Group):
    """A whole policy; rules are tried from the severest down."""

    name: str = Field(description="of the policy")
    version: str = Field(description="raised with every change of a rule")
    rules: tuple[Rule, ...] = Field(min_length=1, description="a list of rules")
    decision: DeploymentBar | None = Field(
        default=None, description="what forbids a deployment; left out: by default"
    )
    questions: Demands | None = Field(
        default=None,
        description="what must be answered, and what is tolerable; left out: as in the default policy",
    )

    panel: Panel | None = Field(
        default=None, description="attacks without which nothing is limited, besides those of the default policy"
    )

    @model_validator(mode="after")
    def _distinct(self) -> "GradingPolicy":
        ids = [r.id for r in self.rules]
        if twice := [i for i in ids if ids.count(i) > 1]:
            raise ValueError(f"must have rules of different ids, got {twice[0]!r} twice")
        return self

    @property
    def bar(self) -> Severity:
        """The lowest severity that forbids a deployment."""
        found = self.decision or load_policy("default").decision
        assert found is not None, "the default policy has one"
        return found.not_ready

    @property
    def demands(self) -> Demands:
        """Its own, or those of the default policy."""
        found = self.questions or load_policy("default").questions
        assert found is not None, "the default policy has them"
        return found

    @property
    def whole_panel(self) -> Panel:
        """That of the default policy, and what it asks for besides: no policy may ask for less."""
        ours = load_policy("default").panel
        assert ours is not None, "the default policy has one"
        if self.panel is None or self.panel == ours:
            return ours
        return ours.model_copy(update={"rows": (*ours.rows, *self.panel.rows)})

    def worst_first(self) -> list[Rule]:
        """The order in which rules are tried; of one severity, as in the file."""
        return sorted(self.rules, key=lambda r: -r.severity.rank)

    def record(self) -> PolicyRecord:
        """As the report prints it."""
        rules = [
            RuleRecord(id=r.id, severity=r.severity, when=r.words(), reason=" ".join(r.reason.split()))
            for r in self.worst_first()
        ]
        panel = self.whole_panel
        return PolicyRecord(
            name=self.name, version=self.version, rules=rules, panel=panel.number, panel_sha256=panel.sha256
        )


def load_policy(name: str) -> GradingPolicy:
    """A policy of audit/policy/ by name, or any by path; raises UserError where it is not one.

    A changed copy of one of ours is not called by its name: what is printed would be taken for ours.
    """
    if "/" not in name and not name.endswith((".yaml", ".yml")):
        return _load_own(name)
    policy = _read(Path(name))
    if policy.name in list_shipped() and policy != _load_own(policy.name):
        return policy.model_copy(update={"name": f"{policy.name}, changed"})
    return policy


def list_shipped() -> list[str]:
    """Names of the policies in audit/policy/."""
    folder = importlib.resources.files("fedaudit.audit") / "policy"
    return sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml"))


@cache
def _load_own(name: str) -> GradingPolicy:
    """One of ours, read once a process."""
    found = importlib.resources.files("fedaudit.audit") / "policy" / f"{name}.yaml"
    if not found.is_file():
        raise UserError(
            f"no policy {name!r} in audit/policy/",
            hint=f"known: {', '.join(list_shipped())}; or give the path of a .yaml file",
        )
    with importlib.resources.as_file(found) as path:
        return _read(path)


def _read(path: Path) -> GradingPolicy:
    data = read_yaml(path)
    if isinstance(data, Mapping) and isinstance(data.get("decision"), list):
        raise UserError(
            f"{path}: decision is a list of grounds, as policies before version 14 had it",
            hint="write `decision: {not_ready: high, reason: ...}`, and what must be answered under `questions`, "
            "as audit/policy/default.yaml does",
        )
    return validate(GradingPolicy, data, path)
