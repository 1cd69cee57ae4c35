"""Accuracy beside privacy lost, at most and at least: DP-FedAvg and DP-ReBaFL at several noise levels.

    python -m benchmarks.privacy.noise_audit_table --rounds 10 --out runs/noise-audit

Every upload is clipped and noised on its way to the server (dp_gaussian, local DP per client), models
and prototypes alike. For each noised kind: epsilon at most by two engines, from the run's ledger; and
epsilon at least, as the noise that was measured has it. Simulations lie below
--out, one folder a row of the plan; what is finished is not run again. Leaves table.md and figure.svg.

What a method sends besides (how many examples, counts of each class) goes in clear here, so the run as
a whole has no bound; the table names these kinds, and its numbers are those of the noised kinds alone.
The levels are chosen for what a model of 44,000 weights can bear when every client adds its own noise.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.paper_tables.table import known
from fedaudit.attacks.evidence import Series
from fedaudit.audit.settings.merge import merge
from fedaudit.fl.runtime import durable
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.result import Figure, NoiseAuditRecord

BASE: dict[str, Any] = {
    "title": "Accuracy and privacy lost",
    "federation": {
        "dataset": "fashion_mnist",
        "clients": 20,
        "partition": {"name": "dirichlet", "alpha": 1.0},
        "availability": "full",
        "model": "lenet_f",
        "limit": 20000,
        "holdout": {"auxiliary": 0.0, "reference": 0.0, "own": 0.0},
    },
    "record": "last",
    "accountants": ["exact"],
}
TRAINING: dict[str, Any] = {"local_epochs": 1, "batch_size": 50, "lr": 0.05, "weighting": "uniform"}
METHODS: dict[str, dict[str, Any]] = {
    "DP-FedAvg": {"method": {"name": "fedavg"}, "kinds": ["local_model"]},
    "DP-ReBaFL": {"method": {"name": "rebafl"}, "kinds": ["local_model", "local_prototypes"]},
}
NOISE = (0.03, 0.1, 0.3)  # noise standard deviation / clip; at 1 training diverges
CLIP = 1.0
HEADER = (
    "method",
    "noise multiplier",
    "accuracy",
    "kind",
    "releases",
    "epsilon at most, exact",
    "at most, RDP",
    "at least, measured",
    "refuted",
    "sent in clear",
)
CAPTION = (
    "Epsilon per client at delta = 1e-5, add or remove one, of all rounds; at most is rounded up, at least "
    "down. At least is what the noise that was measured amounts to, with 97.5 % confidence. Kinds sent in clear "
    "have no bound."
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One noised kind of one run."""

    method: str
    noise: float
    accuracy: float
    kind: str
    releases: int  # of the client that made most; fewer than rounds where training diverged
    exact: float
    rdp: float
    lower: float
    refuted: bool
    clear: tuple[str, ...]  # kinds released without noise

    def cells(self) -> tuple[str, ...]:
        return (
            self.method,
            f"{self.noise:g}",
            f"{100 * self.accuracy:.1f} %",
            self.kind,
            str(self.releases),
            f"{self.exact:g}",
            f"{self.rdp:g}",
            f"{self.lower:g}",
            "yes" if self.refuted else "no",
            ", ".join(self.clear) or "nothing",
        )


def overrides_of(method: str, noise: float, rounds: int, seed: int) -> dict[str, Any]:
    """What one method at one noise level changes in BASE."""
    plan = METHODS[known(method, METHODS, "method")]
    protection = {"name": "dp_gaussian", "kinds": plan["kinds"], "clip_norm": CLIP, "noise_multiplier": noise}
    return {
        "seed": seed,
        "method": plan["method"] | TRAINING | {"rounds": rounds},
        "protections": [protection],
        "evaluate_every": rounds,
    }


def measure(
    noises: Sequence[float], rounds: int, seed: int, root: Path, overrides: Mapping[str, Any]
) -> list[Row]:
    """Simulate and account every method at every noise level, below root."""
    from fedaudit.audit.case.run_folder import RunDir
    from fedaudit.audit.cli.show import progress
    from fedaudit.audit.experiments.cells import combine_failures, list_cells, run_cells

    if rounds < 1:
        raise UserError(f"--rounds must be >= 1, got {rounds}", hint="10 takes some minutes")
    plan = {
        f"{method.lower()}-z{noise:g}-seed-{seed}-r{rounds}": (method, noise)
        for method in METHODS
        for noise in noises
    }
    layers = {name: merge(overrides_of(*key, rounds, seed), overrides) for name, key in plan.items()}
    cells = list_cells(BASE, layers, root, ("simulate", "account"))
    with progress() as report:
        failures = run_cells(cells, report)
    if failures:
        raise combine_failures(failures, len(cells))
    return [row for c in cells for row in _rows(RunDir(c.folder), *plan[c.name], c.config.delta)]


def _rows(run: Any, method: str, noise: float, delta: float) -> list[Row]:
    from fedaudit.audit.accounting.accountants.rdp import bound
    from fedaudit.audit.accounting.budget import round_up, towards
    from fedaudit.audit.accounting.terms import terms
    from fedaudit.fl.ledger import read

    last = json.loads(run.metrics.read_text().splitlines()[-1])
    releases = read(run.ledger)
    clear = tuple(sorted({r.kind for r in releases if not r.noise_multiplier}))
    found = []
    for entry in run.read_json(run.evidence / "noise_audits.json"):
        audit = NoiseAuditRecord(**entry)
        noised = [r for r in releases if r.kind == audit.kind and r.noise_multiplier]
        groups = towards("server", noised, "client")[1].values()
        longest = max(groups, key=lambda g: sum(r.count for r in g))  # all noise is alike here
        found.append(
            Row(
                method=method,
                noise=noise,
                accuracy=float(last["accuracy"]),
                kind=audit.kind,
                releases=audit.releases,
                exact=audit.composed,
                rdp=round_up(bound(terms(longest), delta).epsilon),
                lower=audit.at_least or 0.0,
                refuted=audit.refuted,
                clear=clear,
            )
        )
    return found


def table(rows: Sequence[Row]) -> str:
    """Markdown."""
    lines = [HEADER, ("---",) * len(HEADER), *(r.cells() for r in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{CAPTION}\n"


def figure(rows: Sequence[Row]) -> Figure:
    """Accuracy against epsilon of the uploaded models, a line a method and bound."""
    models = [r for r in rows if r.kind == "local_model"]
    series = []
    for method in dict.fromkeys(r.method for r in models):
        own = [r for r in models if r.method == method]
        lines = {"≤ exact": [r.exact for r in own], "≤ RDP": [r.rdp for r in own]}
        lines["≥ measured"] = [r.lower for r in own]
        for name, epsilons in lines.items():
            points = sorted((e, 100 * r.accuracy) for e, r in zip(epsilons, own, strict=True) if e > 0)
            series.append(Series(name=f"{method} {name}", x=[e for e, _ in points], y=[a for _, a in points]))
    return Figure(
        id="noise-audit-accuracy",
        title="Accuracy and privacy lost",
        caption="Accuracy against epsilon of the uploaded models. The truth lies between ≥ (measured) and "
        "≤ (accountants).",
        alt="Lines of accuracy against upper and lower bounds of epsilon, one for each method and bound",
        x_label="epsilon",
        y_label="test accuracy (%)",
        x_log=True,
        series=series,
    )


def main(
    rounds: Annotated[int, typer.Option(help="of each run")] = 10,
    seed: Annotated[int, typer.Option()] = 7,
    noise: Annotated[str, typer.Option(help="multipliers, separated by commas")] = "",
    out: Annotated[Path, typer.Option(help="where run folders lie")] = Path("runs/noise-audit"),
    dataset: Annotated[str, typer.Option(help="another data set, such as digits")] = "",
    model: Annotated[str, typer.Option(help="another model, such as mlp")] = "",
) -> None:
    """Print accuracy, epsilon at most and epsilon at least, as a Markdown table."""
    from fedaudit.reports.charts import svg

    named = {"dataset": dataset, "model": model}
    own: dict[str, Any] = {k: v for k, v in named.items() if v}
    try:
        levels = [float(n) for n in noise.split(",")] if noise else list(NOISE)
        rows = measure(levels, rounds, seed, out, {"federation": own} if own else {})
        text = table(rows)
        durable.write(out / "table.md", text.encode())
        durable.write(out / "figure.svg", svg(figure(rows)))
        typer.echo(text)
    except (UserError, ValueError) as error:
        if os.environ.get("FEDAUDIT_DEBUG"):
            raise
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None


if __name__ == "__main__":
    typer.run(main)
