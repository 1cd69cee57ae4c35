"""M8 and M12: images and labels of one gradient, on first weights and on trained ones; classes of an update."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.strength.bench import attack, case, pick, tried
from benchmarks.strength.figure import Figure, Piece, of
from benchmarks.strength.label_inference_table import BASE, TRAINING
from fedaudit.audit.case.case import Case

FEDERATION: Mapping[str, Any] = {
    "seed": 1,
    "federation": {
        "limit": 20000,
        "clients": 10,
        "partition": {"name": "dirichlet", "alpha": 1.0},
        "model": {"name": "cnn_w", "padding": 2},
        "holdout": {"auxiliary": 0.15, "reference": 0.2, "own": 0},
    },
}
METHOD = {"name": "fedavg", "local_epochs": 1, "lr": 0.05, "batch_size": 20}
ROUNDS = {
    "fresh": 1,
    "trained": 10,
}  # uploads of the last round started from first weights, or from those of nine
WORDS = {"inverting_gradients": "Inverting Gradients", "grnn_updates": "GRNN", "analytic": "analytic"}
LEAST = {
    ("inverting_gradients", "fresh"): 0.9,
    ("inverting_gradients", "trained"): 0.75,
    ("grnn_updates", "fresh"): 0.8,
}


def federation(out: Path, name: str) -> Case:
    return case(out, f"gradients-{name}", {**FEDERATION, "method": {**METHOD, "rounds": ROUNDS[name]}})


def images(out: Path, tool: str, model: str, **settings: Any) -> list[Figure]:
    """One image's gradient, inverted."""
    replay = {"updates": [[1, 1, settings["per_size"]]], "clients": 10}  # image and step
    found = tried(federation(out, model), attack(tool, recorded=0, **settings), replay).evidence
    what = f"{WORDS[tool]}, {model} model"
    figures = [
        of(pick(found, "ssim"), "M8", f"{what}: SSIM", least=LEAST.get((tool, model))),
        of(pick(found, "rank1"), "M8", f"{what}: rank-1 of 100"),
    ]
    if tool == "analytic":
        error = pick(found, "layer_input_relative_error")
        figures.append(of(error, "M8", f"{what}: relative error of the layer's input", most=1e-5))
    return figures


def labels(out: Path) -> list[Figure]:
    """iDLG for one image, and the counts of a batch by its bias."""
    figures = []
    for model, n in (("fresh", 1), ("trained", 1), ("fresh", 50), ("trained", 50)):
        replay = {"updates": [[n, 1, 200]], "clients": 10}
        found = tried(federation(out, model), attack("label_counts_from_gradient"), replay).evidence
        exact = pick(found, "count_exact_match", rule="bias", n=n)
        what = "label of one image" if n == 1 else f"counts of a batch of {n}, all right"
        least = 1.0 if n == 1 else 0.99 if model == "fresh" else None
        figures.append(of(exact, "M8" if n == 1 else "M12", f"{what}, {model} model", least=least))
    return figures


def classes(out: Path) -> list[Figure]:
    """Uploads of FedAvg after three epochs, of clients of two classes."""
    settings = {**BASE, "attacks": [], "method": {"name": "fedavg", **TRAINING, "rounds": 4}}
    found = tried(case(out, "classes", settings), attack("label_counts_from_update"), {"clients": 0}).evidence
    exact = pick(found, "label_set_exact_match", origin=None, rule="bias")
    return [
        of(exact, "M12", "both classes of an update, by the bias", least=0.75),
        of(pick(found, "label_share_l1", origin=None), "M12", "L1 of the proportions", most=0.55),
    ]


PIECES = (
    Piece("ig-fresh", ("M8",), partial(images, tool="inverting_gradients", model="fresh", per_size=8)),
    Piece("ig-trained", ("M8",), partial(images, tool="inverting_gradients", model="trained", per_size=8)),
    Piece(
        "grnn-fresh", ("M8",), partial(images, tool="grnn_updates", model="fresh", per_size=8, iterations=1000)
    ),
    Piece("analytic-fresh", ("M8",), partial(images, tool="analytic", model="fresh", per_size=20)),
    Piece("analytic-trained", ("M8",), partial(images, tool="analytic", model="trained", per_size=20)),
    Piece("labels", ("M8", "M12"), labels),
    Piece("classes", ("M12",), classes),
)
