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
from fedaudit.audit.case.run_folder import RunDir, difference
from fedaudit.audit.phases.choice import AttackChoice
from fedaudit.audit.phases.evidence import (
    ABSENCE,
    CLAIMED,
    MATRIX,
    NOISE_AUDITS,
    REPLAY,
    EvidenceFolder,
    card_fields,
    name_file,
)
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.spec import AttackSpec
from fedaudit.fl import ledger

READING = "label_counts_from_update"  # the attack whose reading claims are held against


def find_problems(
    run: RunDir, config: Config, chosen: AttackChoice, lines: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """What is absent, emptied, or not what the config, the manifest's `lines` and the ledger make it."""
    yield from _check_presence(run, config, chosen.specs)
    yield from _check_cells(run)
    yield from _check_attacks(run, chosen, lines)
    yield from _check_noise(run, config)


def _check_presence(run: RunDir, config: Config, attacks: Sequence[AttackSpec]) -> Iterator[str]:
    wanted = [name_file(i, spec.label) for i, spec in enumerate(attacks)]
    left = sum((run.evidence / name).is_file() for name in wanted)
    if left < len(wanted):
        gone = next(name for name in wanted if not (run.evidence / name).is_file())
        yield f"{run.evidence / gone} is missing: {left} of {len(wanted)} attacks left evidence"
    wanted += [CLAIMED] if any(spec.name == READING for spec in attacks) else []
    wanted += [MATRIX] if config.matrix is not None else []
    wanted += [ABSENCE] if getattr(config, "absence", None) is not None else []
    optional = {CLAIMED, MATRIX, ABSENCE}
    present = {p.name for p in run.evidence.glob("*.json") if p.name[0].isdigit() or p.name in optional}
    for name in sorted(set(wanted) - present):
        yield f"{run.evidence / name} is missing, and these attacks and settings leave it"
    for name in sorted(present - set(wanted)):
        yield f"{run.evidence / name} is there, and no attack or setting leaves it"


def _check_cells(run: RunDir) -> Iterator[str]:
    """A matrix, and clients that do not answer, have runs, or say of each why it is not there."""
    folder = EvidenceFolder(run)
    matrix, absence = folder.matrix, folder.absence
    if matrix is not None and not (matrix.cells or matrix.not_run):
        yield f"{run.evidence / MATRIX} holds no cell, nor why one did not run"
    if absence is not None and not (absence.curves or absence.not_run):
        yield f"{run.evidence / ABSENCE} holds no curve, nor why one did not run"


def _check_attacks(run: RunDir, chosen: AttackChoice, lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Each file is about its attack, with the card of that attack, and of rounds that were recorded."""
    recorded: dict[str, set[int]] = defaultdict(set)
    for line in (li for li in lines if "message" in li):
        for kind in line["kinds"]:
            recorded[kind].add(int(line["round"]))
    for file, spec in zip(EvidenceFolder(run).attacks, chosen.specs, strict=False):
        path = run.evidence / name_file(chosen.specs.index(spec), spec.label)
        if file["name"] != spec.label:
            yield f"{path} is not of {spec.label}"
        if found := difference(file["card"], _plain(card_fields(chosen.cards[spec.label], spec))):
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


def _plain(value: Any) -> Any:
    """As JSON has it: lists for tuples, words for members of enumerations."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return str(value) if isinstance(value, str) else value


def _check_noise(run: RunDir, config: Config) -> Iterator[str]:
    """Of every bound, and of the noise on every kind, something is said where the noise audit is on."""
    evidence, releases = EvidenceFolder(run), ledger.read(run.ledger)
    noised = [r for r in releases if r.noise_multiplier]
    is_played = config.noise_audit.play and bool(noised)
    said = {(c.observer, c.unit) for c in evidence.bound_checks}
    wanted = set(list_bounds(releases)) if is_played else set()
    for observer, unit in sorted(said ^ wanted):
        word = "nothing" if (observer, unit) in wanted else "something, and nothing was played,"
        yield f"{run.evidence / REPLAY} says {word} of the bound towards {observer} for a {unit}"
    records = evidence.noise_audits
    for kind in sorted({r.kind for r in records} ^ {r.kind for r in noised if is_played}):
        yield f"{run.evidence / NOISE_AUDITS} does not fit the ledger's noise on {kind}"
    for record in records:
        if not record.checks and not record.not_audited:
            yield f"{run.evidence / NOISE_AUDITS} holds no test of {record.kind}, nor why there is none"
        own = [r for r in noised if r.kind == record.kind]
        made = record_kind(record.kind, record.checks, own, config.delta, record.not_audited)
        made = made.model_copy(update={"at_least": record.at_least})  # measured, as the tests are
        if found := difference(record.model_dump(), made.model_dump()):
            yield (
                f"{run.evidence / NOISE_AUDITS} does not follow from its tests and the ledger: {found.key} of "
                f"{record.kind} should be {found.right!r}"
            )
