"""Simulated attacks on clean and leaking federations, to see how often limits of people are wrong."""

import math
from functools import cache

import numpy as np

from fedaudit.attacks.people import Share
from fedaudit.audit.verdict.people import bound_above, bound_below


def draw_world(
    rng: np.random.Generator,
    *,
    clients: int,
    people: int,
    exposed: float,
    alike: float,
    held_out: int = 300,
    rate: float = 0.01,
) -> tuple[int, int, Share]:
    """Hits of one attack, how many of these are hit because their data were in, and the luck of held-out people.

    `exposed` is the share of people who are always hit. Others are hit above the threshold of a client, set by
    held-out people who are scored at all clients; `alike` is how much one person's scores have in common.
    """
    of = np.arange(people) % clients
    scores = math.sqrt(alike) * rng.normal(size=(held_out, 1))
    scores = scores + math.sqrt(1 - alike) * rng.normal(size=(held_out, clients))
    thresholds = np.sort(scores, axis=0)[-max(1, math.ceil(rate * held_out))]
    lucky = scores >= thresholds
    is_exposed = np.zeros(people, bool)
    is_exposed[rng.permutation(people)[: round(exposed * people)]] = True
    by_luck = rng.normal(size=people) > thresholds[of]
    luck = Share.join_people([Share(hits=int(n), trials=clients) for n in lucky.sum(axis=1)])
    return int((is_exposed | by_luck).sum()), int((is_exposed & ~by_luck).sum()), luck


@cache
def _limit(hits: int, people: int, luck: tuple[float, float], alpha: float) -> tuple[int, int]:
    share = Share(hits=luck[0], trials=luck[1])
    return bound_below(hits, people, share, alpha), bound_above(hits, people, people, share)


def draw_clean_audit(rng: np.random.Generator, *, held_out: int, cells: int, attacks: int) -> tuple[bool, bool]:
    """Whether every cell is clear of an audit in which nobody is exposed, and whether a lower limit is false."""
    clear, false = True, False
    for cell in range(cells):
        tolerable, rate = (30, 0.01) if cell % 3 else (6, 0.002)
        for _ in range(attacks):
            hits, _, luck = draw_world(
                rng, clients=10, people=600, exposed=0.0, alike=0.3, held_out=held_out, rate=rate
            )
            rounded = (float(round(luck.hits, 1)), float(round(luck.trials, -1)))
            low, high = _limit(hits, 600, rounded, 0.04 / (2 * cells * attacks))
            clear &= max(low, high) <= tolerable
            false |= low > 0
    return clear, false
