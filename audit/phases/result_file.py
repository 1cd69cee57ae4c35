"""audit.json and policy.json in their forms; whether they fit the evidence is asked in audit/phases/score.py."""

from pathlib import Path
from typing import Any

from fedaudit.audit.attestation import chain
from fedaudit.audit.case.digests import timeless
from fedaudit.audit.case.facts import keep_facts
from fedaudit.audit.case.run_folder import ConfigDifference, RunDir, difference, sha256
from fedaudit.audit.case.schemas import Environment
from fedaudit.audit.phases.plan import read_phases
from fedaudit.audit.verdict.policy import GradingPolicy
from fedaudit.fl.recording.recorder import MANIFEST
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.strict_json import parse_json
from fedaudit.reports.result import AuditResult, PolicyRecord, ReproductionRecord

# Keys of audit.json that state a verdict and what it rests on
FACTS = (
    *("findings", "questions", "rule_questions", "people", "bounds", "claims", "noise_audits", "unverified"),
    *("robustness", "absence", "history", "summary_metrics", "alternatives", "decision"),
)


def read_result(folder: Path) -> AuditResult:
    """audit.json of a run, validated; what another version says besides is left out."""
    audit = folder / "audit.json"
    if not audit.exists():
        raise UserError(f"no audit.json in {folder}", hint="`fedaudit run RUN --phase score` writes it")
    try:
        data = audit.read_bytes()
        parse_json(data)  # a key that stands twice
        return AuditResult.model_validate_json(data, extra="ignore")
    except ValueError as error:
        lines = str(error).splitlines()
        raise UserError(
            f"{audit} is not an audit result: {' '.join(lines[1:3] or lines).strip()}",
            hint="`fedaudit run RUN --phase score` makes it again",
        ) from error


def read_policy(folder: Path) -> GradingPolicy:
    """The policy that the folder keeps, by which its audit.json was judged."""
    run = RunDir(folder)
    found = run.read(run.policy, GradingPolicy)
    if found.decision is None or found.questions is None or found.panel is None:
        raise UserError(
            f"{run.policy} is not a whole policy", hint="`fedaudit run RUN --phase score` makes it again"
        )
    return found


def describe_run(folder: Path, recorded: chain.Chain, seed: int) -> ReproductionRecord:
    """How the run in this folder was made, by its chain."""
    run = RunDir(folder)
    environment, phases = run.read(run.environment, Environment), read_phases(run.path)
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


def record_policy(policy: GradingPolicy, recorded: chain.Chain) -> PolicyRecord:
    """The policy as audit.json names it, and when it was fixed."""
    fixed, first_evidence = chain.find_registration(recorded, policy)
    record = policy.record()
    record.fixed, record.first_evidence = fixed, first_evidence
    return record


def find_difference(theirs: AuditResult, derived: AuditResult) -> ConfigDifference | None:
    """The first fact in which an audit.json differs from what follows from its folder."""
    return difference(_list_facts(theirs), _list_facts(derived))


def _list_facts(result: AuditResult) -> dict[str, Any]:
    """What of an audit a reader compares: ids, outcomes, severities, numbers and the word."""
    said = timeless(result.model_dump(mode="json", include=set(FACTS)), ("findings.*.seconds",))
    return dict(keep_facts(said) or {})
