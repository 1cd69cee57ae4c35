"""The head count: how many people the demonstrated findings expose, once each and beyond luck."""

from collections.abc import Iterable, Iterator, Sequence

from fedaudit.attacks.people import PeopleCount
from fedaudit.audit.verdict.attempts import find_shown
from fedaudit.audit.verdict.findings import Attacked
from fedaudit.audit.verdict.people import bound_people, bound_people_below
from fedaudit.reports.questions import HeadCount
from fedaudit.reports.result import Finding, Severity

SIDE = 0.025  # chance of being wrong at either end


def count_exposed_people(findings: Iterable[tuple[Attacked, Finding]]) -> HeadCount | None:
    """The head count of the demonstrated leaks that are medium or worse, each by its primary attack.

    That is the strongest of those that say which people they hit; None where none does.
    """
    by_id = {finding.id: (_list_shown(attacked, finding), finding) for attacked, finding in findings}
    primary: list[PeopleCount] = []
    for _, leading in by_id.values():
        if leading.is_demonstrated and leading.severity.rank >= Severity.MEDIUM.rank:
            of_leak = (by_id[i][0] for i in (leading.id, *leading.shown_by) if i in by_id)
            primary += next((people for people in of_leak if people), [])
    return count_heads(primary)


def _list_shown(attacked: Attacked, finding: Finding) -> list[PeopleCount]:
    """Whom an attack hit by the kinds of messages on which it was seen to work."""
    shown = find_shown(finding, {p.kind for p in attacked.people if p.kind is not None})
    return [p for p in attacked.people if p.kind is None or p.kind in shown]


def count_heads(attacks: Sequence[PeopleCount]) -> HeadCount | None:
    """How many people are exposed by what the primary attacks of demonstrated findings hit, net of luck.

    A person whom several attacks hit counts once; the luck of a person is the chance that one of the attacks
    that tested them hits by luck. Net = (N / n) sum(x - b) / (1 - mean b), at least 0. The interval is that of a
    sample of n of N people, from both sides.

    Attacks are taken in order of their luck, the least first, and those that hit nobody new are left out: they
    would add luck alone. Of the counts of the first, the first two and so on the largest is given, so that no
    attack takes away what another one shows; the interval is corrected for having chosen. None where no attack
    tested anybody.
    """
    counts = list(_count_ever_more(sorted(filter(lambda p: any(p.tested.values()), attacks), key=_find_luck)))
    if not counts:
        return None
    return max((count_beyond_luck(*c, alpha=SIDE / len(counts)) for c in counts), key=lambda h: h.expected)


def _find_luck(people: PeopleCount) -> float:
    return people.luck.hits / people.luck.trials if people.luck.trials else people.false_alarms


def _count_ever_more(attacks: Iterable[PeopleCount]) -> Iterator[tuple[int, int, int, float]]:
    """Of the first attack, the first two and so on: hits, people tested, people held, and their mean luck."""
    escaped: dict[tuple[int, int], float] = {}  # of each person tested: the chance that luck hits nowhere
    hit = set[tuple[int, int]]()
    held: dict[int, int] = {}
    for people in attacks:
        new = {(client, row) for client, rows in people.hit.items() for row in rows} - hit
        if escaped and not new:
            continue
        for client, rows in people.tested.items():
            for row in rows:
                escaped[client, row] = escaped.get((client, row), 1.0) * (1 - _find_luck(people))
        hit |= new
        for client, count in people.held.items():
            held[client] = max(held.get(client, 0), count)
        total = max(sum(held.values()), len(escaped))
        yield len(hit), len(escaped), total, 1 - sum(escaped.values()) / len(escaped)


def count_beyond_luck(hits: int, tested: int, people: int, luck: float, *, alpha: float = SIDE) -> HeadCount:
    """The head count of `hits` in `tested` of `people`, each of whom luck alone hits with that chance.

    `alpha` is the chance of being wrong at either end.
    """
    net = people / tested * (hits - tested * luck) / (1 - luck) if luck < 1 else 0.0
    return HeadCount(
        expected=min(float(people), max(0.0, net)),
        interval=(
            bound_people_below(hits, tested, people, luck=luck, sensitivity=1.0, alpha=alpha),
            bound_people(hits, tested, people, luck=luck, sensitivity=1.0, alpha=alpha),
        ),
        people=people,
    )
