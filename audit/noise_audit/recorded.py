"""Tests of the noise in what a federation really sent, from its record: messages that were sent need no play.

Noise that the server adds to a round's mean is what is left of

    w_{t+1} - w_t - (1/m) sum_k (w_k - w_t)

where the models are those broadcast or released, w_k the clipped uploads of round t, and m the fixed denominator,
from the ledger's two norms. Only rounds of which every upload was recorded can be used.

Noise that clients add to an upload stays beside what they trained, u + n, of which the ledger says |u| <= C. So
|n| <= |u + n| + C for every part of a message, and over m messages the root of the sum of squares is at most that
of what was recorded and C sqrt(m): what is too short even so cannot hold the noise. The same is asked of u + n of
two messages added, and subtracted, where noise that they share is gone. Laplace noise is held against C in the
same way by sums of sizes. Neither depends on what was trained.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

import numpy as np

from fedaudit.attacks.evaluation.artifacts import Artifacts, index
from fedaudit.audit.noise_audit.noise_relations import spread_out
from fedaudit.audit.noise_audit.noise_samples import Floats, Measured, NoiseHypothesis, NoiseSample, list_acting
from fedaudit.audit.noise_audit.noise_tests import NoiseTest, answer_all, run_tests
from fedaudit.fl.artifact import Artifact, Channel
from fedaudit.fl.kinds import MODELS, TRAINED, Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.recording.noise import share_of_noise
from fedaudit.fl.wire.protection import Protection

MOST_UPLOADS, MOST_NUMBERS = 160, 4_000_000  # that are compared in pairs
SPACING = 2.0**-22  # of single precision, relative
CLEAR = 1e-3  # of the noise: rounding that changes neither its amount nor its law


class NoisedUpload(NamedTuple):
    """What a client sent of one kind, less what it is a change from, in units of its noise's scale."""

    line: Release
    arrays: Mapping[str, Floats]
    clip: float  # the norm of what lies beside the noise, at most

    @property
    def values(self) -> Floats:
        """[n] All arrays."""
        return np.concatenate([self.arrays[name] for name in sorted(self.arrays)])


def run_recorded_tests(
    recorded: Sequence[Artifact], releases: Sequence[Release], protections: Sequence[Protection], alpha: float
) -> tuple[list[NoiseTest], set[str]]:
    """Tests of the noise in recorded means and uploads, and the kinds that were tested.

    Noise as the ledger states it fails with a chance of at most `alpha`.
    """
    samples, uploads = sample_means(recorded, releases), list_uploads(recorded, releases, protections)
    tests = run_tests(samples, (), alpha / 2) if samples else []
    tests += answer_all(list(_list_questions(uploads)), alpha / 2)
    return tests, {s.line.kind for s in samples} | {u.line.kind for u in uploads}


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


def _list_questions(uploads: Sequence[NoisedUpload]) -> Iterator[tuple[str, NoiseHypothesis]]:
    ordered = sorted(uploads, key=lambda u: (u.line.kind, u.line.mechanism))
    for (kind, mechanism), group in groupby(ordered, key=lambda u: (u.line.kind, u.line.mechanism)):
        own = list(group)
        yield (
            kind,
            NoiseHypothesis(
                "amount of noise in uploads",
                "every part of the recorded uploads is long enough to hold the noise that the ledger states",
                "a part of the recorded uploads is too short to hold the noise that the ledger states",
                partial(measure_room, own),
            ),
        )
        if mechanism == "gaussian":
            yield (
                kind,
                NoiseHypothesis(
                    "independence of uploads",
                    "no two recorded uploads are nearer to each other than their own noise lets them be",
                    "two recorded uploads, or one and the opposite of another, are nearer than their own "
                    "noise would let them be: they share noise",
                    partial(measure_distances, own),
                ),
            )


def measure_room(uploads: Sequence[NoisedUpload]) -> Measured:
    """The least likely length of a part of uploads of one mechanism, with all that changes can take off it."""
    from scipy import stats

    order = 1 if uploads[0].line.mechanism == "laplace" else 2
    families = defaultdict[str, dict[str, list[float]]](lambda: defaultdict(lambda: [0.0, 0.0, 0.0]))
    for upload in uploads:
        where = f"round {upload.line.round}"
        for name, values in upload.arrays.items():
            size = float((np.abs(values) ** order).sum())
            message = f"{upload.line.sender}, {where}"
            for family, part in (
                ("whole", "all uploads"),
                ("rounds", where),
                ("senders", upload.line.sender),
                ("uploads", message),
                ("arrays", name),
                ("arrays of an upload", f"{name}, {message}"),
            ):
                total = families[family][part]
                total[0], total[1] = total[0] + size, total[1] + len(values)
                if name == next(iter(upload.arrays)) or "arrays" in family:
                    total[2] += upload.clip**order
    chances = []
    for family, parts in families.items():
        for part, (size, numbers, clips) in parts.items():
            most = size ** (1 / order) + clips ** (1 / order)
            law = stats.chi2(numbers) if order == 2 else stats.gamma(numbers)
            chance = float(law.cdf(most**order)) * len(parts) * len(families)
            chances.append((chance, family, part, size, numbers))
    least, family, part, size, numbers = min(chances)
    share = (size / numbers) ** (1 / order)
    looked = "the whole" if family == "whole" else f"the shortest of {len(families[family]):,} {family}, {part},"
    least = min(1.0, least)
    return least, f"{looked} is {share:.4g} times as long as the noise would be alone, p = {least:.2g}"


def measure_distances(uploads: Sequence[NoisedUpload]) -> Measured:
    """The least likely distance of two uploads, and of one from the opposite of the other."""
    from scipy import stats

    shapes = defaultdict[tuple[tuple[str, int], ...], list[NoisedUpload]](list)
    for upload in uploads:
        shapes[tuple((name, len(v)) for name, v in sorted(upload.arrays.items()))].append(upload)
    chances: list[tuple[float, float]] = []
    tried = 0
    for own in shapes.values():
        some = [own[i] for i in spread_out(len(own), MOST_UPLOADS)]
        rows = np.stack([u.values[: MOST_NUMBERS // len(some)] for u in some])
        clips = np.array([u.clip for u in some])
        squares, products = (rows**2).sum(1), rows @ rows.T
        one, other = np.triu_indices(len(some), 1)
        for sign in (-1, 1):
            lengths = np.sqrt(np.maximum(squares[one] + squares[other] + 2 * sign * products[one, other], 0))
            longest = lengths + clips[one] + clips[other]
            law = stats.chi2.cdf(longest**2 / 2, rows.shape[1])
            tried += len(law)
            if len(law):
                worst = int(np.argmin(law))
                chances.append((float(law[worst]), float(lengths[worst]) / math.sqrt(2 * rows.shape[1])))
    if not chances:
        return None
    least, share = min(chances)
    chance = min(1.0, least * tried)
    return chance, (
        f"the shortest of {tried:,} sums and differences is {share:.4g} times as long as that of independent "
        f"noise would be alone, p = {chance:.2g}"
    )


def sample_means(recorded: Sequence[Artifact], releases: Sequence[Release]) -> list[NoiseSample]:
    """The noise on each array of each mean, of rounds that were recorded whole.

    Rounds whose noise drowns in the rounding of single precision are left out.
    """
    artifacts = index(recorded)
    models = {a.round: a.payload for a in artifacts.select(kind=Kind.GLOBAL_MODEL)}
    means = {r.round: r for r in releases if r.kind == Kind.GLOBAL_MODEL.value and r.noise_std and r.clip_norm}
    found: list[NoiseSample] = []
    for t, line in sorted(means.items()):
        if t not in models or t + 1 not in models:
            continue
        listed = {r.sender: r for r in releases if r.round == t and r.source == line.source and r != line}
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
