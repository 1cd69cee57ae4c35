"""Label inference by method: how well the labels of clients are read off what each method sends.

    python -m benchmarks.strength.label_inference_table --rounds 4 --out runs/label-inference

Twenty clients of two Fashion-MNIST classes each train for some rounds with each method; label_counts_from_update
reads the last round's uploads. Simulations lie below --out, one folder a method; what is finished is not run
again. The table is printed and kept in table.md.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.paper_tables.table import known
from fedaudit.audit.settings.merge import merge
from fedaudit.fl.runtime import durable
from fedaudit.fl.runtime.errors import UserError

BASE: dict[str, Any] = {
    "federation": {
        "dataset": "fashion_mnist",
        "clients": 20,
        "partition": {"name": "n_class", "classes_per_client": 2, "examples_per_client": 1000},
        "availability": "full",
        "model": "lenet_f",
        "holdout": {"auxiliary": 0.1, "reference": 0.0, "own": 0.0},
        "limit": [None, 1000],
    },
    "record": "last",
    "attacks": ["label_counts_from_update"],
}
TRAINING: dict[str, Any] = {"local_epochs": 3, "batch_size": 50, "lr": 0.01}
METHODS: dict[str, dict[str, Any]] = {
    "FedAvg": {"name": "fedavg"},
    "FedProx": {"name": "fedprox", "mu": 0.1},
    "FedRS, alpha 0.9": {"name": "fedrs", "alpha": 0.9},
    "FedRS, alpha 0.5": {"name": "fedrs", "alpha": 0.5},
    "FedRS, alpha 0": {"name": "fedrs", "alpha": 0.0},
    "FedLC": {"name": "fedlc"},
    "BSM-FedAvg": {"name": "bsm_fedavg"},
    "ReBaFL": {"name": "rebafl"},
    "FedBABU": {"name": "fedbabu"},
}
RULES = ("bias", "row sums", "row norms")
HEADER = ("method", *(f"set exact, {r}" for r in RULES), "best F1", "L1 of shares")
CAPTION = (
    "Each cell: value [interval] (best blind guess). The intervals hold together at 95 %. "
    "L1 of shares is 0 where proportions are exact, 2 at most."
)
Found = Mapping[str, Any]  # one file of evidence/


def overrides_of(method: str, rounds: int, seed: int) -> dict[str, Any]:
    """What one method changes in BASE."""
    settings = {**METHODS[known(method, METHODS, "method")], **TRAINING, "rounds": rounds}
    return {"seed": seed, "method": settings, "evaluate_every": rounds}


def measure(methods: Sequence[str], rounds: int, seed: int, root: Path, overrides: Mapping[str, Any]) -> str:
    """Simulate and attack each method below root; the table as Markdown, also in root/table.md."""
    from fedaudit.audit.cli.show import progress
    from fedaudit.audit.experiments.cells import combine_failures, list_cells, run_cells

    if rounds < 1:
        raise UserError(f"--rounds must be >= 1, got {rounds}", hint="4 takes some minutes")
    plan = {f"{_folder(m)}-seed-{seed}-r{rounds}": m for m in methods or METHODS}
    layers = {name: merge(overrides_of(m, rounds, seed), overrides) for name, m in plan.items()}
    todo = list_cells(BASE, layers, root, ("simulate", "attack"))
    with progress() as report:
        failures = run_cells(todo, report)
    if failures:
        raise combine_failures(failures, len(todo))
    rows = []
    for cell in todo:
        (kept,) = (cell.folder / "evidence").glob("[0-9]*.json")
        rows.append(cells(plan[cell.name], json.loads(kept.read_text())))
    lines = [HEADER, ("---",) * len(HEADER), *rows]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{CAPTION}\n"
    durable.write(root / "table.md", text.encode())
    return text


def _folder(method: str) -> str:
    return method.lower().replace(", ", "-").replace(" ", "-")


def cells(method: str, found: Found) -> tuple[str, ...]:
    """One row: the value, its interval, and the best blind guess in round brackets."""
    if found["status"] != "ran":
        return (method, found["reason"], *("",) * (len(HEADER) - 2))
    exact = [_cell(_real(found, "label_set_exact_match", rule)) for rule in RULES]
    scores = [e for rule in RULES for e in _real(found, "label_set_f1", rule)]
    best = max(scores, key=lambda e: float(e["value"]))
    return (method, *exact, _cell([best]), _cell(_real(found, "label_share_l1")))


def _real(found: Found, measure: str, rule: str | None = None) -> list[Any]:
    """Evidence that is no control; under that rule, if any."""
    return [
        e
        for e in found.get("evidence", [])
        if e["measure"] == measure
        and e["control"] == "none"
        and (rule is None or e["condition"].get("rule") == rule)
    ]


def _cell(found: Sequence[Any]) -> str:
    if not found:
        return "–"
    (e,) = found
    pick = max if e["higher_is_worse"] else min
    blind = pick(b["value"] for b in e["baselines"])
    low, high = e["interval"] or (e["value"], e["value"])
    return f"{e['value']:.2f} [{low:.2f}, {high:.2f}] ({blind:.2f})"


def main(
    rounds: Annotated[int, typer.Option(help="of each method")] = 4,
    seed: Annotated[int, typer.Option()] = 7,
    methods: Annotated[str, typer.Option(help="separated by semicolons; default: all")] = "",
    out: Annotated[Path, typer.Option(help="where run folders lie")] = Path("runs/label-inference"),
    data: Annotated[str, typer.Option(help="folder of Fashion-MNIST, where it is not found")] = "",
) -> None:
    """Print how well labels are read off what each method sends, as a Markdown table."""
    chosen = [m.strip() for m in methods.split(";") if m.strip()]
    own: dict[str, Any] = {"dataset": {"name": "fashion_mnist", "path": data}} if data else {}
    try:
        typer.echo(measure(chosen, rounds, seed, out, {"federation": own} if own else {}))
    except UserError as error:
        if os.environ.get("FEDAUDIT_DEBUG"):
            raise
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    sys.stdout.flush()


if __name__ == "__main__":
    typer.run(main)
