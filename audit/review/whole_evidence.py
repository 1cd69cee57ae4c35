"""Whether evidence is whole: which files there must be, and what of them follows from the rest of a folder.

What an attack measured only a replay can say. Which files there must be, what an attack is, which rounds there
were to read, and of which bounds and noise something must be said follows from the config, the messages and the
ledger: it is asked here, so that what is absent or emptied is an error and never nothing.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedaudit.audit.accounting.noise_records import record_kind
from fedaudit.audit.accounting.status import list_bounds
from fedaudit.audit.case.facts import keep_facts
from fedaudit.audit.case.run_folder import difference
from fedaudit.audit.evidence.files import (
    ABSENCE,
    CHECKS,
    MATRIX,
    NOISE_AUDITS,
    REPLAY,
    EvidenceFolder,
    name_file,
    put_own_card,
)
from fedaudit.audit.planning.choice import AttackChoice
from fedaudit.audit.settings.spec import AttackSpec
from fedaudit.fl.ledger import Release
from fedaudit.fl.recording.recorder import SET_ASIDE

WHAT_IT_IS = ("aim", "threat", "reads")  # of a card; all else are sentences


def find_problems(
    evidence: EvidenceFolder, chosen: AttackChoice, of_cells: Sequence[str], lines: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """What is absent, emptied, or not what the attacks and the manifest's `lines` make it.

    `of_cells` names the files that the config's runs of other settings leave.
    """
    yield from _check_presence(evidence, chosen.specs, of_cells)
    yield from _check_cells(evidence)
    yield from _check_attacks(evidence, chosen, lines)


def _check_presence(
    evidence: EvidenceFolder, attacks: Sequence[AttackSpec], of_cells: Sequence[str]
) -> Iterator[str]:
    folder = evidence.path
    wanted = [name_file(i, spec.label) for i, spec in enumerate(attacks)]
    if gone := [name for name in wanted if not (folder / name).is_file()]:
        left = len(wanted) - len(gone)
        yield f"{folder / gone[0]} is missing: {left} of {len(wanted)} attacks left evidence"
    wanted += of_cells
    for name in evidence.unmade:
        yield f"{folder / CHECKS} does not hold what the check {name} saw, and it is made here"
    optional = {MATRIX, ABSENCE}
    present = {p.name for p in folder.glob("*.json") if p.name[0].isdigit() or p.name in optional}
    for name in sorted(set(wanted) - present):
        yield f"{folder / name} is missing, and these attacks and settings leave it"
    for name in sorted(present - set(wanted)):
        yield f"{folder / name} is there, and no attack or setting leaves it"


def _check_cells(evidence: EvidenceFolder) -> Iterator[str]:
    """A matrix, and clients that do not answer, have runs, or say of each why it is not there."""
    matrix, absence = evidence.matrix, evidence.absence
    if matrix is not None and not (matrix.cells or matrix.not_run):
        yield f"{evidence.path / MATRIX} holds no cell, nor why one did not run"
    if absence is not None and not (absence.curves or absence.not_run):
        yield f"{evidence.path / ABSENCE} holds no curve, nor why one did not run"


def _check_attacks(
    evidence: EvidenceFolder, chosen: AttackChoice, lines: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Each file is about its attack, with the card of that attack, and of rounds that were recorded."""
    recorded: dict[str, set[int]] = defaultdict(set)
    for line in (li for li in lines if "message" in li or "unread" in li):
        for kind in line["kinds"] if "message" in line else [SET_ASIDE]:
            recorded[kind].add(int(line["round"]))
    for file, spec in zip(evidence.attacks, chosen.specs, strict=False):
        path = evidence.path / name_file(chosen.specs.index(spec), spec.label)
        if file["name"] != spec.label:
            yield f"{path} is not of {spec.label}"
        own = put_own_card(file, chosen)["card"]
        theirs, ours = ({key: card[key] for key in WHAT_IT_IS} for card in (file["card"], own))
        if found := difference(theirs, ours):
            yield f"{path} says of the attack that its {found.key} is {found.left!r}, and it is {found.right!r}"
        for kind, rounds in file["rounds"].items():
            if more := sorted(set(rounds) - recorded[kind]):
                yield f"{path} read {kind} of round {more[0]}, of which none was recorded"
        if set(file["read"]) != file["rounds"].keys():
            yield f"{path} does not say of which rounds it read what it read"
        if file["status"] == "ran" and not file["evidence"]:
            yield f"{path} holds no evidence, and its attack ran"
        if file["status"] != "ran" and not file["reason"]:
            yield f"{path} does not say why its attack measured nothing"


def check_noise(
    evidence: EvidenceFolder, releases: Sequence[Release], delta: float, *, is_asked: bool
) -> Iterator[str]:
    """Of every bound, and of the noise on every kind, something is said where that is asked of the run."""
    noised = [r for r in releases if r.noise_multiplier]
    is_played = is_asked and bool(noised)
    said = {(c.observer, c.unit) for c in evidence.bound_checks}
    wanted = set(list_bounds(releases)) if is_played else set()
    for observer, unit in sorted(said ^ wanted):
        word = "nothing" if (observer, unit) in wanted else "something, and nothing was played,"
        yield f"{evidence.path / REPLAY} says {word} of the bound towards {observer} for a {unit}"
    records = evidence.noise_audits
    for kind in sorted({r.kind for r in records} ^ {r.kind for r in noised if is_played}):
        yield f"{evidence.path / NOISE_AUDITS} does not fit the ledger's noise on {kind}"
    for record in records:
        if not record.checks and not record.not_audited:
            yield f"{evidence.path / NOISE_AUDITS} holds no test of {record.kind}, nor why there is none"
        own = [r for r in noised if r.kind == record.kind]
        made = record_kind(record.kind, record.checks, own, delta, record.not_audited)
        made = made.model_copy(update={"at_least": record.at_least})  # measured, as the tests are
        theirs, ours = (keep_facts(r.model_dump(mode="json")) for r in (record, made))
        if found := difference(theirs, ours):
            yield (
                f"{evidence.path / NOISE_AUDITS} does not follow from its tests and the ledger: {found.key} of "
                f"{record.kind} should be {found.right!r}"
            )
