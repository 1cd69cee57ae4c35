"""audit.json and policy.json in their forms; whether they fit the evidence is asked in audit/phases/score.py."""

from pathlib import Path

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.verdict.policy import GradingPolicy
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.strict_json import parse_json
from fedaudit.reports.result import AuditResult


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


def dump_result(result: AuditResult) -> bytes:
    """audit.json of a result."""
    return result.model_dump_json(indent=1).encode() + b"\n"


def read_policy(folder: Path) -> GradingPolicy:
    """The policy that the folder keeps, by which its audit.json was judged."""
    run = RunDir(folder)
    found = run.read(run.policy, GradingPolicy)
    if found.decision is None or found.questions is None or found.panel is None:
        raise UserError(
            f"{run.policy} is not a whole policy", hint="`fedaudit run RUN --phase score` makes it again"
        )
    return found
