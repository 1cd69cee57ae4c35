"""One order of sets of protections: by what their audits answer, then people, then accuracy, then cost.

Accuracies differ where one lies below the interval of the other. Within it they are alike, and the cheaper set
comes first.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from fedaudit.reports.decision import Word

T = TypeVar("T")
BEST_FIRST = (Word.READY, Word.WITH_CONDITIONS, Word.CANNOT_TELL, Word.NOT_READY)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What the audit of a set of protections came to, as far as it is known."""

    name: str
    word: Word | None  # the decision; None: none was made
    left: int = 0  # answers that forbid a deployment
    people: float  # who can be hit; infinity where nothing limits it
    accuracy: float | None  # of the last model
    interval: tuple[float, float] | None  # around it
    cost: float  # in the unit of all that are compared


def place_word(word: Word | None) -> int:
    """The better the smaller."""
    return BEST_FIRST.index(word) if word else len(BEST_FIRST)


def rank(sets: Iterable[T], stand: Callable[[T], Standing]) -> list[T]:
    """The same, best first; of those that are alike in everything, by name."""
    left = sorted(((stand(one), one) for one in sets), key=lambda e: (*_outcome(e[0]), -_read(e[0]), e[0].name))
    ranked = list[T]()
    while left:
        best = left[0][0]
        least = best.interval[0] if best.interval else _read(best)
        alike = [e for e in left if _outcome(e[0]) == _outcome(best) and _read(e[0]) >= least]
        ranked += [one for _, one in sorted(alike, key=lambda e: (e[0].cost, -_read(e[0]), e[0].name))]
        left = left[len(alike) :]
    return ranked


def _outcome(standing: Standing) -> tuple[float, ...]:
    return place_word(standing.word), standing.left, standing.people


def _read(standing: Standing) -> float:
    """Its accuracy; one that nobody measured is no gain."""
    return standing.accuracy or 0.0
