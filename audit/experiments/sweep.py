"""A sweep: methods by seeds, each trained once, and their differences paired by seed.

Runs of one seed share the data, the partition and the first weights as far as methods let them, so differences
of the same seed say more than differences of means. Every run is a folder that continues where it was killed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedaudit.attacks.evidence import Series
from fedaudit.attacks.stats import ALPHA, correct_alpha, t_interval
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.evidence.phase import Progress
from fedaudit.audit.experiments.cells import combine_failures, list_cells, run_cells
from fedaudit.audit.settings.config import Config
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.result import Figure


@dataclass(frozen=True, kw_only=True)
class Run:
    """One method under one seed."""

    method: str
    seed: int
    rounds: tuple[int, ...]  # that were measured, from 1
    accuracies: tuple[float, ...]  # fractions of the test set, after each of them
    folder: Path

    @property
    def accuracy(self) -> float:
        """In the end."""
        return self.accuracies[-1]


@dataclass(frozen=True, kw_only=True)
class MethodDifference:
    """What a method reaches in the end beyond the first one, seed by seed."""

    method: str
    compared_with: str
    mean: float  # of accuracy, as a fraction
    interval: tuple[float, float] | None  # Student's, corrected for the number of comparisons; None: one seed
    by_seed: tuple[float, ...]


def run_sweep(
    base: Config | Mapping[str, Any],
    methods: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    folder: Path,
    progress: Progress,
    workers: str | int | None = None,
) -> list[Run]:
    """Train each method under each seed, in FOLDER/METHOD/seed-N.

    Args:
        base: The config that all have in common.
        methods: Label -> the method's name and settings.
        seeds: At least one.
        folder: Of the sweep.
        progress: As of phases.
        workers: How many processes; by default as the config says.

    Raises:
        UserError: Naming what failed; what went to its end is kept, and the next call goes on from there.
    """
    if not methods or not seeds or len(set(seeds)) < len(seeds):
        raise UserError(
            "a sweep needs a method, and seeds that differ", hint="methods [fedavg, rebafl], seeds 0, 1, 2"
        )
    overrides = {
        f"{label}/seed-{seed}": {"method": dict(spec), "seed": seed}
        for seed in seeds
        for label, spec in methods.items()
    }
    cells = list_cells(base, overrides, folder, ("simulate",))
    if failures := run_cells(cells, progress, workers=workers):
        raise combine_failures(failures, len(cells))
    return [_read_run(label, seed, folder / label / f"seed-{seed}") for label in methods for seed in seeds]


def compare_methods(runs: Sequence[Run]) -> list[MethodDifference]:
    """Each method beside the first, paired by seed."""
    methods = list(dict.fromkeys(r.method for r in runs))
    reached = {m: {r.seed: r.accuracy for r in runs if r.method == m} for m in methods}
    first, differences = methods[0], []
    for method in methods[1:]:
        by_seed = tuple(reached[method][s] - reached[first][s] for s in reached[first])
        interval = t_interval(by_seed, correct_alpha(ALPHA, len(methods) - 1)) if len(by_seed) > 1 else None
        differences.append(
            MethodDifference(
                method=method,
                compared_with=first,
                mean=float(np.mean(by_seed)),
                interval=interval,
                by_seed=by_seed,
            )
        )
    return differences


def draw_accuracies(runs: Sequence[Run]) -> Figure:
    """Mean accuracy over seeds after each round, with Student's interval where there are seeds."""
    methods, series = dict.fromkeys(r.method for r in runs), []
    for method in methods:
        own = [r for r in runs if r.method == method]
        rounds = sorted(set.intersection(*(set(r.rounds) for r in own)))
        points = [[dict(zip(r.rounds, r.accuracies, strict=True))[t] for r in own] for t in rounds]
        reach = [t_interval(p) for p in points] if len(own) > 1 else None
        series.append(
            Series(
                name=method,
                x=[float(t) for t in rounds],
                y=[float(np.mean(p)) for p in points],
                low=[max(0.0, low) for low, _ in reach] if reach else None,
                high=[min(1.0, high) for _, high in reach] if reach else None,
            )
        )
    ends = ", ".join(f"{s.name} {s.y[-1]:.3f}" for s in series)
    seeds = len({r.seed for r in runs})
    return Figure(
        id="sweep",
        title="Accuracy of methods",
        caption=f"On the whole test set; means over {seeds} seeds" + (", 95 % intervals." if seeds > 1 else "."),
        alt=f"Accuracy over rounds; in the end {ends}",
        x_label="rounds",
        y_label="accuracy",
        series=series,
    )


def _read_run(method: str, seed: int, folder: Path) -> Run:
    measured = [line for line in RunDir.open(folder).history() if line.get("accuracy") is not None]
    if not measured:
        raise UserError(
            f"{folder} measured no accuracy", hint="leave evaluate_every at 1, or use a method with a model"
        )
    return Run(
        method=method,
        seed=seed,
        rounds=tuple(line["round"] + 1 for line in measured),
        accuracies=tuple(line["accuracy"] for line in measured),
        folder=folder,
    )
