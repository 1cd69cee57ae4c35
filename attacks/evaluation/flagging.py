"""From scores of membership to people: who is flagged, at a threshold that held-out people set.

A person's scores in all messages that it may be in are brought to one scale, by the quantiles that held-out
people have in the same messages, and the largest is the one answer about that person: who is exposed in one round
is exposed. Held-out people are scored in the same way, in the place of each client, and set its threshold
(attacks/stats.choose_threshold_rank).
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from fedaudit.attacks.attack import Truth
from fedaudit.attacks.evaluation.counting import CountedPeople
from fedaudit.attacks.people import PeopleCount
from fedaudit.attacks.stats import FALSE_ALARMS, choose_threshold_rank
from fedaudit.fl.kinds import Kind

Values = NDArray[np.floating[Any]]
FEWEST = 10  # held-out people, from whom a scale can be taken
TAIL = (20, 5)  # highest of them, by whom the scale goes on beyond all of them
LEAST_TAIL = 0.01  # of the scale of all above the median
FLAGGED = f"flagged as a member: scored above {1 - FALSE_ALARMS:.0%} of people whom nobody trained on"


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoredPeople:
    """Scores in one message: of people of one client, and of held-out people."""

    client: int
    rows: Sequence[int]  # the people, as rows of the training data
    scores: Values  # [rows], higher for members
    held_out: Sequence[Hashable]  # each names one held-out person
    held_out_scores: Values  # [held_out]

    def scale(self) -> tuple[Values, Values]:
        """Both as if held-out people were normally distributed: their quantiles become those of such.

        Messages with unlike tails compare so: losses end at 0, and in units of quartiles a model that knows its
        members would never speak as loudly as one that knows nobody. Beyond the highest few, in proportion to
        the distance between these and some more.
        """
        number = len(self.held_out_scores)
        above = [number / 2, number / 4, *(few for few in TAIL if few < number / 4)]
        levels = -scipy.special.ndtri(np.array(above) / number)
        knots = np.quantile(self.held_out_scores, 1 - np.array(above) / number)
        whole = (knots[-1] - knots[0]) / levels[-1] or 1.0
        tail = max((knots[-1] - knots[-2]) / (levels[-1] - levels[-2]), LEAST_TAIL * whole)

        def scale(x: Values) -> Values:
            inside = np.interp(x, knots, levels)
            inside = np.where(x < knots[0], (x - knots[0]) / whole, inside)
            return np.asarray(np.where(x > knots[-1], levels[-1] + (x - knots[-1]) / tail, inside))

        return scale(np.asarray(self.scores)), scale(self.held_out_scores)


def count_flagged(
    recorded: Iterable[ScoredPeople],
    planted: Iterable[ScoredPeople],
    senders: Iterable[int],
    truth: Truth,
    kind: Kind | None = None,
) -> list[PeopleCount]:
    """Whom an attack flags; empty where nobody could be tested.

    Parameters
    ----------
    recorded : a client may have several, of which a person's largest score counts.
    planted : single people, or people whom a planted model memorised. Each message is
        judged among its own held-out people, for it may be unlike those that clients send; at the rate of false
        alarms that makes up the same one over as many messages as a person is in, or above all of those people
        where they are too few to show such a rate.
    senders : all clients behind what the attack reads, whether it read them or not.
    truth : how many people each of them holds.
    kind : of the messages, where the attack reads several.
    """
    readable = [s for s in recorded if len(s.held_out) >= FEWEST]
    found = CountedPeople(FLAGGED, kind)
    for client, (people, others) in sorted(_find_largest(readable).items()):
        scores = np.array([*others.values()])
        threshold = np.sort(scores)[-choose_threshold_rank(len(scores))]
        # strictly above, and of held-out people those at it as well: ties make no hit, and more luck
        found.test(client, list(people), [row for row, score in people.items() if score > threshold])
        for name, score in others.items():
            found.luck(float(score >= threshold), 1, person=name)
    most = max(Counter((s.client, int(row)) for s in readable for row in s.rows).values(), default=1)
    for scored in planted:
        if len(scored.held_out) >= FEWEST:
            own = np.quantile(scored.held_out_scores, (1 - FALSE_ALARMS) ** (1 / most))
            found.plant(scored.client, float((scored.scores > own).sum()), len(scored.scores))
    for client in {*senders, *(s.client for s in readable)}:
        if client >= 0:
            found.hold_at_least(client, len(truth.client_images(client)))
    return found.people()


def _find_largest(recorded: Iterable[ScoredPeople]) -> dict[int, tuple[dict[int, float], dict[Hashable, float]]]:
    """By client: of each of its people, and of each held-out person in its place, the largest scaled score."""
    largest: dict[int, tuple[dict[int, float], dict[Hashable, float]]] = {}
    for scored in recorded:
        people, others = largest.setdefault(scored.client, ({}, {}))
        own, held_out = scored.scale()
        for row, score in zip(map(int, scored.rows), own.tolist(), strict=True):
            people[row] = max(score, people.get(row, score))
        for name, score in zip(scored.held_out, held_out.tolist(), strict=True):
            others[name] = max(score, others.get(name, score))
    return largest
