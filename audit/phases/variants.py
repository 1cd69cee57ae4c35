"""Variants: the audited run once more with other protections, each a run folder inside the run.

A variant shares the seed, so that the same clients with the same data answer in the same rounds and
runs are paired. It is a complete audit of its own (variants/NAME has its own report) and continues
after a kill like any other.
"""

from audit.phases.plan import PHASES, Progress, execute, finished
from audit.phases.report import read_result
from audit.settings.config import Config, Variant, at
from audit.settings.errors import validate
from audit.subject.rundir import RunDir
from reports.result import AuditResult

JUDGED = ("score", "report")  # the phases that read what the variants left


def config_of(config: Config, variant: Variant) -> Config:
    """The config of one variant: other protections, changed settings of the method, fewer attacks."""
    plain = config.model_dump()
    repeated = [a.model_dump() for a in config.attacks if variant.attacks is None or a.label in variant.attacks]
    changes = {
        "title": f"{config.title}: {variant.name}",
        "protections": variant.model_dump()["protections"],
        "method": plain["method"] | variant.method,
        "attacks": repeated,
        "variants": [],
    }
    return at(config.file, validate(Config, plain | changes, f"variant {variant.name}"))


def folder_of(run: RunDir, variant: Variant) -> RunDir:
    return RunDir(run.inside(f"variants/{variant.name}"))


def execute_all(run: RunDir, config: Config, names: list[str], progress: Progress) -> None:
    """Phases of a run with its variants, finished ones skipped; what they left is judged at the end."""
    execute(run, config, [n for n in names if n not in JUDGED], progress, skip_finished=True)
    every = [p.name for p in PHASES]
    for variant in config.variants if "score" in names else ():
        folder = RunDir.create(folder_of(run, variant).path)
        execute(folder, config_of(config, variant), every, _named(variant.name, progress), skip_finished=True)
    # A verdict older than one of its variants is made again
    skip = not any(_newer(folder_of(run, v), run) for v in config.variants)
    execute(run, config, [n for n in names if n in JUDGED], progress, skip_finished=skip)


def results(run: RunDir, config: Config) -> list[tuple[Variant, AuditResult | None]]:
    """Every variant with its audit; None where it was not run to the end, or with other settings."""
    return [(v, _result(folder_of(run, v), config_of(config, v))) for v in config.variants]


def _result(folder: RunDir, config: Config) -> AuditResult | None:
    if not folder.config.is_file() or not finished(folder, config):
        return None
    return read_result(folder)


def _newer(variant: RunDir, run: RunDir) -> bool:
    audits = variant.audit, run.audit
    if not all(a.is_file() for a in audits):
        return False
    return audits[0].stat().st_mtime_ns > audits[1].stat().st_mtime_ns


def _named(name: str, progress: Progress) -> Progress:
    return lambda phase, done, total: progress(f"{name}: {phase}", done, total)
