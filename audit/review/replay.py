"""Replay: the whole run once more, on the reviewer's machine, and the verdict that it leads to.

A simulation trains again from its config; of a recorded federation, whose clients nobody can run again, the
messages are taken from the folder and checked again. Then come attacks, accounts, options, the matrix and clients
that do not answer, in a folder of the reviewer's own, and every file of the owner's is compared with it
(audit/review/compare_folders.py). Where training gives other digits here, attacks run on the owner's messages.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedaudit.audit.attestation import chain
from fedaudit.audit.case.run_folder import RunDir, difference
from fedaudit.audit.evidence.phase import phases
from fedaudit.audit.evidence.variants import Variants
from fedaudit.audit.experiments.whole_audit import WholeAudit
from fedaudit.audit.importing.ledger import BROUGHT
from fedaudit.audit.importing.protect_messages import TAKEN
from fedaudit.audit.phases.score import Scoring
from fedaudit.audit.review.compare_folders import HINT, TRAINED, FolderComparison, compare_folders
from fedaudit.audit.settings.config import Config, SimulatedConfig
from fedaudit.audit.verdict.policy import GradingPolicy
from fedaudit.fl.runtime import durable
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.sharing import sharing
from fedaudit.reports import format as fmt
from fedaudit.reports.result import AuditResult

Progress = Callable[[str, int, int], None]
MOST_NAMED = 3  # libraries and code that a line names


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What follows from the run that was made here, and how the owner's folder compares, as lines."""

    result: AuditResult
    lines: tuple[str, ...]

    def confirm(self, theirs: AuditResult) -> None:
        """Raises UserError where the verdict of the folder's evidence is another than that of the replay.

        Both under the same policy and terms; outcomes and severities of findings count, and the word.
        """
        if found := difference(_summarise(theirs), _summarise(self.result)):
            raise UserError(
                f"the verdict of the folder is not that of a replay: {found.key} is {found.left!r}, and here "
                f"{found.right!r}",
                hint=HINT,
            )


class RunReplay:
    """One run folder, `theirs`, made again in a folder of the reviewer's own, `ours`."""

    def __init__(self, theirs: Path, ours: Path, config: Config) -> None:
        self._theirs, self._ours = RunDir(theirs), RunDir.create(ours)
        # the ranks of a torchrun job are not here, and give no other numbers
        self._config = config.with_workers("auto") if config.workers == "torchrun" else config
        self._trains = isinstance(config, SimulatedConfig)

    def make(self, progress: Progress) -> None:
        """All that the run left but reports, options and cells too; raises UserError for messages that differ."""
        if not self._trains:
            self._take_inbox()
        self._execute(progress)
        if self._trains and not self._compare(trained=True).has_same_digits:
            variants = Variants(self._ours, self._config)
            for folder in [self._ours, *map(variants.locate, variants.list_variants())]:
                self._take_record(folder.path.relative_to(self._ours.path))
            self._execute(progress)

    def conclude(self, policy: GradingPolicy) -> Replayed:
        """How the owner's folder compares with the one that was made here, and the verdict of the latter.

        Raises UserError that names what differs.
        """
        lines = tuple(self._describe(self._compare()))
        with sharing():
            return Replayed(result=Scoring(self._ours, self._config, policy).derive(), lines=lines)

    def _compare(self, *, trained: bool = False) -> FolderComparison:
        return compare_folders(self._theirs.path, self._ours.path, trained=trained)

    def _execute(self, progress: Progress) -> None:
        names = [p.name for p in phases(self._config.case) if p.name != "report"]
        try:
            WholeAudit(self._ours, self._config).execute(names, progress)
        except UserError:
            if not self._ours.audit.is_file():  # else an option failed, here as where the run was made
                raise

    def _take_record(self, part: Path) -> None:
        """What training left on the owner's machine, in place of what it left here: of the run or an option."""
        theirs, ours = RunDir(self._theirs.path / part), RunDir(self._ours.path / part)
        if not theirs.artifacts.is_dir() or not ours.artifacts.is_dir():
            return
        durable.remove_folder(ours.artifacts)
        _copy_messages(theirs.path, ours.artifacts)
        for name in (n for n in TRAINED if (theirs.path / n).is_file()):
            ours.write(ours.path / name, (theirs.path / name).read_bytes())
        chain.end(ours.path, "simulate")

    def _take_inbox(self) -> None:
        """The messages of a recorded federation, and what `fedaudit import` took in with them."""
        run = self._theirs
        _copy_messages(run.path, self._ours.artifacts)
        for path in (run.truth, run.base, run.path / TAKEN, run.path / BROUGHT):
            if path.is_file():
                durable.write(self._ours.path / path.name, path.read_bytes())

    def _describe(self, found: FolderComparison) -> Iterator[str]:
        ours = self._ours.path
        made = ["training"] if self._trains else []
        made += [fmt.plural(len(list(ours.rglob("evidence/[0-9]*.json"))), "attack"), "the accounts"]
        if options := len(list(ours.glob("variants/*/config.yaml"))):
            made.append(fmt.plural(options, "option"))
        if cells := len([*ours.glob("matrix/**/config.yaml"), *ours.glob("absence/**/config.yaml")]):
            made.append(f"{fmt.plural(cells, 'run')} of the matrix")
        ran = f"made again here: {', '.join(made)}; the verdict is of what came out"
        if found.is_equal:
            yield f"{ran}, and the folder is equal to it, byte for byte but for times"
        else:
            yield (
                f"{ran}. The folder is not equal to it in {len(found.places)} places, each as near as is "
                f"tolerated; the first: {found.places[0]}"
            )
        if not found.has_same_digits:
            yield (
                f"training gives other digits here: {found.moved:,} of {found.messages:,} messages differ, by at "
                f"most {fmt.percent(found.reach)} of their length, and the attacks ran on those of the folder"
            )
        if not self._trains:
            yield f"stated by the owner: the messages of {self._theirs.artifacts}, which nobody can record again"
        if found.code:
            named = "; ".join(found.code[:MOST_NAMED])
            yield f"made with other code or libraries than these, as its owner states: {named}"


def _copy_messages(run: Path, artifacts: Path) -> None:
    folder = RunDir(run)
    for path in (p for p in folder.artifacts.rglob("*") if p.is_file()):
        at = artifacts / path.relative_to(folder.artifacts)
        durable.folder(at.parent)
        durable.write(at, folder.inside(path.absolute()).read_bytes())


def _summarise(result: AuditResult) -> dict[str, Any]:
    findings = sorted(result.findings, key=lambda f: (f.id, f.severity, f.outcome))
    return {
        "findings": [{"id": f.id, "outcome": f.outcome.value, "severity": f.severity.value} for f in findings],
        "questions": {c.id: c.state.value for c in result.cells},
        "word": result.verdict.word.value,
        "rule": result.verdict.rule,
    }
