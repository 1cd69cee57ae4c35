"""Variants: the audited run once more with other protections, each a run folder inside the run.

A variant of a simulation shares the seed, so that the same clients with the same data answer in the same rounds
and runs are paired. Of a recorded federation, whose clients nobody can run again, a variant is its messages
passed through the protections (audit/importing/protect_messages.py). Either way it is a complete audit of its own
(variants/NAME has its own report), with attacks chosen anew for what it sends, and continues after a kill like
any other; audit/phases/cells.py runs them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.recorded import RecordedCase
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.sharing import sharing
from fedaudit.audit.importing.protect_messages import copy_with_protections
from fedaudit.audit.phases.cells import Failure, RunCell, complaint, run_cells
from fedaudit.audit.phases.choice import choose, choose_anew
from fedaudit.audit.phases.options import propose_variants
from fedaudit.audit.phases.plan import Progress, execute, is_audited_run, phases
from fedaudit.audit.phases.result_file import read_result
from fedaudit.audit.settings.config import Config, RecordedConfig, SimulatedConfig
from fedaudit.audit.settings.overrides import overridden
from fedaudit.audit.settings.resolve import resolve
from fedaudit.audit.settings.variant import Variant
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.wire.protection import published_noise
from fedaudit.reports.result import AuditResult

JUDGED = ("score", "report")  # the phases that read what the variants left
NOISED = 2.0  # times the work where there is noise: it is audited, and clients are played to read through it


def list_variants(run: RunDir, config: Config) -> tuple[Variant, ...]:
    """Those that the config names, or with `variants: auto` those that the run's own evidence asks for."""
    return config.variants if config.variants is not None else propose_variants(run, config)


def config_of(run: RunDir, config: Config, variant: Variant) -> Config:
    """The config of one variant; raises UserError that names it."""
    plain, where = variant.model_dump(), f"variant {variant.name}"
    changes: dict[str, Any] = {
        "title": f"{config.title}: {variant.name}",
        "protections": plain["protections"],
        "variants": [],
    }
    if isinstance(config, SimulatedConfig):
        changes |= {"method": plain["method"], "matrix": None, "absence": None}
    changed = overridden(config, changes, where=where)
    if changed.attacks is None and variant.attacks is None:  # what it sends decides
        return changed
    specs = choose_anew(choose(changed, open_case(run, changed)), changed.budget.minutes, variant.attacks)
    return overridden(changed, {"attacks": [a.model_dump() for a in specs]}, where=where)


def folder_of(run: RunDir, variant: Variant) -> RunDir:
    return RunDir(run.inside(f"variants/{variant.name}"))


@sharing()
def execute_all(run: RunDir, config: Config, names: list[str], progress: Progress) -> None:
    """Phases of a run with its variants, finished ones skipped; what they left is judged at the end.

    Raises UserError at the very end where a variant failed: the others, and the audit, are there.
    """
    execute(run, config, [n for n in names if n not in JUDGED], progress, skip_finished=True)
    variants = list_variants(run, config) if "score" in names else ()
    wanted = tuple(p.name for p in phases(config.case))
    cells = [_make_cell(run, v, config_of(run, config, v), wanted) for v in variants]
    failures = copy_messages(run, cells, config)
    able = [cell for cell in cells if cell.name not in {f.name for f in failures}]
    failures += run_cells(able, progress) if able else []
    # A verdict older than one of its variants is made again
    skip = not any(_is_newer(folder_of(run, v), run.audit) for v in variants)
    execute(run, config, [n for n in names if n in JUDGED], progress, skip_finished=skip)
    if failures:
        raise complaint(failures, len(cells))


def _make_cell(run: RunDir, variant: Variant, config: Config, wanted: tuple[str, ...]) -> RunCell:
    case = open_case(run, config)
    seconds = sum(choose(config, case).seconds.values())
    if any(published_noise(case.protections, k) for k in case.card.uplink):
        seconds *= NOISED
    folder = folder_of(run, variant).path
    return RunCell(name=variant.name, folder=folder, config=config, phases=wanted, seconds=seconds)


def copy_messages(run: RunDir, cells: Sequence[RunCell], config: Config) -> list[Failure]:
    """Pass recorded messages through each variant's protections; those that they cannot pass have failed."""
    if not isinstance(config, RecordedConfig):
        return []
    card, failures = RecordedCase(config, run.artifacts).card, []
    for cell in cells:
        try:
            folder = RunDir.create(cell.folder)
            folder.adopt(cell.config, phases(cell.config.case)[0].keys)
            copy_with_protections(run.path, folder.path, card, cell.config.seed, cell.config.protections)
        except UserError as error:
            failures.append(Failure(name=cell.name, code=2, sentence=str(error.args[0]), hint=error.hint))
    return failures


def results(run: RunDir, config: Config) -> list[tuple[Variant, AuditResult | None]]:
    """Every variant with its audit; None where it was not run to the end, or with other settings."""
    return [(v, _result(folder_of(run, v), config_of(run, config, v))) for v in list_variants(run, config)]


def _result(folder: RunDir, config: Config) -> AuditResult | None:
    if not folder.config.is_file() or not is_audited_run(folder.path, resolve(config)):
        return None
    return read_result(folder.path)


def _is_newer(variant: RunDir, audit: Path) -> bool:
    audits = variant.audit, audit
    if not all(a.is_file() for a in audits):
        return False
    return audits[0].stat().st_mtime_ns > audits[1].stat().st_mtime_ns
