"""How a mean that the server noises answers to one client more, or to another in its place.

Replay as in audit/canaries/responses.py, of a round: honest clients send as much as the clip leaves, all in one
direction, and a canary joins them, against them or across, with every array at the clip, or far beyond it.
The denominator of the mean has to be public: where it counts who came, one client more moves the part of all
the others, which shows among others and never alone. Everything is measured in the model that leaves,
under the same noise, so it is no statistic.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from fedaudit.audit.canaries.neighbours import TOLERANCE
from fedaudit.audit.canaries.payload import Passage, Shape
from fedaudit.audit.canaries.residuals import Check
from fedaudit.audit.canaries.sweep import flattened
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Payload, Protection

FAR = 1e4  # times the declared sensitivity of the mean; a denominator of thousands is still outside
SPACING = 2.0**-20  # of single precision, relative, in a mean


def mean_sensitivity(shape: Shape, protections: Sequence[Protection], streams: Streams, said: Release) -> Check:
    """The largest distance of a round's model over neighbouring sets of uploads."""
    reach, others = FAR * (said.sensitivity or 1.0), max(2, shape.clients // 2)
    model = shape.message[Kind.LOCAL_MODEL]
    along, *canaries = _directions(model)
    measured = 0.0
    for t in dict.fromkeys((0, shape.rounds - 1)):
        crowd = [_scaled(along, reach)] * others
        base = _model(shape, protections, streams, t, crowd)
        for canary in canaries:
            joined = _model(shape, protections, streams, t, [*crowd, _scaled(canary, reach)])
            against = base
            if said.adjacency == "replace_one":
                against = _model(shape, protections, streams, t, [*crowd, _scaled(canary, -reach)])
            measured = max(measured, float(np.linalg.norm(joined - against)))
    size = float(np.linalg.norm(base)) if said.sensitivity else 0.0
    return Check(
        name="sensitivity in the run's own shape",
        passed=measured <= (said.sensitivity or 0.0) * (1 + TOLERANCE) + SPACING * size,
        statistic=measured,
        limit=said.sensitivity or 0.0,
        text=f"one client beside {others:,} others moved the model of {len(base):,} numbers by up to "
        f"{measured:.4g}, under the same noise; the ledger says {said.sensitivity or 0.0:.4g}",
        failure_rate=0.0,
    )


def _model(
    shape: Shape, protections: Sequence[Protection], streams: Streams, round: int, uploads: Sequence[Payload]
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """[n] what a round's uploads, changes from a model of zeros, become."""
    passage = Passage(shape, protections, streams, listed=False)
    before = {k: torch.zeros_like(v) for k, v in shape.message[Kind.LOCAL_MODEL].items()}
    total = {k: v.double() for k, v in before.items()}
    for k, upload in enumerate(uploads):
        message = {**shape.message, Kind.LOCAL_MODEL: before | upload}
        came = passage.send(round, k, message, {Kind.GLOBAL_MODEL: before})[Kind.LOCAL_MODEL]
        total = {name: v + came[name].double() for name, v in total.items()}
    mean = {k: (v / len(uploads)).to(before[k].dtype) for k, v in total.items()}
    released = passage.average(round, before, mean, len(uploads))
    found: np.ndarray[tuple[int], np.dtype[np.float64]] = flattened(Kind.GLOBAL_MODEL, released, {})
    return found


def _directions(model: Payload) -> Iterator[Payload]:
    """The direction of the crowd, then those of canaries: with it, against it, across, every array alone."""
    rng = torch.Generator().manual_seed(0)  # fixed: the measurement is the same wherever it is repeated
    floats = {k: v for k, v in sorted(model.items()) if v.is_floating_point()}
    crowd = {k: torch.randn(v.shape, generator=rng) for k, v in floats.items()}
    yield crowd
    yield crowd
    yield _scaled(crowd, -1.0)
    yield {k: torch.randn(v.shape, generator=rng) for k, v in floats.items()}
    yield {k: v / v.norm().clamp(min=1e-12) for k, v in crowd.items()}
    for name in list(floats)[:4]:
        yield {k: v if k == name else torch.zeros_like(v) for k, v in crowd.items()}


def _scaled(payload: Payload, factor: float) -> Payload:
    return {k: v * factor for k, v in payload.items()}
