"""Second programs of methods that send something else than models: Fisher diagonals, logits, features."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tests.fl.equivalence.second import (
    CHANGING,
    DECAY,
    LENGTH,
    MOMENTUM,
    RATE,
    ROUNDS,
    Pair,
    Vectors,
    heard,
    images_of,
    logits,
    mean_of,
    method_of,
    order,
    pair,
    served,
)


def _fisher(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Mean of the squared gradients of single examples, one by one."""
    total = torch.zeros(LENGTH, dtype=torch.float64)
    for i in range(len(y)):
        v = w.clone().requires_grad_()
        [g] = torch.autograd.grad(cross_entropy(logits(v, x[i : i + 1]), y[i : i + 1]), [v])
        total += g**2
    return total / len(y)


def fedcurv() -> Pair:
    """Shoham et al. 2019: CE + lambda sum over the others of F_j (w - w_j)^2, in full and not by its sums."""
    strength = 0.5

    def second(w: Tensor) -> Vectors:
        last: dict[int, tuple[Tensor, Tensor]] = {}  # F_j and w_j of the last round
        for t in range(ROUNDS):
            answers = {}
            for k in heard(t):
                x, y = images_of(k)
                v, buffer = w, torch.zeros_like(w)
                for rows in order(t, k, len(y)):
                    now = v.clone().requires_grad_()
                    loss = cross_entropy(logits(now, x[rows]), y[rows])
                    for j, (fisher, own) in last.items():
                        if j != k:
                            loss = loss + strength * (fisher * (now - own) ** 2).sum()
                    [g] = torch.autograd.grad(loss, [now])
                    buffer = MOMENTUM * buffer + g + DECAY * v
                    v = v - RATE * buffer
                answers[k] = v
            last = {k: (_fisher(v, *images_of(k)), v) for k, v in answers.items()}
            w = mean_of(answers) if answers else w
        return {"global": w}

    made: Any = method_of("fedcurv", strength=strength)
    return pair(made, CHANGING, second, served)
