"""Planted leaks: each a federation that leaks, and the honest one beside it, under the same audit.

A leak is found where an attack that `attacks: auto` chose has a finding of at least medium severity, about what
leaks, that the honest federation does not have as badly. Nothing here says by which attack.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from fedaudit.fl.threats.threat import Aim
from fedaudit.reports.result import AuditResult, Severity

METHODS, SECOND, WORLDS = "tests.leaks.methods", "tests.leaks.disguised", "tests.leaks.worlds"
TELEMETRY = "tests.leaks.telemetry"
FEDERATION = {
    "dataset": "digits",
    "clients": 6,
    "partition": {"name": "dirichlet", "alpha": 1.0},
    "availability": "full",
    "model": "small_cnn",
    "holdout": {"auxiliary": 0.35, "reference": 0.25},
}
TRAINING = {"rounds": 2, "local_epochs": 1, "batch_size": 20, "lr": 0.05}
GAN = {"cycles": 2, "least_cycles": 2, "unit": "step", "local": 300, "batch_size": 16, "width": 8, "latent": 16}
GANS = {"gan": GAN, "rounds": 1, "labeler_rounds": 1, "groups": 0, "mediators": 2}
LONGER = GAN | {"cycles": 1, "least_cycles": 1, "local": 1500, "lr_generator": 2e-3, "lr_critic": 2e-3}
CONDENSED = {"iterations": 20, "rounds": 1}


@dataclass(frozen=True, kw_only=True)
class Leak:
    method: str  # a class of methods.py, one of another file with a colon, or a name of the house
    honest: str  # the same without the leak
    what: str  # it tells: a key of AIMS
    settings: Mapping[str, Any] = field(default_factory=dict)
    federation: Mapping[str, Any] = field(default_factory=dict)
    plain: Mapping[str, Any] | None = None  # of the honest federation, where it differs
    protections: tuple[str, ...] = ()


LEAKS = {
    "image in a bias": Leak(method="ImageInBias", honest="fedavg", what="images"),
    "image in low bits": Leak(method="ImageInLowBits", honest="fedavg", what="images"),
    "image in signs of zeros": Leak(method="ImageInSignsOfZeros", honest="fedavg", what="images"),
    "image over rounds": Leak(method="ImageOverRounds", honest="fedavg", what="images", settings={"rounds": 8}),
    "one step on one image": Leak(
        method="OneStepOnOneImage", honest="fedavg", what="images", settings={"batch_size": 1}
    ),
    "features of one image": Leak(method="FirstFeatures", honest="rebafl", what="images"),
    "outputs on one image": Leak(method="FirstLogits", honest="fd", what="membership"),
    "images as condensed ones": Leak(
        method="ImagesAsCondensed", honest="feddc_condense", what="images", settings=CONDENSED
    ),
    "images as means": Leak(method="ImagesAsMeans", honest="fedmix", what="images"),
    "images as proxies": Leak(method="ImagesAsProxies", honest="fedavg", what="images"),
    "raw samples": Leak(method="RawSamples", honest="fedavg", what="images"),
    "generators of four images": Leak(method="Memorised", honest="gandalf", what="images", settings=GANS),
    "memorising generators": Leak(
        method="Memorised", honest="gandalf", what="images", settings=GANS | {"gan": LONGER}
    ),
    "memorising models": Leak(
        method="MemorisedModel", honest="fedavg", what="membership", settings={"local_epochs": 60}
    ),
    "buffers of one image": Leak(
        method="fedavg",
        honest="fedavg",
        what="images",
        federation={"model": f"{WORLDS}:Normed", "partition": f"{WORLDS}:FewImages"},
        plain={"model": f"{WORLDS}:Normed"},
    ),
    "clients of one class": Leak(
        method="fedavg",
        honest="fedavg",
        what="labels",
        federation={"clients": 10, "partition": {"name": "shards", "shards_per_client": 1}},
        plain={"clients": 10, "partition": "iid"},
    ),
    "label in a number": Leak(method="LabelInNumber", honest="fedavg", what="labels"),
    "label in a loss": Leak(method="LabelInLoss", honest="fedavg", what="labels"),
    "label as a cluster": Leak(method="LabelAsCluster", honest="fedavg", what="labels"),
    "counts in a scale": Leak(method="CountsInScale", honest="rebafl", what="counts"),
    "counts by order": Leak(method="CountsByOrder", honest="rebafl", what="counts"),
    "sums that differ by one": Leak(
        method="CountsUnderSums",
        honest="CountsUnderSums",
        what="counts",
        settings={"rounds": 7},
        federation={"availability": f"{WORLDS}:AllButOne"},
        plain={},
        protections=("secure_aggregation",),
    ),
    # in disguise
    "image in a change": Leak(method=f"{SECOND}:ImageInChange", honest="fedavg", what="images"),
    "image of one traitor": Leak(method=f"{SECOND}:OneTraitor", honest="fedavg", what="images"),
    "image in buffers": Leak(
        method=f"{SECOND}:ImageInBuffers",
        honest="fedavg",
        what="images",
        federation={"model": f"{WORLDS}:Normed"},
        plain={"model": f"{WORLDS}:Normed"},
    ),
    "image in digits": Leak(method=f"{SECOND}:ImageInDigits", honest="fedavg", what="images"),
    "control of one image": Leak(method=f"{SECOND}:ControlOfOneImage", honest="scaffold", what="images"),
    "pixels as features": Leak(method=f"{SECOND}:PixelsAsFeatures", honest="rebafl", what="images"),
    # by carelessness
    "gradient of a last batch": Leak(method=f"{TELEMETRY}:LastBatchGradient", honest="fedavg", what="images"),
    "momentum of five images": Leak(method=f"{TELEMETRY}:MomentumBuffer", honest="fedavg", what="images"),
    "hashes of images": Leak(method=f"{TELEMETRY}:ImageHashes", honest="fedavg", what="membership"),
    "one output among means": Leak(method=f"{TELEMETRY}:OneOutput", honest="fd", what="membership"),
    "transposed image": Leak(method=f"{TELEMETRY}:TransposedImage", honest="fedavg", what="images"),
    "embedding of the hardest": Leak(method=f"{TELEMETRY}:HardestEmbedding", honest="fedavg", what="images"),
    "quantiles of losses": Leak(method=f"{TELEMETRY}:LossQuantiles", honest="fedavg", what="membership"),
    "histogram of the last": Leak(method=f"{TELEMETRY}:LastHistogram", honest="fedavg", what="images"),
    "running mean of the last": Leak(method=f"{TELEMETRY}:RunningMean", honest="fedavg", what="images"),
    "moments of small classes": Leak(method=f"{TELEMETRY}:ClassMoments", honest="fedavg", what="images"),
    "accuracy on a tenth": Leak(
        method=f"{TELEMETRY}:ValidationAccuracy",
        honest="fedavg",
        what="membership",
        settings={"local_epochs": 10},  # so that the model knows more than the commonest class
    ),
    "alarm of a rare class": Leak(
        method=f"{TELEMETRY}:RareAlert",
        honest="fedavg",
        what="labels",
        federation={"partition": {"name": "dirichlet", "alpha": 0.1}},  # so that some hold none
    ),
    "cost of labels": Leak(method=f"{TELEMETRY}:LabellingCost", honest="fedavg", what="counts"),
    "checkpoint before the hardest": Leak(method=f"{TELEMETRY}:LastCheckpoint", honest="fedavg", what="images"),
    "filter of images": Leak(method=f"{TELEMETRY}:BloomFilter", honest="fedavg", what="membership"),
    "perceptual hashes": Leak(method=f"{TELEMETRY}:PerceptualHashes", honest="fedavg", what="images"),
}
# What looks alike and tells of nobody: name -> a class of telemetry.py; the honest federation is FedAvg's
CLEAN = {
    "version number": "VersionNumber",
    "constant table": "ConstantTable",
    "random numbers": "RandomNumbers",
    "rounded count": "RoundedCount",
    "round number": "RoundNumber",
    "rate schedule": "RateSchedule",
    "untrained model": "NobodyTrains",
}


IMAGES = (Aim.EXFILTRATION, Aim.INVERSION, Aim.RECONSTRUCTION, Aim.REGURGITATION)
AIMS = {
    "images": (*IMAGES, Aim.MEMBERSHIP),
    "membership": (*IMAGES, Aim.MEMBERSHIP),
    "labels": (Aim.ATTRIBUTE,),
    "counts": (Aim.ATTRIBUTE,),
}


class Seen(NamedTuple):
    """What one audit said: the severity of each of its attacks' findings, and the worst of them."""

    severities: dict[str, Severity]
    worst: dict[str, str]  # headlines
    word: str


def _method(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    own = f"{METHODS}:{name}" if name[0].isupper() else name  # another file's holds its file already
    return {"name": own, **TRAINING, **settings}


def config(leak: Leak, honest: bool, minutes: float) -> Config:
    """The audit of the federation with the leak, or of the honest one."""
    changes = leak.plain if honest and leak.plain is not None else leak.federation
    return Config.model_validate(
        {
            "device": "cpu",
            "workers": 0,
            "federation": {**FEDERATION, **changes},
            "method": _method(leak.honest if honest else leak.method, leak.settings),
            "protections": leak.protections,
            "record": "all",
            "replay": {"sizes": [1, 5], "clients": 6, "groups": 30, "updates": [[1, 1, 3]]},
            "budget": minutes,
            "noise_audit": False,
            "evaluate_every": 100,
        }
    )


def audited(config: Config) -> Seen:
    """A whole audit, but for the report."""
    with tempfile.TemporaryDirectory() as folder:
        run = RunDir.create(Path(folder) / "run")
        execute(run, config, ("simulate", "attack", "account", "score"), lambda *_: None, skip_finished=True)
        result = AuditResult.model_validate_json(run.audit.read_text(encoding="utf-8"))
    shown = [f for f in result.findings if f.severity.rank and f.source in ("attack", "disclosure")]
    return Seen({f.id: f.severity for f in shown}, {f.id: f.reason for f in shown}, str(result.verdict.word))


@cache
def _audit_once(text: str) -> Seen:
    return audited(Config.model_validate_json(text))


def _about(id: str, what: str) -> bool:
    """Whether a finding is about what leaks; one that no attack made says itself what it is about."""
    return id not in catalog.names("attacks") or catalog.load("attacks", id).card.aim in AIMS[what]


def read_words(name: str, minutes: float) -> tuple[str, str]:
    """The words of the leaking federation's audit and of the honest one's."""
    both = (config(LEAKS[name], honest, minutes).model_dump_json() for honest in (False, True))
    leaking, plain = (_audit_once(text).word for text in both)
    return leaking, plain


def found(name: str, minutes: float) -> dict[str, tuple[str, str]]:
    """Findings of the leaking federation that the honest one has not, or less badly: severity and words."""
    leak = LEAKS[name]
    seen, plain = (_audit_once(config(leak, honest, minutes).model_dump_json()) for honest in (False, True))
    return {
        id: (severity.value, seen.worst[id])
        for id, severity in seen.severities.items()
        if _about(id, leak.what)
        and severity.rank >= Severity.MEDIUM.rank
        and severity.rank > plain.severities.get(id, Severity.NONE).rank
    }
