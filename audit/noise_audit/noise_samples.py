"""Samples of noise, and the forms in which they are tested.

A sample is the noise on one array of one message: what left, less what it was before the noise. The samples of a
message make a row, and the rows of one kind and one shape a stack [messages, numbers]. Every number is also known
as a standard normal score: by the law that the ledger declares, which is exact if the ledger is right (whole
numbers by a uniform step, Rosenblatt 1952), and by its rank, which holds for noise of any law.

Messages that a federation really sent need no play. Noise that the server adds to a round's mean is what is left
of

    w_{t+1} - w_t - (1/m) sum_k (w_k - w_t)

where the models are those broadcast or released, w_k the clipped uploads of round t, and m the fixed denominator,
from the ledger's two norms. Only rounds of which every upload was recorded can be used.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.evaluation.artifacts import Artifacts, index
from fedaudit.fl.artifact import Artifact, Channel
from fedaudit.fl.kinds import MODELS, TRAINED, Kind
from fedaudit.fl.ledger import Mechanism, Release
from fedaudit.fl.recording.noise import share_of_noise
from fedaudit.fl.wire.protection import Protection

Floats = NDArray[np.float64]
Index = NDArray[np.int64]
# a p-value, or a number of copies, and how it was measured; None: too little noise
Measured = tuple[float, str] | None
MOST_NUMBERS = 4_000_000  # kept of one stack
BLOCK = 16  # neighbouring numbers that are kept together
FLOAT_BITS = 53
NEARLY_ALL = 0.95  # of the numbers: what rounding left of their digits
COARSER = 0.01  # share of numbers whose digits show more precision than that of the others
# above 1 + EXCESS / sqrt(n) times the declared spread there is more noise than declared; so far out that chance
# lifts hardly any of a million columns there: dividing those would cut off tails
EXCESS = {"laplace": 7.0}
USUAL_EXCESS = 4.0
SPACING = 2.0**-22  # of single precision, relative
CLEAR = 1e-3  # of the noise: rounding that changes neither its amount nor its law


def summarise_least(chances: Sequence[tuple[float, str]], text: str) -> Measured:
    """The least p-value, corrected for all: `text` may name {where} it is, and how many were {tried}."""
    if not chances:
        return None
    least, where = min(chances)
    chance = min(1.0, least * len(chances))
    return chance, f"{text.format(tried=len(chances), where=where)}, p = {chance:.2g}"


class NoiseHypothesis(NamedTuple):
    """What is asked of the noise, and what either answer means for people."""

    name: str
    good: str
    bad: str
    measure: Callable[[], Measured]
    is_certain: bool = False  # `measure` counts what chance never makes, instead of giving a p-value


@dataclass(frozen=True)
class NoiseSample:
    """The noise on one array of one message: `values` [n] is what left less what it was before."""

    line: Release  # how the ledger accounts for it
    array: str
    values: Floats
    clean: Floats | None = None  # [n] what it was before, where that is known

    @property
    def scale(self) -> float:
        """The declared scale of this noise; of noise made together, the sender's own part."""
        return share_of_noise(self.line)

    @cached_property
    def units(self) -> Floats:
        """[n] The values in units of the declared scale."""
        return np.asarray(self.values, np.float64).ravel() / max(self.scale, 1e-300)

    @property
    def output(self) -> Floats:
        """[n] What left, to the bit; the noise alone where it is not known what it was before."""
        values = np.asarray(self.values, np.float64).ravel()
        return values if self.clean is None else values + np.asarray(self.clean, np.float64).ravel()


class MessageKey(NamedTuple):
    """What names a message in every play of a run."""

    kind: str
    round: int
    sender: str
    turn: int  # counts messages of one sender, kind and round


class MessageRow(NamedTuple):
    """All arrays of one message of one kind."""

    key: MessageKey
    samples: tuple[NoiseSample, ...]

    @property
    def shape(self) -> tuple[tuple[str, int], ...]:
        """Names and sizes of the arrays."""
        return tuple((s.array, s.values.size) for s in self.samples)

    @property
    def units(self) -> Floats:
        """[n] All numbers in units of their declared scales."""
        return np.concatenate([s.units for s in self.samples])

    @property
    def output(self) -> Floats:
        """[n] What left, to the bit."""
        return np.concatenate([s.output for s in self.samples])

    @property
    def clean(self) -> Floats:
        """[n] All numbers before the noise; 0 where they are not known."""
        return np.concatenate(
            [np.zeros(s.values.size) if s.clean is None else np.asarray(s.clean).ravel() for s in self.samples]
        )


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Messages of one kind and shape."""

    mechanism: Mechanism
    resolution: float  # declared spacing of the numbers, in units of the scale; 0 where none is declared
    units: Floats  # [messages, n] noise in units of its declared scale
    scales: Floats  # [messages] the declared scales
    times: Index  # [messages] place of the message's round, and of its turn, in the order of the run
    keys: tuple[MessageKey, ...]  # [messages]
    arrays: Index  # [n] which array a number stands in
    clean: Floats  # [messages, n] the numbers before the noise; 0 where they are not known
    spacing: (
        Floats  # [messages, n] of what can leave there, in units of the scale: large numbers are rounded more
    )

    @property
    def kind(self) -> str:
        """What the messages are."""
        return self.keys[0].kind

    @cached_property
    def senders(self) -> NDArray[np.str_]:
        """[messages] Who sent them."""
        return np.array([key.sender for key in self.keys])

    @property
    def is_fine(self) -> bool:
        """Whether chance hardly ever makes two numbers equal."""
        return self.mechanism != "discrete_laplace" and self.resolution < 2.0**-6

    @cached_property
    def levelled(self) -> Floats:
        """[messages, n] The units over what messages, arrays and numbers have more of than declared: no fault."""
        units = self.units.copy()
        if self.mechanism == "discrete_laplace":
            return units
        units /= self._measure_excess(units)[:, None]
        for array in np.unique(self.arrays):
            own = units[:, self.arrays == array]
            units[:, self.arrays == array] = own / self._measure_excess(own.reshape(1, -1))
        return np.asarray(units / self._measure_excess(units.T))

    def _measure_excess(self, units: Floats) -> Floats:
        """How many times the declared noise rows have, where that is clearly more than once."""
        spread = np.abs(units).mean(1) if self.mechanism == "laplace" else np.sqrt((units**2).mean(1))
        excess = EXCESS.get(self.mechanism, USUAL_EXCESS) / np.sqrt(units.shape[1])
        return np.where(spread > 1 + excess, spread, 1.0)

    def standardise(self, units: Floats) -> Floats:
        """Standard normal scores of units of any spread, by the declared law."""
        spread = max(1.0, _measure_spread(units, self.mechanism, self.scales))
        scales, rng = self.scales[:, None], np.random.default_rng(0)
        return standardise(units * scales, self.mechanism, scales * spread, self.resolution * scales, rng)

    @cached_property
    def by_law(self) -> Floats:
        """[messages, n] Standard normal scores by the declared law at the spread that was measured."""
        return self.standardise(self.levelled)

    @cached_property
    def grain(self) -> float:
        """The spacing at nearly all places, in units of the scale."""
        return max(self.resolution, float(np.quantile(self.spacing.max(0), NEARLY_ALL)))

    def drop_coarse(self) -> "Stack":
        """Without the few numbers of which rounding left less than of the others: they take few values."""
        kept = self.spacing.max(0) <= self.grain
        if kept.all() or not self.is_fine:
            return self
        columns = {name: getattr(self, name)[:, kept] for name in ("units", "clean", "spacing")}
        return replace(self, arrays=self.arrays[kept], **columns)

    @cached_property
    def smooth_units(self) -> Floats:
        """[messages, n] The units, spread over the spacing at which each was rounded."""
        return np.asarray(self.units + (np.random.default_rng(4).random(self.units.shape) - 0.5) * self.spacing)

    @cached_property
    def _ranks(self) -> Floats:
        """[messages, n] Ranks of the sizes of all numbers, as probabilities; ties are broken by chance."""
        chance = np.random.default_rng(1).random(self.units.shape) - 0.5
        if self.mechanism == "discrete_laplace":
            jittered = np.abs(self.levelled) + chance / self.scales[:, None]
        else:
            jittered = np.abs(self.levelled + chance * self.spacing)
        ranks = np.empty(jittered.size)
        ranks[np.argsort(jittered, axis=None, kind="stable")] = (np.arange(jittered.size) + 0.5) / jittered.size
        return ranks.reshape(jittered.shape)

    @cached_property
    def signed(self) -> Floats:
        """[messages, n] Normal scores of sign and rank: independent standard normal, whatever the law."""
        from scipy import special

        rng = np.random.default_rng(2)
        signs = np.where(self.units != 0, np.sign(self.units), rng.choice((-1.0, 1.0), self.units.shape))
        return np.asarray(signs * special.ndtri((1 + self._ranks) / 2))

    @cached_property
    def sized(self) -> Floats:
        """[messages, n] Normal scores of the sizes alone."""
        from scipy import special

        return np.asarray(special.ndtri(self._ranks))


def list_acting(protections: Sequence[Protection], kind: str) -> list[Protection]:
    """The protections that change messages of a kind."""
    return [p for p in protections if kind in (getattr(p.config, "kinds", ()) or p.kinds)]


def build_rows(samples: Iterable[NoiseSample]) -> list[MessageRow]:
    """Messages, in the order of the run."""
    turns: dict[tuple[str, int, str, str], int] = defaultdict(int)
    messages: dict[MessageKey, list[NoiseSample]] = defaultdict(list)
    for sample in samples:
        if not sample.values.size or sample.scale <= 0:
            continue
        name = (sample.line.kind, sample.line.round, sample.line.sender)
        messages[MessageKey(*name, turns[*name, sample.array])].append(sample)
        turns[*name, sample.array] += 1
    return [MessageRow(key, tuple(sorted(own, key=lambda s: s.array))) for key, own in sorted(messages.items())]


def build_stacks(rows: Sequence[MessageRow]) -> list[Stack]:
    """Rows of one kind, law and shape together; of large messages, blocks drawn at random."""
    groups: dict[tuple[object, ...], list[MessageRow]] = defaultdict(list)
    for row in rows:
        groups[(row.key.kind, row.samples[0].line.mechanism, row.shape)].append(row)
    return [_stack(own) for own in groups.values()]


def _stack(rows: Sequence[MessageRow]) -> Stack:
    first = rows[0].samples[0]
    chosen = _choose_columns(sum(size for _, size in rows[0].shape), len(rows))
    moments = {moment: i for i, moment in enumerate(sorted({(r.key.round, r.key.turn) for r in rows}))}
    scales = np.array([r.samples[0].scale for r in rows])
    arrays = np.repeat(np.arange(len(rows[0].shape)), [size for _, size in rows[0].shape])
    resolution = max(r.samples[0].line.resolution / s for r, s in zip(rows, scales, strict=True))
    spacing = measure_spacing(np.stack([r.output[chosen] for r in rows])) / scales[:, None]
    return Stack(
        mechanism=first.line.mechanism,
        resolution=resolution,
        units=np.stack([r.units[chosen] for r in rows]),
        scales=scales,
        times=np.array([moments[r.key.round, r.key.turn] for r in rows]),
        keys=tuple(r.key for r in rows),
        arrays=arrays[chosen],
        clean=np.stack([r.clean[chosen] for r in rows]),
        spacing=np.maximum(spacing, resolution),
    )


def measure_spacing(left: Floats) -> Floats:
    """Spacing of floating-point numbers where each of these is, of the precision that nearly all of them have."""
    single = np.spacing(np.abs(left).astype(np.float32)).astype(np.float64)
    known = left != 0
    precision = np.quantile(find_steps(left[known]) / single[known], COARSER) if known.any() else 1.0
    return np.asarray(single * precision)


def _choose_columns(numbers: int, messages: int) -> Index:
    most = max(BLOCK, MOST_NUMBERS // messages)
    if numbers <= most:
        return np.arange(numbers)
    starts = np.sort(np.random.default_rng(3).choice(numbers // BLOCK, most // BLOCK, replace=False)) * BLOCK
    return np.asarray((starts[:, None] + np.arange(BLOCK)).ravel())


def standardise(
    values: Floats, mechanism: Mechanism, scale: Floats | float, step: Floats | float, rng: np.random.Generator
) -> Floats:
    """Standard normal numbers from noise of that law and scale, which was rounded to multiples of `step`."""
    from scipy import special

    if mechanism == "discrete_laplace":
        size = np.abs(np.round(values))
        ratio = np.exp(-1 / np.asarray(scale))
        above = ratio**size / (1 + ratio)  # P[X >= x], for x >= 0
        mass = (1 - ratio) / (1 + ratio) * ratio**size
        uniform = rng.random(values.shape)
        tail = np.where(size > 0, above - uniform * mass, 0.5 + (uniform - 0.5) * mass)
        signs = np.where(size > 0, np.sign(values), 1.0)
        return np.asarray(-signs * special.ndtri(np.clip(tail, 1e-300, 1)))
    smooth = values + (rng.random(values.shape) - 0.5) * step
    if mechanism == "laplace":
        tail = 0.5 * np.exp(-np.abs(smooth) / scale)
        return np.asarray(-np.sign(smooth) * special.ndtri(np.clip(tail, 1e-300, 0.5)))
    return np.asarray(smooth / scale)


def find_steps(values: Floats) -> Floats:
    """The largest power of two that divides each number; infinite for 0, which any does."""
    mantissa, exponent = np.frexp(np.asarray(values, np.float64))
    digits = np.abs(mantissa * 2.0**FLOAT_BITS).astype(np.int64)
    return np.where(digits > 0, np.ldexp((digits & -digits).astype(np.float64), exponent - FLOAT_BITS), np.inf)


def _measure_spread(units: Floats, mechanism: Mechanism, scales: Floats) -> float:
    """The spread of noise over its declared spread."""
    if mechanism == "gaussian":
        return float(np.sqrt((units**2).mean()))
    absolute = float(np.abs(units * scales[:, None]).mean())
    if mechanism == "laplace":
        return absolute / float(scales.mean())
    # 2 r / (1 - r^2) = absolute, of which r = exp(-1 / scale)
    ratio = (math.sqrt(1 + absolute * absolute) - 1) / absolute if absolute > 0 else 0.0
    return -1 / math.log(ratio) / float(scales.mean()) if ratio > 0 else 0.0


# Of a record ------------------------------------------------------------------------------------------------


class NoisedUpload(NamedTuple):
    """What a client sent of one kind, less what it is a change from, in units of its noise's scale."""

    line: Release
    arrays: Mapping[str, Floats]
    clip: float  # the norm of what lies beside the noise, at most

    @property
    def values(self) -> Floats:
        """[n] All arrays."""
        return np.concatenate([self.arrays[name] for name in sorted(self.arrays)])


def list_uploads(
    recorded: Sequence[Artifact], releases: Sequence[Release], protections: Sequence[Protection]
) -> list[NoisedUpload]:
    """Uploads of which the ledger says what noise and what clip they have, and that one protection acted on."""
    artifacts, lines = index(recorded), defaultdict[tuple[int, str, str], list[Release]](list)
    for line in releases:
        lines[line.round, line.kind, line.sender].append(line)
    uploads = []
    for artifact in artifacts.select(channel=Channel.UPLINK):
        own = lines[artifact.round, str(artifact.kind), str(artifact.sender)]
        is_alone = len(own) == 1 and len(list_acting(protections, str(artifact.kind))) < 2
        if is_alone and (arrays := _subtract_reference(artifact, artifacts)):
            line = own[0]
            is_clipped = line.unit == "client" and line.clip_norm and line.clip_of == "update"
            if line.mechanism in ("gaussian", "laplace") and line.noise_multiplier and is_clipped:
                scale = share_of_noise(line)
                scaled = {name: values / scale for name, values in arrays.items()}
                uploads.append(NoisedUpload(line, scaled, (line.clip_norm or 0.0) / scale))
    return uploads


def _subtract_reference(upload: Artifact, artifacts: Artifacts) -> dict[str, Floats]:
    """The floating-point arrays of an upload; of a model, its change from the one its sender had received."""
    base: Mapping[str, object] = {}
    if upload.kind in MODELS:
        readers = ("client", str(upload.sender))
        sent = artifacts.select(
            round=upload.round, channel=Channel.DOWNLINK, kind=Kind.GLOBAL_MODEL, seen_by=readers
        )
        if not sent:
            return {}
        base = sent[-1].payload
    return {
        name: _flatten(value) - (_flatten(base[name]) if name in base else 0.0)
        for name, value in upload.payload.items()
        if np.asarray(value).dtype.kind == "f" and np.asarray(value).size
    }


def sample_means(recorded: Sequence[Artifact], releases: Sequence[Release]) -> list[NoiseSample]:
    """The noise on each array of each mean, of rounds that were recorded whole.

    Rounds whose noise drowns in the rounding of single precision are left out.
    """
    artifacts = index(recorded)
    models = {a.round: a.payload for a in artifacts.select(kind=Kind.GLOBAL_MODEL)}
    means = {r.round: r for r in releases if r.kind == Kind.GLOBAL_MODEL.value and r.noise_std and r.clip_norm}
    lines = dict[int, list[Release]]()
    for r in releases:
        lines.setdefault(r.round, []).append(r)
    found: list[NoiseSample] = []
    for t, line in sorted(means.items()):
        if t not in models or t + 1 not in models:
            continue
        listed = {r.sender: r for r in lines[t] if r.source == line.source and r != line}
        sent = {str(a.sender): a.payload for a in artifacts.select(round=t) if a.kind in TRAINED}
        norms = {r.clip_norm for r in listed.values()}
        if sent.keys() != listed.keys() or len(norms) > 1:
            continue  # not every upload was kept
        bound = next(iter(norms), None)  # none where nobody answered, and the noise is all there is
        share = (line.clip_norm or 0.0) / (bound or np.inf)
        found += _subtract(line, models[t], models[t + 1], list(sent.values()), share)
    return found


def _subtract(
    line: Release,
    before: Mapping[str, object],
    after: Mapping[str, object],
    sent: Sequence[Mapping[str, object]],
    share: float,
) -> Iterator[NoiseSample]:
    for name in sorted(before):
        old, new = _flatten(before[name]), _flatten(after[name])
        if np.asarray(before[name]).dtype.kind != "f" or SPACING * np.abs(new).max() > CLEAR * line.noise_std:
            continue
        mean = old + share * sum((_flatten(upload[name]) - old for upload in sent), np.zeros_like(old))
        yield NoiseSample(line, name, new - mean, mean)


def _flatten(array: object) -> Floats:
    return np.asarray(array, np.float64).ravel()
