"""The policy: a versioned file that says how much of a harm is tolerable, what must be answered, and by whom.

No attack is graded by it: how many people an attack hit is counted (audit/verdict/people.py), and what is seen or
proved carries its own severity, which a policy may override. Files lie in audit/policy/; a config may name
another by path. Beside it stand the terms of a reviewer, who may move the bar, accept findings and open questions
by name, hold a run against an earlier one, and require attacks; both go through the one decider.
"""

import hashlib
import importlib.resources
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field, model_validator

from fedaudit.audit.case.digests import of_value
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.spec import Group
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.yaml import read_yaml
from fedaudit.fl.threats.threat import Aim, Harm, Position
from fedaudit.reports import format as fmt
from fedaudit.reports.questions import Cell, State
from fedaudit.reports.result import AuditResult, Finding, PolicyLine, Severity
from fedaudit.reports.result import PolicyRecord as PolicyRecord

MOST_TOLERABLE = 0.05  # of people, or answers, in any policy
MOST_TOLERABLE_DIFFUSE = 0.15  # of people who stand out among ten
# SHA-256 of policies that earlier versions came with. Whoever changes audit/policy/ adds the one before
EARLIER = frozenset(
    {
        "597c0acb7980871f79ff7d6e087ff3125c7fa5c2479f29f3f1167e43102983ee",
        "39c641c6a0d3c918d73a78b2cca36cc4ba7a690761aaa90cfa851f14ee17ed0e",
        "4d902e00a2bdf9ee358499cad7997ab2c228d6ad8619d245a3adf2d83427a7af",
        "812a76ba98a5e27ab225287080541e165575ffb43a753a0e725821a2cae5d266",
    }
)
FLOOR_HARMS = (Harm.RECORD, Harm.RECONSTRUCTION, Harm.MEMBERSHIP, Harm.DIFFUSE, Harm.ATTRIBUTE)
FLOOR_OBSERVERS = (Position.SERVER, Position.CLIENT, Position.PUBLIC)  # whom no policy may leave out


class Override(Group):
    """Another severity for what is seen or proved, by the id of its finding."""

    id: str = Field(description="of findings, or a pattern such as lint-L1*")
    severity: Severity = Field(description="critical, high, medium, low or none")
    reason: str = Field(min_length=10, description="why")


class DeploymentBar(Group):
    """What forbids a deployment besides people who are exposed."""

    not_ready: Severity = Field(description="the lowest severity, of what is seen or proved, that forbids it")
    reason: str = Field(min_length=10, description="why")


class Demand(Group):
    """Questions that must be answered before a verdict is given."""

    harms: tuple[Harm, ...] = Field(min_length=1, description="what is asked")
    observers: tuple[Position, ...] = Field(
        default=tuple(Position), description="who could read it; left out: all"
    )
    where: Literal["everywhere", "clients_are_persons"] = Field(
        default="everywhere", description="of which federations: config key system.clients"
    )
    reason: str = Field(min_length=10, description="why")


class Tolerance(Group):
    """The share of people up to which a harm is tolerable."""

    harms: tuple[Harm, ...] = Field(min_length=1, description="of these harms")
    share: float = Field(ge=0, le=MOST_TOLERABLE_DIFFUSE, description="of all people of the run")
    reason: str = Field(min_length=10, description="why")


class ModelDemands(Group):
    """What declared attackers, or absence, may cost the model; what nobody measured is open."""

    aims: tuple[Aim, ...] = Field(min_length=1, description="what must be answered")
    share: float = Field(ge=0, le=MOST_TOLERABLE, description="of the model's answers")
    reason: str = Field(min_length=10, description="why")


class Demands(Group):
    """What a verdict waits for, and how much of a harm is tolerable."""

    required: tuple[Demand, ...] = Field(min_length=1, description="questions that must be answered")
    tolerable: tuple[Tolerance, ...] = Field(min_length=1, description="shares of people, by harm")
    of_model: ModelDemands = Field(description="what is asked of the model")

    @model_validator(mode="after")
    def _asks_what_nobody_may_leave_out(self) -> "Demands":
        for observer in FLOOR_OBSERVERS:
            if lacking := [h for h in FLOOR_HARMS if not self.requires(h, observer, are_persons=False)]:
                raise ValueError(
                    f"required must ask {', '.join(lacking)} of the {observer}: what a policy does not ask it "
                    "cannot call ready (a single question is accepted by a waiver)"
                )
        return self

    @model_validator(mode="after")
    def _tolerates_every_harm_once(self) -> "Demands":
        given = [h for t in self.tolerable for h in t.harms]
        if lacking := [h for h in Harm if given.count(h) != 1]:
            raise ValueError(
                f"tolerable must name each harm once, and names {lacking[0]} {given.count(lacking[0])} times"
            )
        for t in self.tolerable:
            if t.share > MOST_TOLERABLE and set(t.harms) != {Harm.DIFFUSE}:
                raise ValueError(
                    f"tolerable is at most {MOST_TOLERABLE} but of {Harm.DIFFUSE}, got {t.share} of "
                    f"{', '.join(t.harms)}"
                )
        return self

    def requires(self, harm: Harm, observer: str, are_persons: bool) -> bool:
        """Whether a verdict waits for such a question."""
        return any(
            harm in d.harms and observer in d.observers and (d.where == "everywhere" or are_persons)
            for d in self.required
        )

    def tolerate(self, harm: Harm) -> float:
        """Share up to which a harm is tolerable."""
        return next(t.share for t in self.tolerable if harm in t.harms)


class PanelRow(Group):
    """Attacks that must have run on what they are about, before there is an upper limit."""

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

    def names(self, kind: str, fewest: int | None) -> bool:
        """Whether it is about such messages, where no client holds fewer than `fewest` (None: unknown)."""
        is_small = self.most_examples is None or fewest is None or fewest <= self.most_examples
        return (not self.kinds or kind in self.kinds) and is_small


class Panel(Group):
    """The attacks without all of which there is no upper limit, by kind of message."""

    number: int = Field(ge=1, description="raised with every change")
    rows: tuple[PanelRow, ...] = Field(min_length=1, description="a list of rows")

    def list_attacks(self, kind: str, fewest: int | None = None) -> list[str]:
        """Their names. Whoever asks selects those that have the aim and can read that kind."""
        named = (row.attacks for row in self.rows if row.names(kind, fewest))
        return [*dict.fromkeys(name for some in named for name in some)]

    @property
    def sha256(self) -> str:
        """Digest of what it asks for, whatever the reasons."""
        rows = [row.model_dump(mode="json", exclude={"reason"}) for row in self.rows]
        return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


class GradingPolicy(Group):
    """A policy; `load_policy` gives whole ones."""

    name: str = Field(description="of the policy")
    version: str = Field(description="raised with every change")
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
    facts: tuple[Override, ...] = Field(
        default=(), description="other severities of what is seen or proved; the first that fits counts"
    )

    @property
    def bar(self) -> Severity:
        """The lowest severity of what is seen or proved that forbids a deployment."""
        assert self.decision is not None, "it is whole"
        return self.decision.not_ready

    @property
    def demands(self) -> Demands:
        """What must be answered, and what is tolerable."""
        assert self.questions is not None, "it is whole"
        return self.questions

    @property
    def whole_panel(self) -> Panel:
        """The attacks without all of which there is no upper limit."""
        assert self.panel is not None, "it is whole"
        return self.panel

    @property
    def sha256(self) -> str:
        """Digest of what it says, not of its comments."""
        return of_value(self.model_dump(mode="json"))

    @property
    def owner(self) -> str:
        """Whose it is: only one that a version of fedaudit came with is ours, whatever it is called."""
        shipped = {*EARLIER, *(load_policy(name).sha256 for name in list_shipped())}
        return "as fedaudit ships it" if self.sha256 in shipped else "the owner's own"

    def complete(self, default: "GradingPolicy") -> "GradingPolicy":
        """The whole policy: with what it leaves out, and all that the panel of `default` asks for.

        No policy may ask for less than that.
        """
        panel = default.panel
        if panel is not None and self.panel is not None:
            panel = panel.model_copy(update={"rows": (*panel.rows, *self.panel.rows)})
        return self.model_copy(
            update={
                "decision": self.decision or default.decision,
                "questions": self.questions or default.questions,
                "panel": panel,
            }
        )

    def rate(self, finding: Finding) -> Finding:
        """The finding as severe as this policy has it; one that it does not name keeps the severity it states."""
        override = next((o for o in self.facts if fnmatchcase(finding.id, o.id)), None)
        if override is None or finding.severity is Severity.NONE:
            return finding
        says = f"Policy {self.name} {self.version} rates it {override.severity}: {override.reason}"
        reason = f"{finding.reason} {says}".strip()
        return finding.model_copy(update={"severity": override.severity, "reason": reason})

    def record(self) -> PolicyRecord:
        """As the report prints it."""
        demands = self.demands
        tolerable = [
            (f"{', '.join(h.label for h in t.harms)}: at most {fmt.percent(t.share)} of people", t.reason)
            for t in demands.tolerable
        ]
        required = [
            (f"must be answered: {', '.join(h.label for h in d.harms)}", d.reason) for d in demands.required
        ]
        model = demands.of_model
        lost = (
            f"{', '.join(model.aims)}: at most {fmt.percent(model.share)} of the model's answers",
            model.reason,
        )
        panel = self.whole_panel
        needed = [(f"must have run: {', '.join(row.attacks)}", row.reason) for row in panel.rows]
        overrides = [(f"{o.id} is {o.severity}", o.reason) for o in self.facts]
        return PolicyRecord(
            name=self.name,
            version=self.version,
            lines=[
                PolicyLine(what=what, reason=" ".join(reason.split()))
                for what, reason in (*tolerable, *required, lost, *needed, *overrides)
            ],
            sha256=self.sha256,
            owner=self.owner,
            panel=panel.number,
            panel_sha256=panel.sha256,
        )


def load_policy(name: str) -> GradingPolicy:
    """A policy of audit/policy/ by name, or any by path, as a whole; raises UserError where it is not one."""
    if "/" not in name and not name.endswith((".yaml", ".yml")):
        return _load_own(name)
    policy, default = _read(Path(name)), _load_own("default")
    return policy if policy == default else policy.complete(default)


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
    if isinstance(data, Mapping) and "rules" in data:
        raise UserError(
            f"{path}: rules on measures, as policies before version 19 had them, grade nothing any more",
            hint="say how many people are tolerable under `questions.tolerable`, and what is seen or "
            "proved under "
            "`facts`, as audit/policy/default.yaml does",
        )
    return validate(GradingPolicy, data, path)


AnyCell = TypeVar("AnyCell", bound=Cell)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a reviewer adds to the policy; by default nothing."""

    fail_on: Severity | None = None  # the lowest severity that forbids a deployment; None: as the policy says
    # id of a finding or an open question -> who answers for it, until when and why
    accepted: Mapping[str, str] = field(default_factory=dict)
    known: Sequence[str] = ()  # ids of findings that the baseline has, no milder
    unmet: Sequence[str] = ()  # requirements that were not met, as sentences
    refused: Sequence[str] = ()  # waivers that do not count, as sentences

    @property
    def has_any(self) -> bool:
        """Whether the reviewer adds anything."""
        return any(vars(self).values())

    def forgives(self, finding: Finding) -> bool:
        """Whether a finding does not forbid a deployment, although it was demonstrated."""
        return finding.id in self.accepted or finding.id in self.known


NO_TERMS = Terms()


def accept_cells(cells: Sequence[AnyCell], terms: Terms) -> list[AnyCell]:
    """The same, with what was accepted of those that are not clear."""
    return [
        c.model_copy(update={"accepted": terms.accepted[c.id]})
        if c.state is not State.CLEAR and c.id in terms.accepted
        else c
        for c in cells
    ]


def select_demonstrated(findings: Sequence[Finding]) -> list[Finding]:
    """Those that were seen to work, each leak once."""
    return [f for f in findings if f.is_demonstrated]


def find_known(result: AuditResult, baseline: AuditResult | None) -> list[str]:
    """Ids of demonstrated findings that the baseline has as well, no milder."""
    before = [f for f in baseline.findings if f.severity.rank] if baseline else []
    ranks = {f.id: f.severity.rank for f in before}  # of all: what leads a leak now may not have led it then
    return [f.id for f in select_demonstrated(result.findings) if ranks.get(f.id, -1) >= f.severity.rank]
