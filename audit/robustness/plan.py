"""Plan: which runs a matrix needs, as changes of its config: places, their folders and what each overrides.

Cells share data, first model, participants and batches, since all of these come from the seed. A rule that
assumes f malicious clients is another rule for every f, with its own run in which nobody attacks.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import MOST_ROUNDS
from fedaudit.audit.settings.federation import FederationSettings
from fedaudit.audit.settings.matrix import Matrix
from fedaudit.audit.settings.spec import AttackSpec, PluginSpec
from fedaudit.fl.aggregation.aggregator import Aggregator
from fedaudit.fl.aggregation.assumed import count_attackers
from fedaudit.fl.runtime.plugin import configure

PLANTED = "_planted"  # ipm beyond what any mean survives: the fault that must be seen
IDLE = "_idle"  # the same clients doing nothing: what is lost without any attack
LED = ".led"  # ends the label of an attacker whose clients are those that move the rule most
CONTROLS = (PLANTED, IDLE, IDLE + LED)
# ipm with tau = n / m + 1 turns a plain mean round; where clients weigh by their examples the malicious may weigh
# little, so the planted fault sends that many times it
MARGIN = 10
LEADERS = "by the clients that move the rule most"
MOST_SAID = 4  # numbers of a setting, in a title


@dataclass(frozen=True, kw_only=True)
class ServerRule:
    """What the server does with a round's uploads."""

    name: str  # "mean", "krum-f4"
    family: str = "mean"  # the same rule whatever number of malicious clients there is: "krum (f = m)"
    aggregator: Mapping[str, Any] = field(default_factory=lambda: {"name": "mean"})
    assumed: int | None = None  # malicious clients of all, where it assumes a number

    def build(self) -> Aggregator:
        """The rule; raises UserError where it cannot be loaded."""
        settings = {k: v for k, v in self.aggregator.items() if k != "name"}
        cls = catalog.load("aggregators", str(self.aggregator["name"]))
        made: Aggregator = configure(cls, settings, "matrix.aggregators")
        return made


@dataclass(frozen=True, kw_only=True, eq=False)
class MatrixPlace:
    """One run: where it stands in the matrix."""

    setting: str  # method and partition, "fedavg-iid"
    rule: ServerRule
    adversary: str  # its label; empty: nobody attacks
    malicious: int
    seed: int
    changes: Mapping[str, Any]  # what the setting and the adversary override

    @property
    def folder(self) -> str:
        who = f"{self.adversary}-{self.malicious}" if self.adversary else "clean"
        return f"{self.setting}/{self.rule.name}/{who}/seed-{self.seed}"

    @property
    def overrides(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "aggregator": self.rule.aggregator,
            "attacks": [],
            "variants": [],
            "matrix": None,
            "record": "model",
            # the last round is always measured; all are where the clients that attacked leave
            "evaluate_every": 1 if (self.changes.get("adversary") or {}).get("leaves") else MOST_ROUNDS,
            **self.changes,
        }


def plan_matrix(
    matrix: Matrix,
    method: PluginSpec,
    federation: FederationSettings,
    protections: Sequence[PluginSpec],
    seed: int,
) -> list[MatrixPlace]:
    """Every run of a matrix, clean ones first; raises UserError where a plugin cannot be loaded.

    The other settings are the audit's own, and hold where the matrix does not vary them.
    """
    found: dict[str, MatrixPlace] = {}
    for setting, changes in _cross_settings(matrix, method, federation, protections).items():
        for malicious in sorted(set(matrix.malicious)):
            for rule in list_rules(matrix, malicious, federation.clients):
                attackers = list_attackers(matrix, rule, federation.clients / malicious)
                for drawn in matrix.seeds or (seed,):
                    for adversary, spec in attackers.items():
                        attack = None if spec is None else {**spec, "clients": malicious}
                        place = MatrixPlace(
                            setting=setting,
                            rule=rule,
                            adversary=adversary,
                            malicious=malicious if adversary else 0,
                            seed=drawn,
                            changes={**changes, "adversary": attack},
                        )
                        found[place.folder] = place
    return sorted(found.values(), key=lambda p: bool(p.adversary))


def _cross_settings(
    matrix: Matrix, method: PluginSpec, federation: FederationSettings, protections: Sequence[PluginSpec]
) -> dict[str, dict[str, Any]]:
    """Methods by partitions by availability by protections."""
    own = (AttackSpec(name=method.name, settings=method.settings),)
    split = federation.partition
    always = [p.model_dump() for p in protections]
    present = federation.availability
    answering = matrix.availabilities or (AttackSpec(name=present.name, settings=present.settings),)
    parts = matrix.partitions or (AttackSpec(name=split.name, settings=split.settings),)
    return {
        "-".join(map(label_of, [other, part, *([who] if matrix.availabilities else []), *more])): {
            "method": keep_settings(method, other),
            "federation.partition": {"name": part.name, **part.settings},
            "federation.availability": {"name": who.name, **who.settings},
            "protections": [*always, *({"name": p.name, **p.settings} for p in more)],
        }
        for other in matrix.methods or own
        for part in parts
        for who in answering
        for more in ((), *((p,) for p in matrix.protections))
    }


def keep_settings(own: PluginSpec, other: AttackSpec) -> dict[str, Any]:
    """Another method with the audit's own settings, as far as it has them: as many rounds, as large steps."""
    known = {f.name for f in dataclasses.fields(catalog.load("methods", other.name).Config)}
    shared = {k: v for k, v in own.settings.items() if k in known}
    return {"name": other.name, **shared, **other.settings}


def list_all_rules(matrix: Matrix, clients: int) -> dict[str, ServerRule]:
    """The rules of a matrix by name, for every number of malicious clients."""
    return {r.name: r for m in sorted(set(matrix.malicious)) for r in list_rules(matrix, m, clients)}


def list_rules(matrix: Matrix, malicious: int, clients: int) -> list[ServerRule]:
    rules = [ServerRule(name="mean")]
    for spec in matrix.aggregators:
        plain = {"name": spec.name, **spec.settings}
        if not _is_assuming(spec):
            fixed = count_attackers(spec.settings["f"], clients) if "f" in spec.settings else None
            rules.append(ServerRule(name=label_of(spec), family=label_of(spec), aggregator=plain, assumed=fixed))
            continue
        name, family = f"{label_of(spec)}-f{malicious}", f"{label_of(spec)} (f = m)"
        rules.append(
            ServerRule(name=name, family=family, aggregator={**plain, "f": malicious}, assumed=malicious)
        )
    return rules


def list_attackers(matrix: Matrix, rule: ServerRule, ratio: float) -> dict[str, Mapping[str, Any] | None]:
    """Who attacks under a rule, by label; `ratio` clients are there for each malicious one."""
    own = {label_of(s): {"name": s.name, **s.settings} for s in matrix.adversaries}
    controls: dict[str, Mapping[str, Any]] = {IDLE: {"name": "free_rider", "mode": "zero"}}
    if rule.name == "mean":
        controls[PLANTED] = {"name": "ipm", "tau": MARGIN * (ratio + 1)}
    return {"": None, **controls, **own}


def _is_assuming(spec: AttackSpec) -> bool:
    """Whether the rule assumes a number that the entry does not fix."""
    declared = catalog.load("aggregators", spec.name).Config
    return "f" not in spec.settings and any(f.name == "f" for f in dataclasses.fields(declared))


def label_of(spec: AttackSpec) -> str:
    """What an entry is called in names of folders."""
    return spec.id or spec.fit_id


def describe(adversary: Mapping[str, Any]) -> str:
    """An adversary in words, with what it is set to."""
    settings = {
        k: v for k, v in adversary.items() if k not in ("name", "id", "clients", "share") and v is not None
    }
    named = [f"{k} {_say_value(v)}" for k, v in settings.items()]
    words = ", ".join([*named, *([LEADERS] if isinstance(adversary.get("clients"), Sequence) else [])])
    card = catalog.load("adversaries", str(adversary["name"])).card
    return f"{card.title} ({words})" if words else str(card.title)


def _say_value(value: object) -> str:
    """A setting in words; of a long list, or one of plugins, how many it has."""
    if isinstance(value, Mapping):
        return str(value["name"]) if "name" in value else f"of {len(value)}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        plain = all(isinstance(v, str | int | float) for v in value)
        return " ".join(map(str, value)) if plain and len(value) <= MOST_SAID else f"of {len(value)}"
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
