"""M15, M17 to M19: claims re-scored, audits with nothing to find or a certain leak, and what all this takes."""

import json
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.null_audits import audits as nulls
from benchmarks.strength.bench import simulated
from benchmarks.strength.figure import Figure, Piece
from fedaudit.attacks import stats
from fedaudit.audit.claims.claim import Claim, Promise, load
from fedaudit.audit.claims.scores import rescore
from fedaudit.audit.settings.merge import merge
from fedaudit.fl.runtime.yaml import read_yaml
from fedaudit.reports.result import AuditResult, ClaimRecord, Severity

CONFIGS = Path(__file__).parents[2] / "configs"
CLAIMS = CONFIGS / "claims"
QUICKSTART = CONFIGS / "quickstart.yaml"
TO_SCORE = ("simulate", "attack", "account", "matrix", "score")
DIGITS = {"dataset": "digits", "model": "small_cnn", "holdout": {"auxiliary": 0.35, "reference": 0.25, "own": 0}}
CRITICAL = Severity.CRITICAL.rank


def _claim(file: str, id: str) -> Claim:
    return next(c for c in load(CLAIMS / f"{file}.yaml").claims if isinstance(c, Claim) and c.id == id)


def _contradicted(record: ClaimRecord, *words: str) -> float:
    """1 where a condition with these words does not hold."""
    return float(any(c.status == "contradicted" and all(w in c.text for w in words) for c in record.conditions))


def claims(out: Path) -> list[Figure]:  # noqa: ARG001
    printed = _claim("gandalf", "gandalf-weights")
    code = printed.model_copy(update={"promise": Promise(epsilon=0.33, delta=1.0), "targets": ()})
    weights, public, fedrs = rescore(printed), rescore(code), rescore(_claim("fedrs", "fedrs"))
    row = weights.rows[0]
    figure = partial(Figure, row="M15")
    yes = partial(figure, least=1)
    return [
        figure(what="GANDALF, one hop: exact epsilon", value=row.epsilon[0], least=4.95e9, most=5.05e9),
        figure(what="by the cited formula", value=row.formula or 0.0, least=4.8e5, most=4.9e5),
        yes(what="which is said to be outside its range", value=_contradicted(weights, "below 1")),
        yes(
            what="its sensitivity is said not to be enforced",
            value=_contradicted(weights, "sensitivity is enforced"),
        ),
        yes(
            what="its code: delta = 1 is said to promise nothing", value=_contradicted(public, "promise anything")
        ),
        yes(
            what="FedRS: releases are said not to be counted", value=_contradicted(fedrs, "releases are counted")
        ),
    ]


def nothing(out: Path) -> list[Figure]:
    """Twenty audits with nothing to find; `make nulls` runs more."""
    found = [f for f in nulls.results(nulls.plan(20), out / "nulls") if f.status != "not_applicable"]
    hits = sum(f.at_least > 0 for f in found)
    share = Figure(
        row="M17",
        what="attacks in 20 audits with nothing to find: share with a finding",
        value=hits / len(found),
        most=nulls.STATED,
        interval=stats.clopper_pearson(hits, len(found)),
        trials=len(found),
    )
    return [share]


GAN = {
    "cycles": 1,
    "least_cycles": 1,
    "unit": "step",
    "local": 1500,
    "batch_size": 16,
    "width": 8,
    "latent": 16,
    "lr_generator": 2e-3,
    "lr_critic": 2e-3,
}
PLANTED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "features": (
        "prototypes of one image",
        {
            "federation": {
                "clients": 30,
                "partition": {"name": "n_class", "classes_per_client": 2, "examples_per_client": 2},
            },
            "method": {"name": "rebafl", "rounds": 2, "local_epochs": 1, "batch_size": 2, "lr": 0.05},
            "attacks": ["ridge", "prototype_membership"],
            "replay": {"sizes": [1], "clients": 30, "groups": 60},
        },
    ),
    "images": (
        "training images as condensed ones",
        {
            "federation": {"clients": 10, "partition": {"name": "dirichlet", "alpha": 0.3}},
            "method": {
                "name": "feddc_condense",
                "rounds": 1,
                "iterations": 0,
                "init": "real",
                "unsafe_allow_real_init": True,
            },
            "attacks": ["condensed_recovery", "condensed_membership"],
            "replay": {"sizes": [1, 5], "clients": 10, "groups": 20},
        },
    ),
    "generators": (
        "generators that memorise",
        {
            "federation": {
                "clients": 4,
                "partition": {"name": "n_class", "classes_per_client": 4, "examples_per_client": 8},
            },
            "method": {"name": "gandalf", "rounds": 1, "groups": 0, "labeler_rounds": 1, "gan": GAN},
            "record": "all",
            "attacks": ["generator_extraction"],
        },
    ),
}


def planted(out: Path) -> list[Figure]:
    """Federations that leak for certain: the grade of their worst finding, 4 is critical."""
    runs = {f"planted-{name}": merge({"federation": DIGITS}, own) for name, (_, own) in PLANTED.items()}
    found = simulated(out, runs, TO_SCORE)
    figures = []
    for name, (what, _) in PLANTED.items():
        audit = found[f"planted-{name}"]
        result = AuditResult.model_validate(audit.read_json(audit.audit))
        worst = max(f.severity.rank for f in result.findings if f.source == "attack")
        figures.append(
            Figure(
                row="M18", what=f"{what}: the worst finding, {CRITICAL} is critical", value=worst, least=CRITICAL
            )
        )
    return figures


def times(out: Path) -> list[Figure]:
    """Minutes of one processor: the quickstart from data to result, and the pieces that are kept below `out`."""
    started = time.process_time()
    simulated(out / "times", {"quickstart": merge(read_yaml(QUICKSTART), {"workers": 0})}, TO_SCORE)
    quick = (time.process_time() - started) / 60
    whole = sum(json.loads(file.read_text(encoding="utf-8"))["seconds"] for file in out.glob("*.json")) / 60
    return [
        Figure(row="M19", what="the quickstart: minutes of one processor", value=quick, most=15),
        Figure(row="M19", what="all of these rows that were run: minutes", value=whole, most=120),
    ]


PIECES = (
    Piece("claims", ("M15",), claims),
    Piece("nothing", ("M17",), nothing),
    Piece("planted", ("M18",), planted),
    Piece("times", ("M19",), times),
)
