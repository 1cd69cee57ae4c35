"""M16: what attacks on the model take from rules of the server, and what a rule costs with nobody malicious."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.strength.bench import simulated
from benchmarks.strength.figure import Figure, Piece
from fedaudit.attacks.poisoning.count_inflation import CountInflation
from fedaudit.attacks.poisoning.label_flip import LabelFlip
from fedaudit.fl.runtime.settings import settings

FEDERATION: Mapping[str, Any] = {  # ten clients of 400 images
    "limit": 4000,
    "clients": 10,
    "partition": "iid",
    "model": "lenet_f",
    "holdout": {"auxiliary": 0, "reference": 0, "own": 0},
}
METHOD = {"name": "fedavg", "rounds": 10, "local_epochs": 2, "batch_size": 50, "lr": 0.01}
RULES: Mapping[str, Any] = {
    "mean": "mean",
    "median": "median",
    "trimmed mean": {"name": "trimmed_mean", "f": 2},
    "Multi-Krum": {"name": "multi_krum", "f": 2},
}
TWO = {"clients": [8, 9]}


class InflatedFlip(CountInflation):
    """Trains on flipped labels and claims a thousand times the examples."""

    @settings
    class Config(CountInflation.Config):
        mode: str = "all"

    data = LabelFlip.data


def final(out: Path, runs: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Name -> the last round's measurements of a federation with these settings."""
    settings = {
        name: {"federation": {**FEDERATION, **own.get("federation", {})}, "method": METHOD, "record": []}
        | {k: v for k, v in own.items() if k != "federation"}
        for name, own in runs.items()
    }
    return {name: run.history()[-1] for name, run in simulated(out / "rules", settings).items()}


def by_rule(adversary: Mapping[str, Any] | None, name: str) -> dict[str, dict[str, Any]]:
    """Runs of one attack under every rule."""
    chosen = {} if adversary is None else {"adversary": dict(adversary)}
    return {f"{name}/{rule}".replace(" ", "-"): {"aggregator": a, **chosen} for rule, a in RULES.items()}


def sign_flip(out: Path) -> list[Figure]:
    attacked = by_rule({"name": "sign_flip", "scale": 3, **TWO}, "sign-flip")
    found = final(out, {**by_rule(None, "nobody"), **attacked})
    lost = [
        float(found[a]["accuracy"]) - float(found[b]["accuracy"])
        for a, b in zip(by_rule(None, "nobody"), attacked, strict=True)
    ]
    return [
        Figure(
            row="M16",
            what=f"sign flip x 3 of 2 in 10, {rule}: accuracy lost",
            value=gap,
            least=0.08 if rule == "mean" else None,
            most=None if rule == "mean" else 0.03,
        )
        for rule, gap in zip(RULES, lost, strict=True)
    ]


def backdoor(out: Path) -> list[Figure]:
    runs = by_rule({"name": "backdoor", "scale": 5, **TWO}, "backdoor")
    found = final(out, runs)
    return [_success(rule, float(found[name]["asr"])) for rule, name in zip(RULES, runs, strict=True)]


def _success(rule: str, share: float) -> Figure:
    what = f"backdoor x 5 of 2 in 10, {rule}: triggered images that it turns"
    if rule == "mean":
        return Figure(row="M16", what=what, value=share, least=0.7)
    return Figure(row="M16", what=what, value=share, most=0.15)


def counts(out: Path) -> list[Figure]:
    liar = {"name": f"{__name__}:InflatedFlip", "factor": 1000, "clients": [9]}
    found = final(out, {"inflated": {"adversary": liar}})["inflated"]
    what = "one client with flipped labels and counts x 1000, mean: accuracy"
    return [Figure(row="M16", what=what, value=float(found["accuracy"]), most=0.15)]


def two_classes(out: Path) -> list[Figure]:
    split = {"federation": {"partition": {"name": "n_class_exhaustive", "classes_per_client": 2}}}
    found = final(out, {f"two-classes/{rule}": {**split, "aggregator": rule} for rule in ("mean", "median")})
    mean, median = (float(found[f"two-classes/{rule}"]["accuracy"]) for rule in ("mean", "median"))
    what = "nobody malicious, two classes a client: accuracy that the median costs"
    return [Figure(row="M16", what=what, value=mean - median, least=0.1)]


PIECES = tuple(
    Piece(name, ("M16",), make)
    for name, make in {
        "sign-flip": sign_flip,
        "backdoor": backdoor,
        "counts": counts,
        "two-classes": two_classes,
    }.items()
)
