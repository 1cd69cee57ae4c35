"""Subjects of a matrix: what happened under each rule, what the rule costs, and what could not be run.

A rule is one subject, with every attack on it as evidence of a place of its own; the planted fault, which must be
seen to break the mean, is its positive control.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fedaudit.attacks.evidence import Evidence
from fedaudit.audit.robustness.plan import CONTROLS
from fedaudit.audit.verdict.findings import describe_evidence
from fedaudit.audit.verdict.judge import Fact, Subject, Verdict, Words, judge
from fedaudit.audit.verdict.policy import GradingPolicy
from fedaudit.audit.verdict.taxonomy import in_words
from fedaudit.reports import format as fmt
from fedaudit.reports.result import Outcome
from fedaudit.reports.robustness import Certificate, DefenceCost, MatrixCell, NotRun, ReplayedRound, Robustness

UNGRADED = (
    "malicious_found",
    "honest_dropped",
    "worst_client_drop",
    "durability",
    "norm_rank",
    "cosine_rank",
)  # described, and no rule is about them
HARM = Words(
    unplanted="No planted fault was tried, so nothing shows that harm would have been seen.",
    missed="The planted fault did not break the mean, so finding nothing means nothing.",
    found="The planted fault broke the mean, and no attack here was seen to change the model",
    more="Attacks here changed the model",
)
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
    planted: Sequence[MatrixCell]

    speaks = HARM

    @cached_property
    def found(self) -> Sequence[Evidence]:
        return [
            *(e for cell in self.cells for e in place_evidence(cell) if e.measure not in UNGRADED),
            *(replace(e, control="positive") for cell in self.planted for e in place_evidence(cell)[:1]),
        ]

    def words(self, verdict: Verdict) -> Mapping[str, Any]:
        strongest = max(self.cells, key=_drop)
        cell = next((c for c in self.cells if place_evidence(c)[0].place == verdict.where), strongest)
        who, rule = self.matrix.adversaries[cell.adversary], f"{cell.setting}, rule {cell.rule}"
        by = self._count_malicious(cell)
        by_whom = f" by up to {max(c.malicious for c in self.cells)} clients" if self._further is not None else ""
        title = f"{rule}: no attack tried here{by_whom} was seen to change the model"
        if verdict.outcome is Outcome.DEMONSTRATED:
            does = "makes that round's model wrong" if self.matrix.replayed else who.does
            title = f"{rule}: {who.title} by {by} {does}"
        elif verdict.outcome is Outcome.INCONCLUSIVE:
            title = f"{rule}: whether attacks change the model is open"
        controls = [e for e in self.found if e.control == "positive"]
        return {
            "id": f"robustness-{cell.setting}-{cell.rule}",
            "title": title,
            "source": "robustness",
            "method": who.title,
            "reference": who.source,
            "summary": self._summarise(strongest, verdict, in_words(who.taxonomy)),
            "threat": who.threat,
            "taxonomy": who.taxonomy,
            "evidence": [*place_evidence(cell), *controls],
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

    def _summarise(self, strongest: MatrixCell, verdict: Verdict, taxonomy: str) -> str:
        drop = strongest.evidence[0]
        low, high = drop.interval or (drop.value, drop.value)
        moved = f"moved accuracy by more than {100 * drop.value:.1f} points"
        if round(drop.value, 3) <= 0:
            least = f"; the least rise was {-100 * drop.value:.1f} points, a drop below zero"
            moved = f"lowered accuracy{least if round(drop.value, 3) else ''}"
        quoted = " ".join(f"{describe_evidence(e)}." for e in verdict.by)
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
    """What a rule costs with nobody malicious; lower ends are graded, as what attacks take is."""

    cost: DefenceCost
    replayed: str = ""  # said of a matrix that replays one round

    @property
    def found(self) -> Sequence[Fact]:
        lost = zip(("accuracy_drop", "worst_class_drop"), self.cost.evidence, strict=True)
        return [Fact(measure=name, value=e.interval[0] if e.interval else e.value) for name, e in lost]

    def words(self, verdict: Verdict) -> Mapping[str, Any]:
        cost = self.cost
        where = f"{cost.setting}, rule {cost.rule}"
        what = "the rule itself costs accuracy, with nobody malicious"
        if verdict.rule.startswith("class-"):
            what = "the rule itself costs the worst class, with nobody malicious"
        if verdict.outcome is not Outcome.DEMONSTRATED:
            what = "no cost that the policy grades was seen with nobody malicious"
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
    def found(self) -> Sequence[Fact]:
        above = self.certificate.above
        return [] if above is None else [Fact(measure="above_certified", value=above)]

    def words(self, verdict: Verdict) -> Mapping[str, Any]:
        c = self.certificate
        low, high = c.interval or (c.measured, c.measured)
        broken = verdict.outcome is Outcome.DEMONSTRATED
        what = "are above what the ledger certifies" if broken else "are within what the ledger certifies"
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
class Displaced(Subject):
    """A replayed round of which no model could be measured: how far its aggregate moved, which nobody grades."""

    matrix: Robustness
    replayed: ReplayedRound

    @property
    def found(self) -> Sequence[Fact]:
        return []

    @property
    def not_gradable(self) -> Verdict:
        return Verdict(
            outcome=Outcome.INCONCLUSIVE,
            reason=f"What forged uploads do to the model was not measured: {self.replayed.why}.",
        )

    def words(self, verdict: Verdict) -> Mapping[str, Any]:
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

    @property
    def found(self) -> Sequence[Fact]:
        return []

    @property
    def not_gradable(self) -> Verdict:
        outcome = Outcome.FAILED if self.cells.failed else Outcome.NOT_APPLICABLE
        return Verdict(outcome=outcome, reason=self.cells.reason)

    def words(self, verdict: Verdict) -> Mapping[str, Any]:
        first = self.cells.cells[0]
        more = f" and {len(self.cells.cells) - 1} more" if len(self.cells.cells) > 1 else ""
        return {
            "id": f"matrix-not-run-{self.number}",
            "title": f"Cells of the matrix were not run: {first}{more}",
            "source": "robustness",
            "method": f"Matrix: {first}{more}",
            "summary": self.cells.reason,
        }


def make_matrix_subjects(matrix: Robustness) -> list[Subject]:
    """Rules by their order in the config, then costs, then what was not run."""
    rules: dict[tuple[str, str], list[MatrixCell]] = {}
    for cell in (c for c in matrix.cells if not c.bisected):
        rules.setdefault((cell.setting, cell.rule), []).append(cell)
    return [
        *(
            Defended(matrix, cells, select_planted_cells(matrix, setting))
            for (setting, _), cells in rules.items()
        ),
        *(Cost(c, say_replayed(matrix)) for c in matrix.costs if c.evidence),
        *([Displaced(matrix, matrix.replayed)] if matrix.replayed and matrix.replayed.why else []),
        *(Certified(c, i) for i, c in enumerate(matrix.certificates) if c.above is not None),
        *(Missing(n, i) for i, n in enumerate(matrix.not_run)),
    ]


def grade(matrix: Robustness, policy: GradingPolicy) -> None:
    """Write into each cell, and each cost, the severity that it has by itself."""
    for cell in matrix.cells:
        verdict = judge(Defended(matrix, [cell], select_planted_cells(matrix, cell.setting)).found, policy, HARM)
        cell.severity = fmt.SEVERITIES[verdict.severity] if verdict.rule else ""
    for cost in matrix.costs:
        if cost.evidence:
            verdict = judge(Cost(cost).found, policy)
            cost.severity = fmt.SEVERITIES[verdict.severity] if verdict.rule else ""


def say_replayed(matrix: Robustness) -> str:
    """What a replayed matrix is about, as a sentence that follows another; empty where runs were made."""
    one = matrix.replayed
    return "" if one is None else f" Replayed on the {one.heard} recorded uploads of round {one.round} alone."


def select_planted_cells(matrix: Robustness, setting: str) -> list[MatrixCell]:
    return [c for c in matrix.planted if c.setting == setting]


def place_evidence(cell: MatrixCell) -> list[Evidence]:
    """Its evidence, of a place of its own."""
    return [replace(e, condition={"attack": cell.title, "malicious": cell.malicious}) for e in cell.evidence]


def _drop(cell: MatrixCell) -> float:
    return cell.evidence[0].value
