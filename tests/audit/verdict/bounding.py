"""Simulated audits of one question, to see how often an upper bound clears a leak and how often a clean run."""

import math
from functools import lru_cache

import numpy as np

from fedaudit.attacks.people import Share
from fedaudit.audit.verdict.people import bound_luck, bound_people, bound_sensitivity

HELD_OUT = 1000  # people scored alike
PLANTED = 200  # in all, and at least 6 through each client's code

_bound = lru_cache(maxsize=None)(bound_people)


def draw_bounds(
    rng: np.random.Generator,
    draws: int,
    *,
    clients: int,
    tested: int,
    exposed: int = 0,
    in_few_clients: bool = False,
    held: int = 72,
    sensitivity: float = 0.9,
    luck: float = 0.01,
    planted: int = PLANTED,
) -> np.ndarray:
    """Upper bounds, as shares of all people, that so many audits state. One in which the plants fail states 1.

    Every client holds `held` people, of whom a sample in proportion is tested; `exposed` are hit with chance
    `sensitivity` beyond luck, and lie anywhere or fill a few clients.
    """
    people = clients * held
    each = min(held, max(1, math.ceil(tested * held / people)))
    plants = max(6, math.ceil(planted / clients))
    bounds = np.empty(draws)
    for draw in range(draws):
        if in_few_clients:
            counts = np.clip(exposed - held * np.arange(clients), 0, held)
        else:
            counts = rng.multivariate_hypergeometric([held] * clients, exposed)
        reached = rng.hypergeometric(counts, held - counts, each)
        seen = rng.binomial(reached, sensitivity).sum()
        hits = int(seen + rng.binomial(clients * each - seen, luck))
        found = rng.binomial(plants, sensitivity, clients)
        lower = bound_sensitivity({c: Share(hits=int(f), trials=plants) for c, f in enumerate(found)})
        lucky = bound_luck(Share(hits=int(rng.binomial(HELD_OUT, luck)), trials=HELD_OUT))
        if not lower:
            bounds[draw] = 1.0
            continue
        bounds[draw] = _bound(hits, clients * each, people, luck=lucky, sensitivity=lower) / people
    return bounds
