"""Shadow models: copies of what is audited, trained by the adversary on images of its own.

The global model is imitated from fresh weights, an upload from the model it started from. Every
image of the pool is in exactly half of the models: they come in pairs, one trained on a random half
and one on the rest (Carlini et al., IEEE S&P 2022, arXiv:2112.03570, sec. VI). The loss is the
task's, whatever the audited method added to it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples, Floats, Knowledge
from fedaudit.attacks.evaluation.targets import Target


@dataclass(frozen=True, kw_only=True)
class Shadows:
    """Answers of shadow models, and whom they were trained on."""

    rows: list[int]  # of the models that they imitate
    logits: Floats  # [K, Q, C]
    inside: NDArray[np.bool_]  # [K, pool]


def shadows(
    queried: Sequence[Target],
    knowledge: Knowledge,
    pool: Examples,
    queries: Floats,
    *,
    count: int,
    epochs: int,
    seed: int,
) -> Iterator[Shadows]:
    """`count` (even) models for every start that some of the queried models had.

    `epochs` is that of models from fresh weights; uploads take as long as the clients' own visits.
    """
    assert knowledge.trainer is not None, "not_applicable says so"
    inside = halves(len(pool), count, np.random.default_rng(seed))
    subsets = [np.flatnonzero(row) for row in inside]
    families: dict[int, list[int]] = defaultdict(list)
    for row, target in enumerate(queried):  # the broadcast of a round is one object
        families[id(target.start) if target.start else 0].append(row)
    for number, rows in enumerate(families.values()):
        start: Mapping[str, NDArray[Any]] = queried[rows[0]].start
        visits = max(1, int(knowledge.training.get("local_epochs", 1)))
        logits = knowledge.trainer(
            pool, subsets, queries, epochs=visits if start else epochs, seed=seed + number, start=start or None
        )
        yield Shadows(rows=rows, logits=logits, inside=inside)


def halves(images: int, models: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """[models, images] who is trained on what; every image in half of the models."""
    found = np.zeros((models, images), bool)
    for first in range(0, models, 2):
        found[first, rng.permutation(images)[: images // 2]] = True
        found[first + 1] = ~found[first]
    return found


def lacking(knowledge: Knowledge) -> str:
    """Why no shadow models can be trained, as a sentence; empty when they can."""
    aux = knowledge.auxiliary
    if knowledge.trainer is None and aux is not None:
        return "shadow models are trained as the audited one was, and here nobody can train one so"
    there = 0 if aux is None else len(np.unique(aux.y))  # a network may have outputs for more classes
    if aux is None or not there or len(aux) < 2 * there:
        return (
            f"models to compare with are trained on auxiliary examples, two of each group of labels at least, "
            f"and the federation holds back {len(aux or ())}"
        )
    return ""
