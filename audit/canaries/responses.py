"""How the run's protections answer to messages: neighbours in the run's own shape, and other seeds.

Replay on neighbours (audit/canaries/neighbours.py) with the payload of the run: every array alone and all of
them together at the clip, every row alone at it, single numbers, small, just inside, just beyond and far
beyond; relative to zeros and to the model that clients received; and from clients of few and of many
examples. All kinds change at once, and each is held against its own line of the ledger. The noise is the
same in every passage, so what is measured is no statistic.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from fedaudit.audit.canaries.neighbours import TOLERANCE
from fedaudit.audit.canaries.payload import Passage, Shape, with_counts
from fedaudit.audit.canaries.residuals import Check
from fedaudit.audit.canaries.sweep import Floats, Noise, flattened, places, still
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Message, Payload, Protection

MOST_ARRAYS = 8  # changed alone
MOST_ROWS = 64  # of an array, for its rows to be changed one by one
SIZES = (0.01, 0.999, 1.5, 1000.0)  # times the declared sensitivity
SPACING = 2.0**-22  # of single precision, relative
FEW, MANY = 1, 100_000  # examples
PLACES = 24  # rounds and clients at which a far message is sent
SAME = 12  # places at which noise is drawn again
CERTAIN = 7.0  # standard errors; chance goes that far once in 4e11 times
MOST_NUMBERS = 20_000_000  # that pass for the measurement

Way = Callable[[Payload, np.random.Generator], Payload]


def sensitivities(
    shape: Shape, protections: Sequence[Protection], streams: Streams, said: dict[Kind, Release]
) -> list[Check]:
    """One certain check a kind: the largest distance of its outputs over neighbouring messages."""
    if not said:
        return []
    quiet, zeros = shape.still()
    started = dict(shape.reference)
    probes = list(_probes(shape, quiet, said))
    far = probes[-1]
    room = max(3, MOST_NUMBERS // max(1, shape.numbers(list(shape.message))))
    if len(probes) > room:
        chosen = streams.numpy("probes").permutation(len(probes))[:room]
        probes = [probes[i] for i in sorted(chosen)]
    alone = [(0, 0), (shape.rounds - 1, shape.clients - 1), (shape.rounds // 2, shape.clients // 2)]
    measured = dict.fromkeys(said, 0.0)
    replaced = any(r.adjacency == "replace_one" for r in said.values())
    for t, k in dict.fromkeys(alone[: max(1, room // max(1, len(probes)))]):
        base = _passed(shape, protections, streams, t, k, quiet, zeros)
        for probe in probes:
            came = _passed(shape, protections, streams, t, k, probe, zeros)
            against = base
            if replaced:
                against = _passed(shape, protections, streams, t, k, _mirrored(probe, quiet, said), zeros)
            for kind, r in said.items():
                measured[kind] = max(measured[kind], _distance(kind, came, against, r))
        if started:  # a model counts as its change from the one received
            unmoved = _onto(quiet, started)
            base = _passed(shape, protections, streams, t, k, unmoved, started)
            came = _passed(shape, protections, streams, t, k, _onto(probes[-1], started), started)
            for kind, r in said.items():
                blur = _blur(kind, unmoved, r)
                measured[kind] = max(measured[kind], _distance(kind, came, base, r) - blur)
    where = places(shape.rounds, shape.clients, min(PLACES, room), streams.numpy("far"))
    for came, base in zip(
        *(_remembering(shape, protections, streams, where, m, zeros) for m in (far, quiet)), strict=True
    ):
        for kind, r in said.items():
            measured[kind] = max(measured[kind], _distance(kind, came, base, r))
    return [_check(kind, measured[kind], r, shape, len(probes)) for kind, r in said.items()]


def low_bits(
    shape: Shape, protections: Sequence[Protection], streams: Streams, said: dict[Kind, Release]
) -> list[Check]:
    """Whether the lowest bit of what is sent tells the sign of what was meant: one check a kind.

    Under noise of a symmetric law a message and its opposite have the same law but for the sign, so that the bits
    of a number's size say nothing of it. Each sender's own, so that the places differ.
    """
    quiet, zeros = shape.still()
    rng = np.random.default_rng(0)
    where = places(shape.rounds, shape.clients, PLACES, streams.numpy("bits"))
    counts = {kind: np.zeros((2, 2)) for kind in said}
    for t, k in where:
        probe = _changed(quiet, said, _spread, SIZES[1], rng)
        came = Passage(shape, protections, streams, listed=False).send(t, k, probe, zeros)
        for kind in said:
            if kind in came:
                bits = flattened(kind, came[kind], {}).astype(np.float32).view(np.int32) & 1
                signs = flattened(kind, probe[kind], {}) > 0
                if bits.shape == signs.shape:
                    counts[kind] += np.histogram2d(signs, bits, bins=2, range=((-0.5, 1.5), (-0.5, 1.5)))[0]
    found = []
    for table in counts.values():
        rows, columns = table.sum(1), table.sum(0)
        spread = float(np.sqrt(rows.prod() * columns.prod() / max(1.0, table.sum())))
        away = abs(float(np.linalg.det(table))) / spread if spread > 0 else 0.0
        found.append(
            Check(
                name="last bits",
                passed=away <= CERTAIN,
                statistic=away,
                limit=CERTAIN,
                text=f"the last bits of {int(table.sum()):,} numbers and the signs of what was meant are "
                f"{away:.1f} standard errors from unrelated",
                failure_rate=0.0,
            )
        )
    return found


def _remembering(
    shape: Shape,
    protections: Sequence[Protection],
    streams: Streams,
    where: Sequence[tuple[int, int]],
    message: Message,
    reference: Message,
) -> Iterator[Message]:
    """One message over rounds and clients, through protections that keep what they remember."""
    passage = Passage(shape, protections, streams, listed=False)
    return (passage.send(t, k, message, reference) for t, k in where)


def seeds(
    shape: Shape, protections: Sequence[Protection], streams: Streams, noises: Sequence[Noise]
) -> list[Check]:
    """Two certain checks a kind: the same streams give the same noise, and other streams none of it."""
    if not noises:
        return []
    where = list(zip(noises[0].rounds.tolist(), noises[0].clients.tolist(), strict=True))[:SAME]
    first, again, other = (
        [still(shape, Passage(shape, protections, s, listed=False), t, k) for t, k in where]
        for s in (streams, streams, Streams(streams.key("another master seed")))
    )
    found = []
    for noise in noises:
        rows = [np.stack([flattened(noise.kind, m[noise.kind], {}) for m in x]) for x in (first, again, other)]
        differ = int((rows[0] != rows[1]).sum())
        found.append(
            Check(
                name="noise from the run's streams",
                passed=differ == 0,
                statistic=differ,
                limit=0,
                text=f"drawn twice from the same generator, {differ:,} of {rows[0].size:,} numbers differ"
                + ("; the protection takes its noise from elsewhere" if differ else ""),
                failure_rate=0.0,
            )
        )
        found.append(_public(noise, rows[0], rows[2]))
    return found


def _public(noise: Noise, ours: Floats, other: Floats) -> Check:
    """Noise that does not depend on the master seed can be computed by whoever reads the program."""
    from scipy import stats

    equal = float((ours == other).mean())
    ranks = [stats.rankdata(x.ravel()) for x in (ours, other)]
    both = np.corrcoef(ranks[0], ranks[1]) if all(x.std() > 0 for x in ranks) else np.ones((2, 2))
    related = float(both[0, 1])
    most = CERTAIN / max(1, ours.size) ** 0.5
    apart = abs(related) <= most and (equal <= 0.05 or noise.mechanism == "discrete_laplace")
    return Check(
        name="noise that anybody can compute",
        passed=apart,
        statistic=related,
        limit=most,
        text=f"under another master seed {100 * equal:.3g} % of the numbers stay as they were, and the "
        f"correlation with the run's noise is {related:.3f}; chance explains {most:.3f}",
        failure_rate=0.0,
    )


def _passed(
    shape: Shape,
    protections: Sequence[Protection],
    streams: Streams,
    round: int,
    client: int,
    message: Message,
    reference: Message,
) -> Message:
    # anew: the same noise for every message
    return Passage(shape, protections, streams, listed=False).send(round, client, message, reference)


def _probes(shape: Shape, quiet: Message, said: dict[Kind, Release]) -> Iterator[Message]:
    """Neighbours of the still message."""
    rng = np.random.default_rng(0)  # fixed: the measurement is the same wherever it is repeated
    arrays = max((len(_floats(quiet[k])) for k in said), default=0)
    ways: list[Way] = [_rows, _single, *(_alone(i) for i in range(min(arrays, MOST_ARRAYS)))]
    for many in (FEW, MANY):
        counted = with_counts(shape, many).message
        yield {k: quiet[k] if k in said else counted[k] for k in quiet}
    for way in ways:
        for size in (0.999, 1000.0):
            yield _changed(quiet, said, way, size, rng)
    for size in SIZES:
        yield _changed(quiet, said, _together, size, rng)
        yield _changed(quiet, said, _spread, size, rng)
    counted = with_counts(shape, MANY).message  # a message weighted by its sender's examples
    rich = {k: v if k in said else counted[k] for k, v in quiet.items()}
    yield _changed(rich, said, _together, SIZES[-1], rng)


def _changed(
    quiet: Message, said: dict[Kind, Release], way: Way, size: float, rng: np.random.Generator
) -> Message:
    message = dict(quiet)
    for kind, r in said.items():
        reach = r.sensitivity or 1.0
        moved = way(_floats(quiet[kind]), rng)
        scale = size * reach
        message[kind] = quiet[kind] | {k: v * scale for k, v in moved.items()}
    return message


def _mirrored(probe: Message, quiet: Message, said: dict[Kind, Release]) -> Message:
    """Another client's message: the same on the other side of the still one."""
    return probe | {
        kind: quiet[kind] | {k: 2 * quiet[kind][k] - v for k, v in _floats(probe[kind]).items()} for kind in said
    }


def _floats(payload: Payload) -> Payload:
    return {k: v for k, v in sorted(payload.items()) if v.is_floating_point()}


def _unit(v: Tensor, rng: np.random.Generator) -> Tensor:
    x = torch.from_numpy(rng.normal(size=tuple(v.shape))).to(v.dtype)
    unit: Tensor = x / x.norm().clamp(min=1e-12)
    return unit


def _spread(payload: Payload, rng: np.random.Generator) -> Payload:
    """A random direction over all numbers."""
    found = {k: torch.from_numpy(rng.normal(size=tuple(v.shape))).to(v.dtype) for k, v in payload.items()}
    length = float(np.sqrt(sum(float(x.double().square().sum()) for x in found.values()))) or 1.0
    return {k: x / length for k, x in found.items()}


def _together(payload: Payload, rng: np.random.Generator) -> Payload:
    """Every array at norm 1: a clip of each alone leaves more than one clip of them all."""
    return {k: _unit(v, rng) for k, v in payload.items()}


def _rows(payload: Payload, rng: np.random.Generator) -> Payload:
    """Every row of every array at norm 1."""
    found = {}
    for k, v in payload.items():
        x = _unit(v, rng)
        if v.dim() > 1 and len(v) <= MOST_ROWS:
            flat = x.reshape(len(v), -1)
            x = (flat / flat.norm(dim=1, keepdim=True).clamp(min=1e-12)).reshape(v.shape)
        found[k] = x
    return found


def _single(payload: Payload, rng: np.random.Generator) -> Payload:
    """One number of each array."""
    found = {}
    for k, v in payload.items():
        x = torch.zeros(v.numel(), dtype=v.dtype)
        x[-1:] = 1.0
        found[k] = x.reshape(v.shape)
    return found


def _alone(number: int) -> Way:
    """One array only; the others stay."""

    def way(payload: Payload, rng: np.random.Generator) -> Payload:
        return {
            k: _unit(v, rng) if i == number % len(payload) else torch.zeros_like(v)
            for i, (k, v) in enumerate(payload.items())
        }

    return way


def _distance(kind: Kind, came: Message, base: Message, said: Release) -> float:
    if kind not in came or kind not in base:
        return 0.0  # withheld, as prototypes of few examples are: nothing to compare
    one, other = flattened(kind, came[kind], {}), flattened(kind, base[kind], {})
    order = 2 if said.mechanism == "gaussian" else 1
    return float(np.linalg.norm(one - other, order)) if one.shape == other.shape else 0.0


def _onto(message: Message, reference: Message) -> Message:
    """The message as a change from the model that its sender received."""
    base = reference.get(Kind.GLOBAL_MODEL, {})
    moved = dict(message)
    if Kind.LOCAL_MODEL in message:
        moved[Kind.LOCAL_MODEL] = {
            k: base[k] + v if k in base and v.is_floating_point() else v
            for k, v in message[Kind.LOCAL_MODEL].items()
        }
    return moved


def _blur(kind: Kind, message: Message, said: Release) -> float:
    """What rounding to single precision can move an output by."""
    flat = np.abs(flattened(kind, message[kind], {})) + 10 * said.noise_std
    return float(SPACING * (np.linalg.norm(flat) if said.mechanism == "gaussian" else flat.sum()))


def _check(kind: Kind, measured: float, said: Release, shape: Shape, probes: int) -> Check:
    limit = said.sensitivity or 0.0
    numbers = sum(v.numel() for v in shape.message.get(kind, {}).values())
    # single precision, and rounding that the ledger states
    step = 1e-6 * said.noise_std + said.resolution
    blur = step * max(1, numbers) ** (0.5 if said.mechanism == "gaussian" else 1.0)
    return Check(
        name="sensitivity in the run's own shape",
        passed=measured <= limit * (1 + TOLERANCE) + blur,
        statistic=measured,
        limit=limit,
        text=f"over {probes:,} neighbours of a message of {numbers:,} numbers, under the same noise, {kind} left "
        f"the wire up to {measured:.4g} apart; the ledger says {limit:.4g}",
        failure_rate=0.0,
    )
