"""Subjects of a matrix: what happened under each rule, what the rule costs, and what could not be run.

A rule is one subject, rated by the attack that takes most answers for sure, however many clients are malicious;
the planted fault, which must be seen to break the mean, stands beside it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fedaudit.attacks.evidence import Evidence
from fedaudit.audit.robustness.plan import CONTROLS
from fedaudit.audit.robustness.rule_questions import OF_ALL, OF_CLASS, LostAnswers, bound_lost
from fedaudit.audit.verdict.findings import describe_evidence
from fedaudit.audit.verdict.subject import Subject
from fedaudit.audit.verdict.taxonomy import in_words
from fedaudit.reports import format as fmt
from fedaudit.reports.result import Outcome, Severity
from fedaudit.reports.robustness import Certificate, DefenceCost, MatrixCell, NotRun, ReplayedRound, Robustness

COUNTS = "changed_by_counts"  # measure
BROKEN = "The clip or the noise is not what the ledger says: look for a client that the server does not clip."
ALONE = (
    "What more than one forged round, another attack or other data would do: clients did not train on what the "
    "forged round left. That no attack tried here moved a rule says nothing about attacks that were not tried."
)
LIMIT = (
    "What another attack, another seed or other data would do. That no attack tried here moved a rule says "
    "nothing about attacks that were not tried."
)


@dataclass(frozen=True)
class Defended(Subject):
    """One rule of one setting under every attack on it."""

    matrix: Robustness
    cells: Sequence[MatrixCell]
    tolerable: float  # share of the answers

    @cached_property
    def _worst(self) -> tuple[MatrixCell, LostAnswers]:
        """The attack that sets the severity: of those as severe, the one that takes most for sure, or at all."""
        each = [(c, bound_lost(c.evidence)) for c in self.cells]
        return max(each, key=lambda pair: (pair[1].rate(self.tolerable).rank, pair[1].of_all[0], _drop(pair[0])))

    @property
    def severity(self) -> Severity:
        return self._worst[1].rate(self.tolerable)

    @property
    def reason(self) -> str:
        return self._worst[1].explain(self.tolerable)

    def words(self) -> Mapping[str, Any]:
        cell, _ = self._worst
        who, rule = self.matrix.adversaries[cell.adversary], f"{cell.setting}, rule {cell.rule}"
        if self.severity is Severity.NONE:
            by_whom = f" by up to {max(c.malicious for c in self.cells)} clients" if self._further else ""
            title = f"{rule}: no attack tried here{by_whom} was seen to change the model"
        else:
            does = "makes that round's model wrong" if self.matrix.replayed else who.does
            title = f"{rule}: {who.title} by {self._count_malicious(cell)} {does}"
        planted = [c for c in self.matrix.planted if c.setting == cell.setting]
        return {
            "id": f"robustness-{cell.setting}-{cell.rule}",
            "title": title,
            "source": "robustness",
            "method": who.title,
            "reference": who.source,
            "summary": self._summarise(cell, in_words(who.taxonomy)),
            "threat": who.threat,
            "taxonomy": who.taxonomy,
            "evidence": [
                *place_evidence(cell),
                *(replace(e, control="positive") for c in planted for e in place_evidence(c)[:1]),
            ],
            "does_not_show": ALONE if self.matrix.replayed else LIMIT,
            "remedy": f"{fmt.sentence_case(who.remedy)}.",
        }

    @cached_property
    def _further(self) -> MatrixCell | None:
        """What took most of the rule with other numbers of malicious clients, if more than any of `cells` did.

        Such runs look for the fewest that break it, and are not graded.
        """
        own = {(c.setting, c.family) for c in self.cells}
        sought = [c for c in self.matrix.cells if c.bisected and (c.setting, c.family) in own]
        most = max(sought, key=_drop, default=None)
        return most if most is not None and _drop(most) > max(0.0, *map(_drop, self.cells)) else None

    def _count_malicious(self, cell: MatrixCell) -> str:
        """How many, and their share: printed beside what they took, and never graded."""
        share = fmt.percent(cell.malicious / self.matrix.clients)
        return f"{cell.malicious} of {self.matrix.clients} clients ({share})"

    def _summarise(self, worst: MatrixCell, taxonomy: str) -> str:
        strongest = max(self.cells, key=_drop)
        drop = strongest.evidence[0]
        low, high = drop.interval or (drop.value, drop.value)
        moved = f"moved accuracy by more than {100 * drop.value:.1f} points"
        if round(drop.value, 3) <= 0:
            least = f"; the least rise was {-100 * drop.value:.1f} points, a drop below zero"
            moved = f"lowered accuracy{least if round(drop.value, 3) else ''}"
        lost = [e for e in place_evidence(worst) if e.measure in OF_ALL + OF_CLASS]
        quoted = " ".join(f"{describe_evidence(e)}." for e in lost if self.severity is not Severity.NONE)
        further = ""
        if (more := self._further) is not None:
            further = (
                f" In the search for the fewest that break it {more.malicious} malicious clients took "
                f"{100 * _drop(more):.1f} points ({more.title}), which is not graded."
            )
        return (
            f"{quoted} No attack tried here {moved} (interval {100 * low:.1f} to {100 * high:.1f}, "
            f"{fmt.plural(len(self.cells), 'attack')}); strongest tried: {strongest.title}, "
            f"by {self._count_malicious(strongest)}."
            f"{further}{say_replayed(self.matrix)} In catalogues of attacks: {taxonomy}."
        ).strip()


@dataclass(frozen=True)
class Cost(Subject):
    """What a rule costs with nobody malicious, rated as what attacks take is."""

    cost: DefenceCost
    tolerable: float  # share of the answers
    replayed: str = ""  # said of a matrix that replays one round

    @property
    def severity(self) -> Severity:
        return bound_lost(self.cost.evidence).rate(self.tolerable)

    @property
    def reason(self) -> str:
        return bound_lost(self.cost.evidence).explain(self.tolerable)

    def words(self) -> Mapping[str, Any]:
        cost = self.cost
        where = f"{cost.setting}, rule {cost.rule}"
        what = "the rule itself costs answers, with nobody malicious"
        if self.severity is Severity.NONE:
            what = "no cost was seen with nobody malicious"
        points = [f"{fmt.points_less(x.value, x.interval)} than the mean" for x in cost.evidence]
        return {
            "id": f"cost-{cost.setting}-{cost.rule}",
            "title": f"{where}: {what}",
            "source": "robustness",
            "method": "Cost of defence",
            "summary": f"{cost.rule} has {100 * cost.accuracy:.1f} % accuracy with nobody malicious, "
            f"{points[0]}; its worst class has {100 * cost.worst_class:.1f} %, {points[1]}.{self.replayed}",
            "evidence": list(cost.evidence),
            "does_not_show": "What the rule costs with more rounds, or on other data.",
            "remedy": "Weigh it against what the rule saves under attack.",
        }


@dataclass(frozen=True)
class Certified(Subject):
    """A score under attack beside the ceiling that the ledger's noise sets to every attack."""

    certificate: Certificate
    number: int

    @property
    def severity(self) -> Severity:
        return Severity.CRITICAL if (self.certificate.above or 0) > 0 else Severity.NONE

    @property
    def reason(self) -> str:
        is_above = self.severity is Severity.CRITICAL
        return "Every bound that rests on this clip, or this noise, is open." if is_above else ""

    def words(self) -> Mapping[str, Any]:
        c = self.certificate
        low, high = c.interval or (c.measured, c.measured)
        broken = self.severity is Severity.CRITICAL
        what = "are more than the stated noise allows" if broken else "are within what the stated noise allows"
        return {
            "id": f"certificate-{self.number}-{c.setting}-{c.rule}",
            "title": f"{c.setting}, rule {c.rule}: {c.score} under {c.title} {what}",
            "source": "robustness",
            "method": "Certificate of the noise",
            "reference": "Dong, Roth, Su, JRSS-B 2022 (trade-off functions)",
            "summary": f"By the noise that the ledger lists, {fmt.plural(c.malicious, 'malicious client')} can "
            f"bring {c.score} from {fmt.percent(c.clean)} to at most {fmt.percent(c.ceiling)}, whatever they do; "
            f"measured were {fmt.percent(c.measured)} (interval {100 * low:.1f} % to {100 * high:.1f} %, "
            f"{fmt.plural(c.seeds, 'seed')}).",
            "does_not_show": "What one training can come to: the ceiling is about the mean over trainings.",
            "remedy": BROKEN if broken else "",
        }


@dataclass(frozen=True)
class BelievedCounts(Subject):
    """A false claim of how many examples a client holds, which changed what the model answers."""

    matrix: Robustness
    cell: MatrixCell

    severity = Severity.HIGH
    reason = "The server caps no claim; how far a false one goes depends on the claim alone."

    def words(self) -> Mapping[str, Any]:
        c, who = self.cell, self.matrix.adversaries[self.cell.adversary]
        changed = next(e for e in place_evidence(c) if e.measure == COUNTS)
        return {
            "id": f"counts-{c.setting}-{c.rule}",
            "title": f"{c.setting}, rule {c.rule}: the server believes what clients claim to hold",
            "source": "robustness",
            "method": who.title,
            "reference": who.source,
            "summary": f"{describe_evidence(changed)}.",
            "threat": who.threat,
            "taxonomy": who.taxonomy,
            "evidence": [changed],
            "does_not_show": LIMIT,
            "remedy": f"{fmt.sentence_case(who.remedy)}.",
        }


@dataclass(frozen=True)
class Displaced(Subject):
    """A replayed round of which no model could be measured: how far its aggregate moved, which nobody rates."""

    matrix: Robustness
    replayed: ReplayedRound

    severity = Severity.NONE

    @property
    def reason(self) -> str:
        return f"What forged uploads do to the model was not measured: {self.replayed.why}."

    def words(self) -> Mapping[str, Any]:
        tried = [d for d in self.matrix.displaced if d.adversary not in CONTROLS]
        rules = dict.fromkeys(d.rule for d in tried)
        worst = [max((d for d in tried if d.rule == rule), key=lambda d: d.spreads) for rule in rules]
        farthest = "; ".join(
            f"{d.rule} by {d.spreads:.2g} ({d.title}, {fmt.plural(d.malicious, 'client')})" for d in worst
        )
        moved = f"Farthest that the aggregate moved, in spreads of the recorded uploads: {farthest}"
        if not farthest:
            moved = "How far forged uploads move the aggregate was not measured"
        return {
            "id": f"robustness-round-{self.replayed.round}-alone",
            "title": f"Round {self.replayed.round} alone: whether forged uploads make the model wrong is open",
            "source": "robustness",
            "method": "Replay of one recorded round",
            "summary": f"{moved}.{say_replayed(self.matrix)}",
            "does_not_show": ALONE,
            "remedy": "State the network (subject.model), and give labelled examples of your own (own.npz in "
            "--truth).",
        }


@dataclass(frozen=True)
class Missing(Subject):
    """Cells that came to no end."""

    cells: NotRun
    number: int

    severity = Severity.NONE

    @property
    def outcome(self) -> Outcome:
        return Outcome.FAILED if self.cells.failed else Outcome.NOT_APPLICABLE

    @property
    def reason(self) -> str:
        return self.cells.reason

    def words(self) -> Mapping[str, Any]:
        first = self.cells.cells[0]
        more = f" and {len(self.cells.cells) - 1} more" if len(self.cells.cells) > 1 else ""
        return {
            "id": f"matrix-not-run-{self.number}",
            "title": f"Cells of the matrix were not run: {first}{more}",
            "source": "robustness",
            "method": f"Matrix: {first}{more}",
            "summary": self.cells.reason,
        }


def make_matrix_subjects(matrix: Robustness, tolerable: float) -> list[Subject]:
    """Rules by their order in the config, then costs, facts, and what was not run.

    `tolerable`: the share of a model's answers that may be lost.
    """
    rules: dict[tuple[str, str], list[MatrixCell]] = {}
    for cell in (c for c in matrix.cells if not c.bisected):
        rules.setdefault((cell.setting, cell.rule), []).append(cell)
    believed = [
        next((c for c in cells if (e := c.find(COUNTS)) is not None and e.value > 0), None)
        for cells in rules.values()
    ]
    return [
        *(Defended(matrix, cells, tolerable) for cells in rules.values()),
        *(Cost(c, tolerable, say_replayed(matrix)) for c in matrix.costs if c.evidence),
        *(BelievedCounts(matrix, c) for c in believed if c is not None),
        *([Displaced(matrix, matrix.replayed)] if matrix.replayed and matrix.replayed.why else []),
        *(Certified(c, i) for i, c in enumerate(matrix.certificates) if c.above is not None),
        *(Missing(n, i) for i, n in enumerate(matrix.not_run)),
    ]


def grade(matrix: Robustness, tolerable: float) -> None:
    """Write into each cell, and each cost, the severity that it has by itself."""
    rated: list[MatrixCell | DefenceCost] = [*matrix.cells, *matrix.costs]
    for one in rated:
        severity = bound_lost(one.evidence).rate(tolerable)
        one.severity = "" if severity is Severity.NONE else fmt.SEVERITIES[severity]


def say_replayed(matrix: Robustness) -> str:
    """What a replayed matrix is about, as a sentence that follows another; empty where runs were made."""
    one = matrix.replayed
    return "" if one is None else f" Replayed on the {one.heard} recorded uploads of round {one.round} alone."


def place_evidence(cell: MatrixCell) -> list[Evidence]:
    """Its evidence, of a place of its own."""
    return [replace(e, condition={"attack": cell.title, "malicious": cell.malicious}) for e in cell.evidence]


def _drop(cell: MatrixCell) -> float:
    return cell.evidence[0].value
