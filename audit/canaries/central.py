"""Canary clients under central noise: what the noised mean of a round tells of who took part.

Andrew et al. ICLR 2024, arXiv:2302.03098, sec. 3, with canaries in coordinates of their own instead of
random directions. As audit/canaries/game.py, but the noise is in the mean and not in the uploads, so
there is one thing to read in a round: the model. `informed` knows what honest clients sent, `agnostic`
does not. The auditor knows everything but the noise, and is left with that to test.

Everybody takes part and one client is expected, so a round is the noised sum; a setting of another
denominator scales what is read and the noise alike.
"""

from collections.abc import Sequence

import numpy as np

from fedaudit.audit.canaries.carrier import Carrier, Channel, declared
from fedaudit.audit.canaries.game import Played
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Protection

FAR = 1e4  # times what the clip leaves of a message; a denominator of thousands is still far outside


def play(
    protections: Sequence[Protection], streams: Streams, *, canaries: int, rounds: int, honest: int = 20
) -> Played | None:
    """One run of the game; None where nothing noises the mean."""
    carrier = Carrier.of(Kind.LOCAL_MODEL, canaries)
    said = declared(carrier, protections, streams)
    if said is None or not said.sensitivity:
        return None
    replaced = said.adjacency == "replace_one"
    high = said.sensitivity / 2 if replaced else said.sensitivity
    low = -high if replaced else 0.0
    inside = streams.numpy("canaries").random(canaries) < 0.5
    shape = (rounds, canaries)
    total, known = np.zeros(shape), np.zeros(shape)
    noise = np.zeros((rounds, 1, carrier.d))
    channel = Channel(carrier, protections, streams)
    for t in range(rounds):
        sent, exact = np.zeros(carrier.d), np.zeros(carrier.d)
        for j in range(canaries):
            part = carrier.canary(j, high if inside[j] else low)
            sent += channel.send(t, j, FAR * part)
            exact += part
        for i in range(honest):  # they drift together, as clients do
            update = streams.numpy("honest", t, i).normal(0.5, 1.0, carrier.d)
            update *= high / np.linalg.norm(update)
            sent += channel.send(t, canaries + i, FAR * update)
            known[t] += carrier.seats(update)
            exact += update
        read = channel.average(t, sent, canaries + honest)
        total[t], noise[t, 0] = carrier.seats(read), read - exact
        channel.end_round(t)
    listed = [r for r in channel.close() if r.sender in ("client/0", "client/*")]
    return Played(
        inside=inside,
        own=np.zeros(shape),
        total=total,
        honest=known,
        residuals=noise,
        low=low,
        high=high,
        hidden=True,
        declared=said,
        releases=tuple(listed),
        rounds=rounds,
        central=True,
    )
