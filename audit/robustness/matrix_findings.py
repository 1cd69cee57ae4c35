"""Findings of a matrix: what happened under each rule, what the rule costs, and what could not be run.

A rule is one finding, rated by the attack that takes most answers for sure, however many clients are malicious;
the planted fault, which must be seen to break the mean, stands beside it.
"""

from collections.abc import Sequence
from dataclasses import replace

from fedaudit.attacks.evidence import Evidence
from fedaudit.audit.robustness.plan import CONTROLS
from fedaudit.audit.robustness.rule_questions import OF_ALL, OF_CLASS, bound_lost
from fedaudit.audit.verdict.findings import describe_evidence
from fedaudit.audit.verdict.taxonomy import in_words
from fedaudit.reports import format as fmt
from fedaudit.reports.result import Finding, Outcome, Severity
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


def list_matrix_findings(matrix: Robustness, tolerable: float) -> list[Finding]:
    """Rules by their order in the config, then costs, facts, and what was not run.

    `tolerable`: the share of a model's answers that may be lost.
    """
    rules: dict[tuple[str, str], list[MatrixCell]] = {}
    for cell in matrix.cells:
        rules.setdefault((cell.setting, cell.rule), []).append(cell)
    believed = [
        next((c for c in cells if (e := c.find(COUNTS)) is not None and e.value > 0), None)
        for cells in rules.values()
    ]
    return [
        *(_describe_rule(matrix, cells, tolerable) for cells in rules.values()),
        *(describe_cost(c, tolerable, say_replayed(matrix)) for c in matrix.costs if c.evidence),
        *(_describe_counts(matrix, c) for c in believed if c is not None),
        *([_describe_displacement(matrix, matrix.replayed)] if matrix.replayed and matrix.replayed.why else []),
        *(describe_certificate(c, i) for i, c in enumerate(matrix.certificates) if c.above is not None),
        *(_describe_missing(n, i) for i, n in enumerate(matrix.not_run)),
    ]


def _describe_rule(matrix: Robustness, cells: Sequence[MatrixCell], tolerable: float) -> Finding:
    """One rule of one setting under every attack on it."""
    # the attack that sets the severity: of those as severe, the one that takes most for sure, or at all
    bounds = [(c, bound_lost(c.evidence)) for c in cells]
    worst, lost = max(bounds, key=lambda x: (x[1].rate(tolerable).rank, x[1].of_all[0], _drop(x[0])))
    severity = lost.rate(tolerable)
    who, rule = matrix.adversaries[worst.adversary], f"{worst.setting}, rule {worst.rule}"
    if severity is Severity.NONE:
        title = f"{rule}: no attack tried here was seen to change the model"
        quoted = ""
    else:
        does = "makes that round's model wrong" if matrix.replayed else who.does
        title = f"{rule}: {who.title} by {_count_malicious(matrix, worst)} {does}"
        taken = [e for e in place_evidence(worst) if e.measure in OF_ALL + OF_CLASS]
        quoted = " ".join(f"{describe_evidence(e)}." for e in taken)
    tried = f"{_describe_strongest(matrix, cells)}{say_replayed(matrix)}"
    planted = [place_evidence(c)[:1] for c in matrix.planted if c.setting == worst.setting]
    return Finding(
        id=f"robustness-{worst.setting}-{worst.rule}",
        title=title,
        source="robustness",
        method=who.title,
        reference=who.source,
        severity=severity,
        reason=lost.explain(tolerable),
        summary=f"{quoted} {tried} In catalogues of attacks: {in_words(who.taxonomy)}.".strip(),
        threat=who.threat,
        taxonomy=who.taxonomy,
        evidence=[*place_evidence(worst), *(replace(e, control="positive") for first in planted for e in first)],
        does_not_show=ALONE if matrix.replayed else LIMIT,
        remedy=f"{fmt.sentence_case(who.remedy)}.",
    )


def _count_malicious(matrix: Robustness, cell: MatrixCell) -> str:
    """How many, and their share: printed beside what they took, and never graded."""
    share = fmt.percent(cell.malicious / matrix.clients)
    return f"{cell.malicious} of {matrix.clients} clients ({share})"


def _describe_strongest(matrix: Robustness, cells: Sequence[MatrixCell]) -> str:
    """How much the strongest attack took, as a sentence."""
    strongest = max(cells, key=_drop)
    drop = strongest.evidence[0]
    low, high = drop.interval or (drop.value, drop.value)
    moved = f"moved accuracy by more than {100 * drop.value:.1f} points"
    if round(drop.value, 3) <= 0:
        least = f"; the least rise was {-100 * drop.value:.1f} points, a drop below zero"
        moved = f"lowered accuracy{least if round(drop.value, 3) else ''}"
    return (
        f"No attack tried here {moved} (interval {100 * low:.1f} to {100 * high:.1f}, "
        f"{fmt.plural(len(cells), 'attack')}); strongest tried: {strongest.title}, "
        f"by {_count_malicious(matrix, strongest)}."
    )


def describe_cost(cost: DefenceCost, tolerable: float, replayed: str = "") -> Finding:
    """What a rule costs with nobody malicious, rated as what attacks take is.

    `tolerable`: share of the answers; `replayed`: said of a matrix that replays one round.
    """
    lost = bound_lost(cost.evidence)
    severity = lost.rate(tolerable)
    what = "the rule itself costs answers, with nobody malicious"
    if severity is Severity.NONE:
        what = "no cost was seen with nobody malicious"
    points = [f"{fmt.points_less(x.value, x.interval)} than the mean" for x in cost.evidence]
    return Finding(
        id=f"cost-{cost.setting}-{cost.rule}",
        title=f"{cost.setting}, rule {cost.rule}: {what}",
        source="robustness",
        method="Cost of defence",
        severity=severity,
        reason=lost.explain(tolerable),
        summary=f"{cost.rule} has {100 * cost.accuracy:.1f} % accuracy with nobody malicious, "
        f"{points[0]}; its worst class has {100 * cost.worst_class:.1f} %, {points[1]}.{replayed}",
        evidence=list(cost.evidence),
        does_not_show="What the rule costs with more rounds, or on other data.",
        remedy="Weigh it against what the rule saves under attack.",
    )


def describe_certificate(c: Certificate, number: int) -> Finding:
    """A score under attack beside the ceiling that the ledger's noise sets to every attack."""
    low, high = c.interval or (c.measured, c.measured)
    is_broken = (c.above or 0) > 0
    what = "are more than the stated noise allows" if is_broken else "are within what the stated noise allows"
    return Finding(
        id=f"certificate-{number}-{c.setting}-{c.rule}",
        title=f"{c.setting}, rule {c.rule}: {c.score} under {c.title} {what}",
        source="robustness",
        method="Certificate of the noise",
        reference="Dong, Roth, Su, JRSS-B 2022 (trade-off functions)",
        severity=Severity.CRITICAL if is_broken else Severity.NONE,
        reason="Every bound that rests on this clip, or this noise, is open." if is_broken else "",
        summary=f"By the noise that the ledger lists, {fmt.plural(c.malicious, 'malicious client')} can "
        f"bring {c.score} from {fmt.percent(c.clean)} to at most {fmt.percent(c.ceiling)}, whatever they do; "
        f"measured were {fmt.percent(c.measured)} (interval {100 * low:.1f} % to {100 * high:.1f} %, "
        f"{fmt.plural(c.seeds, 'seed')}).",
        does_not_show="What one training can come to: the ceiling is about the mean over trainings.",
        remedy=BROKEN if is_broken else "",
    )


def _describe_counts(matrix: Robustness, c: MatrixCell) -> Finding:
    """A false claim of how many examples a client holds, which changed what the model answers."""
    who = matrix.adversaries[c.adversary]
    changed = next(e for e in place_evidence(c) if e.measure == COUNTS)
    return Finding(
        id=f"counts-{c.setting}-{c.rule}",
        title=f"{c.setting}, rule {c.rule}: the server believes what clients claim to hold",
        source="robustness",
        method=who.title,
        reference=who.source,
        severity=Severity.HIGH,
        reason="The server caps no claim; how far a false one goes depends on the claim alone.",
        summary=f"{describe_evidence(changed)}.",
        threat=who.threat,
        taxonomy=who.taxonomy,
        evidence=[changed],
        does_not_show=LIMIT,
        remedy=f"{fmt.sentence_case(who.remedy)}.",
    )


def _describe_displacement(matrix: Robustness, replayed: ReplayedRound) -> Finding:
    """A replayed round of which no model could be measured: how far its aggregate moved, which nobody rates."""
    tried = [d for d in matrix.displaced if d.adversary not in CONTROLS]
    rules = dict.fromkeys(d.rule for d in tried)
    worst = [max((d for d in tried if d.rule == rule), key=lambda d: d.spreads) for rule in rules]
    farthest = "; ".join(
        f"{d.rule} by {d.spreads:.2g} ({d.title}, {fmt.plural(d.malicious, 'client')})" for d in worst
    )
    moved = f"Farthest that the aggregate moved, in spreads of the recorded uploads: {farthest}"
    if not farthest:
        moved = "How far forged uploads move the aggregate was not measured"
    return Finding(
        id=f"robustness-round-{replayed.round}-alone",
        title=f"Round {replayed.round} alone: whether forged uploads make the model wrong is open",
        source="robustness",
        method="Replay of one recorded round",
        reason=f"What forged uploads do to the model was not measured: {replayed.why}.",
        summary=f"{moved}.{say_replayed(matrix)}",
        does_not_show=ALONE,
        remedy="State the network (subject.model), and give labelled examples of your own (own.npz in --truth).",
    )


def _describe_missing(cells: NotRun, number: int) -> Finding:
    """Cells that came to no end."""
    first = cells.cells[0]
    more = f" and {len(cells.cells) - 1} more" if len(cells.cells) > 1 else ""
    return Finding(
        id=f"matrix-not-run-{number}",
        title=f"Cells of the matrix were not run: {first}{more}",
        source="robustness",
        method=f"Matrix: {first}{more}",
        outcome=Outcome.FAILED if cells.failed else Outcome.NOT_APPLICABLE,
        reason=cells.reason,
        summary=cells.reason,
    )


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
