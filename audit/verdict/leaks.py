"""One leak is one finding: attacks that show the same leak stand below the one that shows it most."""

from collections.abc import Hashable, Sequence

from fedaudit.fl.threats.threat import Harm
from fedaudit.reports.result import Finding, worst_first

# one leak: single people stand in what is read; an attribute, or who sent a message, is another
ONE_LEAK = frozenset({Harm.RECORD, Harm.RECONSTRUCTION, Harm.MEMBERSHIP, Harm.DIFFUSE})


def join_leaks(findings: Sequence[Finding]) -> None:
    """Name in every demonstrated finding of an attack those that show the same leak.

    It is the same where one party reads the same kinds of messages and both attacks hit single people. The
    severest leads; exports, counts and waivers know it alone.
    """
    leaks: dict[Hashable, list[Finding]] = {}
    for f in findings:
        if f.is_demonstrated and f.source == "attack" and f.harm in ONE_LEAK and f.threat is not None:
            leaks.setdefault((f.threat.position, f.threat.conduct, frozenset(f.artifacts)), []).append(f)
    for same in leaks.values():
        leading, *others = worst_first(same)
        leading.shown_by = [f.id for f in others]
        for finding in others:
            finding.part_of = leading.id
