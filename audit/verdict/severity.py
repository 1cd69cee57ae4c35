"""How bad it is that some people are hit, or that some answers of a model are lost: by the lower limit alone."""

from collections.abc import Iterable
from typing import Protocol

from fedaudit.audit.verdict.people import count_allowed_in_group
from fedaudit.reports.result import Severity

MEDIUM = 3  # times the tolerable share, up to which it is of medium severity
HIGH = 0.5  # of all, up to which it is high
SLACK = 1e-9  # of a number, so that a limit that is met exactly is not exceeded by rounding


def rate(at_least: float, total: float, tolerable: float, *, is_mild: bool = False) -> Severity:
    """Severity where at least so many of all are hit, and a share of all is tolerable.

    Where nobody is tolerable, somebody is critical. What is mild is of medium severity at most.
    """
    if at_least <= 0:
        return Severity.NONE
    if at_least <= tolerable * total + SLACK:
        return Severity.LOW
    if is_mild or (tolerable > 0 and at_least <= MEDIUM * tolerable * total + SLACK):
        return Severity.MEDIUM
    if tolerable > 0 and at_least <= HIGH * total + SLACK:
        return Severity.HIGH
    return Severity.CRITICAL


class Group(Protocol):
    """A group of people, of whom so many are hit at least."""

    @property
    def people(self) -> int: ...

    @property
    def at_least(self) -> int: ...


def rate_people(
    at_least: int, people: int, groups: Iterable[Group], tolerable: float, *, is_mild: bool = False
) -> Severity:
    """Severity of what is done to everybody, or to the group of which more than is tolerable of one are hit."""
    rated = [rate(at_least, people, tolerable, is_mild=is_mild)]
    for g in groups:
        if g.at_least > (allowed := count_allowed_in_group(g.people, tolerable)):
            rated.append(rate(g.at_least, g.people, allowed / g.people, is_mild=is_mild))
    return max(rated, key=lambda s: s.rank)
