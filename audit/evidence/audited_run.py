"""What the other phases left of a run, and each thing in it that yields a finding or a picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from fedaudit.audit.attestation import chain
from fedaudit.audit.case.case import Case
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir, sha256
from fedaudit.audit.case.schemas import Environment
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.case.timelines import plot_rounds
from fedaudit.audit.evidence.account import Account, read_account
from fedaudit.audit.evidence.files import EvidenceFolder, put_own_card
from fedaudit.audit.evidence.phase import read_phases
from fedaudit.audit.importing.doubts import list_doubts, qualify_finding
from fedaudit.audit.observer.exposure import list_exposures
from fedaudit.audit.planning.choice import AttackChoice, choose
from fedaudit.audit.planning.questions import gather_answers, is_traced, observe_scene, read_attackers
from fedaudit.audit.robustness.findings import list_robustness_findings, plot_robustness
from fedaudit.audit.robustness.rule_questions import answer_rule_questions
from fedaudit.audit.settings.config import Config, RecordedConfig, SimulatedConfig
from fedaudit.audit.verdict.findings import describe_attack, list_figures
from fedaudit.audit.verdict.policy import GradingPolicy
from fedaudit.audit.verdict.questions import Answered, answer_questions
from fedaudit.audit.verdict.scene import list_questions, name_finding
from fedaudit.audit.verdict.taxonomy import place_finding, sort_of, taxa
from fedaudit.fl import ledger
from fedaudit.fl.recording.recorder import MANIFEST, manifest
from fedaudit.fl.threats.threat import Aim
from fedaudit.reports.exposed import PartyExposure
from fedaudit.reports.imported import ImportRecord
from fedaudit.reports.questions import RuleQuestion
from fedaudit.reports.result import Figure, Finding, ReproductionRecord


@dataclass(frozen=True)
class AuditedRun:
    """Reads the folder as it is asked; neither audit.json nor its policy."""

    run: RunDir
    config: Config

    @cached_property
    def case(self) -> Case:
        return open_case(self.run, self.config)

    @cached_property
    def choice(self) -> AttackChoice:
        return choose(self.config, self.case)

    @cached_property
    def evidence(self) -> EvidenceFolder:
        return EvidenceFolder(self.run.path, self.config.checks)

    @cached_property
    def attacks(self) -> list[dict[str, Any]]:
        """What each attack left, with the card that it has here."""
        return [put_own_card(file, self.choice) for file in self.evidence.attacks]

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        return self.run.history()

    @cached_property
    def imported(self) -> ImportRecord | None:
        """What importing said; None where we simulated."""
        return self.run.read(self.run.imported, ImportRecord) if isinstance(self.config, RecordedConfig) else None

    @cached_property
    def account(self) -> Account:
        case = self.case
        return read_account(
            case,
            self.evidence,
            ledger.read(self.run.ledger),
            [int(r.get("delivered", 0)) for r in self.history],
            getattr(case.training, "rounds", 0) if case.simulated else 0,
            self.config.delta,
        )

    @cached_property
    def exposures(self) -> list[PartyExposure]:
        """Who could see what."""
        return list_exposures(manifest(self.run.artifacts))

    @property
    def show(self) -> Literal["redacted", "reconstructions", "full"]:
        """How much the report shows of people: all only of a public data set, unless the config says so."""
        if self.config.show != "auto":
            return self.config.show
        is_open = isinstance(self.case, SimulatedCase) and self.case.dataset.holds != "private"
        return "full" if is_open else "redacted"

    @property
    def names(self) -> dict[str, str]:
        """What nodes and their data are called in a recorded federation, with the client's number for it."""
        if not self.imported or not isinstance(self.config, RecordedConfig):
            return {}
        names = {node: party.replace("/", " ") for party, node in self.imported.nodes.items()}
        own = self.config.subject.identities.items()
        return names | {name: names[node] for node, name in own if node in names}

    def list_facts(self, policy: GradingPolicy) -> list[Finding]:
        """One finding for each thing that was seen or proved, without an attack on people."""
        evidence, config = self.evidence, self.config
        partition = config.federation.partition.name if isinstance(config, SimulatedConfig) else ""
        tolerable = policy.demands.of_model.share
        seen = [
            *evidence.checks.results,
            *self.account.list_findings(),
            *list_robustness_findings(
                evidence.matrix, evidence.absence, tolerable, config.matrix, partition, config.protections
            ),
            *(list_doubts(self.imported) if self.imported else ()),
        ]
        findings = [policy.rate(finding) for finding in seen]
        for finding in findings:
            finding.taxonomy = place_finding(finding)
        return findings

    def list_attacks(self, policy: GradingPolicy, answered: Answered) -> list[Finding]:
        """One finding for each attack, by what it showed."""
        return [self._judge_attack(file, policy, answered) for file in self.attacks]

    def _judge_attack(self, file: Mapping[str, Any], policy: GradingPolicy, answered: Answered) -> Finding:
        label, aim = file["name"], Aim(file["card"]["aim"])
        name = next((spec.name for spec in self.choice.specs if spec.label == label), label)
        finding = describe_attack(file, answered.shown.get(name_finding(file)))
        finding = qualify_finding(policy.rate(finding), self.imported)
        finding.taxonomy = taxa(sort_of(name, aim))
        return finding

    def ask(self, policy: GradingPolicy, facts: Sequence[Finding]) -> Answered:
        """Every question about people as it stands, and what attacks showed."""
        case, account = self.case, self.account
        scene = observe_scene(
            self.run.artifacts,
            self.config.system,
            case.participation.heard,
            case.data,
            case.examples,
            is_traced(case.simulated, account.releases),
        )
        constant, panel = self.evidence.checks.constant, policy.whole_panel
        answers = gather_answers(self.attacks, self.choice, panel, facts, account.bounds, constant, self.imported)
        return answer_questions(list_questions(scene, policy.demands), scene, answers)

    def ask_of_rules(self, policy: GradingPolicy, facts: Sequence[Finding]) -> list[RuleQuestion]:
        """Every question about the model as it stands."""
        attackers, evidence = read_attackers(self.config), self.evidence
        questions = attackers.list_questions(policy.demands)
        return answer_rule_questions(questions, evidence.matrix, evidence.absence, facts, attackers.aims)

    def plot(self, attacks: Sequence[Finding]) -> list[Figure]:
        """Pictures: of each attack's finding, the ledger, the matrix and the rounds."""
        return [
            *(f for file, found in zip(self.attacks, attacks, strict=True) for f in list_figures(file, found)),
            *self.account.plot(),
            *plot_robustness(self.evidence.matrix, self.evidence.absence),
            *plot_rounds(self.history, self.case.time_model, self.run.artifacts),
        ]


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
