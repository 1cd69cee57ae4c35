"""A matrix of one recorded round: its uploads with some of them forged, through the mean and through other rules.

The harm is what the model of that one round loses on examples of the auditor's that no attacker went by; where
no model can be measured, how far the aggregate moved, in spreads of the recorded uploads. Cells stand beside the
same rule on the recorded uploads, and the controls are those of a simulated matrix.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.audit.robustness import family, measures
from fedaudit.audit.robustness.finished_runs import score_classes
from fedaudit.audit.robustness.plan import (
    CONTROLS,
    IDLE,
    LED,
    PLANTED,
    ServerRule,
    describe,
    list_attackers,
    list_rules,
)
from fedaudit.audit.robustness.reach import find_leaders
from fedaudit.audit.robustness.recorded_round import RecordedRound
from fedaudit.audit.robustness.table import describe_adversary, find_breakdowns, give_advice, list_needs
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.matrix import Matrix
from fedaudit.fl.aggregation.aggregator import Aggregator, RowRule
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.threats.adversary import Adversary
from fedaudit.fl.wire.protection import Message, Payload
from fedaudit.reports.robustness import DefenceCost, Displacement, MatrixCell, NotRun, ReplayedRound, Robustness

ONE_ROUND = "one round; the interval is over test examples alone"


@dataclass(frozen=True)
class ReplayedRule:
    """What one rule made of the round's messages, and what the model so made answers."""

    round: RecordedRound
    made: Payload

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        assert self.round.test.examples is not None
        return self.round.test.examples[1]

    @cached_property
    def right(self) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self.round.test.answer(self.round.model(self.made)) == self.labels
        return found

    @property
    def accuracy(self) -> float:
        return float(self.right.mean())


@dataclass(frozen=True)
class RuleAttack:
    """One adversary by some malicious clients on one rule."""

    label: str
    spec: Mapping[str, Any]
    rule: ServerRule
    malicious: int

    @property
    def title(self) -> str:
        return ("planted fault: " if self.label == PLANTED else "") + describe(self.spec)


def replay(
    here: RecordedRound, matrix: Matrix, seed: int, progress: Callable[[int, int], None] = lambda *_: None
) -> Robustness:
    """The whole matrix; what cannot be replayed is among `not_run`, each with a sentence."""
    made = Robustness(clients=len(here.messages), chance=0.0, seeds=[seed])
    made.replayed = ReplayedRound(
        round=here.number,
        heard=len(here.messages),
        weights=here.weights_in_words,
        examples=0 if here.test.examples is None else len(here.test.examples[1]),
        why=here.test.obstacle,
    )
    if here.test.examples is not None:
        made.chance = float(np.bincount(here.test.examples[1]).max() / len(here.test.examples[1]))
    _Table(here, matrix, made).fill(progress)
    made.breakdown, made.advice = find_breakdowns(made.cells), give_advice(made)
    made.uncertified = "a certificate is about whole trainings, and this is one round"
    return made


def count_replays(matrix: Matrix, heard: int) -> int:
    """Aggregates that are made of a round with so many uploads, those that an adaptive attacker tries apart."""
    return sum(
        len(list_attackers(matrix, rule, heard / m))  # nobody among them
        for m in set(matrix.malicious)
        for rule in list_rules(matrix, m, heard)
    )


@dataclass
class _Table:
    """The matrix of one round in the making."""

    round: RecordedRound
    matrix: Matrix
    made: Robustness

    def fill(self, progress: Callable[[int, int], None]) -> None:
        heard, clean = len(self.round.messages), dict[str, ReplayedRule]()
        total, done = count_replays(self.matrix, heard), 0
        rules = dict[str, ServerRule]()
        for malicious in sorted(set(self.matrix.malicious)):
            for rule in list_rules(self.matrix, malicious, heard):
                attackers = list_attackers(self.matrix, rule, heard / malicious)
                progress(done, total)
                done += len(attackers)
                try:
                    if rule.name not in clean:
                        clean[rule.name] = self._combine(rule, self.round.messages)
                        self._note_cost(rule, clean)
                    rules[rule.name] = rule
                    if malicious >= heard:
                        raise UserError(f"{malicious} malicious clients, and {heard} were heard in the round")
                except UserError as error:
                    self._leave_out(f"{rule.name}, {malicious} malicious", error)
                    continue
                attacks = [RuleAttack(a, s, rule, malicious) for a, s in attackers.items() if s is not None]
                drawn = self.round.draw_clients(malicious)
                self._attack_rule(attacks, clean[rule.name], drawn)
                try:
                    leaders = find_leaders(rule, self.round.weights, drawn)
                except UserError as error:
                    self._leave_out(f"{self.setting}/{rule.name}/reach", error, failed=True)
                    continue
                led = [replace(a, label=a.label + LED, spec={**a.spec, "clients": leaders}) for a in attacks]
                if leaders:
                    self._attack_rule([a for a in led if a.label != PLANTED + LED], clean[rule.name], leaders)
        self.made.needs = list_needs(list(rules.values()))
        progress(total, total)

    @property
    def setting(self) -> str:
        return f"round-{self.round.number}-alone"

    def _combine(self, rule: ServerRule, messages: Mapping[int, Message]) -> ReplayedRule:
        return ReplayedRule(self.round, self.round.combine(configure_rule(rule, self.round), messages))

    def _attack_rule(self, attacks: list[RuleAttack], clean: ReplayedRule, clients: Sequence[int]) -> None:
        """Cells of one rule under the attacks of these clients: the idle first, which the others stand beside."""
        rule, looks = attacks[0].rule, sum(a.label not in CONTROLS for a in attacks)
        attacks = sorted(attacks, key=lambda a: a.label not in (IDLE, IDLE + LED))
        idle: ReplayedRule | None = None
        tried = {a.label for a in attacks}
        while attacks:
            attack = attacks.pop(0)
            try:
                adversary = make_attacker(attack.spec)
                forged, notes = self.round.forge(adversary, clients, configure_rule(rule, self.round))
                after = self._combine(rule, forged)
            except UserError as error:
                self._leave_out(f"{attack.label} on {rule.name}, {attack.malicious} malicious", error)
                continue
            named = {k: v for k, v in attack.spec.items() if k == "clients"}
            for member in [notes["sent"], *notes["near"]][: family.MOST] if "sent" in notes else ():
                label = family.label(member) + LED * attack.label.endswith(LED)
                if label not in tried:  # what an attacker nearly took is tried by itself
                    tried.add(label)
                    attacks.append(replace(attack, label=label, spec={**member, **named}))
            if attack.label in (IDLE, IDLE + LED):
                self._note_cell(attack, clean, after, None, looks, notes)
                idle = after
                continue
            self._note_displacement(attack, clean, after)
            self._note_cell(attack, clean, after, idle, looks, notes)

    def _note_displacement(self, attack: RuleAttack, clean: ReplayedRule, after: ReplayedRule) -> None:
        try:
            moved = self.round.measure_displacement(after.made, clean.made)
        except UserError as error:
            self._leave_out("how far the aggregate moved", error)
            return
        self.made.displaced.append(
            Displacement(
                rule=attack.rule.name,
                adversary=attack.label,
                title=attack.title,
                malicious=attack.malicious,
                spreads=moved,
            )
        )

    def _note_cell(
        self,
        attack: RuleAttack,
        clean: ReplayedRule,
        after: ReplayedRule,
        idle: ReplayedRule | None,
        looks: int,
        notes: Mapping[str, Any],
    ) -> None:
        self.made.adversaries.setdefault(attack.label, describe_adversary(attack.spec))
        if self.round.test.examples is None:
            return
        cell = MatrixCell(
            setting=self.setting,
            rule=attack.rule.name,
            family=attack.rule.family,
            assumed=attack.rule.assumed,
            adversary=attack.label,
            title=attack.title,
            malicious=attack.malicious,
            accuracy=after.accuracy,
            clean=clean.accuracy,
            by_seed=[(after.accuracy, clean.accuracy)],
            evidence=list(_measure(clean, after, idle, looks, notes)),
        )
        (self.made.planted if attack.label == PLANTED else self.made.cells).append(cell)

    def _note_cost(self, rule: ServerRule, clean: Mapping[str, ReplayedRule]) -> None:
        if self.round.test.examples is None:
            return
        own, looks = clean[rule.name], 1 + len(self.matrix.aggregators)
        mean = [clean["mean"]] if rule.name != "mean" and "mean" in clean else []
        self.made.costs.append(
            DefenceCost(
                setting=self.setting,
                rule=rule.name,
                assumed=rule.assumed,
                accuracy=own.accuracy,
                worst_class=float(min(score_classes(own.right, own.labels))),
                evidence=[replace(e, note=ONE_ROUND) for e in measures.measure_costs(mean, [own], looks)],
            )
        )

    def _leave_out(self, cell: str, error: UserError, failed: bool = False) -> None:
        """Note a cell with its reason; those of one reason together."""
        reason = error.sentence
        known = next((n for n in self.made.not_run if n.reason == reason), None)
        if known is None:
            self.made.not_run.append(NotRun(cells=[cell], reason=reason, failed=failed))
        elif cell not in known.cells:
            known.cells.append(cell)


def _measure(
    clean: ReplayedRule, after: ReplayedRule, idle: ReplayedRule | None, looks: int, notes: Mapping[str, Any]
) -> Iterator[Evidence]:
    """What a cell holds; the drop of accuracy first."""
    for drop in measures.measure_drops([clean], [after], looks, [] if idle is None else [idle]):
        yield replace(drop, note=ONE_ROUND)
    for name in ("norm_rank", "cosine_rank"):
        if name in notes:
            yield Evidence(
                measure=name,
                value=float(notes[name]),
                unit="index",
                trials=1,
                interval=(float(notes[name]), float(notes[name])),
                baselines=(Baseline(name="an honest client", value=0.5),),
                note="one round",
            )


def configure_rule(rule: ServerRule, here: RecordedRound) -> Aggregator:
    """The rule, as the matrix sets it; raises UserError where it cannot work on the uploads of this round."""
    made = rule.build()
    if made.needs_root:
        raise UserError(f"{made.title} needs an update of the server's own, and none was recorded")
    if made.reads_single_uploads and here.is_hidden:
        raise UserError(f"{made.title} needs each client's upload, and the server sees sums of them alone")
    heard = len(here.messages)
    if isinstance(made, RowRule) and (least := made.needs(heard)) > heard:
        raise UserError(f"{made.title} as set needs {least} uploads, and the round has {heard}")
    return made


def make_attacker(spec: Mapping[str, Any]) -> Adversary:
    """The adversary of a cell; one that would look rounds ahead looks at this round."""
    cls = catalog.load("adversaries", str(spec["name"]))
    settings = {k: v for k, v in spec.items() if k not in ("name", "id", "clients")}
    if any(f.name == "ahead" for f in dataclasses.fields(cls.Config)):
        settings["ahead"] = 0
    made: Adversary = configure(cls, settings, "matrix.adversaries")
    return made
