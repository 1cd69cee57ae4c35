"""A review: the verdict once more, on the reviewer's machine and under the reviewer's policy.

Nothing that the verdict rests on is believed where it can be computed again: phases, digests, completeness, the
ledger's bounds and every finding. Reports are compared with their digests in the chain, which the owner can make
anew, and rendered again where that is wanted: drawing takes longer than all else. What attacks measured is taken
from evidence/, unless they run again (audit/phases/replay.py).
"""

from collections.abc import Iterable, Iterator

from fedaudit.audit.attestation import chain
from fedaudit.audit.attestation.completeness import check_files, check_rounds, check_simulation
from fedaudit.audit.attestation.record import CELLS, digest_record, is_of_run
from fedaudit.audit.attestation.seal import find_changed, read_record, read_statement
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.recorded import RecordedCase
from fedaudit.audit.case.run_folder import RunDir, difference
from fedaudit.audit.phases import import_, whole_evidence
from fedaudit.audit.phases.account import compute_accounts
from fedaudit.audit.phases.choice import choose
from fedaudit.audit.phases.plan import phases, read_phases
from fedaudit.audit.phases.report import name_reports, render_reports
from fedaudit.audit.phases.reviewed import Review
from fedaudit.audit.phases.score import confirm, derive
from fedaudit.audit.phases.variants import config_of, folder_of, list_variants, results
from fedaudit.audit.settings.config import Config, SimulatedConfig
from fedaudit.audit.settings.report import ReportSettings
from fedaudit.audit.settings.resolve import resolve
from fedaudit.audit.settings.spec import Text
from fedaudit.audit.verdict.policy import GradingPolicy, load_policy
from fedaudit.fl import ledger
from fedaudit.fl.recording.recorder import MANIFEST, manifest
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.result import AuditResult

DO_NOT = "do not decide from this folder; ask for the one that the run left"


def review(
    run: RunDir, config: Config, policy: GradingPolicy | None = None, digest: str = "", *, render: bool = False
) -> Review:
    """Raises UserError for the first thing in the folder that is not what such a run leaves.

    `policy` is the reviewer's, by default the folder's own. `digest`, of the content or of the record, is what
    the reviewer holds apart from the folder. With `render` the reports are rendered once more.
    """
    for problem in _find_problems(run, config):
        raise UserError(problem, hint=DO_NOT)
    variants = {
        variant.name: review(folder_of(run, variant), config_of(run, config, variant), policy, render=render)
        for variant, audited in results(run, config)
        if audited is not None
    }
    confirmed = confirm(run, config)
    content, record = chain.read_chain(run.path).content(), digest_record(run.path)
    if digest and digest.lower().removeprefix("sha256:") not in (content, record):
        raise UserError(
            f"{run.path}: its content has digest {content}, its record {record}, and neither is the one that "
            "was given",
            hint="this is not the run that the digest was taken of",
        )
    own = load_policy(config.locate_policy())
    policy = policy or own
    same = chain.policy_digest(own) == chain.policy_digest(policy)
    scored_by = "" if same else f"{own.name}, version {own.version}, SHA-256 {chain.policy_digest(own)}"
    return Review(
        result=derive(run, config, policy) if scored_by else confirmed,
        content=content,
        record=record,
        scored_by=scored_by,
        reports=_confirm_reports(run, config.sections, config.report, render=render),
        is_rendered=render,
        strangers=tuple(_find_strangers(run, config)),
        variants=variants,
    )


def _confirm_reports(
    run: RunDir, sections: tuple[Text, ...], report: ReportSettings, *, render: bool
) -> tuple[str, ...]:
    """Names of the folder's reports, whose bytes the chain names (_find_problems).

    Raises UserError for one that the config does not ask for, and with `render` for one that audit.json does not
    render to here.
    """
    present = sorted(p.name for p in run.path.glob("report.*"))
    if stray := sorted(set(present) - set(name_reports(report))):
        raise UserError(f"{run.path / stray[0]} is there, and the config names no such report", hint=DO_NOT)
    made = render_reports(run, sections, report, read_record(run.path)) if render and present else {}
    for name, content in made.items():
        if name in present and content != (run.path / name).read_bytes():
            raise UserError(
                f"{run.path / name} is not what its audit.json renders to here",
                hint="do not read it: `fedaudit phase report` writes your own. Other versions of typst or "
                "matplotlib draw otherwise; --ignore-reports decides without them",
            )
    return tuple(present)


def _find_strangers(run: RunDir, config: Config) -> list[str]:
    """Files of the folder, at any depth, that no phase of this config leaves, nor of its variants and cells."""
    ran = [p.name for p in phases(config)]
    cells = [f"variants/{v.name}/" for v in list_variants(run, config)]
    cells += [f"{name}/" for name in ("matrix", "absence") if getattr(config, name, None) is not None]
    names = sorted(p.relative_to(run.path).as_posix() for p in run.path.rglob("*") if p.is_file())
    return [
        n
        for n in names
        if not is_of_run(n, ran) or (n.partition("/")[0] in CELLS and not n.startswith(tuple(cells)))
    ]


def _find_problems(run: RunDir, config: Config) -> Iterator[str]:
    record, resolved, recorded = read_phases(run), resolve(config), chain.read_chain(run.path)
    for phase in phases(config):
        entry = record.get(phase.name)
        if (entry is None or entry["seconds"] is None) and phase.name != "report":
            yield f"{run.path} is not a finished run: its {phase.name} phase did not end"
        if entry is None:
            continue
        now = phase.settings(resolved)
        if found := difference(entry["settings"], now):
            ran = f"{run.path}: {phase.name} ran with {found.key}: {found.left!r}"
            yield f"{ran}, config.yaml says {found.right!r}"
        chain.same_settings(run.path, recorded, phase.name, now)
    has_reports = "report" in recorded.links or any(run.path.glob("report.*"))
    yield from chain.broken(
        run.path, recorded, [p.name for p in phases(config) if p.name != "report" or has_reports]
    )
    if "score" in recorded.links and not chain.current(recorded, "score", chain.digest_terms(config, "score")):
        yield f"{run.path}: the verdict is of another policy, other claims or other phases than the folder holds"
    case = open_case(run, config)
    history = run.history()
    if isinstance(case, RecordedCase):
        yield from import_.find_problems(run, case)
    lines = list(manifest(run.artifacts))
    rounds = int(getattr(case.training, "rounds", 0)) if case.simulated else 0
    yield from check_rounds(run.path, rounds, lines, history)
    if isinstance(config, SimulatedConfig):
        yield from check_simulation(run.path, case.card, config.evaluate_every, config.record, lines, history)
    yield from check_files(run.path, lines)
    yield from _find_problems_of_cells(run)
    yield from whole_evidence.find_problems(run, config, choose(config, case), lines)
    for name, made in compute_accounts(run, config, case, ledger.read(run.ledger)).items():
        if found := difference(run.read_json(run.evidence / name), made):
            yield f"{run.evidence / name} does not follow from the ledger: {found.key} should be {found.right!r}"
    if (statement := read_statement(run.path)) is not None:  # of another folder, whoever signed it
        yield from find_changed(run.path, statement)


def _find_problems_of_cells(run: RunDir) -> Iterator[str]:
    """Digests of the matrix's runs, and of those with clients that do not answer, that are not of their files."""
    for name in ("matrix", "absence"):
        for phases_file in sorted((run.path / name).rglob("phases.json")):
            cell = RunDir(phases_file.parent)
            ended = [phase for phase, entry in read_phases(cell).items() if entry["seconds"] is not None]
            yield from chain.broken(cell.path, chain.read_chain(cell.path), ended)
            if (cell.artifacts / MANIFEST).is_file():
                yield from check_files(cell.path, list(manifest(cell.artifacts)))


def find_unmet(
    run: RunDir, config: Config, result: AuditResult, required: Iterable[tuple[str, dict[str, object]]]
) -> Iterator[str]:
    """Attacks that a reviewer requires and that did not run, or not with these settings, as sentences."""
    chosen = choose(config, open_case(run, config)).specs
    plans = resolve(config.model_copy(update={"attacks": chosen}))["attacks"]
    ran = {f.id: f for f in result.findings if f.source == "attack"}
    for name, settings in required:
        specs = [(s, p) for s, p in zip(chosen, plans, strict=True) if s.name == name]
        if not specs:
            yield f"{name} is required and was not planned"
            continue
        fit = [s for s, p in specs if all(p.get(k) == v for k, v in settings.items())]
        if not fit:
            wanted = ", ".join(f"{k}: {v}" for k, v in settings.items())
            yield f"{name} is required with {wanted} and was planned with other settings"
            continue
        found = [ran[i] for s in fit if (i := s.label.replace(":", ".")) in ran]
        if not any(f.outcome in ("demonstrated", "not_demonstrated", "inconclusive") for f in found):
            why = found[0].summary if found else "it left no finding"
            yield f"{name} is required and did not run: {why}"
