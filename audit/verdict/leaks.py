"""One leak is one finding: attacks that show the same leak stand below the one that shows it most."""

from collections.abc import Hashable, Sequence

from fedaudit.audit.verdict.findings import Attacked
from fedaudit.fl.threats.threat import Aim
from fedaudit.reports.result import Finding, Outcome, worst_first

# What these find in a message is one leak: that the message holds single people. An attribute, or who sent a
# message, is another.
ONE_LEAK = frozenset({Aim.EXFILTRATION, Aim.INVERSION, Aim.RECONSTRUCTION, Aim.REGURGITATION, Aim.MEMBERSHIP})


def join_leaks(findings: Sequence[tuple[Attacked, Finding]]) -> None:
    """Name in every demonstrated finding of an attack those that show the same leak.

    It is the same where one party reads the same kinds of messages and both attacks aim at single people. The
    severest leads; exports, counts and waivers know it alone.
    """
    leaks: dict[Hashable, list[Finding]] = {}
    for attacked, finding in findings:
        if finding.outcome is Outcome.DEMONSTRATED and (leak := _identify(attacked, finding)):
            leaks.setdefault(leak, []).append(finding)
    for same in leaks.values():
        leading, *others = worst_first(same)
        leading.shown_by = [f.id for f in others]
        for finding in others:
            finding.part_of = leading.id


def _identify(attacked: Attacked, finding: Finding) -> Hashable:
    """The party and the kinds that an attack reads for their own sake; None where it is no such leak."""
    card = attacked.file["card"]
    kinds = frozenset(finding.artifacts) - {str(k) for k in card.get("aids", ())}
    if card["aim"] not in ONE_LEAK or not kinds or finding.threat is None:
        return None
    return finding.threat.position, finding.threat.conduct, kinds
