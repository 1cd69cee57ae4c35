"""The head count: how many people the strongest demonstrated attack hit, beyond luck."""

from collections.abc import Iterable, Sequence

from fedaudit.attacks.people import PeopleCount
from fedaudit.audit.verdict.attempts import find_shown
from fedaudit.audit.verdict.findings import Attacked
from fedaudit.audit.verdict.people import ALPHA, PeopleBound, bound_people
from fedaudit.reports.questions import HeadCount
from fedaudit.reports.result import Finding, Severity


def count_exposed_people(findings: Iterable[tuple[Attacked, Finding]]) -> HeadCount | None:
    """The head count of the demonstrated findings that are medium or worse.

    None where none of their attacks says which people it hits.
    """
    counts = [
        people
        for attacked, finding in findings
        if finding.outcome == "demonstrated" and finding.severity.rank >= Severity.MEDIUM.rank
        for people in _list_shown(attacked, finding)
    ]
    return count_heads(counts)


def _list_shown(attacked: Attacked, finding: Finding) -> list[PeopleCount]:
    """Whom an attack hit by the kinds of messages on which it was seen to work."""
    shown = find_shown(finding, {p.kind for p in attacked.people if p.kind is not None})
    return [p for p in attacked.people if p.kind is None or p.kind in shown]


def count_heads(counts: Sequence[PeopleCount]) -> HeadCount | None:
    """People whom the attack with the largest lower limit hit, less lucky hits, between its limits.

    Other attacks hit other people besides, so that this is no upper limit of what all of them can do. None where
    no attack tested anybody.
    """
    tested = [people for people in counts if any(people.tested.values())]
    if not tested:
        return None
    alpha = ALPHA / len(tested)  # the largest of so many
    people, bound = max(
        ((p, bound_people(p, alpha=alpha)) for p in tested), key=lambda pair: (pair[1].at_least, pair[1].hits)
    )
    highest = bound.people if bound.at_most is None else bound.at_most
    net = min(max(_count_net(people, bound), bound.at_least), highest)
    return HeadCount(expected=net, interval=(bound.at_least, highest), people=bound.people)


def _count_net(people: PeopleCount, bound: PeopleBound) -> float:
    """Hits less those by luck, of everybody if those who were not tested are like the others."""
    rate = people.luck.hits / people.luck.trials if people.luck.trials else 1.0
    return bound.people / bound.tested * (bound.hits - bound.tested * rate)
