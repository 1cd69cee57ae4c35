"""Samples of noise: of plays, and of messages that were recorded.

A sample is the noise on one array of one message: what left, less what it was before the noise. The samples of a
message make a row. Every number is also known as a standard normal score by the law that the ledger declares,
which is exact if the ledger is right (whole numbers by a uniform step, Rosenblatt 1952).

Messages that a federation really sent need no play. Noise that the server adds to a round's mean is what is left
of

    w_{t+1} - w_t - (1/m) sum_k (w_k - w_t)

where the models are those broadcast or released, w_k the clipped uploads of round t, and m the fixed denominator,
from the ledger's two norms. Only rounds of which every upload was recorded can be used.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
# a p-value, or a number of copies, and how it was measured; None: too little noise
Measured = tuple[float, str] | None
SPACING = 2.0**-22  # of single precision, relative
CLEAR = 1e-3  # of the noise: rounding that changes neither its amount nor its law


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
    is_of_source: bool = False  # whether the run's own source drew it, and it left as it was drawn

    @property
    def scale(self) -> float:
        """The declared scale of this noise; of noise made together, the sender's own part."""
        return share_of_noise(self.line)

    @property
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
    def output(self) -> Floats:
        """[n] What left, to the bit."""
        return np.concatenate([s.output for s in self.samples])


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
