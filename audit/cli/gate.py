"""The gate: a folder reviewed here and judged by a reviewer's policy and terms, and the lines that say so.

Every command that speaks of a finished run gets its verdict here. None reads audit.json by itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fedaudit.audit.attestation import reviewer_files
from fedaudit.audit.attestation.earlier import is_earlier
from fedaudit.audit.attestation.record import SEAL
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.planning.load import parse_data
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.resolve import resolve
from fedaudit.audit.settings.spec import AttackSpec
from fedaudit.audit.verdict.policy import Terms, accept_cells, find_known, load_policy
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.sharing import sharing
from fedaudit.reports.result import AuditResult, Severity

if TYPE_CHECKING:
    from fedaudit.audit.attestation.seal import Statement
    from fedaudit.audit.review.review import Review

MOST_STRANGERS = 5
NOT_REPLAYED = (
    "what the attacks measured was taken from evidence/, with what checks and tests of noise say; "
    "`fedaudit verify --replay` makes the run again"
)


@dataclass(frozen=True, kw_only=True)
class Reviewer:
    """By what a reviewer judges; paths of files, read when a folder is judged."""

    policy: str = ""  # a name or a path; empty: the folder's own
    terms: Path | None = None
    baseline: Path | None = None
    digest: str = ""  # of the content or the record, held apart from the folder
    trust: bool = False
    data: tuple[str, ...] = ()  # copies of what the folder's config reads elsewhere, as NAME=PATH
    render: bool = False  # the reports once more, and compare


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A folder with the verdict that this machine gives of it."""

    folder: RunDir
    config: Config
    review: "Review"
    terms: Terms
    required: tuple[str, ...]

    @property
    def result(self) -> AuditResult:
        return self.review.result

    def decide_again(self, result: AuditResult, policy: str) -> None:
        """Give the verdict of a result of this federation under the same terms; without any it has its own."""
        if not self.terms.has_any:
            return
        from fedaudit.audit.evidence.files import read_policy
        from fedaudit.audit.verdict.decision import decide

        result.questions = accept_cells(result.questions, self.terms)
        result.rule_questions = accept_cells(result.rule_questions, self.terms)
        own = load_policy(policy) if policy else read_policy(self.folder.path)
        result.decision = decide(result, own, self.terms)


@sharing()
def judge_folder(path: Path, reviewer: Reviewer) -> Judged:
    """Raises UserError for the first thing in the folder that is not what such a run leaves."""
    from fedaudit.audit.review.review import review

    added = reviewer_files.read_terms(reviewer.terms)
    needed = [(s.name, dict(s.settings)) for s in added.attacks]
    policy = load_policy(reviewer.policy) if reviewer.policy else None
    folder = RunDir.open(path)
    if is_earlier(folder.path):
        raise UserError(
            f"{path} was made by an earlier version of fedaudit, in another form",
            hint="`fedaudit check` and `fedaudit verify --key PUBLIC` say what it was judged to be",
        )
    config = folder.load_config(trust_plugins=reviewer.trust, data=parse_data(list(reviewer.data)))
    made = review(folder, config, policy, reviewer.digest, render=reviewer.render)
    before = None
    if reviewer.baseline is not None:
        own = Reviewer(policy=reviewer.policy, trust=reviewer.trust, data=reviewer.data)
        before = judge_folder(reviewer.baseline, own).result
    unmet: tuple[str, ...] = ()
    if needed:
        from fedaudit.audit.case.open import open_case
        from fedaudit.audit.planning.choice import choose
        from fedaudit.audit.review.review import find_unmet

        chosen = choose(config, open_case(folder, config)).specs
        plans = resolve(config.model_copy(update={"attacks": chosen}))["attacks"]
        unmet = tuple(find_unmet([AttackSpec.model_validate(p) for p in plans], made.result.findings, needed))
    today = datetime.now(UTC).date()
    acceptance = reviewer_files.apply_waivers(added.waivers, made.result, made.content, today)
    terms = Terms(
        fail_on=Severity(added.fail_on) if added.fail_on else None,
        accepted=acceptance.accepted,
        known=find_known(made.result, before),
        unmet=unmet,
        refused=acceptance.refused,
    )
    required = tuple(f"{name} {settings}" if settings else name for name, settings in needed)
    judged = Judged(folder=folder, config=config, review=made, terms=terms, required=required)
    judged.decide_again(made.result, reviewer.policy)
    return judged


def describe(judged: Judged, statement: "Statement | None" = None, *, replayed: bool = False) -> Iterator[str]:
    """By which policy, what is signed and by whom, and what is the owner's word alone, as lines."""
    policy, made, review = judged.result.policy, judged.result.reproduction, judged.review
    yield f"policy: {policy.name}, version {policy.version}, SHA-256 {policy.sha256}, {policy.owner}"
    if review.scored_by:
        yield f"the folder's own verdict is by policy {review.scored_by}"
    fixed = "not pre-registered: the attacks ran before this policy was chosen"
    if policy.fixed:
        fixed = f"policy fixed at {policy.fixed}, first evidence at {policy.first_evidence or 'no time'}"
    who = (
        f"signed by {statement.record.signer[:16]}..., as its owner stated"
        if statement
        else "stated by the owner"
    )
    hardware = made.hardware.get("processor", "an unknown processor")
    yield f"{who}: {fixed}; started {made.started}, commit {made.commit or 'unknown'}, on {hardware}"
    if not replayed:
        yield f"{who}: messages, models, accuracies, and the noise that was drawn"
        yield NOT_REPLAYED
    names = ", ".join(review.others or review.reports)
    if review.others:
        mine = "`fedaudit run RUN --phase report` writes your own"
        yield f"{names}: not what this audit is written as here; {mine}"
    elif names and review.others is None:
        yield f"{names}: the bytes that chain.json names, not rendered here; `fedaudit verify` renders them"
    elif names:
        yield f"{names}: rendered here once more, to the same bytes"
    if statement is None and (judged.folder.path / SEAL).exists():
        yield f"{SEAL}: not checked, and nothing here rests on it; `fedaudit verify --key PUBLIC` checks it"
    if review.strangers:
        names = ", ".join(review.strangers[:MOST_STRANGERS])
        if (more := len(review.strangers) - MOST_STRANGERS) > 0:
            names += f" and {more:,} more"
        yield f"no phase wrote these, and nothing here is about them: {names}"
    yield f"content: SHA-256 {review.content}"
    yield f"record: SHA-256 {review.record}"


def describe_seal(statement: "Statement") -> Iterator[str]:
    """What a seal says, once it fits: result, time, version, bar, requirements and digests."""
    record = statement.record
    yield f"seal: {statement.predicate.result}, {record.verdict.replace('_', ' ')}, by {record.tool}"
    yield f"  signed by SHA-256 {record.signer} at {record.at}, counts until {record.expires}"
    yield f"  bar: {record.bar}, by policy {record.policy}, SHA-256 {record.policy_digest}"
    yield f"  required: {', '.join(record.required)}"
    for finding, words in record.accepted.items():
        yield f"  accepted: {finding} ({words})"
    for subject in statement.subject:
        yield f"  {subject.name}: SHA-256 {subject.digest['sha256']}"
