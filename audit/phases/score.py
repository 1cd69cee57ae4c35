"""Phase 4: evidence and policy to findings; everything the report says goes into audit.json."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from fedaudit.audit.attestation import chain
from fedaudit.audit.case.digests import timeless
from fedaudit.audit.case.facts import keep_facts
from fedaudit.audit.case.metrics import keep_known, summary
from fedaudit.audit.case.run_folder import ConfigDifference, RunDir, difference
from fedaudit.audit.case.scope import describe_scope
from fedaudit.audit.evidence.audited_run import AuditedRun, describe_run
from fedaudit.audit.evidence.files import read_policy, read_result
from fedaudit.audit.evidence.variants import Variants
from fedaudit.audit.settings.config import Config, RecordedConfig
from fedaudit.audit.verdict.disclosure import withhold
from fedaudit.audit.verdict.findings import (
    join_leaks,
    list_galleries,
    list_rows,
    list_texts,
    list_unverified_claims,
    write_headline,
)
from fedaudit.audit.verdict.limits import list_limits
from fedaudit.audit.verdict.policy import GradingPolicy, load_policy
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.result import AuditResult, PolicyRecord, worst_first
from fedaudit.reports.system import System

Progress = Callable[[str, int, int], None]
# Keys of audit.json that state a verdict and what it rests on
FACTS = (
    *("findings", "questions", "rule_questions", "people", "bounds", "noise_audits", "unverified"),
    *("robustness", "absence", "history", "summary_metrics", "alternatives", "decision"),
)


def run(run: RunDir, config: Config, progress: Progress) -> None:
    """Writes audit.json, and the policy by which it is judged."""
    progress("score", 0, 1)
    policy = load_policy(config.locate_policy())
    run.write_json(run.policy, policy.model_dump(mode="json"))
    result = Scoring(run, config, policy).derive()
    run.write(run.audit, result.dump())
    progress("score", 1, 1)


class Scoring:
    """The audit of what the other phases left, under a policy; reads neither audit.json nor its policy."""

    def __init__(self, run: RunDir, config: Config, policy: GradingPolicy | None = None) -> None:
        """`policy` is by default the one that the folder keeps."""
        self._left, self._run, self._config = AuditedRun(run, config), run, config
        self._policy, self._chain = policy or read_policy(run.path), chain.read_chain(run.path)

    def confirm(self) -> AuditResult:
        """What follows from the folder's evidence under the policy, where audit.json has the same facts.

        Sentences, titles and pictures are made here. Only the time of scoring and how long phases took are those
        of audit.json, since nothing else in the folder says them. Raises UserError that names the first fact that
        differs.
        """
        theirs, derived = read_result(self._run.path), self.derive()
        derived.created, derived.reproduction.seconds = theirs.created, theirs.reproduction.seconds
        if (found := find_difference(theirs, derived)) is None:
            return derived
        raise UserError(
            f"{self._run.audit} does not follow from the evidence and the policy: {found.key} differs"
            f"{'' if chain.is_of_this_code(self._chain) else '; it was scored by other code than yours'}",
            hint="do not decide from it; ask for the folder that the run left, or score it again: "
            f"`fedaudit run {self._run.path} --phase score`",
        )

    def derive(self) -> AuditResult:
        """The audit with what the config admits, by default with no person of data that are not public."""
        return withhold(self.derive_whole(), self._left.show, self._left.names)

    def derive_whole(self) -> AuditResult:
        """The audit with every picture and name."""
        left, config, policy = self._left, self._config, self._policy
        case, evidence, account = left.case, left.evidence, left.account
        facts = left.list_facts(policy)
        answered = left.ask(policy, facts)
        attacks = left.list_attacks(policy, answered)
        figures = left.plot(attacks)
        rule_questions = left.ask_of_rules(policy, facts)
        findings = [*attacks, *facts]
        join_leaks(findings)
        findings = worst_first(findings)
        cells = [*answered.questions, *rule_questions]
        result = AuditResult(
            title=_name_report(config.title, config.subject.title if isinstance(config, RecordedConfig) else ""),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            system=System(**{key: value or "" for key, value in config.system.model_dump().items()}),
            headline=write_headline(findings, cells, left.attacks),
            scope=describe_scope(case, case.training, case.network.size.parameters, findings, left.exposures),
            exposures=left.exposures,
            questions=answered.questions,
            rule_questions=rule_questions,
            findings=findings,
            figures=figures,
            galleries=[g for file in left.attacks for g in list_galleries(file)],
            texts=[t for file in left.attacks for t in list_texts(file)],
            rows=[*evidence.checks.rows, *(r for file in left.attacks for r in list_rows(file))],
            bounds=account.bounds,
            noise_audits=account.noise_audits,
            imported=left.imported,
            unverified=list_unverified_claims(left.attacks),
            robustness=evidence.matrix,
            absence=evidence.absence,
            history=[keep_known(r) for r in left.history],
            summary_metrics=summary(left.history),
            limits=[
                *list_limits(
                    cells,
                    simulated=case.simulated,
                    is_summed=any(p.hides_single_uploads() for p in case.protections),
                ),
                *evidence.checks.declared,
                *account.list_limits(),
            ],
            policy=record_policy(policy, self._chain),
            reproduction=describe_run(self._run.path, self._chain, config.seed),
        )
        Variants(self._run, config, read_policy(self._run.path)).weigh(result, len(case.data.test), policy)
        return result


def _name_report(title: str, subject: str) -> str:
    """The title of a report; without one, what the operator of a recorded federation calls it."""
    return subject if subject and title == Config.model_fields["title"].default else title


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
