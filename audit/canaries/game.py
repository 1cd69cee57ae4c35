"""Canary clients: a federation of the auditor's own clients, whose part in it observers try to guess.

Each canary is in by a fair coin. Where it is, it sends ten times what the clip allows along a
coordinate that is its own; where not, nothing (or the opposite, for replaced neighbours), every round.
All messages go through the run's protections, on the run's wire. Two observers:

* single uploads: reads what each canary sent. Every canary is then an independent game.
* aggregate: reads only the sum of all uploads, in which honest clients move as well. `informed` knows
  the honest updates and subtracts them, which is the adversary that differential privacy is about;
  `agnostic` does not, as another client or the public.

Canaries in coordinates of their own disturb each other only through what leaks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedaudit.audit.canaries.carrier import COUNTS, SPARE, Carrier, Channel, Floats, declared
from fedaudit.audit.canaries.scores import Scored
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Protection

BOLD = 10.0  # how many times the clip a canary sends


@dataclass(frozen=True, kw_only=True)
class Played:
    """What observers read in one run of the game, and what the auditor knows of it."""

    inside: NDArray[np.bool_]  # [m]
    own: Floats  # [T, m] each canary's coordinate in its own upload
    total: Floats  # [T, m] each canary's coordinate in the sum
    honest: Floats  # [T, m] what honest clients put there
    residuals: Floats  # [T, m, k] uploads where a canary sends zeros and a clip leaves them: noise
    low: float  # what a canary that is out contributes to its coordinate, after a correct clip
    high: float  # and one that is in
    hidden: bool  # single uploads are read by nobody
    declared: Release  # one noised release, as the ledger lists it
    releases: tuple[Release, ...]  # all that the ledger lists of the first canary
    rounds: int
    central: bool = False  # the noise is in the mean, once a round; uploads have none

    @property
    def middle(self) -> float:
        """The threshold of a whole run's sum, fixed by the design and not by the scores."""
        return self.rounds * (self.low + self.high) / 2

    def single(self) -> Scored:
        """To whom reads single uploads."""
        return Scored(self.own.sum(0), self.inside)

    def steps(self) -> Scored:
        """The same, every round a trial."""
        return Scored(self.own.ravel(), np.tile(self.inside, self.rounds))

    def aggregate(self, *, informed: bool) -> Scored:
        """To whom reads the sum."""
        read = self.total - self.honest if informed else self.total
        return Scored(read.sum(0), self.inside)


def play(
    kind: Kind,
    protections: Sequence[Protection],
    streams: Streams,
    *,
    canaries: int,
    rounds: int,
    honest: int = 20,
) -> Played | None:
    """One run of the game; None where nothing noises this kind."""
    carrier = Carrier.of(kind, canaries)
    said = declared(carrier, protections, streams)
    if said is None or not said.sensitivity:
        return None
    replaced = said.adjacency == "replace_one"
    high = said.sensitivity / 2 if replaced else said.sensitivity
    low = -high if replaced and kind not in COUNTS else 0.0  # examples do not turn negative
    bold = 1.0 if kind in COUNTS else BOLD
    inside = streams.numpy("canaries").random(canaries) < 0.5
    shape = (rounds, canaries)
    own, total, known = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    residuals = np.zeros((*shape, 2 * SPARE))
    channel = Channel(carrier, protections, streams)
    for t in range(rounds):
        summed = np.zeros(carrier.d)
        for j in range(canaries):
            received = channel.send(t, j, carrier.canary(j, bold * (high if inside[j] else low)))
            own[t, j] = carrier.seats(received)[j]
            residuals[t, j] = carrier.spare(received)
            summed += received
        for i in range(honest):  # they drift together, as clients do
            update = streams.numpy("honest", t, i).normal(0.5, 1.0, carrier.d)
            update *= high / np.linalg.norm(update)
            if kind in COUNTS:
                update = np.round(update)
            known[t] += carrier.seats(update)
            summed += channel.send(t, canaries + i, update)
        total[t] = carrier.seats(summed)
        channel.end_round(t)
    listed = [r for r in channel.close() if r.sender in ("client/0", "client/*")]
    return Played(
        inside=inside,
        own=own,
        total=total,
        honest=known,
        residuals=residuals,
        low=low,
        high=high,
        hidden=any(p.hides_single_uploads() for p in protections),
        declared=said,
        releases=tuple(listed),
        rounds=rounds,
    )
