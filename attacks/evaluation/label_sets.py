"""Evidence on label sets and label proportions: how often a client's classes are named, and how well.

Blind adversaries are told how many classes each client owns, which is more than the attack knows: a
random set of that size, the classes most frequent in the auxiliary images, and, for the share of
right names, all classes.
"""

from collections.abc import Mapping
from math import comb
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks import stats
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evidence import Baseline, Evidence

Sets = NDArray[np.bool_]  # [k, C]
Condition = Mapping[str, float | str]


def set_evidence(
    claimed: Sets,
    true: Sets,
    prior: NDArray[np.float64],
    rng: np.random.Generator,
    *,
    looks: int = 1,
    condition: Condition | None = None,
    note: str = "",
    control: Literal["none", "positive"] = "none",
) -> list[Evidence]:
    """Exact sets and F1 of claimed against true sets; prior [C]: how frequent classes are."""
    judge = Judge(looks=looks, control=control, condition=condition or {}, note=note)
    size = true.sum(axis=1)
    frequent = np.argsort(np.argsort(-prior, kind="stable"))[None] < size[:, None]
    hits, scores = (claimed == true).all(axis=1), f1(claimed, true)
    return [
        judge.judge_hits(
            "label_set_exact_match",
            hits,
            groups=stats.INDEPENDENT,  # a client each
            baselines=(
                Baseline(name="random set of the same size", value=chance(size, true.shape[1])),
                Baseline(name="most frequent classes", value=float((frequent == true).all(axis=1).mean())),
            ),
        ),
        judge.judge_values(
            "label_set_f1",
            scores,
            {
                "random set of the same size": size / true.shape[1],
                "most frequent classes": f1(frequent, true),
                "all classes": f1(np.ones_like(true), true),
            },
            rng,
            groups=stats.INDEPENDENT,  # a client each
            bounds=(0, 1),
        ),
    ]


def wrong_client(claimed: Sets, true: Sets, condition: Condition | None = None) -> list[Evidence]:
    """Negative control: each claim against the classes of another client, where they differ."""
    different = (true[:, None] != true).any(axis=2)  # [k, k]
    have = np.flatnonzero(different.any(axis=1))
    if not len(have):
        return []
    other = true[different[have].argmax(axis=1)]
    return [
        Judge(
            control="negative", condition=condition or {}, note="claims against the classes of another client"
        ).judge_hits(
            "label_set_exact_match",
            (claimed[have] == other).all(axis=1),
            groups=stats.INDEPENDENT,  # a client each
            baselines=[
                Baseline(name="random set of the same size", value=chance(other.sum(axis=1), true.shape[1]))
            ],
        )
    ]


def share_evidence(
    claimed: NDArray[np.float64],
    counts: NDArray[np.int64],
    prior: NDArray[np.float64],
    rng: np.random.Generator,
    *,
    note: str = "",
    condition: Condition | None = None,
    looks: int = 1,
) -> list[Evidence]:
    """L1 distance, 0 to 2, of claimed proportions [k, C] from those of the true counts [k, C]."""
    true = counts / counts.sum(axis=1, keepdims=True)
    distance = np.abs(claimed - true).sum(axis=1)
    blind = {"uniform": np.full(true.shape[1], 1 / true.shape[1]), "global prior": prior / prior.sum()}
    judge = Judge(looks=looks, condition=condition or {}, note=note)
    return [
        judge.state(
            "label_share_l1",
            float(distance.mean()),
            len(true),
            judge.bound_mean(distance, rng, groups=stats.INDEPENDENT, bounds=(0, 2)),  # a client each
            [
                Baseline(name=name, value=float(np.abs(guess - true).sum(axis=1).mean()))
                for name, guess in blind.items()
            ],
        )
    ]


def f1(claimed: Sets, true: Sets) -> NDArray[np.float64]:
    """Harmonic mean of precision and recall of each set, [k]; 0 for an empty claim."""
    both = 2.0 * (claimed & true).sum(axis=1)
    return np.asarray(both / np.maximum(claimed.sum(axis=1) + true.sum(axis=1), 1))


def chance(sizes: NDArray[np.int64], classes: int) -> float:
    """How often a random set of each size is the right one."""
    return float(np.mean([1 / comb(classes, int(k)) for k in sizes]))
