"""From scores of membership to people: who is flagged, at a threshold that held-out people set.

A person's scores in all messages that it may be in are brought to one scale, by the quantiles that held-out
people have in the same messages, and the largest is the one answer about that person: who is exposed in one round
is exposed. Held-out people are scored in the same way, in the place of each client, and set its threshold
(attacks/stats.choose_threshold_rank).
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
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
FLAGGED = "flagged as a member: scored above {:.0%} of people whom nobody trained on"


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoredPeople:
    """Scores in one message: of people of one client, and of held-out people."""

    client: int
    rows: Sequence[int]  # the people, as rows of the training data
    scores: Values  # [rows], higher for members
    held_out: Sequence[Hashable]  # each names one held-out person: beside people of a client, by fingerprint
    held_out_scores: Values  # [held_out]

    def leave_out_unscored(self) -> "ScoredPeople":
        """Without held-out people whose score is no number: they set no threshold."""
        scored = ~np.isnan(self.held_out_scores)
        held_out = [name for name, is_scored in zip(self.held_out, scored, strict=True) if is_scored]
        return replace(self, held_out=held_out, held_out_scores=self.held_out_scores[scored])

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
    """Whom an attack flags, at each rate of false alarms; empty where nobody could be tested.

    Parameters
    ----------
    recorded : a client may have several, of which a person's largest score counts. Whose scores are all NaN was
        not tested, and is no held-out person either.
    planted : single people, or people whom a planted model memorised. Each message is
        judged among its own held-out people, for it may be unlike those that clients send; at the rate of false
        alarms that makes up the same one over as many messages as a person is in, or above all of those people
        where they are too few to show such a rate.
    senders : all clients behind what the attack reads, whether it read them or not.
    truth : how many people each of them holds.
    kind : of the messages, where the attack reads several.
    """
    readable, planted = _keep_readable(recorded), _keep_readable(planted)
    largest = sorted(_find_largest(readable).items())
    most = max(Counter((s.client, int(row)) for s in readable for row in s.rows).values(), default=1)
    holding = {k for k in {*senders, *(s.client for s in readable)} if k >= 0}
    every = list[PeopleCount]()
    for harm, false_alarms in FALSE_ALARMS.items():
        found = CountedPeople(FLAGGED.format(1 - false_alarms), harm, kind)
        for client, (people, others) in largest:
            scores = np.array([*others.values()])
            threshold = np.sort(scores)[-choose_threshold_rank(len(scores), false_alarms)]
            # strictly above, and of held-out people those at it as well: ties make no hit, and more luck
            found.test(client, list(people), [row for row, score in people.items() if score > threshold])
            for name, score in others.items():
                found.luck(float(score >= threshold), 1, person=name, clients=[client])
        for scored in planted:
            own = np.quantile(scored.held_out_scores, (1 - false_alarms) ** (1 / most))
            found.plant(scored.client, float((scored.scores > own).sum()), len(scored.scores))
        for client in holding:
            found.hold_at_least(client, len(truth.client_examples(client)))
        every += found.people(truth)
    return every


def combine_scores(columns: Iterable[ScoredPeople]) -> tuple[Values, Values]:
    """Of people of one message [m] and of held-out ones [o], the largest of their scores by what is read."""
    for people, others in _find_largest(_keep_readable(columns)).values():
        return np.array([*people.values()]), np.array([*others.values()])
    return np.zeros(0), np.zeros(0)


def _keep_readable(scored: Iterable[ScoredPeople]) -> list[ScoredPeople]:
    """Those whose held-out people are enough to take a scale from."""
    return [s for s in map(ScoredPeople.leave_out_unscored, scored) if len(s.held_out) >= FEWEST]


def _find_largest(recorded: Iterable[ScoredPeople]) -> dict[int, tuple[dict[int, float], dict[Hashable, float]]]:
    """By client: of each of its people, and of each held-out person in its place, the largest scaled score."""
    largest: dict[int, tuple[dict[int, float], dict[Hashable, float]]] = {}
    for scored in recorded:
        own, held_out = scored.scale()
        if np.isnan(held_out).any():  # infinite scores of some leave no scale
            continue
        people, others = largest.setdefault(scored.client, ({}, {}))
        for row, score in zip(map(int, scored.rows), own.tolist(), strict=True):
            if not math.isnan(score):
                people[row] = max(score, people.get(row, score))
        for name, score in zip(scored.held_out, held_out.tolist(), strict=True):
            others[name] = max(score, others.get(name, score))
    return largest
