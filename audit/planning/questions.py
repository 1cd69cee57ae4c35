"""The table of questions of one audit: listed from what crossed the wire, answered from what the audit has."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedaudit.audit.case.case import Split
from fedaudit.audit.importing.doubts import explain_other_training, explain_unknown_owners
from fedaudit.audit.observer.check import ConstantKind
from fedaudit.audit.observer.reach import observed_rounds, read_traffic
from fedaudit.audit.planning.choice import AttackChoice
from fedaudit.audit.robustness.plan import list_all_rules
from fedaudit.audit.robustness.rule_questions import list_rule_questions
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config, SimulatedConfig
from fedaudit.audit.settings.system import SystemSettings
from fedaudit.audit.verdict.policy import Demands, GradingPolicy, Panel
from fedaudit.audit.verdict.questions import Answered, Lacking, answer_questions, list_lacking
from fedaudit.audit.verdict.scene import Answers, Attempt, Scene, gather_attempts, list_questions
from fedaudit.fl.artifact import Party, Role
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import UNSENT, Release
from fedaudit.fl.recording.recorder import manifest, unread
from fedaudit.fl.threats.threat import Aim
from fedaudit.reports.bound import PrivacyBound
from fedaudit.reports.imported import ImportRecord
from fedaudit.reports.questions import Question, RuleQuestion
from fedaudit.reports.result import Finding


@dataclass(frozen=True)
class DeclaredAttackers:
    """Whom a config declares against the model, and the server's rules that they are up against."""

    aims: Mapping[str, Aim] = field(default_factory=dict)  # by the label that cells of the matrix have
    rules: Sequence[str] = ()
    is_absence_measured: bool = False
    has_matrix: bool = False  # which compares the model with an honest one

    def list_questions(self, demands: Demands) -> list[RuleQuestion]:
        """Questions about the model, unanswered."""
        aims = [aim for aim in self.aims.values() if not aim.is_against_people]
        return list_rule_questions(self.rules if aims else [], aims, demands, absence=self.is_absence_measured)

    def plan_questions(self, demands: Demands) -> list[RuleQuestion]:
        """The same before a run: what will ask them."""
        planned = {"findings": ["matrix"], "why": "to be asked by runs of the matrix"} if self.has_matrix else {}
        absence = {"findings": ["absence"], "why": "to be asked by runs without these clients"}
        return [
            q.model_copy(update=absence if q.aim is Aim.DROPOUT else planned)
            for q in self.list_questions(demands)
        ]


def read_attackers(config: Config) -> DeclaredAttackers:
    """Those of a simulation; a recorded federation has none."""
    if not isinstance(config, SimulatedConfig):
        return DeclaredAttackers()
    matrix = config.attack_matrix
    names = {s.label: s.name for s in (matrix.adversaries if matrix else ())}
    rules = list(list_all_rules(matrix, config.federation.clients)) if matrix else []
    if config.adversary is not None:
        names.setdefault(config.adversary.name, config.adversary.name)
        rules = rules or [config.aggregator.name]
    aims = {label: catalog.load("adversaries", name).card.aim for label, name in names.items()}
    return DeclaredAttackers(aims, rules, config.absence is not None, matrix is not None)


def plan_questions(choice: AttackChoice, policy: GradingPolicy) -> list[Question]:
    """Before a run: every question about people, and which attacks will ask it."""
    questions = list_questions(choice.scene, policy.demands)
    return answer_questions(questions, choice.scene, _plan_answers(choice, policy)).questions


def plan_limits(choice: AttackChoice, policy: GradingPolicy) -> dict[str, list[Lacking]]:
    """Before a run: by required question about people what will keep attacks from limiting it, if anything."""
    required = [q for q in list_questions(choice.scene, policy.demands) if q.required]
    found = list_lacking(required, choice.scene, _plan_answers(choice, policy))
    return {id: lacking for id, lacking in found.items() if lacking}


def _plan_answers(choice: AttackChoice, policy: GradingPolicy) -> Answers:
    """What the chosen attacks will read."""
    scene, title = choice.scene, choice.traffic.title
    attempts = [
        Attempt(
            id=label,
            name=choice.names[label][0],
            is_changed=choice.names[label][1],
            card=card,
            rounds=_plan_rounds(scene, card.rounds),
            seconds=choice.seconds[label],
        )
        for label, card in choice.cards.items()
        if not card.explain_unfit(scene.gives) and not scene.traffic.missing(card, title)
    ]
    return Answers(
        attempts=attempts,
        panel=policy.whole_panel,
        shipped=choice.shipped,
        seconds=choice.others_seconds,
        left=choice.left,
        checked=choice.checked,
    )


def _plan_rounds(scene: Scene, wanted: str) -> dict[Kind, frozenset[int]]:
    return {
        kind: rounds.kept if wanted == "all" else frozenset(sorted(rounds.kept)[-1:])
        for (_, kind), rounds in scene.rounds.items()
        if rounds.kept
    }


def gather_answers(
    files: Sequence[Mapping[str, Any]],
    choice: AttackChoice,
    panel: Panel,
    findings: Sequence[Finding],
    limits: Sequence[PrivacyBound],
    constant: Sequence[ConstantKind],
    imported: ImportRecord | None = None,
) -> Answers:
    """After a run: what attacks' files, findings of checks, bounds and checked counts answer questions with."""
    attempts = gather_attempts(files, choice.cards, choice.names, choice.seconds)
    if unknown := explain_unknown_owners(imported):
        attempts = [replace(a, people=(), reason=a.reason or unknown) for a in attempts]
    return Answers(
        attempts=attempts,
        doubt=explain_other_training(imported),
        panel=panel,
        shipped=choice.shipped,
        seconds=choice.others_seconds,
        left=choice.left,
        findings=findings,
        limits=limits,
        checked=choice.checked,
        constant={Kind(k.kind): k for k in constant},
    )


def ask_attacks(
    scene: Scene, choice: AttackChoice, policy: GradingPolicy, files: Sequence[Mapping[str, Any]]
) -> Answered:
    """What attacks alone say of a run's questions, before anything is accounted for or checked."""
    answers = gather_answers(files, choice, policy.whole_panel, (), (), ())
    return answer_questions(list_questions(scene, policy.demands), scene, answers)


def observe_scene(
    artifacts: Path,
    system: SystemSettings,
    heard: Mapping[int, frozenset[int]] | None,
    data: Data,
    examples: Split,
    is_traced: bool,
) -> Scene:
    """What crossed the wire, to whom and in which rounds.

    `is_traced` says that nothing is made of clients' examples but what the record says is: of what nobody's are
    behind, such as a model of which no client was heard yet, nothing is asked.
    """
    lines = [line for line in manifest(artifacts) if not is_traced or line.get("behind", True)]
    senders = _list_senders(lines, heard)
    held = {k: len(rows) for k, rows in examples.parts.items() if len(rows) and (senders is None or k in senders)}
    return Scene(
        traffic=read_traffic(lines),
        rounds=observed_rounds([*lines, *unread(artifacts)]),
        gives=data.gives,
        clients=frozenset(held),
        people=sum(held.values()),
        fewest=min(held.values(), default=None),
        are_persons=system.clients == "persons",
    )


def is_traced(simulated: bool, releases: Iterable[Release]) -> bool:
    """Whether all that a server knew of clients' examples came in messages, each of which was recorded."""
    return simulated and not any(r.kind in UNSENT for r in releases)


def _list_senders(
    lines: Sequence[Mapping[str, object]], heard: Mapping[int, frozenset[int]] | None
) -> frozenset[int] | None:
    """Clients that sent something of their data, of others no message can tell; None where not all are known."""
    if heard is None:
        return None
    parties = (Party.parse(str(line["sender"])) for line in lines if "message" in line)
    senders = {p.index for p in parties if p.role == Role.CLIENT and p.index is not None}
    return frozenset(senders.union(*heard.values()))
