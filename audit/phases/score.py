"""Phase 4: evidence and policy to findings; everything the report says goes into audit.json."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.audit.accounting.lint import RunRecord
from fedaudit.audit.accounting.spending import over_rounds
from fedaudit.audit.accounting.status import withhold_numbers
from fedaudit.audit.attestation import chain
from fedaudit.audit.case.case import Case, counts
from fedaudit.audit.case.digests import of_value, packages, timeless
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir, difference, sha256
from fedaudit.audit.case.schemas import Environment
from fedaudit.audit.case.sharing import sharing
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.claims.report import score_files
from fedaudit.audit.phases.bounds import bind_status, describe_population, read_bounds, read_verified
from fedaudit.audit.phases.choice import choose
from fedaudit.audit.phases.evidence import EvidenceFolder
from fedaudit.audit.phases.plan import read_phases
from fedaudit.audit.phases.questions import ask_questions
from fedaudit.audit.phases.result_file import read_result
from fedaudit.audit.phases.variants import folder_of, results
from fedaudit.audit.robustness.claimed_counts import Contradicted
from fedaudit.audit.robustness.dropout import make_dropout_subjects
from fedaudit.audit.robustness.figures import plot_breakdown, plot_dropout, plot_moved_prototypes
from fedaudit.audit.robustness.lints import find_pitfalls
from fedaudit.audit.robustness.subjects import grade, make_matrix_subjects
from fedaudit.audit.settings.config import Config, RecordedConfig, SimulatedConfig
from fedaudit.audit.settings.report import ReportSettings, Show
from fedaudit.audit.settings.subject import RecordedSubject
from fedaudit.audit.settings.system import SystemSettings as SystemSettings
from fedaudit.audit.verdict.accounts import (
    NoiseSubject,
    bounds,
    contradictions,
    flaws,
    limits_of_noise,
    misstatements,
)
from fedaudit.audit.verdict.checked import CheckSubject
from fedaudit.audit.verdict.clock import by_device, by_time, compare_times, last_round
from fedaudit.audit.verdict.decision import decide
from fedaudit.audit.verdict.disclosure import withhold
from fedaudit.audit.verdict.exposure import exposures
from fedaudit.audit.verdict.extrapolated import extrapolate_finding
from fedaudit.audit.verdict.faults import timelines
from fedaudit.audit.verdict.findings import Attacked, headline, list_unverified_claims
from fedaudit.audit.verdict.heads import count_exposed_people
from fedaudit.audit.verdict.imported import doubts, qualify_finding
from fedaudit.audit.verdict.judge import judge_subject
from fedaudit.audit.verdict.leaks import join_leaks
from fedaudit.audit.verdict.limits import list_limits
from fedaudit.audit.verdict.metrics import summary
from fedaudit.audit.verdict.policy import GradingPolicy, load_policy
from fedaudit.audit.verdict.scope import scope
from fedaudit.audit.verdict.taxonomy import place_finding, sort_of, taxa
from fedaudit.audit.verdict.trade_changes import describe_changes
from fedaudit.audit.verdict.trade_offs import (
    AS_AUDITED,
    Option,
    compare_options,
    count_shown,
    summarise_recommendation,
)
from fedaudit.fl import ledger
from fedaudit.fl.clients.time_model import TimeModel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.recording.recorder import MANIFEST, manifest, read
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.threats.threat import Aim
from fedaudit.reports.bound import PrivacyBound
from fedaudit.reports.imported import ImportRecord
from fedaudit.reports.result import AuditResult, Figure, History, Outcome, ReproductionRecord, worst_first
from fedaudit.reports.result import PolicyRecord as PolicyRecord
from fedaudit.reports.system import System

Progress = Callable[[str, int, int], None]

UNREPEATED = (
    "created",
    "reproduction.seconds",
)  # keys of audit.json: when it was scored, and how long phases took


def run(run: RunDir, config: Config, progress: Progress) -> None:
    """Writes audit.json."""
    progress("score", 0, 1)
    result = derive(run, config, load_policy(config.locate_policy()))
    run.write(run.audit, result.model_dump_json(indent=1).encode() + b"\n")
    progress("score", 1, 1)


def confirm(run: RunDir, config: Config) -> AuditResult:
    """What follows from the folder's evidence under the folder's policy, where audit.json says so too.

    Raises UserError that names the first field that differs; only the time of scoring and how long phases took
    may, which nothing else in the folder says.
    """
    derived = derive(run, config, load_policy(config.locate_policy()))
    theirs, ours = (timeless(r.model_dump(mode="json"), UNREPEATED) for r in (read_result(run), derived))
    if of_value(theirs) == of_value(ours):
        return derived
    found = difference(theirs, ours)
    scored = chain.read_chain(run.path).links["score"].packages
    other = "" if scored == packages() else "; it was scored by other code than yours"
    raise UserError(
        f"{run.audit} does not follow from the evidence and the policy: "
        f"{found.key if found else 'its form'} differs{other}",
        hint="do not decide from it; ask for the folder that the run left, or run `fedaudit phase score` again",
    )


@sharing()
def derive(run: RunDir, config: Config, policy: GradingPolicy) -> AuditResult:
    """The audit of what the other phases left, under this policy; reads neither audit.json nor its policy.

    It shows what the config admits, and by default no person of data that are not public.
    """
    case = open_case(run, config)
    names = _find_names(config.subject, _read_import(run)) if isinstance(config, RecordedConfig) else {}
    return withhold(derive_whole(run, config, policy, case), choose_show(case, config.report), names)


def choose_show(case: Case, report: ReportSettings) -> Show:
    """What the config admits; without a choice of its own everything of public or invented data, else nothing."""
    if report.show != "auto":
        return report.show
    return "full" if isinstance(case, SimulatedCase) and case.dataset.holds != "private" else "redacted"


def _find_names(subject: RecordedSubject, imported: ImportRecord) -> dict[str, str]:
    """Names that nodes and their data have in a recorded federation, with the client's number in their place."""
    names = {node: party.replace("/", " ") for party, node in imported.nodes.items()}
    return names | {own: names[node] for node, own in subject.identities.items() if node in names}


def derive_whole(run: RunDir, config: Config, policy: GradingPolicy, case: Case) -> AuditResult:
    """The audit with every picture and name."""
    evidence, history = EvidenceFolder(run), run.history()
    attacked = [Attacked(file, config.prior) for file in evidence.attacks]
    verified = read_verified(evidence.ledger, case.examples, case.data)
    population = describe_population(case.clients, case.examples, case.data, case.availability)
    limits = read_bounds(evidence, verified, population)
    audits = withhold_numbers(evidence.noise_audits, limits)
    releases = ledger.read(run.ledger)
    record = _run_record(case, config.delta, releases, limits, history)
    subjects = [
        *attacked,
        *map(CheckSubject, evidence.checks.results),
        *bounds(limits),
        *contradictions(limits),
        *misstatements(verified.issues),
        *flaws(record),
        *map(NoiseSubject, audits),
    ]
    if matrix := evidence.matrix:
        grade(matrix, policy)
        partition = config.federation.partition.name if isinstance(config, SimulatedConfig) else ""
        subjects += make_matrix_subjects(matrix)
        subjects += find_pitfalls(config.matrix, partition, config.protections, matrix)
    if evidence.claimed_counts:
        subjects.append(Contradicted(evidence.claimed_counts))
    if absence := evidence.absence:
        subjects += make_dropout_subjects(absence)
    imported = _read_import(run) if isinstance(config, RecordedConfig) else None
    subjects += doubts(imported) if imported else []
    findings = [qualify_finding(judge_subject(subject, policy), imported) for subject in subjects]
    findings[: len(attacked)] = [
        extrapolate_finding(f, a, policy) for a, f in zip(attacked, findings, strict=False)
    ]
    of_attacks = list(zip(attacked, findings, strict=False))  # they come first
    chosen = choose(config, case)
    names = {spec.label: spec.name for spec in chosen.specs}
    for finding in findings[len(attacked) :]:
        finding.taxonomy = place_finding(finding)
    for subject, finding in of_attacks:
        file = subject.file
        finding.taxonomy = taxa(sort_of(names.get(file["name"], file["name"]), Aim(file["card"]["aim"])))
    images = [g for subject, finding in of_attacks for g in subject.galleries(finding)]
    figures = [c for subject, finding in of_attacks for c in subject.figures(finding)]
    figures += over_rounds(releases, limits, bind_status(evidence, verified, population, config.delta))
    figures += [*plot_breakdown(matrix), *plot_moved_prototypes(matrix)] if matrix else []
    figures += plot_dropout(absence) if absence else []
    questions = ask_questions(
        evidence, run.artifacts, config, case, chosen, policy.demands, findings=findings, limits=limits
    )
    join_leaks(of_attacks)
    people = count_exposed_people(of_attacks)
    findings = worst_first(findings)
    seen = exposures(manifest(run.artifacts))
    result = AuditResult(
        title=_name_report(config),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        system=_describe_system(config.system),
        headline=headline(findings, questions, attacked),
        scope=scope(case, case.training, case.parameters, findings, seen),
        exposures=seen,
        questions=questions,
        findings=findings,
        figures=[*figures, *timelines(history), *_clock(run.artifacts, case.time_model, history)],
        galleries=images,
        texts=[t for subject, finding in of_attacks for t in subject.texts(finding)],
        people=people,
        bounds=limits,
        claims=score_files(config.locate_claims()).claims,
        noise_audits=audits,
        imported=imported,
        unverified=list_unverified_claims(attacked),
        robustness=matrix,
        absence=absence,
        history=[_history(r) for r in history],
        summary_metrics=summary(history),
        limits=[
            *list_limits(questions, simulated=case.simulated),
            *evidence.checks.declared,
            *limits_of_noise(record),
        ],
        policy=_record_policy(policy, chain.read_chain(run.path)),
        reproduction=_reproduction(run, config.seed),
    )
    tests = len(case.data.test)
    options = [
        Option(
            name=v.name,
            protections=tuple(p.name for p in v.protections),
            result=audited,
            correct=_read_answers(folder_of(run, v).history(), tests) if audited else None,
        )
        for v, audited in results(run, config)
    ]
    base = Option(name=AS_AUDITED, result=result, correct=_read_answers(history, tests))
    if options:
        _weigh_options(result, base, options, policy)
    elif config.variants is None and any(f.outcome is Outcome.DEMONSTRATED for f in findings):
        result.recommendation = "No option was tried: no protection answers what was demonstrated."
    result.decision = decide(result, policy)
    return result


def _weigh_options(result: AuditResult, base: Option, options: Sequence[Option], policy: GradingPolicy) -> None:
    """Add what the variants left and cost; `base` is the audited run."""
    result.decision = decide(result, policy)  # options are compared with the audited run's word
    result.alternatives = compare_options(base, options)
    result.recommendation = summarise_recommendation(result.alternatives, count_shown(result))
    result.figures += compare_times({o.name: o.result for o in (base, *options) if o.result is not None})
    for finding in result.findings:
        if better := describe_changes(finding, result.alternatives):
            finding.remedy = f"{finding.remedy.rstrip('.')}. {better}".removeprefix(". ")


def _name_report(config: Config) -> str:
    """Its title; of a recorded federation without one, what its operator calls the federation."""
    if isinstance(config, RecordedConfig) and config.title == Config.model_fields["title"].default:
        return config.subject.title
    return config.title


def _read_answers(history: list[dict[str, Any]], tests: int) -> NDArray[np.bool_] | None:
    """Which test examples the last model got right; None where the run did not keep it."""
    kept = next((r["correct"] for r in reversed(history) if r.get("correct")), "")
    if 4 * len(kept) < tests or not tests:
        return None
    return np.unpackbits(np.frombuffer(bytes.fromhex(kept), np.uint8))[:tests].astype(bool)


def _clock(artifacts: Path, time_model: TimeModel | None, history: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Figures of the simulated clock; none where there is none."""
    if time_model is None:
        return by_time(history)
    seen = read(artifacts, kinds=(Kind.TASK_TIME,), wanted=lambda line: Kind.TASK_TIME in line["kinds"])
    return [*by_time(history), *by_device(history, time_model), *last_round(seen, history, time_model)]


def _run_record(
    case: Case,
    delta: float,
    releases: Sequence[Release],
    bounds: Sequence[PrivacyBound],
    history: Sequence[Mapping[str, Any]],
) -> RunRecord:
    """What the lints read of one run."""
    return RunRecord(
        releases=releases,
        bounds=bounds,
        delta=delta,
        units={
            "client": case.clients,
            "record": int(counts(case.clients, case.examples, case.data).sum(1).max(initial=0)),
        },
        drawn=case.sampling(None),
        delivered=[int(r.get("delivered", 0)) for r in history],
        phases=[str(r.get("phase", "")) for r in history],
        rounds=getattr(case.training, "rounds", 0) if case.simulated else 0,
        witnessed=case.simulated,
    )


def _history(record: dict[str, Any]) -> History:
    known = set(History.model_fields) - {"values"}
    values = {k: float(v) for k, v in record.items() if k not in known and isinstance(v, int | float)}
    return History(**{k: v for k, v in record.items() if k in known}, values=values)


def _record_policy(policy: GradingPolicy, recorded: chain.Chain) -> PolicyRecord:
    fixed, first_evidence = chain.find_registration(recorded, policy)
    record = policy.record()
    record.sha256, record.fixed, record.first_evidence = chain.policy_digest(policy), fixed, first_evidence
    return record


def _describe_system(system: SystemSettings) -> System:
    """What the owner states of the system; `clients: null` is not stated either."""
    return System(**{key: value or "" for key, value in system.model_dump().items()})


def _read_import(run: RunDir) -> ImportRecord:
    return run.read(run.imported, ImportRecord)


def _reproduction(run: RunDir, seed: int) -> ReproductionRecord:
    environment, phases = run.read(run.environment, Environment), read_phases(run)
    recorded = chain.read_chain(run.path)
    first = chain.first_of(recorded)
    made = recorded.links[first].aside
    kept = [run.artifacts / MANIFEST, run.ledger, run.metrics, run.config]
    return ReproductionRecord(
        command="fedaudit run config.yaml",
        config=run.config.read_text(encoding="utf-8"),
        seed=seed,
        versions=environment.versions,
        hardware=environment.hardware,
        hashes={str(p.relative_to(run.path)): sha256(p) for p in kept},
        inputs=chain.inputs(recorded, run.trained_on() or {}),
        threads=f"{made.threads} while it trained; attacks and the server's sums compute on one",
        commit=made.commit,
        started=phases[first]["started"],
        seconds={name: p["seconds"] for name, p in phases.items() if p["seconds"] is not None},
    )
