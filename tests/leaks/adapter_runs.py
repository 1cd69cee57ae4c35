"""Planted leaks of adapters on language models, the honest federation beside each, and four clean ones.

A leak is found where the audit has a finding of at least medium severity that the honest federation does not have
as badly, and that names the cause: in its words stands one of `names`. These were written down with the plants,
before the first run. Nothing says by which attack, check or accountant.
"""

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import Config, SimulatedConfig
from fedaudit.reports.result import AuditResult, Finding, Severity

METHODS = "tests.leaks.adapters"
NOTES = {"name": "notes", "patients": 40, "vocabulary": 800, "length": 32}
FEDERATION = {
    "dataset": NOTES,
    "clients": 3,
    "partition": {"name": "people", "each": 4},
    "availability": "full",
    "model": {"name": "tiny_gpt", "dim": 32, "layers": 2, "task": "lm"},
    "base": 10,
    "adapters": {"rank": 8, "targets": ["q", "v"]},
    "holdout": {"auxiliary": 0.3, "reference": 0.3},
}
TRAINING = {"rounds": 2, "local_epochs": 1, "batch_size": 4, "lr": 0.5}
UNIFORM = {"weighting": "uniform"}
CANARIES = {"canaries": 2, "controls": 40, "patients": 12}
LEARNT = {"local_epochs": 8, "lr": 0.01, "optimiser": "adam"}
UNLIKE = {"dataset": NOTES | {"patients": 16}, "partition": "people"}  # clients hold different numbers of notes
LARGE = {"targets": ["q", "v", "o", "up", "down"], "rank": 16}
DP_SGD = {"name": "dp_sgd", "noise_multiplier": 4.0, "sample_rate": 0.2, "steps": 4, "clip_norm": 0.5}


@dataclass(frozen=True, kw_only=True)
class Leak:
    method: str  # a class of adapters.py, or a name of the house
    honest: str  # the same without the leak
    names: str  # what a finding says that names the cause: a regular expression
    settings: Mapping[str, Any] = field(default_factory=dict)
    federation: Mapping[str, Any] = field(default_factory=dict)
    plain: Mapping[str, Any] | None = None  # of the honest federation, where it differs
    protections: tuple[Any, ...] = ()
    honest_protections: tuple[Any, ...] | None = None  # where they differ


LEAKS = {
    "frozen rows": Leak(method="FrozenRows", honest="fedlora", names=r"embedding|row|token|word"),
    "noise on touched rows": Leak(
        method="fedlora",
        honest="fedlora",
        names=r"touched|rows? .*(noise|zero|same|unchanged)|without noise|not noised|refuted|not as declared",
        settings=UNIFORM,
        federation={"adapters": {"rank": 4, "targets": ["q", "v"], "in_full": ["embed"]}},
        protections=({"name": f"{METHODS}:NoiseOnTouchedRows", "noise_multiplier": 8.0},),
        honest_protections=({"name": "dp_gaussian", "noise_multiplier": 8.0},),
    ),
    "private vocabulary": Leak(
        method="fedlora",
        honest="fedlora",
        names=r"vocabulary|tokenizer",
        federation={"dataset": NOTES | {"vocabulary_from": "clients"}, "base": None},
        plain={"base": None},
    ),
    "full rank": Leak(
        method="FullRank",
        honest="fedlora",
        names=r"full rank|full-rank|rank (of )?32|as high as|not low|whole layer|no bottleneck",
        federation={"adapters": {"rank": 32, "targets": ["q", "v"]}},
        plain={},
    ),
    "last round on one note": Leak(
        method="LastRoundOnOneNote",
        honest="fedlora",
        names=r"one (note|text|example|record)|single (note|text|example|record)|tokens? |sentence",
    ),
    "text in unused numbers": Leak(
        method="TextInUnused",
        honest="fedlora",
        names=r"unused|token|hidden|in place of|not trained|covert|ids|whole numbers|zero row",
    ),
    "canaries sixteen times": Leak(
        method="fedlora",
        honest="fedlora",
        names=r"canar|secret|exposure|planted",
        settings=LEARNT,
        federation={
            "dataset": NOTES | CANARIES | {"copies": [16]},
            "adapters": LARGE,
            "partition": {"name": "people", "each": 20},
        },
        plain={
            "dataset": NOTES | CANARIES | {"copies": [1]},
            "adapters": LARGE,
            "partition": {"name": "people", "each": 20},
        },
    ),
    "one array in clear": Leak(
        method="OneArrayInClear",
        honest="fedlora",
        names=r"refuted|clip|without noise|unclipped|lora_B|not noised|times what",
        settings=UNIFORM,
        protections=(DP_SGD,),
    ),
    "noise but for one array": Leak(
        method="fedlora",
        honest="fedlora",
        names=r"refuted|clip|without noise|unclipped|lora_B|not noised|times what|noise",
        settings=UNIFORM,
        protections=({"name": f"{METHODS}:NoiseButOneArray", "noise_multiplier": 4.0},),
        honest_protections=({"name": "dp_gaussian", "noise_multiplier": 4.0},),
    ),
    "seeded by count": Leak(
        method="SeededByCount",
        honest="fedlora",
        names=r"seed|start|draw|count|how many|number of (notes|examples)|received",
        settings=UNIFORM,
        federation=UNLIKE,
    ),
    "rank by count": Leak(method="RankByCount", honest="hetlora", names=r"rank", settings={"ranks": [8]}),
}


@dataclass(frozen=True, kw_only=True)
class Clean:
    method: str = "fedlora"
    settings: Mapping[str, Any] = field(default_factory=dict)
    federation: Mapping[str, Any] = field(default_factory=dict)
    protections: tuple[Any, ...] = ()


MANY = {"dataset": NOTES | {"patients": 120}, "clients": 8, "partition": {"name": "people", "each": 12}}
GENTLE = {"rounds": 2, "lr": 0.05, "weighting": "uniform", "batch_size": 12}

CLEAN = {
    "summed over many": Clean(settings=GENTLE, federation=MANY, protections=("secure_aggregation",)),
    "private steps": Clean(
        settings=GENTLE | {"lr": 0.01},
        federation={"dataset": NOTES | {"most_notes": 1}},  # a bound of a note is one of its patient
        protections=(DP_SGD, "secure_aggregation"),
    ),
    "private clients": Clean(
        method="ffa_lora",
        settings=GENTLE,
        protections=({"name": "dp_gaussian", "noise_multiplier": 12.0, "clip_norm": 0.1},),
    ),
    "private means": Clean(
        method="fedavg",
        settings=GENTLE,
        federation=MANY,
        protections=("secure_aggregation", {"name": "central_dp", "noise_multiplier": 8.0, "clip_norm": 0.1}),
    ),
}


def make_config(
    method: str, settings: Mapping[str, Any], federation: Mapping[str, Any], protections: tuple[Any, ...]
) -> SimulatedConfig:
    """The audit of one of these federations, as `attacks: auto` has it."""
    own = f"{METHODS}:{method}" if method[0].isupper() else method
    return SimulatedConfig.model_validate(
        {
            "device": "cpu",
            "workers": 0,
            "federation": {**FEDERATION, **federation},
            "method": {"name": own, **TRAINING, **settings},
            "protections": protections,
            "record": "all",
            "replay": {"sizes": [1], "clients": 2, "groups": 8, "updates": [[1, 1, 10]]},
            "budget": 10,  # more than all attacks take, on a busy machine too
            "evaluate_every": 100,
        }
    )


def leaking(leak: Leak) -> SimulatedConfig:
    return make_config(leak.method, leak.settings, leak.federation, leak.protections)


def honest(leak: Leak) -> SimulatedConfig:
    changes = leak.federation if leak.plain is None else leak.plain
    protections = leak.protections if leak.honest_protections is None else leak.honest_protections
    return make_config(leak.honest, leak.settings, changes, protections)


def clean(one: Clean) -> SimulatedConfig:
    return make_config(one.method, one.settings, one.federation, one.protections)


@cache
def _audit(text: str) -> AuditResult:
    with tempfile.TemporaryDirectory() as folder:
        run = RunDir.create(Path(folder) / "run")
        phases = ("simulate", "attack", "account", "score")
        execute(run, Config.model_validate_json(text), phases, lambda *_: None, skip_finished=True)
        return AuditResult.model_validate_json(run.audit.read_text(encoding="utf-8"))


def audit(config: Config) -> AuditResult:
    """A whole audit, but for the report."""
    return _audit(config.model_dump_json())


def differ(name: str) -> list[Finding]:
    """Findings of the leaking federation that the honest one has not, or less badly."""
    leak = LEAKS[name]
    plain = {f.id: f.severity for f in audit(honest(leak)).findings if f.severity.rank}
    return [
        f
        for f in audit(leaking(leak)).findings
        if f.severity.rank
        and f.severity.rank >= Severity.MEDIUM.rank
        and f.severity.rank > plain.get(f.id, Severity.NONE).rank
    ]


def find(name: str) -> list[Finding]:
    """Those of the differing findings that name the cause."""
    return [f for f in differ(name) if re.search(LEAKS[name].names, f"{f.title} {f.summary}", re.IGNORECASE)]


def accuse(name: str) -> list[Finding]:
    """What attacks and disclosures say of a clean federation, at medium severity or worse."""
    return [
        f
        for f in audit(clean(CLEAN[name])).findings
        if f.severity.rank and f.source in ("attack", "disclosure") and f.severity.rank >= Severity.MEDIUM.rank
    ]
