"""An audit with its variants: phases of the run, then every variant as a cell of its own, then the verdict."""

from collections.abc import Sequence
from pathlib import Path

from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.recorded import RecordedCase
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.evidence.phase import Progress, phases
from fedaudit.audit.evidence.variants import Variants
from fedaudit.audit.experiments.cells import Failure, RunCell, combine_failures, run_cells
from fedaudit.audit.importing.protect_messages import copy_with_protections
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.planning.choice import choose
from fedaudit.audit.settings.config import RecordedConfig
from fedaudit.audit.settings.variant import Variant
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.sharing import sharing
from fedaudit.fl.wire.protection import published_noise

JUDGED = ("score", "report")  # the phases that read what the variants left
NOISED = 2.0  # times the work where there is noise: it is audited, and clients are played to read through it


class WholeAudit(Variants):
    """A run, and the variants of its config, which it runs."""

    @sharing()
    def execute(self, names: Sequence[str], progress: Progress) -> None:
        """Phases of the run with its variants, finished ones skipped; what they left is judged at the end.

        Raises UserError at the very end where a variant failed: the others, and the audit, are there. One that
        nobody asked for, and that the federation refuses when it runs, is one option less.
        """
        first, judged = [n for n in names if n not in JUDGED], [n for n in names if n in JUDGED]
        execute(self._run, self._config, first, progress, skip_finished=True)
        variants = self.list_variants() if "score" in names else ()
        cells = [self._make_cell(v) for v in variants]
        failures = self.copy_messages(cells)
        able = [cell for cell in cells if cell.name not in {f.name for f in failures}]
        failures += run_cells(able, progress) if able else []
        # A verdict older than one of its variants is made again
        skip = not any(_is_newer(self.locate(v).audit, self._run.audit) for v in variants)
        execute(self._run, self._config, judged, progress, skip_finished=skip)
        if self._config.variants is None:
            failures = [f for f in failures if not f.is_refusal]
        if failures:
            raise combine_failures(failures, len(cells), "variant")

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
        """Pass recorded messages through the protections of each cell; those that they cannot pass have failed.

        A simulation has none to copy: its cells train.
        """
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


def _is_newer(*audits: Path) -> bool:
    """Whether the first is younger than the second, where both are there."""
    if not all(a.is_file() for a in audits):
        return False
    return audits[0].stat().st_mtime_ns > audits[1].stat().st_mtime_ns
