"""Commands that run a config many times: protections that would be enough, and methods beside methods."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from fedaudit.audit.cli.app import app, reader, say
from fedaudit.audit.cli.arguments import ConfigFile, Data, Trust, is_run_folder, locate_run
from fedaudit.fl.runtime.errors import UserError

if TYPE_CHECKING:
    from fedaudit.audit.experiments.harden import Candidate


@reader(writes=["out"], own=["config"], target=locate_run, when=is_run_folder, works=True)
def harden(
    config: ConfigFile,
    out: Annotated[Optional[Path], typer.Option(help="folder; default runs/NAME-hardened")] = None,  # noqa: UP045
    data: Data = None,
    trust: Trust = False,
) -> None:
    """Find protections that bring every finding below the policy.

    Tries what answers the findings, alone and together, at several strengths; runs the best again whole, with
    another seed; writes the config to run instead. An imported RUN is searched by its recorded messages.
    The exit code is that of the verdict: on the set that is sufficient, else on the best that was run whole, else
    on the config as it is. 0 ready (or with conditions), 1 not ready, 2 error, 3 cannot tell.
    """
    from fedaudit.audit.case.run_folder import RunDir
    from fedaudit.audit.cli.show import print_table, progress
    from fedaudit.audit.experiments.harden import Search, draw_candidates
    from fedaudit.audit.planning.load import load_config
    from fedaudit.reports.charts import svg

    if config.is_dir() and out is not None:
        raise UserError("a run folder is searched inside itself", hint="leave out --out")
    chosen = load_config(config, data, trust_plugins=trust)
    if config.is_dir():
        run = RunDir.open(config)
    else:
        run = RunDir.create(out or Path("runs") / f"{config.stem}-hardened")
    with progress() as report_progress:
        found = Search(run, chosen, report_progress).find()
    rows = [
        [c.name, how, *_describe_cost(c), ", ".join(c.above) or "none", c.word.words if c.word else ""]
        for how, group in (("as it is", [found.base]), ("screened", found.tried), ("run whole", found.verified))
        for c in group
    ]
    header = ["protections", "how", "accuracy", "epsilon", "traffic", "forbids deployment", "verdict"]
    print_table(header, rows)
    say(found.sentence)
    for figure in draw_candidates(found):
        run.write(run.path / f"{figure.id}.svg", svg(figure))
        say(f"figure: {run.path / figure.id}.svg")
    if found.config is not None:
        say(f"run instead: fedaudit run {found.config}")
    raise typer.Exit(found.word.exit_code)


def _describe_cost(c: "Candidate") -> tuple[str, str, str]:
    """Accuracy, epsilon and traffic as columns; empty where they are not known."""
    from fedaudit.reports.format import number, volume

    return (
        "" if c.accuracy is None else f"{c.accuracy:.1%}",
        "" if c.epsilon is None else number(c.epsilon),
        "" if c.bytes is None else volume(c.bytes),
    )


@reader(app, writes=["out"], own=["config"], target=locate_run, when=is_run_folder, works=True)
def sweep(
    config: ConfigFile,
    methods: Annotated[list[str], typer.Option("--method", help="several; the first is compared with")],
    seeds: Annotated[int, typer.Option(min=1, help="how many seeds, from 0")] = 3,
    out: Annotated[Optional[Path], typer.Option(help="folder; default runs/NAME-sweep")] = None,  # noqa: UP045
    trust: Trust = False,
) -> None:
    """Train methods over seeds and print their paired differences.

    Everything but the method and the seed is the config's. Runs that ended are not made again.
    """
    from fedaudit.audit.cli.show import print_table, progress
    from fedaudit.audit.experiments.sweep import compare_methods, draw_accuracies, run_sweep
    from fedaudit.audit.planning.load import load_config
    from fedaudit.audit.settings.overrides import overridden
    from fedaudit.fl.runtime import durable
    from fedaudit.reports.charts import svg

    chosen = load_config(config, trust_plugins=trust)
    base = overridden(chosen, {"attacks": [], "variants": []}, where="sweep")
    folder = out or Path("runs") / f"{config.stem}-sweep"
    with progress() as report_progress:
        runs = run_sweep(base, {m: {"name": m} for m in methods}, range(seeds), folder, report_progress)
    print_table(["method", "seed", "accuracy"], [[r.method, str(r.seed), f"{r.accuracy:.2%}"] for r in runs])
    for d in compare_methods(runs):
        between = "" if d.interval is None else f" ({d.interval[0]:+.2%} to {d.interval[1]:+.2%})"
        say(f"{d.method} beyond {d.compared_with}: {d.mean:+.2%}{between}")
    durable.write(folder / "sweep.svg", svg(draw_accuracies(runs)))
    say(f"figure: {folder / 'sweep.svg'}")
