"""Variants: the audited run once more with other protections, each a run folder inside the run.

A variant of a simulation shares the seed, so that the same clients with the same data answer in the same rounds
and runs are paired. Of a recorded federation, whose clients nobody can run again, a variant is its messages
passed through the protections (audit/importing/protect_messages.py). Either way it is a complete audit of its own
(variants/NAME has its own report), with attacks chosen anew for what it sends, and continues after a kill like
any other; audit/phases/cells.py runs them.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.recorded import RecordedCase
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.importing.protect_messages import copy_with_protections
from fedaudit.audit.phases.cells import Failure, RunCell, combine_failures, run_cells
from fedaudit.audit.phases.choice import choose, choose_anew
from fedaudit.audit.phases.evidence import EvidenceFolder
from fedaudit.audit.phases.options import MOST, MOST_COPIES, Proposal, list_leaks, list_proposals
from fedaudit.audit.phases.plan import Progress, execute, is_audited_run, phases
from fedaudit.audit.phases.questions import ask_attacks, is_traced, observe_scene
from fedaudit.audit.phases.result_file import read_result
from fedaudit.audit.settings.config import Config, RecordedConfig, SimulatedConfig
from fedaudit.audit.settings.overrides import overridden
from fedaudit.audit.settings.resolve import resolve
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.audit.settings.variant import Variant
from fedaudit.audit.verdict.policy import GradingPolicy, load_policy
from fedaudit.fl import ledger
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.sharing import sharing
from fedaudit.fl.wire.protection import published_noise
from fedaudit.reports.result import AuditResult

JUDGED = ("score", "report")  # the phases that read what the variants left
NOISED = 2.0  # times the work where there is noise: it is audited, and clients are played to read through it


class Variants:
    """Those of one run: which there are, where each lies and with which config, and what came of it."""

    def __init__(self, run: RunDir, config: Config, policy: GradingPolicy | None = None) -> None:
        """`policy` is that under which `variants: auto` was answered, by default the one of the config."""
        self._run, self._config, self._policy = run, config, policy

    def list_variants(self) -> tuple[Variant, ...]:
        """Those that the config names, or with `variants: auto` those that the run's own evidence asks for."""
        return self._config.variants if self._config.variants is not None else self.propose_variants()

    def propose_variants(self) -> tuple[Variant, ...]:
        """Variants of a run that was attacked, those first that answer most, as many as the budget allows."""
        return tuple(
            self._fit_budget(
                Variant(name=p.name.replace("_", "-"), protections=(*p.specs, *self.own_protections))
                for p in self.list_proposals()
            )
        )

    def list_proposals(self) -> list[Proposal]:
        """Protections against what the run's attacks demonstrated, under its own policy."""
        case = open_case(self._run, self._config)
        policy = self._policy or load_policy(self._config.locate_policy())
        files = EvidenceFolder(self._run.path).attacks
        traced = is_traced(case.simulated, ledger.read(self._run.ledger))
        scene = observe_scene(
            self._run.artifacts, self._config.system, case.heard, case.data, case.examples, traced
        )
        shown = ask_attacks(scene, choose(self._config, case), policy, files).shown
        leaks = list_leaks(files, shown, case.card.uplink)
        return list_proposals(case, case.artifacts, leaks, [p.name for p in self._config.protections])

    @property
    def own_protections(self) -> tuple[PluginSpec, ...]:
        """What a variant keeps of the audit's own; recorded messages have been through theirs."""
        return self._config.protections if isinstance(self._config, SimulatedConfig) else ()

    def _fit_budget(self, variants: Iterable[Variant]) -> Iterator[Variant]:
        """The first few whose attacks fit the budget together, by the estimates on their cards."""
        left, taken = self._config.budget.minutes * 60, 0
        most = MOST if isinstance(self._config, SimulatedConfig) else MOST_COPIES
        for variant in variants:
            changes = {"protections": variant.model_dump()["protections"], "variants": []}
            changed = overridden(self._config, changes, where=f"variant {variant.name}")
            case = open_case(self._run, changed)
            is_auto = changed.attacks is None
            specs = None if is_auto else choose_anew(choose(changed, case), changed.budget.minutes)
            needed = sum(choose(changed.model_copy(update={"attacks": specs}), case).seconds.values())
            if needed <= left and taken < most and specs != ():  # one that nothing attacks tells nothing
                left, taken = left - needed, taken + 1
                yield variant

    def configure(self, variant: Variant) -> Config:
        """The config of one variant; raises UserError that names it."""
        plain, where = variant.model_dump(), f"variant {variant.name}"
        changes: dict[str, Any] = {
            "title": f"{self._config.title}: {variant.name}",
            "protections": plain["protections"],
            "variants": [],
        }
        if isinstance(self._config, SimulatedConfig):
            changes |= {"method": plain["method"], "matrix": None, "absence": None}
        changed = overridden(self._config, changes, where=where)
        if changed.attacks is None and variant.attacks is None:  # what it sends decides
            return changed
        choice = choose(changed, open_case(self._run, changed))
        specs = choose_anew(choice, changed.budget.minutes, variant.attacks)
        return overridden(changed, {"attacks": [a.model_dump() for a in specs]}, where=where)

    def locate(self, variant: Variant) -> RunDir:
        """The run folder of one variant."""
        return RunDir(self._run.inside(f"variants/{variant.name}"))

    @sharing()
    def execute_all(self, names: Sequence[str], progress: Progress) -> None:
        """Phases of the run with its variants, finished ones skipped; what they left is judged at the end.

        Raises UserError at the very end where a variant failed: the others, and the audit, are there. One that
        nobody asked for, and that the federation refuses when it runs, is one option less.
        """
        first, last = [n for n in names if n not in JUDGED], [n for n in names if n in JUDGED]
        execute(self._run, self._config, first, progress, skip_finished=True)
        variants = self.list_variants() if "score" in names else ()
        cells = [self._make_cell(v) for v in variants]
        failures = self.copy_messages(cells)
        able = [cell for cell in cells if cell.name not in {f.name for f in failures}]
        failures += run_cells(able, progress) if able else []
        # A verdict older than one of its variants is made again
        skip = not any(_is_newer(self.locate(v).audit, self._run.audit) for v in variants)
        execute(self._run, self._config, last, progress, skip_finished=skip)
        if self._config.variants is None:
            failures = [f for f in failures if not f.is_refusal]
        if failures:
            raise combine_failures(failures, len(cells))

    def _make_cell(self, variant: Variant) -> RunCell:
        config = self.configure(variant)
        case = open_case(self._run, config)
        seconds = sum(choose(config, case).seconds.values())
        if any(published_noise(case.protections, k) for k in case.card.uplink):
            seconds *= NOISED
        return RunCell(
            name=variant.name,
            folder=self.locate(variant).path,
            config=config,
            phases=tuple(p.name for p in phases(config.case)),
            seconds=seconds,
        )

    def copy_messages(self, cells: Sequence[RunCell]) -> list[Failure]:
        """Pass recorded messages through each variant's protections; those that they cannot pass have failed."""
        if not isinstance(self._config, RecordedConfig):
            return []
        card, failures = RecordedCase(self._config, self._run.artifacts).card, []
        for cell in cells:
            try:
                folder, own = RunDir.create(cell.folder), (card, cell.config.seed, cell.config.protections)
                with folder.work():
                    folder.adopt(cell.config, phases(cell.config.case)[0].keys)
                    copy_with_protections(self._run.path, folder.path, *own)
            except UserError as error:
                failures.append(Failure(name=cell.name, code=2, sentence=error.sentence, hint=error.hint))
        return failures

    def read_results(self) -> list[tuple[Variant, AuditResult | None]]:
        """Every variant with its audit; None where it was not run to the end, or with other settings."""
        return [(v, self._read_result(v)) for v in self.list_variants()]

    def _read_result(self, variant: Variant) -> AuditResult | None:
        folder, config = self.locate(variant), self.configure(variant)
        if not folder.config.is_file() or not is_audited_run(folder.path, resolve(config)):
            return None
        return read_result(folder.path)


def _is_newer(*audits: Path) -> bool:
    """Whether the first is younger than the second, where both are there."""
    if not all(a.is_file() for a in audits):
        return False
    return audits[0].stat().st_mtime_ns > audits[1].stat().st_mtime_ns
