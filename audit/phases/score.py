"""Phase 4: evidence and policy to findings; everything the report says goes into audit.json."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.audit.accounting.lint import RunRecord, check
from fedaudit.audit.accounting.spending import over_rounds
from fedaudit.audit.accounting.status import withhold_numbers
from fedaudit.audit.attestation import chain
from fedaudit.audit.case.case import counts
from fedaudit.audit.case.clock import by_device, by_time, compare_times, last_round
from fedaudit.audit.case.digests import packages, timeless
from fedaudit.audit.case.facts import keep_facts
from fedaudit.audit.case.metrics import summary
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir, difference, sha256
from fedaudit.audit.case.schemas import Environment
from fedaudit.audit.case.scope import describe_scope
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.case.timelines import timelines
from fedaudit.audit.claims.report import score_files
from fedaudit.audit.importing.doubts import list_doubts, qualify_finding
from fedaudit.audit.noise_audit.findings import (
    describe_noise_audit,
    list_contradictions,
    list_misstatements,
    list_noise_limits,
    list_refuted_bounds,
)
from fedaudit.audit.observer.exposure import list_exposures
from fedaudit.audit.phases.bounds import bind_status, describe_population, read_bounds, read_verified
from fedaudit.audit.phases.choice import choose
from fedaudit.audit.phases.evidence import EvidenceFolder, put_own_card
from fedaudit.audit.phases.plan import read_phases
from fedaudit.audit.phases.questions import gather_answers, is_traced, observe_scene, read_attackers
from fedaudit.audit.phases.result_file import dump_result, read_policy, read_result
from fedaudit.audit.phases.variants import Variants
from fedaudit.audit.robustness.dropout_findings import list_dropout_findings
from fedaudit.audit.robustness.figures import plot_breakdown, plot_dropout, plot_moved_prototypes
from fedaudit.audit.robustness.lints import find_pitfalls
from fedaudit.audit.robustness.matrix_findings import grade, list_matrix_findings
from fedaudit.audit.robustness.rule_questions import answer_rule_questions
from fedaudit.audit.settings.config import Config, RecordedConfig, SimulatedConfig
from fedaudit.audit.settings.system import SystemSettings as SystemSettings
from fedaudit.audit.verdict.decision import decide
from fedaudit.audit.verdict.disclosure import withhold
from fedaudit.audit.verdict.findings import (
    describe_attack,
    join_leaks,
    list_figures,
    list_galleries,
    list_texts,
    list_unverified_claims,
    write_headline,
)
from fedaudit.audit.verdict.limits import list_limits
from fedaudit.audit.verdict.policy import GradingPolicy, load_policy
from fedaudit.audit.verdict.questions import Answered, answer_questions, list_questions
from fedaudit.audit.verdict.scene import name_finding
from fedaudit.audit.verdict.taxonomy import place_finding, sort_of, taxa
from fedaudit.audit.verdict.trade_offs import AS_AUDITED, Option, compare_options, summarise_recommendation
from fedaudit.fl import ledger
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.recorder import MANIFEST, manifest, read
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.threats.threat import Aim
from fedaudit.reports.imported import ImportRecord
from fedaudit.reports.questions import RuleQuestion
from fedaudit.reports.result import AuditResult, Figure, Finding, History, ReproductionRecord, worst_first
from fedaudit.reports.result import PolicyRecord as PolicyRecord
from fedaudit.reports.system import System

Progress = Callable[[str, int, int], None]

# Keys of audit.json that state a verdict and what it rests on
FACTS = (
    *("findings", "questions", "rule_questions", "people", "bounds", "claims", "noise_audits", "unverified"),
    *("robustness", "absence", "history", "summary_metrics", "alternatives", "decision"),
)


def run(run: RunDir, config: Config, progress: Progress) -> None:
    """Writes audit.json, and the policy by which it is judged."""
    progress("score", 0, 1)
    policy = load_policy(config.locate_policy())
    run.write_json(run.policy, policy.model_dump(mode="json"))
    result = Scoring(run, config, policy).derive()
    run.write(run.audit, dump_result(result))
    progress("score", 1, 1)


class Scoring:
    """The audit of what the other phases left, under a policy; reads neither audit.json nor its policy."""

    def __init__(self, run: RunDir, config: Config, policy: GradingPolicy | None = None) -> None:
        """`policy` is by default the one that the folder keeps."""
        case = open_case(run, config)
        self._run, self._config, self._case, self._choice = run, config, case, choose(config, case)
        self._policy = policy or read_policy(run.path)
        self._chain, self._evidence = chain.read_chain(run.path), EvidenceFolder(run.path)
        self._attacks = [put_own_card(file, self._choice) for file in self._evidence.attacks]
        self._history, self._releases = run.history(), ledger.read(run.ledger)
        self._imported = run.read(run.imported, ImportRecord) if isinstance(config, RecordedConfig) else None
        self._verified = read_verified(self._evidence.ledger, case.examples, case.data)
        self._population = describe_population(
            case.clients, case.examples, case.data, case.participation.availability
        )
        # whatever leaves a simulated client is in the ledger: where nothing left, nothing is to be bounded
        is_silent = case.simulated and not self._releases
        self._bounds = [] if is_silent else read_bounds(self._evidence, self._verified, self._population)
        self._noise_audits = withhold_numbers(self._evidence.noise_audits, self._bounds)
        self._record = RunRecord(
            releases=self._releases,
            bounds=self._bounds,
            delta=config.delta,
            units={
                "client": case.clients,
                "record": int(counts(case.clients, case.examples, case.data).sum(1).max(initial=0)),
            },
            delivered=[int(r.get("delivered", 0)) for r in self._history],
            rounds=getattr(case.training, "rounds", 0) if case.simulated else 0,
            witnessed=case.simulated,
        )

    def confirm(self) -> AuditResult:
        """What follows from the folder's evidence under the policy, where audit.json has the same facts.

        Sentences, titles and pictures are made here. Only the time of scoring and how long phases took are those
        of audit.json, since nothing else in the folder says them. Raises UserError that names the first fact that
        differs.
        """
        theirs, derived = read_result(self._run.path), self.derive()
        derived.created, derived.reproduction.seconds = theirs.created, theirs.reproduction.seconds
        if (found := difference(_list_facts(theirs), _list_facts(derived))) is None:
            return derived
        is_ours = self._chain.links["score"].packages == packages()
        raise UserError(
            f"{self._run.audit} does not follow from the evidence and the policy: {found.key} differs"
            f"{'' if is_ours else '; it was scored by other code than yours'}",
            hint="do not decide from it; ask for the folder that the run left, or score it again: "
            f"`fedaudit run {self._run.path} --phase score`",
        )

    def derive(self) -> AuditResult:
        """The audit with what the config admits, by default with no person of data that are not public."""
        case, show, names = self._case, self._config.report.show, dict[str, str]()
        if show == "auto":
            is_open = isinstance(case, SimulatedCase) and case.dataset.holds != "private"
            show = "full" if is_open else "redacted"
        if self._imported and isinstance(self._config, RecordedConfig):
            names = _find_names(self._config.subject.identities, self._imported.nodes)
        return withhold(self.derive_whole(), show, names)

    def derive_whole(self) -> AuditResult:
        """The audit with every picture and name."""
        case, evidence, config, history = self._case, self._evidence, self._config, self._history
        facts = self._judge_facts()
        answered = self._ask(facts)
        attacks = [self._judge_attack(file, answered) for file in self._attacks]
        figures, rule_questions = self._draw(attacks), self._ask_of_rules(facts)
        findings = [*attacks, *facts]
        join_leaks(findings)
        findings = worst_first(findings)
        cells = [*answered.questions, *rule_questions]
        seen = list_exposures(manifest(self._run.artifacts))
        result = AuditResult(
            title=_name_report(config.title, config.subject.title if isinstance(config, RecordedConfig) else ""),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            system=_describe_system(config.system),
            headline=write_headline(findings, cells, self._attacks),
            scope=describe_scope(case, case.training, case.network.size.parameters, findings, seen),
            exposures=seen,
            questions=answered.questions,
            rule_questions=rule_questions,
            findings=findings,
            figures=figures,
            galleries=[g for file in self._attacks for g in list_galleries(file)],
            texts=[t for file in self._attacks for t in list_texts(file)],
            bounds=self._bounds,
            claims=score_files(config.locate_claims()).claims,
            noise_audits=self._noise_audits,
            imported=self._imported,
            unverified=list_unverified_claims(self._attacks),
            robustness=evidence.matrix,
            absence=evidence.absence,
            history=[_history(r) for r in history],
            summary_metrics=summary(history),
            limits=[
                *list_limits(
                    cells,
                    simulated=case.simulated,
                    is_summed=any(p.hides_single_uploads() for p in case.protections),
                ),
                *evidence.checks.declared,
                *list_noise_limits(self._record),
            ],
            policy=_record_policy(self._policy, self._chain),
            reproduction=self._describe_run(),
        )
        self._weigh_options(result)
        return result

    def _judge_facts(self) -> list[Finding]:
        """One finding for each thing that was seen or proved, without an attack on people."""
        config, evidence, policy, imported = self._config, self._evidence, self._policy, self._imported
        seen = [
            *evidence.checks.results,
            *list_refuted_bounds(self._bounds),
            *list_contradictions(self._bounds),
            *list_misstatements(self._verified.issues),
            *check(self._record),
            *map(describe_noise_audit, self._noise_audits),
        ]
        tolerable = policy.demands.of_model.share
        if matrix := evidence.matrix:
            grade(matrix, tolerable)
            partition = config.federation.partition.name if isinstance(config, SimulatedConfig) else ""
            seen += list_matrix_findings(matrix, tolerable)
            seen += find_pitfalls(config.matrix, partition, config.protections, matrix)
        seen += list_dropout_findings(evidence.absence, tolerable) if evidence.absence else []
        seen += list_doubts(imported) if imported else []
        findings = [policy.rate(finding) for finding in seen]
        for finding in findings:
            finding.taxonomy = place_finding(finding)
        return findings

    def _judge_attack(self, file: Mapping[str, Any], answered: Answered) -> Finding:
        """The finding about one attack."""
        label, aim = file["name"], Aim(file["card"]["aim"])
        name = next((spec.name for spec in self._choice.specs if spec.label == label), label)
        finding = describe_attack(file, answered.shown.get(name_finding(file)), self._config.prior)
        finding = qualify_finding(self._policy.rate(finding), self._imported)
        finding.taxonomy = taxa(sort_of(name, aim))
        return finding

    def _draw(self, attacks: Sequence[Finding]) -> list[Figure]:
        evidence, history, clock = self._evidence, self._history, self._case.time_model
        bound_releases = bind_status(evidence, self._verified, self._population, self._config.delta)
        figures = [
            c for file, found in zip(self._attacks, attacks, strict=True) for c in list_figures(file, found)
        ]
        figures += over_rounds(self._releases, self._bounds, bound_releases)
        if matrix := evidence.matrix:
            figures += [*plot_breakdown(matrix), *plot_moved_prototypes(matrix)]
        figures += plot_dropout(evidence.absence) if evidence.absence else []
        figures += [*timelines(history), *by_time(history)]
        if clock is not None:
            kind = Kind.TASK_TIME
            times = read(self._run.artifacts, kinds=(kind,), wanted=lambda line: kind in line["kinds"])
            figures += [*by_device(history, clock), *last_round(times, history, clock)]
        return figures

    def _ask(self, facts: Sequence[Finding]) -> Answered:
        """Every question about people as it stands, and what attacks showed."""
        case, evidence = self._case, self._evidence
        scene = observe_scene(
            self._run.artifacts,
            self._config.system,
            case.participation.heard,
            case.data,
            case.examples,
            is_traced(case.simulated, self._releases),
        )
        constant, panel = evidence.checks.constant, self._policy.whole_panel
        answers = gather_answers(
            self._attacks, self._choice, panel, facts, self._bounds, constant, self._imported
        )
        return answer_questions(list_questions(scene, self._policy.demands), scene, answers)

    def _ask_of_rules(self, facts: Sequence[Finding]) -> list[RuleQuestion]:
        """Every question about the model as it stands."""
        attackers, evidence = read_attackers(self._config), self._evidence
        questions = attackers.list_questions(self._policy.demands)
        return answer_rule_questions(questions, evidence.matrix, evidence.absence, facts, attackers.aims)

    def _weigh_options(self, result: AuditResult) -> None:
        """Add what the variants left and cost, and the decision."""
        tests, variants = (
            len(self._case.data.test),
            Variants(self._run, self._config, read_policy(self._run.path)),
        )
        options = [
            Option(
                name=v.name,
                protections=tuple(p.name for p in v.protections),
                result=audited,
                correct=_read_answers(variants.locate(v).history(), tests) if audited else None,
            )
            for v, audited in variants.read_results()
        ]
        if options:
            result.decision = decide(result, self._policy)  # options are compared with the audited run's word
            base = Option(name=AS_AUDITED, result=result, correct=_read_answers(self._history, tests))
            result.alternatives = compare_options(base, options)
            result.recommendation = summarise_recommendation(result.alternatives)
            result.figures += compare_times({o.name: o.result for o in (base, *options) if o.result is not None})
        elif self._config.variants is None and any(f.is_demonstrated for f in result.findings):
            result.recommendation = "No option was tried: no protection answers what was demonstrated."
        result.decision = decide(result, self._policy)

    def _describe_run(self) -> ReproductionRecord:
        run, recorded = self._run, self._chain
        environment, phases = run.read(run.environment, Environment), read_phases(run.path)
        first = chain.first_of(recorded)
        made = recorded.links[first].aside
        kept = [run.artifacts / MANIFEST, run.ledger, run.metrics, run.config]
        return ReproductionRecord(
            command="fedaudit run config.yaml",
            config=run.config.read_text(encoding="utf-8"),
            seed=self._config.seed,
            versions=environment.versions,
            hardware=environment.hardware,
            hashes={str(p.relative_to(run.path)): sha256(p) for p in kept},
            inputs=chain.inputs(recorded, run.trained_on() or {}),
            threads=f"{made.threads} while it trained; attacks and the server's sums compute on one",
            commit=made.commit,
            started=phases[first]["started"],
            seconds={name: p["seconds"] for name, p in phases.items() if p["seconds"] is not None},
        )


def _list_facts(result: AuditResult) -> dict[str, Any]:
    """What of an audit a reader compares: ids, outcomes, severities, numbers and the word."""
    said = timeless(result.model_dump(mode="json", include=set(FACTS)), ("findings.*.seconds",))
    return dict(keep_facts(said) or {})


def _find_names(identities: Mapping[str, str], nodes: Mapping[str, str]) -> dict[str, str]:
    """Names that nodes and their data have in a recorded federation, with the client's number in their place."""
    names = {node: party.replace("/", " ") for party, node in nodes.items()}
    return names | {own: names[node] for node, own in identities.items() if node in names}


def _name_report(title: str, subject: str) -> str:
    """The title of a report; without one, what the operator of a recorded federation calls it."""
    return subject if subject and title == Config.model_fields["title"].default else title


def _read_answers(history: list[dict[str, Any]], tests: int) -> NDArray[np.bool_] | None:
    """Which test examples the last model got right; None where the run did not keep it."""
    kept = next((r["correct"] for r in reversed(history) if r.get("correct")), "")
    if 4 * len(kept) < tests or not tests:
        return None
    return np.unpackbits(np.frombuffer(bytes.fromhex(kept), np.uint8))[:tests].astype(bool)


def _history(record: dict[str, Any]) -> History:
    known = set(History.model_fields) - {"values"}
    values = {k: float(v) for k, v in record.items() if k not in known and isinstance(v, int | float)}
    return History(**{k: v for k, v in record.items() if k in known}, values=values)


def _record_policy(policy: GradingPolicy, recorded: chain.Chain) -> PolicyRecord:
    fixed, first_evidence = chain.find_registration(recorded, policy)
    record = policy.record()
    record.fixed, record.first_evidence = fixed, first_evidence
    return record


def _describe_system(system: SystemSettings) -> System:
    """What the owner states of the system; `clients: null` is not stated either."""
    return System(**{key: value or "" for key, value in system.model_dump().items()})
