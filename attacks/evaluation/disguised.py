"""Gradients in disguise: all that a client's messages tell of its gradients, over rounds and kinds.

What is called a model's change, a control variate or a momentum may be the gradient of one image, in one round
of many, and a message may hold it as a difference of what two rounds hold, or as what a sum grows by. So a
client's messages are read in every recorded round, in every kind that holds one number a parameter, and as

    sent          in the form that updates() gives every upload
    a sum         of all such messages up to a round: SCAFFOLD's c_k, of which control_delta is what it changed by
    a difference  to `beta` times the message before: the gradient in a momentum kept from round to round

One update a client is kept, so that trials are as many as clients and stand apart: the one that looks most like
the gradient of one image. That is seen in the message: one example's gradient of a dense layer is an outer
product of two vectors (Geiping et al., arXiv:2003.14053, prop. 3.1). The truth has no part in the choice.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Knowledge
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.gradients import KINDS, Arrays, Update, read_update
from fedaudit.attacks.evaluation.sums import SEVERAL, number_of
from fedaudit.fl.artifact import Artifact, Role
from fedaudit.fl.kinds import Kind

BETAS = (1.0, 0.9)  # of what the message before counts in a difference; and the published momentum
STEPS = 8  # of the power iteration


def loneliest(view: Sequence[Artifact], knowledge: Knowledge, applies: Callable[[Update], bool]) -> list[Update]:
    """Of every client, and every sum, the recorded update that looks most like one image's, in that order.

    Only what applies.
    """
    best: dict[int | str, tuple[float, Update]] = {}
    for update in readings([a for a in view if a.origin == "recorded"], knowledge):
        if not applies(update):
            continue
        alone = lone(update.gradient)
        whose = update.artifact if update.client == SEVERAL else update.client  # each sum is of others
        if whose not in best or alone > best[whose][0]:
            best[whose] = alone, update
    order = sorted(best, key=lambda k: (-best[k][0], best[k][1].client, best[k][1].artifact))
    return [best[k][1] for k in order]


def readings(recorded: Sequence[Artifact], knowledge: Knowledge) -> Iterator[Update]:
    """Every reading of every message, the newest rounds first where it is read as it was sent."""
    series: dict[tuple[int, Kind], list[Artifact]] = defaultdict(list)
    for a in recorded:
        if a.kind in KINDS and a.sender.role == Role.CLIENT:
            series[number_of(a.sender), a.kind].append(a)
    rest = index(a for a in recorded if a.kind not in KINDS)
    betas = dict.fromkeys((*BETAS, knowledge.training.get("momentum", 0.0)))
    for sent in series.values():
        sent.sort(key=lambda a: a.round)
        total: Arrays = {}
        before: Arrays = {}
        for a in sent:
            # alone with what is no upload, so that none of it is left out for another
            update = read_update(a, rest, knowledge)
            if update is None:
                continue
            yield update
            held = _separate_terms(a, update)
            total = _add_arrays(held, total, 1.0)
            if before:
                yield replace(update, gradient=total)
                for beta in betas:
                    if beta:
                        yield replace(update, gradient=_add_arrays(held, before, -beta))
            elif a.kind == Kind.CONTROL_DELTA:
                yield replace(update, gradient=total)  # c_k itself, if this is the client's first
            before = held


def lone(gradient: Arrays) -> float:
    """How nearly the largest matrix of a gradient is of rank one: 1 exactly, 0 where there is no matrix."""
    matrices = [np.asarray(v, np.float64) for v in gradient.values() if v.ndim == 2 and min(v.shape) > 1]
    if not matrices:
        return 0.0
    matrix = max(matrices, key=lambda m: m.size)
    size = float((matrix**2).sum())
    if not size or not np.isfinite(size):
        return 0.0
    along = matrix[np.argmax((matrix**2).sum(axis=1))]
    for _ in range(STEPS):
        along = matrix.T @ (matrix @ (along / np.linalg.norm(along)))
    return float(((matrix @ (along / np.linalg.norm(along))) ** 2).sum() / size)


def _separate_terms(a: Artifact, update: Update) -> Arrays:
    """What sums and differences are made of: a control variate without the common one that is added elsewhere."""
    if a.kind != Kind.CONTROL_DELTA:
        return update.gradient
    return {k: np.asarray(a.payload[k], np.float64) for k in update.gradient}


def _add_arrays(one: Arrays, other: Arrays, times: float) -> dict[str, NDArray[np.float64]]:
    return {k: np.asarray(v + times * other[k]) if k in other else np.asarray(v) for k, v in one.items()}
