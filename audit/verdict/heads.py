"""The head count: how many people the worst attack hit, beyond luck."""

from collections.abc import Iterable

from fedaudit.audit.verdict.questions import Shown
from fedaudit.reports.questions import HeadCount


def count_heads(shown: Iterable[Shown]) -> HeadCount | None:
    """People whom the attack with the largest lower limit hit, less lucky hits, between its limits.

    Of harms that a verdict waits for and that are more than mild; other attacks hit other people besides, so that
    this is no upper limit of what all of them can do. None where none of them counted anybody.
    """
    asked = [s for s in shown if s.bound.tested and not s.question.harm.is_mild]
    bounds = [s.bound for s in asked if s.question.required]
    if not bounds:
        return None
    worst = max(bounds, key=lambda b: (b.at_least, b.hits))
    most = worst.people if worst.at_most is None else worst.at_most
    return HeadCount(expected=min(worst.net, most), interval=(worst.at_least, most), people=worst.people)
