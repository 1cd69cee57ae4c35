"""A review: the verdict once more, on the reviewer's machine and under the reviewer's policy.

Nothing that the verdict rests on is believed where it can be computed again: phases, digests, completeness, the
ledger's bounds and every finding. Ids, outcomes, severities, numbers and the word are compared, never a sentence.
Reports are compared with their digests in the chain, which the owner can make anew, and written again where that
is wanted, which names those that differ. What attacks measured is taken from evidence/, unless they run again
(audit/review/replay.py).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedaudit.audit.accounting.verify import verify
from fedaudit.audit.attestation import chain
from fedaudit.audit.attestation.completeness import check_files, check_rounds, check_simulation
from fedaudit.audit.attestation.record import CELLS, digest_record, is_of_run
from fedaudit.audit.attestation.seal import find_changed, read_record, read_statement
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.recorded import RecordedCase
from fedaudit.audit.case.run_folder import RunDir, difference
from fedaudit.audit.evidence.files import EvidenceFolder, read_policy
from fedaudit.audit.evidence.phase import Phase, phases, read_phases
from fedaudit.audit.evidence.variants import Variants
from fedaudit.audit.phases.account import compute_accounts
from fedaudit.audit.phases.import_ import ImportedFiles
from fedaudit.audit.phases.report import name_reports, render_reports
from fedaudit.audit.phases.score import Scoring
from fedaudit.audit.planning.choice import choose
from fedaudit.audit.review import whole_evidence
from fedaudit.audit.settings.config import Config, SimulatedConfig
from fedaudit.audit.settings.resolve import resolve
from fedaudit.audit.settings.spec import AttackSpec
from fedaudit.audit.verdict.policy import GradingPolicy
from fedaudit.fl import ledger
from fedaudit.fl.recording.recorder import MANIFEST, manifest, unread
from fedaudit.fl.runtime import foreign
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.sharing import sharing
from fedaudit.reports.result import AuditResult, Finding

DO_NOT = "do not decide from this folder; ask for the one that the run left"


@dataclass(frozen=True, kw_only=True)
class Review:
    """What the reviewer's own machine makes of a folder."""

    result: AuditResult  # under the reviewer's policy
    content: str  # digests of the folder (audit/attestation/record.py)
    record: str
    scored_by: str  # the policy of the folder's own verdict, in words; empty: the reviewer's
    reports: tuple[str, ...]  # names of the folder's reports
    others: tuple[str, ...] | None  # files that this audit is not written as here; None: nobody asked
    strangers: tuple[str, ...]  # files that no phase wrote


@sharing()
def review(
    run: RunDir, config: Config, policy: GradingPolicy | None = None, digest: str = "", *, render: bool = False
) -> Review:
    """Raises UserError for the first thing in the folder that is not what such a run leaves.

    `policy` is the reviewer's, by default the folder's own. `digest`, of the content or of the record, is what
    the reviewer holds apart from the folder. With `render` the reports are rendered once more.
    """
    cells = [] if config.matrix is None else ["absence" if config.absence else "matrix"]
    for problem in _find_problems(run, config, cells):
        raise UserError(problem, hint=DO_NOT)
    own = read_policy(run.path)
    variants = Variants(run, config, own)
    audits = variants.read_results()
    for variant in (variant for variant, audited in audits if audited is not None):
        review(variants.locate(variant), variants.configure(variant), policy, render=render)
    confirmed = Scoring(run, config).confirm()
    content, record = chain.read_chain(run.path).content(), digest_record(run.path)
    if digest and digest.lower().removeprefix("sha256:") not in (content, record):
        raise UserError(
            f"{run.path}: its content has digest {content}, its record {record}, and neither is the one that "
            "was given",
            hint="this is not the run that the digest was taken of",
        )
    policy = policy or own
    same = own.sha256 == policy.sha256
    reports = _list_reports(run.path, name_reports(config.report))
    others = None
    if render:
        made = render_reports(confirmed, config.report, read_record(run.path))
        made[run.audit.name] = confirmed.dump()
        others = tuple(n for n in (run.audit.name, *reports) if (run.path / n).read_bytes() != made[n])
    inner = (*(f"variants/{variant.name}/" for variant, _ in audits), *(f"{name}/" for name in cells))
    code = [name for _, name in config.list_code()]
    return Review(
        result=confirmed if same else Scoring(run, config, policy).derive(),
        content=content,
        record=record,
        scored_by="" if same else f"{own.name}, version {own.version}, SHA-256 {own.sha256}, {own.owner}",
        reports=reports,
        others=others,
        strangers=tuple(_find_strangers(run.path, [p.name for p in phases(config.case)], inner, code)),
    )


def _list_reports(folder: Path, wanted: Sequence[str]) -> tuple[str, ...]:
    """The folder's reports, whose bytes the chain names; raises UserError for one that is not `wanted`."""
    present = sorted(p.name for p in folder.glob("report.*"))
    if stray := sorted(set(present) - set(wanted)):
        raise UserError(f"{folder / stray[0]} is there, and the config names no such report", hint=DO_NOT)
    return tuple(present)


def _find_strangers(folder: Path, ran: Sequence[str], inner: tuple[str, ...], code: Iterable[str]) -> list[str]:
    """Files, at any depth, that none of these phases leaves, or in runs in other folders than `inner`.

    `code` is what the config names, which lies in the folder and in its runs.
    """
    tops = foreign.list_tops(code)
    files = [p for p in folder.rglob("*") if p.is_file()]
    names = sorted(p.relative_to(folder).as_posix() for p in files)
    names = [n for n in names if not tops.intersection(part.removesuffix(".py") for part in n.split("/"))]
    return [
        n for n in names if not is_of_run(n, ran) or (n.partition("/")[0] in CELLS and not n.startswith(inner))
    ]


def _find_problems(run: RunDir, config: Config, cells: Sequence[str]) -> Iterator[str]:
    recorded = chain.read_chain(run.path)
    yield from _check_phases(run.path, phases(config.case), resolve(config), recorded)
    beside = [p for p in config.list_plugins() if foreign.files([p.spec.name])]
    for name in recorded.links:
        for plugin in chain.find_other_code(recorded, name, beside):
            yield f"{run.path}: the code of {plugin} is not what {name} ran: its SHA-256 differs"
    terms = chain.digest_terms(config, "score", read_policy(run.path))
    if "score" in recorded.links and not chain.current(recorded, "score", terms):
        yield f"{run.path}: the verdict is of another policy, other claims or other phases than the folder holds"
    case, history = open_case(run, config), run.history()
    if isinstance(case, RecordedCase):
        yield from ImportedFiles(run, case).find_problems()
    lines = list(manifest(run.artifacts))
    rounds = int(getattr(case.training, "rounds", 0)) if case.simulated else 0
    yield from check_rounds(run.path, rounds, lines, history)
    if isinstance(config, SimulatedConfig):
        yield from check_simulation(run.path, case.card, config.evaluate_every, config.record, lines, history)
    sent = [*lines, *unread(run.artifacts)]
    yield from check_files(run.path, sent)
    yield from _check_cells(run.path)
    evidence, of_cells = EvidenceFolder(run.path, config.checks), [f"{name}.json" for name in cells]
    yield from whole_evidence.find_problems(evidence, choose(config, case), of_cells, sent)
    releases = ledger.read(run.ledger)
    yield from whole_evidence.check_noise(evidence, releases, config.delta, is_asked=config.noise_audit)
    verified = verify(case, releases, lines)
    for name, made in compute_accounts(releases, config.accountants, config.delta, verified).items():
        if found := difference(run.read_json(run.evidence / name), made):
            yield f"{run.evidence / name} does not follow from the ledger: {found.key} should be {found.right!r}"
    if (statement := read_statement(run.path)) is not None:  # of another folder, whoever signed it
        yield from find_changed(run.path, statement)


def _check_phases(
    folder: Path, wanted: Sequence[Phase], resolved: Mapping[str, Any], recorded: chain.Chain
) -> Iterator[str]:
    """Phases that did not end or ran with other settings, and files that are not what they left."""
    record = read_phases(folder)
    for phase in wanted:
        entry = record.get(phase.name)
        if (entry is None or entry["seconds"] is None) and phase.name != "report":
            yield f"{folder} is not a finished run: its {phase.name} phase did not end"
        if entry is None:
            continue
        now = phase.settings(resolved)
        if found := difference(entry["settings"], now):
            ran = f"{folder}: {phase.name} ran with {found.key}: {found.left!r}"
            yield f"{ran}, config.yaml says {found.right!r}"
        chain.same_settings(folder, recorded, phase.name, now)
    has_reports = "report" in recorded.links or any(folder.glob("report.*"))
    yield from chain.broken(folder, recorded, [p.name for p in wanted if p.name != "report" or has_reports])


def _check_cells(folder: Path) -> Iterator[str]:
    """Digests of the matrix's runs, and of those with clients that do not answer, that are not of their files."""
    for name in ("matrix", "absence"):
        for phases_file in sorted((folder / name).rglob("phases.json")):
            cell = RunDir(phases_file.parent)
            ended = [phase for phase, entry in read_phases(cell.path).items() if entry["seconds"] is not None]
            yield from chain.broken(cell.path, chain.read_chain(cell.path), ended)
            if (cell.artifacts / MANIFEST).is_file():
                yield from check_files(cell.path, list(manifest(cell.artifacts)))


def find_unmet(
    specs: Sequence[AttackSpec], findings: Iterable[Finding], required: Iterable[tuple[str, dict[str, object]]]
) -> Iterator[str]:
    """Attacks that a reviewer requires and that did not run, or not with these settings, as sentences.

    `specs` are those of the audit, with every setting.
    """
    ran = {f.id: f for f in findings if f.source == "attack"}
    for name, settings in required:
        planned = [s for s in specs if s.name == name]
        if not planned:
            yield f"{name} is required and was not planned"
            continue
        fit = [s for s in planned if all(s.model_dump().get(k) == v for k, v in settings.items())]
        if not fit:
            wanted = ", ".join(f"{k}: {v}" for k, v in settings.items())
            yield f"{name} is required with {wanted} and was planned with other settings"
            continue
        found = [ran[i] for s in fit if (i := s.label.replace(":", ".")) in ran]
        if not any(f.outcome in ("demonstrated", "not_demonstrated", "inconclusive") for f in found):
            why = found[0].summary if found else "it left no finding"
            yield f"{name} is required and did not run: {why}"
