"""Lints of a matrix: what published evaluations of defences leave out, and the entry that would add it.

R1 to R8 after arXiv:2502.05211 (pitfalls of 50 papers) and FLTest. A lint is a function of the record and the
config; its docstring is the fault in words.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedaudit.attacks.poisoning.alie import deviations
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.matrix import Matrix
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.aggregation.aggregator import Aggregator
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.result import Finding, Severity
from fedaudit.reports.robustness import Robustness

NAIVE = ("label_flip", "sign_flip", "gaussian")
SMALL_Z = 0.2
TOO_EASY = "Attacks or data are such that almost any rule looks good."
INCOMPLETE = "What is stated holds for what was run; a reader will take it for more."
INTRINSIC = 0.01  # a drop under the mean below this shows nothing about rules


@dataclass(frozen=True)
class MatrixFlaw:
    what: str
    add: str  # of the config, as YAML; empty: nothing that a config could add
    severity: Severity
    reason: str  # why it is that bad, a sentence


@dataclass(frozen=True)
class MatrixRecord:
    """What the lints read."""

    wanted: Matrix
    partition: str  # of the federation; empty where it is not known
    protections: Sequence[str]
    matrix: Robustness


def r1_naive(record: MatrixRecord) -> MatrixFlaw | None:
    """Only naive attacks were tried"""
    specs = record.wanted.adversaries
    weak = [s for s in specs if s.name == "alie" and _compute_deviations(record, s.settings) <= SMALL_Z]
    if any(s.name not in NAIVE and s not in weak for s in specs):
        return None
    names = ", ".join(s.label for s in specs)
    return MatrixFlaw(
        f"All of the attacks ({names}) ignore what the server does.",
        "matrix: {adversaries: [min_max]}",
        Severity.MEDIUM,
        TOO_EASY,
    )


def r2_iid(record: MatrixRecord) -> MatrixFlaw | None:
    """Every client holds the same mix of classes"""
    parts = [p.name for p in record.wanted.partitions] or [record.partition]
    if set(parts) != {"iid"}:
        return None
    return MatrixFlaw(
        "All runs are IID, where honest updates are alike and forged ones stand out.",
        "matrix: {partitions: [iid, {name: dirichlet, alpha: 0.3}]}",
        Severity.MEDIUM,
        TOO_EASY,
    )


def r3_one_seed(record: MatrixRecord) -> MatrixFlaw | None:
    """One seed"""
    seeds = record.matrix.seeds
    if len(seeds) >= 3:
        return None
    some = ", ".join(map(str, seeds))
    more = ", ".join(str(seeds[0] + i) for i in range(3))
    return MatrixFlaw(
        f"The matrix was run with {len(seeds)} of at least three seeds ({some}); a difference of some points may "
        "have the other sign with another.",
        f"matrix: {{seeds: [{more}]}}",
        Severity.LOW,
        INCOMPLETE,
    )


def r4_no_adaptive(record: MatrixRecord) -> MatrixFlaw | None:
    """No attack knows the rule"""
    for spec in record.wanted.adversaries:
        if "aggregator" in catalog.load("adversaries", spec.name).card.threat.knows:
            return None
    return MatrixFlaw(
        "No attacker adapts to the rule in use.", "matrix: {adversaries: [adaptive]}", Severity.MEDIUM, TOO_EASY
    )


def r5_true_f(record: MatrixRecord) -> MatrixFlaw | None:
    """Rules are told the true number of malicious clients and no other"""
    assuming = sorted({c.rule for c in record.matrix.cells if "(f = m)" in c.family})
    if not assuming or any("f" in spec.settings for spec in record.wanted.aggregators):
        return None
    return MatrixFlaw(
        f"{', '.join(assuming)} knew how many clients were malicious, which no server does.",
        "matrix: {aggregators: [krum, {name: krum, id: krum-f0, f: 0}]}",
        Severity.LOW,
        INCOMPLETE,
    )


def r6_global_only(record: MatrixRecord) -> MatrixFlaw | None:
    """Only accuracy over all classes was measured"""
    if any(c.find("worst_class_drop") for c in record.matrix.cells):
        return None
    return MatrixFlaw("No cell has the accuracy of the worst class.", "", Severity.LOW, INCOMPLETE)


def r7_intrinsic(record: MatrixRecord) -> MatrixFlaw | None:
    """The attacks take nothing from the mean either"""
    most = max((c.malicious for c in record.matrix.cells), default=0)
    drops = [c.evidence[0].value for c in record.matrix.cells if c.rule == "mean" and c.malicious == most]
    if not drops or max(drops) >= INTRINSIC:
        return None
    return MatrixFlaw(
        f"With {most} malicious clients no attack takes {100 * INTRINSIC:.0f} point from the plain mean, so that "
        "this data set says nothing about rules.",
        "matrix: {adversaries: [{name: ipm, tau: null}], partitions: [{name: dirichlet, alpha: 0.3}]}",
        Severity.MEDIUM,
        TOO_EASY,
    )


def r8_single_uploads(record: MatrixRecord) -> MatrixFlaw | None:
    """A rule reads single uploads, which secure aggregation hides"""
    secure = [name for name in record.protections if _hides_uploads(name)]
    rules = [s for s in record.wanted.aggregators if _reads_uploads(s.name)]
    if not secure or not rules:
        return None
    return MatrixFlaw(
        f"{', '.join(r.label for r in rules)} need each client's upload, and {secure[0]} shows the server sums.",
        "matrix: {aggregators: []}",
        Severity.HIGH,
        "The rule that was measured cannot run where the server sees sums alone.",
    )


LINTS: Mapping[str, Callable[[MatrixRecord], MatrixFlaw | None]] = {
    "R1": r1_naive,
    "R2": r2_iid,
    "R3": r3_one_seed,
    "R4": r4_no_adaptive,
    "R5": r5_true_f,
    "R6": r6_global_only,
    "R7": r7_intrinsic,
    "R8": r8_single_uploads,
}
OF_REPLAYS = ("R1", "R4", "R6")  # those that one recorded round could heed


def find_pitfalls(
    wanted: Matrix | None, partition: str, protections: Sequence[PluginSpec], made: Robustness
) -> list[Finding]:
    """Every lint that found its flaw, in the order of the numbers; without a `partition` nobody ran anything."""
    if wanted is None or not (partition or made.cells):
        return []
    record = MatrixRecord(wanted, partition, [p.name for p in protections], made)
    asked = LINTS if made.replayed is None else {name: LINTS[name] for name in OF_REPLAYS}
    return [_describe_flaw(name, flaw) for name, lint in asked.items() if (flaw := lint(record)) is not None]


def _describe_flaw(name: str, flaw: MatrixFlaw) -> Finding:
    add = f" Add to the config: `{flaw.add}`" if flaw.add else ""
    return Finding(
        id=f"lint-{name}",
        title=f"The test of the defences leaves something out: {(LINTS[name].__doc__ or '').strip()}",
        source="lint",
        method=f"Lint of the matrix {name}",
        reference="arXiv:2502.05211",
        severity=flaw.severity,
        reason=flaw.reason,
        summary=flaw.what,
        does_not_show="That more runs would find more; without them nobody knows.",
        remedy=f"Run what is missing.{add}",
    )


def _compute_deviations(record: MatrixRecord, settings: Mapping[str, Any]) -> float:
    """z of alie, by its own formula where none is given."""
    z = settings.get("z")
    return deviations(record.matrix.clients, max(record.wanted.malicious)) if z is None else abs(float(z))


def _reads_uploads(rule: str) -> bool:
    found: type[Aggregator] = catalog.load("aggregators", rule)
    return found.reads_single_uploads


def _hides_uploads(protection: str) -> bool:
    try:
        return bool(catalog.load("protections", protection)().hides_single_uploads())
    except (UserError, TypeError):  # it has settings without a default
        return False
