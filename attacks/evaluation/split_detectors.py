"""What a client of split learning can tell of the gradients that it is sent: two detectors of a hijacking server.

A server that trains clients' layers for itself (Pasquini, Ateniese, Bernaschi. CCS 2021, arXiv:2012.02670)
sends gradients that do not depend on labels. Both detectors look for that.

SplitGuard (Erdogan, Kupcu, Cicek. 2021, arXiv:2108.09052; ege-erdogan/splitguard c29acbe). A client sends
some batches with false labels. Of the mean gradients F of those, and C and R of two halves of the others,
with angles and lengths f, c, r and d = |f - cr| + |c - r|,

    x = angle(F, CR) |f - cr| / d - angle(C, R) |c - r| / d,    S = sigmoid(5 x)^2;  low: the server is hijacking

Gradients Scrutinizer (Fu et al. NDSS 2023; CGCL-codes f6f4821). Of means s, d and deviations of similarities,
half the cosine and a half, of gradients of equal and of unlike labels, the gap g = (s - d) / (s + d), the
overlap o of the intervals of one deviation (their intersection over their union) and the root mean square r of
a quadratic fit of s over batches,

    sigmoid(5 (g |g|^-.6 ln(7 r + e^-2) ln(o + e^-1) - .7)),    low: the server is hijacking

Two defects of that code are mended: the overlap of honest runs took the smaller end where that of hijacked ones
took the larger, and a gap of 0 was 0 / 0, which is 0 here.

Both papers call a server a hijacker below a bound (.5 in the second) that was set for their networks and does
not transfer: on digits an honest server scores .33. No score is held against one here. Which batches have false
labels is drawn at random, so of a server that ignores labels any choice of as many batches scores alike: the
share of random choices that score as high as the true one is the p-value of that, and a small one clears the
server. A large one accuses nobody. The second detector has no such law: gradients that ignore labels follow
images, and images follow labels, so labels in random order score lower than a hijacker does.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from fedaudit.attacks.modality.images import to_rows

Floats = NDArray[np.floating[Any]]
CHOICES = 199  # random ones: p is 1 in 200 at least


class Similarities(NamedTuple):
    """Means and deviations of similarities of gradients in one batch or over several."""

    same: float
    other: float
    same_std: float
    other_std: float


def score_splitguard(false: Floats, one: Floats, two: Floats) -> Floats:
    """S [...], 0 to 1, from the mean gradients [..., D] of batches with false labels and of halves of the others.

    0 where the lengths and angles of all three agree, for which the formula has no value.
    """
    regular = (np.asarray(one, np.float64) + two) / 2
    pairs = ((false, regular), (one, two))
    gaps = [abs(np.linalg.norm(a, axis=-1) - np.linalg.norm(b, axis=-1)) for a, b in pairs]
    angles = [_measure_angle(a, b) for a, b in pairs]
    whole = np.asarray(gaps[0] + gaps[1])
    x = (angles[0] * gaps[0] - angles[1] * gaps[1]) / np.where(whole > 0, whole, 1)
    return np.asarray(np.where(whole > 0, scipy.special.expit(5 * x) ** 2, 0.0))


def score_choices(means: Floats, is_false: NDArray[np.bool_], rng: np.random.Generator) -> Floats:
    """SplitGuard's scores by mean gradients [n, D] of batches: of the false ones, then of CHOICES random choices.

    There must be a batch with false labels, and two others.
    """
    choices = np.stack([is_false, *(rng.permutation(is_false) for _ in range(CHOICES))])
    odd = np.cumsum(~choices, axis=1) % 2 == 1  # of the others, every second one
    groups = [choices, ~choices & odd, ~choices & ~odd]
    return score_splitguard(*(g / g.sum(axis=1, keepdims=True) @ means for g in groups))


def compute_chance(scores: Floats) -> float:
    """How likely a server that ignores labels scores as high, by what score_choices() gives."""
    return (1 + int((scores[1:] >= scores[0]).sum())) / len(scores)


def score_scrutinizer(means: Similarities, error: float) -> float:
    """The score of Gradients Scrutinizer from 0 to 1, of similarities and the error of their fit over batches."""
    whole = means.same + means.other
    gap = (means.same - means.other) / whole if whole else 0.0
    bent = math.copysign(abs(gap) ** 0.4, gap) if gap else 0.0
    lows = (means.same - means.same_std, means.other - means.other_std)
    highs = (means.same + means.same_std, means.other + means.other_std)
    span = max(highs) - min(lows)
    overlap = max(min(highs) - max(lows), 0.0) / span if span else 0.0
    x = bent * math.log(7 * error + math.exp(-2)) * math.log(overlap + math.exp(-1)) - 0.7
    return float(scipy.special.expit(5 * x))


def compare_gradients(gradients: Floats, y: NDArray[np.int64]) -> Similarities:
    """Similarities of gradients [b, D] of one batch, of pairs with equal labels y [b] and with unlike ones."""
    flat = to_rows(np.asarray(gradients, np.float64))
    unit = flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    values, pairs = (unit @ unit.T + 1) / 2, np.triu(np.ones((len(y), len(y)), bool), 1)
    same = y[:, None] == y
    groups = [values[pairs & same], values[pairs & ~same]]
    means = [float(v.mean()) if len(v) else 0.0 for v in groups]
    deviations = [float(v.std()) if len(v) else 0.0 for v in groups]
    return Similarities(*means, *deviations)


def measure_fit(values: Sequence[float]) -> float:
    """Root mean square error of the quadratic that fits values over batches best; 0 of three or fewer."""
    if len(values) <= 3:
        return 0.0
    places = np.arange(len(values)) / len(values)
    fitted = np.polyval(np.polyfit(places, values, 2), places)
    return float(np.sqrt(np.square(fitted - values).mean()))


def _measure_angle(a: Floats, b: Floats) -> Floats:
    lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    cosine = (np.asarray(a) * b).sum(axis=-1) / np.where(lengths > 0, lengths, 1)
    return np.asarray(np.where(lengths > 0, np.arccos(np.clip(cosine, -1, 1)), 0.0))
