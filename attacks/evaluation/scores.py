"""Scores of single images under a model, higher for members; logits [..., N, C], labels [N]."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from fedaudit.attacks.attack import Architecture, Examples, Floats
from fedaudit.attacks.evaluation.targets import Target

if TYPE_CHECKING:
    from fedaudit.fl.runtime.task import Task

Values = NDArray[np.float64]
Mask = NDArray[np.bool_]


def score_asked(
    queried: Sequence[Target], asked: Mask, score: Callable[[Target, NDArray[np.int64]], Floats]
) -> Floats:
    """[k, N] from score(model, numbers of its candidates in `asked` [k, N]); NaN elsewhere."""
    table = np.full(asked.shape, np.nan)
    for row, target in enumerate(queried):
        rows = np.flatnonzero(asked[row])
        if len(rows):
            table[row, rows] = score(target, rows)
    return table


def score_outputs(
    queried: Sequence[Target],
    architecture: Architecture,
    candidates: Examples,
    asked: Mask,
    rate: Callable[[Floats, NDArray[Any]], Floats],
) -> Floats:
    """The same of what models answer: rate(answers [n, width], labels [n, ...]) -> [n]."""
    x, y = candidates.x, candidates.wanted

    def score(target: Target, rows: NDArray[np.int64]) -> Floats:
        return rate(architecture(target.weights).logits(x[rows]), y[rows])

    return score_asked(queried, asked, score)


def measure_fit(task: "Task | None", answers: Floats, labels: NDArray[Any]) -> Values:
    """[..., N] minus the loss of each example by the task, of answers [..., N, width] and labels [N, ...].

    Of a loss that depends on who else is in a batch, how right each answer is among all N, from 0 to 1. A model
    that has learnt two of a risk set has them in order, and far from the others, so that the later one loses more
    by its loss than people whom nobody trained on; and the loss of whoever was not seen to the end is 0.
    """
    if task is None or task.has_classes:
        return log_probability(answers, labels)
    import torch

    wanted, given = torch.from_numpy(np.ascontiguousarray(labels)), torch.from_numpy(np.float64(answers))
    lead = given.shape[: given.dim() - (1 + wanted.dim() if task.by_place else 2)]
    flat = given.reshape(-1, *given.shape[len(lead) :])
    fit = task.scores if not task.separable else lambda out, y: -task.losses(out, y)
    found = np.stack([fit(one, wanted).numpy() for one in flat])
    return np.asarray(found.reshape(*lead, len(labels)), np.float64)


def log_probability(logits: ArrayLike, y: NDArray[np.int64]) -> Values:
    """ln p of the true class: minus the loss."""
    z = np.asarray(logits, np.float64)
    own = np.take_along_axis(z, _index(z, y), axis=-1)[..., 0]
    return np.asarray(own - scipy.special.logsumexp(z, axis=-1))


def scaled_logit(logits: ArrayLike, y: NDArray[np.int64]) -> Values:
    """ln(p / (1 - p)) of the true class, without rounding p (Carlini et al. 2022, sec. V.A)."""
    z = np.array(logits, np.float64)
    index = _index(z, y)
    own = np.take_along_axis(z, index, axis=-1)[..., 0]
    np.put_along_axis(z, index, -np.inf, axis=-1)
    return np.asarray(own - scipy.special.logsumexp(z, axis=-1))


def modified_entropy(logits: ArrayLike, y: NDArray[np.int64]) -> Values:
    """-(1 - p_y) ln p_y - sum over other classes of p ln(1 - p) (Song and Mittal 2021, eq. 8)."""
    z = np.asarray(logits, np.float64)
    log_p = z - scipy.special.logsumexp(z, axis=-1, keepdims=True)
    p = np.exp(log_p)
    log_rest = np.log1p(-np.minimum(p, 1 - 1e-16))  # ln(1 - p); p = 1 is rounding
    index = _index(z, y)
    terms = p * log_rest
    np.put_along_axis(terms, index, 0.0, axis=-1)
    log_own = np.take_along_axis(log_p, index, axis=-1)[..., 0]
    rest = -np.expm1(log_own)
    return np.asarray(-rest * log_own - terms.sum(axis=-1))


def lira_online(target: ArrayLike, ins: ArrayLike, outs: ArrayLike, shared: bool = False) -> Values:
    """ln N(phi; mu_in, s_in) - ln N(phi; mu_out, s_out); phi [...], shadows [K, ...], NaN: left out.

    Carlini et al., IEEE S&P 2022, algorithm 1; `shared`: one deviation for all images (sec. VI.C).
    """
    phi = np.asarray(target, np.float64)
    inside, outside = moments(ins, shared), moments(outs, shared)
    return np.asarray(_log_normal(phi, *inside) - _log_normal(phi, *outside))


def lira_offline(target: ArrayLike, outs: ArrayLike, shared: bool = False) -> Values:
    """(phi - mu_out) / s_out, the one-sided test of Carlini et al. 2022, sec. V.C, before its normal tail.

    Phi keeps the order of z only until it rounds to 1: every score beyond 38 deviations would be the same.
    """
    mean, spread = moments(outs, shared)
    return np.asarray((np.asarray(target, np.float64) - mean) / spread)


def moments(values: ArrayLike, shared: bool = False) -> tuple[Values, Values]:
    """Mean and deviation over the first axis, NaN left out; `shared`: one deviation for all."""
    v = np.asarray(values, np.float64)
    mean = np.nanmean(v, axis=0)
    spread = np.nanstd(v, axis=0)
    if shared:
        spread = np.full_like(spread, np.sqrt(np.nanmean((v - mean) ** 2)))
    return mean, np.maximum(spread, 1e-6)


def rmia(
    target: ArrayLike, outs: ArrayLike, target_z: ArrayLike, outs_z: ArrayLike, a: float, gamma: float
) -> Values:
    """Share of population z with [p(x)/P(x)] / [p(z)/P(z)] > gamma; p [N] and [Z], P from [K, .].

    Zarifzadeh, Liu, Shokri, ICML 2024, arXiv:2312.03262, eq. 4 and 10 (offline):
    P = ((1 + a) mean_out + (1 - a)) / 2.
    """
    x = likelihood_ratio(target, outs, a)
    z = np.sort(likelihood_ratio(target_z, outs_z, a))
    return np.asarray(np.searchsorted(z, x / gamma, side="left") / len(z))


def likelihood_ratio(p: ArrayLike, outs: ArrayLike, a: float) -> Values:
    """p(x) / P(x), see rmia."""
    out = np.nanmean(np.asarray(outs, np.float64), axis=0)
    return np.asarray(np.asarray(p, np.float64) / (((1 + a) * out + (1 - a)) / 2))


def _log_normal(x: Values, mean: Values, spread: Values) -> Values:
    return np.asarray(-(((x - mean) / spread) ** 2) / 2 - np.log(spread))


def _index(z: NDArray[np.float64], y: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.broadcast_to(y, z.shape[:-1])[..., None]
