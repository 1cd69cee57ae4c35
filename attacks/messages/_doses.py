"""Doses: how often must a person stand among a client's people until the played message sees that person?

An attack that hits nobody shows nothing unless it would have hit somebody. Clients are played again by their own
code and the run's protections, with as many people as stand behind their message: the adversary's own and a few
held-out ones who stand several times each. Nobody is memorised, and nothing is trained otherwise than the run
trains. At the gate (`choose_dose`) a person weighs as much as one in ten people; where fewer than half of such
people are seen the attack is blind.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples
from fedaudit.attacks.evaluation.flagging import ScoredPeople, combine_scores
from fedaudit.attacks.people import Share
from fedaudit.attacks.stats import FALSE_ALARMS, choose_threshold_rank
from fedaudit.fl.threats.threat import Harm

Values = NDArray[np.floating[Any]]
LEAST, SHARE = 8, 10  # times that a person stands at the gate: so often, or among ten people once
PEOPLE, LEAST_EACH = 60, 6  # in a dose: of all clients, and of one
CLIENTS = PEOPLE // LEAST_EACH  # whose code is played, at most
OTHERS = 150  # held-out people who set the threshold in a played message, at most


class Dosed(NamedTuple):
    """People who stood several times in one played message, a column a way of reading."""

    client: int
    columns: Sequence[ScoredPeople]


class Doses(NamedTuple):
    """What was played at the gate; and the smallest dose in which half of all people are seen, 0: in none."""

    gate: Sequence[Dosed]
    times: int  # that a person stands at the gate, at the client where that is most
    half: int


def choose_dose(examples: int) -> int:
    """Times that a person stands among so many, so that the attack counts as blind who is not seen then."""
    return max(LEAST, -(-examples // SHARE))


def find_doses(clients: Mapping[int, int], play: Callable[[int, int, int], Iterator[Dosed]]) -> Doses:
    """Play the dose of the gate and, as long as half of the people are seen, each half as large.

    clients : client -> examples behind its message. play(client, times, people) plays at least so many people.
    """
    chosen = np.unique(np.linspace(0, len(clients) - 1, min(len(clients), CLIENTS)).round().astype(int))
    own = [sorted(clients.items())[i] for i in chosen.tolist()] if clients else []
    each = -(-PEOPLE // max(1, len(own)))
    gate, half, times = list[Dosed](), 0, max((choose_dose(n) for _, n in own), default=0)
    for halved in range(times.bit_length()):
        found = [d for k, n in own for d in play(k, max(1, choose_dose(n) >> halved), each)]
        gate = gate or found
        seen = sum(count_seen(found, FALSE_ALARMS[Harm.MEMBERSHIP]).values(), Share())
        if not seen.trials or 2 * seen.hits < seen.trials:
            break
        half = max(1, times >> halved)
    return Doses(gate, times, half)


def count_seen(doses: Sequence[Dosed], false_alarms: float) -> dict[int, Share]:
    """Client -> of how many people so many are above the threshold that held-out people set in that message."""
    seen = dict[int, Share]()
    for dosed in doses:
        scores, others = combine_scores(dosed.columns)
        if others.size:
            threshold = np.sort(others)[-choose_threshold_rank(len(others), false_alarms)]
            hits = int((scores > threshold).sum())
            seen[dosed.client] = seen.get(dosed.client, Share()) + Share(hits=hits, trials=len(scores))
    return seen


def mix(people: Examples, times: int, others: Examples, examples: int, rng: np.random.Generator) -> Examples:
    """So many examples in any order: each of these people so many times, and others once while there are any."""
    rest = others.only(rng.permutation(len(others))[: max(0, examples - times * len(people))])
    both = Examples.join([people.only(np.repeat(np.arange(len(people)), times)), rest])
    return both.only(rng.permutation(len(both)))
