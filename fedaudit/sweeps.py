"""A config many times, from Python: methods over seeds, rules under attackers, protections to add."""

import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedaudit.audit.cli.show import progress
from fedaudit.audit.experiments.harden import Candidate, Hardening, Search, draw_candidates
from fedaudit.audit.experiments.sweep import MethodDifference, Run, compare_methods, draw_accuracies, run_sweep
from fedaudit.audit.planning.load import make_config
from fedaudit.audit.settings.config import Config
from fedaudit.audits import Audit, choose_folder, read_config, run
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.robustness import MatrixCell
from fedaudit.tables import Chart, Row, Table


@dataclass(frozen=True)
class Sweep:
    """Methods by seeds. A notebook shows the differences and the curves."""

    folder: Path
    runs: Table[Run]  # one row a method and seed
    differences: Table[MethodDifference]  # one row a method beside the first

    def to_frame(self) -> Any:
        """The runs as a pandas DataFrame."""
        return self.runs.to_frame()

    def plot(self) -> Chart:
        """Accuracy over rounds: means over seeds, with intervals."""
        return self.runs.plot()

    def _repr_html_(self) -> str:
        return self.differences._repr_html_() + self.plot()._repr_html_()

    def __repr__(self) -> str:
        return f"<Sweep {self.folder}: {self.runs!r}\n{self.differences!r}>"


def sweep(
    methods: Sequence[str | Mapping[str, Any]] | Mapping[str, Mapping[str, Any]],
    *,
    seeds: Sequence[int] = (0, 1, 2),
    dataset: str | Mapping[str, Any] = "digits",
    rounds: int | None = None,
    federation: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    workers: int | str | None = None,
    **settings: Any,
) -> Sweep:
    """Train methods under the same seeds, data and clients, and compare what they reach. It goes on if stopped.

    Args:
        methods: Names, or groups of a name and settings; by label where one method is there twice:
            {"gentle": {"name": "fedavg", "lr": 0.01}}. The first is the one that others are compared with.
        seeds: Of all draws; differences are paired by seed.
        dataset: Its name, or a group of a name and settings.
        rounds: Of every method that has rounds; by default each method's own.
        federation: More keys of the config's `federation`.
        out: The folder; by default runs/sweep and a digest.
        workers: How many processes, or "auto"; no number depends on it.
        **settings: More keys of the config, such as protections.

    Raises:
        UserError: With what was found, what was expected and what to do next.

    Examples:
        >>> import fedaudit as fa
        >>> found = fa.sweep(["fedavg", "fedrs"], seeds=range(2), rounds=2, federation={"model": "logreg"})
        >>> len(found.runs), found.differences[0].compared_with
        (4, 'fedavg')
    """
    base = {"device": "auto", **settings, "federation": {"dataset": dataset, **(federation or {})}, "attacks": []}
    base |= {"record": settings.get("record", [])}
    labelled = {label: dict(spec, **_fix_rounds(rounds)) for label, spec in _label_methods(methods).items()}
    text = json.dumps([base, labelled], sort_keys=True, default=str)
    folder = (
        Path(out) if out is not None else Path("runs") / f"sweep-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    )
    with progress() as report_progress:
        runs = run_sweep(base, labelled, list(seeds), folder, report_progress, workers)
    return Sweep(
        folder,
        Table(runs, _describe_run, draw=lambda shown: [draw_accuracies(shown)]),
        Table(compare_methods(runs), _describe_difference, name=lambda d: d.method),
    )


@dataclass(frozen=True)
class RobustnessResult:
    """Attackers by rules. A notebook shows the cells."""

    audit: Audit
    cells: Table[MatrixCell]  # one row an attacker under a rule

    def to_frame(self) -> Any:
        """The cells as a pandas DataFrame."""
        return self.cells.to_frame()

    def plot(self) -> Chart:
        """The figures of the report's part on malicious clients."""
        return self.audit.plot()

    def _repr_html_(self) -> str:
        return self.cells._repr_html_()

    def __repr__(self) -> str:
        return f"<Robustness {self.audit.folder}: {self.cells!r}>"


def robustness(
    config: str | Path | Mapping[str, Any] | Config,
    *,
    rules: Sequence[str | Mapping[str, Any] | type] = ("median",),
    attackers: Sequence[str | Mapping[str, Any] | type] = ("sign_flip",),
    malicious: int | Sequence[int] = 1,
    seeds: Sequence[int] = (),
    out: str | Path | None = None,
    workers: int | str | None = None,
    trust_plugins: bool = False,
) -> RobustnessResult:
    """Run a federation under every attacker and every rule of the server, the plain mean among the rules.

    Args:
        config: As of `run`; its attacks and options are left out.
        rules: Names of aggregators, groups of a name and settings, or classes of your own that can be imported.
        attackers: Likewise of adversaries.
        malicious: How many clients are.
        seeds: One run of each pair for each; none: the config's own.
        out: The run folder; by default runs/robustness and a digest.
        workers: How many processes, or "auto"; no number depends on it.
        trust_plugins: Run and download what a config file names.

    Returns:
        A cell for each; those of `_idle` have clients that do nothing in the attackers' place.

    Raises:
        UserError: With what was found, what was expected and what to do next.

    Examples:
        >>> import fedaudit as fa
        >>> found = fa.robustness("quickstart", rules=["median"], attackers=["sign_flip"], malicious=2)
        >>> sorted({(cell.rule, cell.adversary) for cell in found.cells})
        [('mean', '_idle'), ('mean', 'sign_flip'), ('median', '_idle'), ('median', 'sign_flip')]
    """
    made, _ = read_config(config, trust_plugins=trust_plugins)
    matrix = {
        "adversaries": [_name_plugin(a) for a in attackers],
        "aggregators": [_name_plugin(r) for r in rules],
        "malicious": [malicious] if isinstance(malicious, int) else list(malicious),
        "seeds": list(seeds),
    }
    settings = made.model_dump(mode="json", exclude_unset=True) | {
        "matrix": matrix,
        "attacks": [],
        "variants": [],
    }
    if out is None:
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:8]
        out = Path("runs") / f"robustness-{digest}"
    audit = run(make_config(settings).set_origin(made.origin), out=out, workers=workers)
    found = audit.result.robustness
    return RobustnessResult(audit, Table(found.cells if found else (), _describe_cell))


@dataclass(frozen=True)
class HardeningResult:
    """What a search for protections came to. A notebook shows the candidates and the figure."""

    folder: Path
    found: Hardening
    candidates: Table[Candidate]  # as audited, then screened, then run again whole

    @property
    def sufficient(self) -> bool:
        """Whether the own audit of a set of protections, run again whole, is ready, or ready with conditions."""
        return self.found.sufficient is not None

    @property
    def config(self) -> Path | None:
        """The config to run instead; None where nothing was sufficient."""
        return self.found.config

    def to_frame(self) -> Any:
        """The candidates as a pandas DataFrame."""
        return self.candidates.to_frame()

    def plot(self) -> Chart:
        """Severity, epsilon and bytes of candidates, beside their accuracy."""
        return Chart(draw_candidates(self.found))

    def _repr_html_(self) -> str:
        shown = self.candidates._repr_html_() + self.plot()._repr_html_()
        return f"<p>{html.escape(self.found.sentence)}</p>{shown}"

    def __repr__(self) -> str:
        return f"<Hardening {self.folder}: {self.found.sentence}>"


def harden(
    config: str | Path | Mapping[str, Any] | Config,
    *,
    out: str | Path | None = None,
    workers: int | str | None = None,
    trust_plugins: bool = False,
) -> HardeningResult:
    """Find protections that bring every finding below the policy at the least accuracy lost.

    Args:
        config: As of `run`, or an imported run folder, whose recorded messages are searched.
        out: The folder; by default runs/NAME-hardened. An imported folder is searched inside itself.
        workers: How many processes, or "auto"; no number depends on it.
        trust_plugins: Run and download what a config file or an imported folder names.

    Raises:
        UserError: With what was found, what was expected and what to do next.

    Examples:
        >>> import fedaudit as fa
        >>> found = fa.harden("quickstart")
        >>> found.sufficient == (found.config is not None)
        True
    """
    chosen, name = read_config(config, trust_plugins=trust_plugins)
    folder = choose_folder(config, out, f"{name}-hardened")
    if workers is not None:
        chosen = chosen.with_workers(str(workers))
    with progress() as report_progress:
        found = Search(folder, chosen, report_progress).find()
    every = [found.base, *found.tried, *found.verified]
    return HardeningResult(folder.path, found, Table(every, _describe_candidate))


def _label_methods(
    methods: Sequence[str | Mapping[str, Any]] | Mapping[str, Mapping[str, Any]],
) -> dict[str, dict[str, Any]]:
    if isinstance(methods, Mapping):
        return {str(label): dict(spec) for label, spec in methods.items()}
    specs = [{"name": m} if isinstance(m, str) else dict(m) for m in methods]
    labels = [str(s.get("name")) for s in specs]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise UserError(
            f"{twice[0]} is there twice", hint='give labels: {"a": {"name": ...}, "b": {"name": ...}}'
        )
    return dict(zip(labels, specs, strict=True))


def _fix_rounds(rounds: int | None) -> dict[str, int]:
    return {} if rounds is None else {"rounds": rounds}


def _name_plugin(given: str | Mapping[str, Any] | type) -> Any:
    if not isinstance(given, type):
        return given
    if given.__module__ == "__main__":
        raise UserError(
            f"{given.__name__} is defined in this program, and workers cannot import it from there",
            hint="put it into a file of its own, and import it",
        )
    return f"{given.__module__}:{given.__qualname__}"


def _describe_run(r: Run) -> Row:
    return {
        "method": r.method,
        "seed": r.seed,
        "rounds": r.rounds[-1],
        "accuracy": r.accuracy,
        "folder": str(r.folder),
    }


def _describe_difference(d: MethodDifference) -> Row:
    low, high = d.interval or (None, None)
    return {"method": d.method, "compared_with": d.compared_with, "difference": d.mean, "low": low, "high": high}


def _describe_candidate(c: Candidate) -> Row:
    return {
        "protections": c.name,
        "settings": "; ".join(json.dumps(p.model_dump(mode="json")) for p in c.protections),
        "accuracy": c.accuracy,
        "worst": str(c.worst),
        "above": ", ".join(c.above),
        "epsilon": c.epsilon,
        "bytes": c.bytes,
        "whole": not c.stage,
        "verdict": str(c.word or ""),
    }


def _describe_cell(c: MatrixCell) -> Row:
    return {
        "rule": c.rule,
        "attacker": c.adversary,
        "malicious": c.malicious,
        "accuracy": c.accuracy,
        "clean": c.clean,
        "severity": c.severity,
    }
