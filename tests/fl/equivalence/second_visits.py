"""Second programs of methods without ordinary rounds: FedAsync and FedBuff, Astraea and FAug."""

from math import log
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.fl.equivalence.second import (
    CHANGING,
    CLIENTS,
    ROUNDS,
    STEADY,
    Pair,
    Vectors,
    counts_of,
    descend,
    images_of,
    is_lost,
    mean_of,
    method_of,
    order,
    pair,
    plain,
    served,
)
from tests.fl.methods.test_gandalf import GAN

PACE = {0: 1.0, 1: 3.5, 2: 2.2, 4: 1.45}  # how long a task of each client takes
STEPS = 11


def _paced(name: str, **settings: Any) -> Any:
    return method_of(name, {"duration": lambda self, federation, k, t: PACE[k]}, concurrency=4, **settings)


def _in_flight(w: Tensor, wanted: int, rho: float, step: Any) -> Vectors:
    """All train all the time; after `wanted` answers the server steps, and those who answered start anew."""
    now, due, start = 0.0, dict[int, float](), dict[int, tuple[int, Tensor]]()
    for t in range(STEPS):
        for k in CLIENTS:
            if k not in due:
                due[k], start[k] = now + PACE[k], (t, w)
        answers = []
        while due and len(answers) < wanted:
            k = min(due, key=lambda k: (due[k], k))
            now, (version, v) = due.pop(k), start[k]
            if is_lost(t, k):
                continue

            def loss(u: Tensor, x: Tensor, y: Tensor, v: Tensor = v) -> Tensor:
                return plain(u, x, y) + rho / 2 * ((u - v) ** 2).sum()

            x, y = images_of(k)
            answers.append((t - version, v, descend(v, x, y, order(version, k, len(y)), loss)))
        w = step(w, answers) if answers else w
    return {"global": w}


def fedasync() -> Pair:
    """Xie et al. 2019: w <- (1 - a) w + a w_k, a = alpha (age + 1)^-1/2; clients are pulled by rho."""

    def step(w: Tensor, answers: Any) -> Tensor:
        [(age, _, v)] = answers
        a = 0.6 * (age + 1) ** -0.5
        return (1 - a) * w + a * v

    method = _paced("fedasync", rounds=STEPS, rho=0.3, alpha=0.6, decay="polynomial", exponent=0.5)
    return pair(method, CHANGING | STEADY, lambda w: _in_flight(w, 1, 0.3, step), served)


def fedbuff() -> Pair:
    """Nguyen et al. 2021: w <- w + eta_g / B * sum of change / sqrt(1 + age)."""

    def step(w: Tensor, answers: Any) -> Tensor:
        return w + 0.8 / len(answers) * sum((v - start) / (1 + age) ** 0.5 for age, start, v in answers)

    method = _paced("fedbuff", rounds=STEPS, buffer=2, server_lr=0.8)
    return pair(method, CHANGING | STEADY, lambda w: _in_flight(w, 2, 0.0, step), served)


def _with_made(k: int, memory: Any) -> tuple[Tensor, Tensor]:
    """A client's examples, with the images that were made for it (given)."""
    x, y = images_of(k)
    if "kept" in memory:
        x, y = x[memory["kept"]], y[memory["kept"]]
    made = (memory["x"].double() / 255 - 0.4) / 0.25
    return torch.cat([x, made]), torch.cat([y, memory["y"]])


def astraea() -> Pair:
    """Duan et al. 2021: counts brought to mean -+ theta sd; groups near uniform, trained through in turn."""
    made: dict[int, Any] = {}

    def rebalance(self: Any, t: int, state: Any, memory: Any, federation: Any) -> Any:
        state = type(self).__mro__[1].run_rebalance(self, t, state, memory, federation)  # type: ignore[attr-defined]
        made.update(memory)
        return state

    def from_uniform(p: np.ndarray) -> float:
        p = (p / p.sum() + 1e-5) / (1 + 4e-5)
        return sum(float(q) * log(float(q) * 4) for q in p)

    def second(w: Tensor) -> Vectors:
        have = {k: counts_of(images_of(k)[1]) for k in CLIENTS}
        total = sum(have.values(), np.zeros(4))
        low, high = total.mean() - 0.3 * total.std(), total.mean() + 0.3 * total.std()
        factor = [(low if g < low else high if g > high else g) / g for g in total]
        now = {}
        for k, n in have.items():
            now[k] = np.array([max(1, round(c * f)) if c else 0 for c, f in zip(n, factor, strict=True)])
            assert (counts_of(_with_made(k, made[k])[1]) == now[k]).all()
        left, groups = list(CLIENTS), []
        while left:
            group: list[int] = []
            while left and len(group) < 2:
                best = min(left, key=lambda k: from_uniform(sum((now[j] for j in [*group, k]), np.zeros(4))))
                group.append(best)
                left.remove(best)
            groups.append(sorted(group))
        for t in range(1, ROUNDS + 1):
            ends, sizes = {}, {}
            for g, group in enumerate(groups):
                v = w
                for epoch in range(2):
                    for k in group:
                        x, y = _with_made(k, made[k])
                        stream = f"batches/{epoch}" if epoch else "batches"
                        v = descend(v, x, y, order(t, k, len(y), stream=stream))
                ends[g], sizes[g] = v, float(sum(now[k].sum() for k in group))
            w = mean_of(ends, sizes)
        return {"global": w}

    settings = {"theta_add": 0.3, "theta_drop": 0.3, "mediators": 2, "mediator_epochs": 2}
    method = method_of("astraea", {"run_rebalance": rebalance}, **settings)
    return pair(method, STEADY, second, served)


def faug() -> Pair:
    """Jeong et al. 2018: classes filled up to the client's largest with made images (given), then FedAvg."""
    made: dict[int, Any] = {}

    def seed(self: Any, t: int, state: Any, memory: Any, federation: Any) -> Any:
        state = type(self).__mro__[1].run_seed(self, t, state, memory, federation)  # type: ignore[attr-defined]
        made.update(memory)
        return state

    def second(w: Tensor) -> Vectors:
        able = {c for m in made.values() for c in m["y"].tolist()}
        held = {k: _with_made(k, made[k]) for k in CLIENTS}
        for k, (_, y) in held.items():
            have = counts_of(images_of(k)[1])
            full = [int(n + 0.6 * (max(have) - n)) if c in able else int(n) for c, n in enumerate(have)]
            assert counts_of(y).tolist() == full
        for t in range(1, ROUNDS + 1):
            answers = {k: descend(w, x, y, order(t, k, len(y))) for k, (x, y) in held.items()}
            w = mean_of(answers, {k: float(len(y)) for k, (_, y) in held.items()})
        return {"global": w}

    method = method_of("faug", {"run_seed": seed}, gan=GAN, enlarged=8, seeds=3, share=0.6)
    return pair(method, STEADY, second, served)
