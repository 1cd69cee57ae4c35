"""Replay: the whole run once more, on the reviewer's machine, and the verdict that it leads to.

A simulation trains again from its config; of a recorded federation, whose clients nobody can run again, the
messages are taken from the folder and checked again. Then come attacks, accounts, options, the matrix and clients
that do not answer, in a folder of the reviewer's own, and every file of the owner's is compared with it
(audit/phases/compare_folders.py). Where training gives other digits here, attacks run on the owner's messages.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedaudit.audit.attestation import chain
from fedaudit.audit.case.run_folder import RunDir, difference
from fedaudit.audit.case.sharing import sharing
from fedaudit.audit.importing.ledger import BROUGHT
from fedaudit.audit.importing.protect_messages import TAKEN
from fedaudit.audit.phases.compare_folders import HINT, TRAINED, FolderComparison, compare_folders
from fedaudit.audit.phases.plan import phases
from fedaudit.audit.phases.score import Scoring
from fedaudit.audit.phases.variants import execute_all, folder_of, list_variants
from fedaudit.audit.settings.config import Config, SimulatedConfig
from fedaudit.audit.verdict.policy import GradingPolicy
from fedaudit.fl.runtime import durable
from fedaudit.fl.runtime.errors import UserError
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


def replay_run(run: RunDir, config: Config, policy: GradingPolicy, progress: Progress) -> Replayed:
    """Make the run again, with its options and cells, compare, and derive the verdict.

    Raises UserError that names what differs.
    """
    with TemporaryDirectory() as name:
        again = make_again(run, config, Path(name) / "run", progress)
        return conclude_replay(run, again, config, policy)


def make_again(run: RunDir, config: Config, place: Path, progress: Progress) -> RunDir:
    """All that the run left but reports, made once more at `place`; raises UserError for messages that differ."""
    again = RunDir.create(place)
    if config.workers == "torchrun":  # its ranks are not here, and give no other numbers
        config = config.with_workers("auto")
    if isinstance(config, SimulatedConfig):
        _execute(again, config, progress)
        if not compare_folders(run, again, trained=True).has_same_digits:
            for folder in [again, *(folder_of(again, v) for v in list_variants(again, config))]:
                _take_record(RunDir(run.path / folder.path.relative_to(again.path)), folder)
            _execute(again, config, progress)
    else:
        _take_inbox(run, again)
        _execute(again, config, progress)
    return again


def conclude_replay(run: RunDir, again: RunDir, config: Config, policy: GradingPolicy) -> Replayed:
    """How the owner's folder compares with the one that was made here, and the verdict of the latter."""
    comparison = compare_folders(run, again)
    with sharing():
        result = Scoring(again, config, policy).derive()
    return Replayed(result=result, lines=tuple(_describe(comparison, run, again, config)))


def _execute(again: RunDir, config: Config, progress: Progress) -> None:
    names = [p.name for p in phases(config.case) if p.name != "report"]
    try:
        execute_all(again, config, names, progress)
    except UserError:
        if not again.audit.is_file():  # else an option failed, here as where the run was made
            raise


def _take_record(run: RunDir, again: RunDir) -> None:
    """What training left on the owner's machine, in place of what it left here."""
    if not run.artifacts.is_dir() or not again.artifacts.is_dir():
        return
    durable.remove_folder(again.artifacts)
    _copy_messages(run, again)
    for name in (n for n in TRAINED if (run.path / n).is_file()):
        again.write(again.path / name, (run.path / name).read_bytes())
    chain.end(again.path, "simulate")


def _take_inbox(run: RunDir, again: RunDir) -> None:
    """The messages of a recorded federation, and what `fedaudit import` took in with them."""
    _copy_messages(run, again)
    for path in (run.truth, run.base, run.path / TAKEN, run.path / BROUGHT, *run.path.glob("*.py")):
        if path.is_file():
            durable.write(again.path / path.name, path.read_bytes())


def _copy_messages(run: RunDir, again: RunDir) -> None:
    for path in (p for p in run.artifacts.rglob("*") if p.is_file()):
        at = again.artifacts / path.relative_to(run.artifacts)
        durable.folder(at.parent)
        again.write(at, run.inside(path.absolute()).read_bytes())


def _describe(found: FolderComparison, run: RunDir, again: RunDir, config: Config) -> Iterator[str]:
    made = ["training"] if isinstance(config, SimulatedConfig) else []
    made += [fmt.plural(len(list(again.path.rglob("evidence/[0-9]*.json"))), "attack"), "the accounts"]
    if options := len(list(again.path.glob("variants/*/config.yaml"))):
        made.append(fmt.plural(options, "option"))
    if cells := len([*again.path.glob("matrix/**/config.yaml"), *again.path.glob("absence/**/config.yaml")]):
        made.append(f"{fmt.plural(cells, 'run')} of the matrix")
    ran = f"made again here: {', '.join(made)}; the verdict is of what came out"
    if found.is_equal:
        yield f"{ran}, and the folder is equal to it, byte for byte but for times"
    else:
        yield (
            f"{ran}. The folder is not equal to it in {len(found.places)} places, each as near as is tolerated; "
            f"the first: {found.places[0]}"
        )
    if not found.has_same_digits:
        yield (
            f"training gives other digits here: {found.moved:,} of {found.messages:,} messages differ, by at "
            f"most {fmt.percent(found.reach)} of their length, and the attacks ran on those of the folder"
        )
    if not isinstance(config, SimulatedConfig):
        yield f"stated by the owner: the messages of {run.artifacts}, which nobody can record again"
    if found.code:
        named = "; ".join(found.code[:MOST_NAMED])
        yield f"made with other code or libraries than these, as its owner states: {named}"


def _summarise(result: AuditResult) -> dict[str, Any]:
    findings = sorted(result.findings, key=lambda f: (f.id, f.severity, f.outcome))
    return {
        "findings": [{"id": f.id, "outcome": f.outcome.value, "severity": f.severity.value} for f in findings],
        "questions": {q.id: q.state.value for q in result.questions},
        "word": result.verdict.word.value,
        "rule": result.verdict.rule,
    }
