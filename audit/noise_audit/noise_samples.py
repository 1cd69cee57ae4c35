"""Samples of noise from plays of the run, and the forms in which they are tested.

A sample is the noise on one array of one message: what left, less what it was before the noise. Noise that ships
is taken where it is made. A plugin may make noise anywhere: clients send nothing new, and what leaves them, less
what they had received, is its noise.

The samples of a message make a row, and the rows of one kind and one shape a stack [messages, numbers]. Every
number is also known as a standard normal score: by the law that the ledger declares, which is exact if the ledger
is right (whole numbers by a uniform step, Rosenblatt 1952), and by its rank, which holds for noise of any law.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.noise_audit.play import PlayLimits, play
from fedaudit.audit.noise_audit.probes import CALCULATED, NOTHING, SAME, Messages, find_clips
from fedaudit.audit.noise_audit.world import Listener, copy_payload
from fedaudit.fl.artifact import Channel, Party
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Mechanism, Release
from fedaudit.fl.recording.noise import share_of_noise
from fedaudit.fl.recording.tap import AddNoise, Message, Payload
from fedaudit.fl.wire.protection import Protection

Floats = NDArray[np.float64]
Index = NDArray[np.int64]
Measured = (
    tuple[float, str] | None
)  # a p-value, or a number of copies, and how it was measured; None: too little noise
MOST_NUMBERS = 4_000_000  # kept of one stack
BLOCK = 16  # neighbouring numbers that are kept together
FLOAT_BITS = 53
# above 1 + EXCESS / sqrt(n) times the declared spread there is more noise than declared; so far out that chance
# lifts hardly any of a million columns there: dividing those would cut off tails
EXCESS = {"laplace": 7.0}
USUAL_EXCESS = 4.0


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


@dataclass(frozen=True, kw_only=True)
class MessageRow:
    """All arrays of one message of one kind."""

    kind: str
    round: int
    sender: str
    turn: int  # counts messages of one sender, kind and round
    samples: tuple[NoiseSample, ...]

    @property
    def key(self) -> tuple[str, int, str, int]:
        """What names the message in every play of a run."""
        return self.kind, self.round, self.sender, self.turn

    @property
    def shape(self) -> tuple[tuple[str, int], ...]:
        """Names and sizes of the arrays."""
        return tuple((s.array, s.values.size) for s in self.samples)

    @property
    def units(self) -> Floats:
        """[n] All numbers in units of their declared scales."""
        return np.concatenate([s.units for s in self.samples])

    @property
    def clean(self) -> Floats:
        """[n] All numbers before the noise; 0 where they are not known."""
        return np.concatenate(
            [np.zeros(s.values.size) if s.clean is None else np.asarray(s.clean).ravel() for s in self.samples]
        )


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Messages of one kind and shape."""

    kind: str
    mechanism: Mechanism
    resolution: float  # declared spacing of the numbers, in units of the scale; 0 where none is declared
    units: Floats  # [messages, n] noise in units of its declared scale
    scales: Floats  # [messages] the declared scales
    times: Index  # [messages] place of the message's round, and of its turn, in the order of the run
    rounds: Index  # [messages]
    senders: tuple[str, ...]  # [messages]
    keys: tuple[tuple[str, int, str, int], ...]  # [messages]
    arrays: Index  # [n] which array a number stands in
    clean: Floats  # [messages, n] the numbers before the noise; 0 where they are not known

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
        """About the spacing of the numbers, in units of the scale."""
        return max(self.resolution, measure_granularity(self.units.ravel()))

    @cached_property
    def _ranks(self) -> Floats:
        """[messages, n] Ranks of the sizes of all numbers, as probabilities; ties are broken by chance."""
        sizes = np.abs(self.levelled)
        step = 1 / self.scales[:, None] if self.mechanism == "discrete_laplace" else self.resolution
        jittered = (sizes + (np.random.default_rng(1).random(sizes.shape) - 0.5) * step).ravel()
        ranks = np.empty(jittered.size)
        ranks[np.argsort(jittered, kind="stable")] = (np.arange(jittered.size) + 0.5) / jittered.size
        return ranks.reshape(sizes.shape)

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


def draw_noise(case: SimulatedCase, lines: Sequence[Release], limits: PlayLimits) -> list[NoiseSample]:
    """The noise of one play in which everybody takes part.

    `lines` are what the run entered in its ledger. Raises whatever the federation's own code raises.
    """
    central = any(r.sender.endswith("/*") for r in lines)
    everybody = range(case.clients)
    still = Messages(find_clips(lines, central), dict.fromkeys(everybody, NOTHING), lambda *_: everybody)
    listener = _NoiseListener("server", still)
    play(case, listener, SAME, limits)
    return [s for s in listener.samples if listener.is_noise_alone(s.line, case.protections)]


def list_acting(protections: Sequence[Protection], kind: str) -> list[Protection]:
    """The protections that change messages of a kind."""
    return [p for p in protections if kind in (getattr(p.config, "kinds", ()) or p.kinds)]


def build_rows(samples: Iterable[NoiseSample]) -> list[MessageRow]:
    """Messages, in the order of the run."""
    turns: dict[tuple[str, int, str, str], int] = defaultdict(int)
    messages: dict[tuple[str, int, str, int], list[NoiseSample]] = defaultdict(list)
    for sample in samples:
        if not sample.values.size or sample.scale <= 0:
            continue
        line = sample.line
        place = (line.kind, line.round, line.sender, sample.array)
        messages[(line.kind, line.round, line.sender, turns[place])].append(sample)
        turns[place] += 1
    return [
        MessageRow(
            kind=kind, round=t, sender=sender, turn=turn, samples=tuple(sorted(own, key=lambda s: s.array))
        )
        for (kind, t, sender, turn), own in sorted(messages.items())
    ]


def build_stacks(rows: Sequence[MessageRow]) -> list[Stack]:
    """Rows of one kind, law and shape together; of large messages, blocks drawn at random."""
    groups: dict[tuple[object, ...], list[MessageRow]] = defaultdict(list)
    for row in rows:
        groups[(row.kind, row.samples[0].line.mechanism, row.shape)].append(row)
    return [_stack(own) for own in groups.values()]


def _stack(rows: Sequence[MessageRow]) -> Stack:
    first = rows[0].samples[0]
    chosen = _choose_columns(sum(size for _, size in rows[0].shape), len(rows))
    moments = {moment: i for i, moment in enumerate(sorted({(r.round, r.turn) for r in rows}))}
    scales = np.array([r.samples[0].scale for r in rows])
    arrays = np.repeat(np.arange(len(rows[0].shape)), [size for _, size in rows[0].shape])
    return Stack(
        kind=rows[0].kind,
        mechanism=first.line.mechanism,
        resolution=max(r.samples[0].line.resolution / s for r, s in zip(rows, scales, strict=True)),
        units=np.stack([r.units[chosen] for r in rows]),
        scales=scales,
        times=np.array([moments[r.round, r.turn] for r in rows]),
        rounds=np.array([r.round for r in rows]),
        senders=tuple(r.sender for r in rows),
        keys=tuple(r.key for r in rows),
        arrays=arrays[chosen],
        clean=np.stack([r.clean[chosen] for r in rows]),
    )


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


def measure_granularity(values: Floats) -> float:
    """About the largest power of two that divides nearly all values: what rounding left of their digits."""
    some = values[values != 0][:20_000]
    if not some.size:
        return 0.0
    mantissa, exponent = np.frexp(some)
    digits = np.abs(mantissa * 2.0**FLOAT_BITS).astype(np.int64)
    lowest = (digits & -digits).astype(np.float64) * 2.0 ** (exponent - FLOAT_BITS)
    return float(np.quantile(lowest, 0.95))


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


@dataclass
class _NoiseListener(Listener):
    """Keeps the noise of a play in which `probe` lets clients send nothing."""

    samples: list[NoiseSample] = field(default_factory=list)
    _sent: Message = field(default_factory=dict)  # by the client whose message is on its way
    _model: Payload = field(default_factory=dict)  # the latest broadcast

    def add_noise(self, line: Release, clean: Payload, add: AddNoise) -> Payload:
        before = copy_payload(clean)  # whoever adds noise may do so in place
        noised = super().add_noise(line, clean, add)
        self._tapped.add((line.round, line.sender, line.source))
        self._keep(line, before, noised)
        return noised

    def send(self, round: int, sender: Party, message: Message, reference: Message) -> Message:
        self._sent = super().send(round, sender, message, reference)
        return self._sent

    def average(self, round: int, model: Payload, lines: Sequence[Release]) -> Payload:
        model = super().average(round, model, lines)
        line = next((r for r in lines if r.mechanism in CALCULATED), None)
        if line is not None and (round, line.sender, line.source) not in self._tapped:
            self._keep(line, self._model, model)
        return model

    def carry(
        self, round: int, channel: Channel, sender: Party, seen_by: tuple[str, ...], message: Message
    ) -> Message:
        carried = super().carry(round, channel, sender, seen_by, message)
        if channel == Channel.DOWNLINK:
            self._model = message.get(Kind.GLOBAL_MODEL, self._model)
        if channel == Channel.UPLINK:
            for kind, payload in carried.items():
                line = self._find_credit(round, kind, sender)
                if line is not None and kind in self._sent:
                    self._keep(line, self._sent[kind], payload)
        return carried

    def is_noise_alone(self, line: Release, protections: Sequence[Protection]) -> bool:
        """Whether no other protection changed what a plugin had noised: that would be no noise."""
        return (
            len(list_acting(protections, line.kind)) < 2 or (line.round, line.sender, line.source) in self._tapped
        )

    def _keep(self, line: Release, clean: Payload, noised: Payload) -> None:
        for name, value in clean.items():
            after = noised.get(name)
            is_noised = value.is_floating_point() or line.mechanism == "discrete_laplace"
            if after is None or not is_noised or after.shape != value.shape:
                continue
            before = value.detach().double().flatten().cpu().numpy()
            values = after.detach().double().flatten().cpu().numpy() - before
            self.samples.append(NoiseSample(line, name, values, before))
