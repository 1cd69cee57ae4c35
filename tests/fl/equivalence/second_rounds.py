"""Second programs of methods in rounds: FLDA, FD and its hybrid, IFCA, power-of-choice, Seol and Kim."""

from collections.abc import Iterator
from math import atan, ceil, exp, log
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax

from fedaudit.fl.clients.selection import Choice
from fedaudit.fl.families.balanced_selection import allocate
from fedaudit.fl.selections.power_of_choice import PowerOfChoice
from tests.fl.equivalence.second import (
    CHANGING,
    CLIENTS,
    LENGTH,
    PARTS,
    ROUNDS,
    STEADY,
    Pair,
    Vectors,
    counts_of,
    descend,
    features,
    heard,
    images_of,
    is_lost,
    logits,
    mean_of,
    method_of,
    order,
    pair,
    served,
)
from tests.fl.methods.by_hand import vector
from tests.fl.worlds import World


def flda() -> Pair:
    """Peterson et al. 2019: -log of a(x) G(x)_y + (1 - a(x)) P(x)_y over G, P_k, u_k, b_k; G is averaged."""

    def mixed(v: Tensor, x: Tensor, y: Tensor) -> Tensor:
        g, p, u, b = v.split([LENGTH, LENGTH, 8, 1])
        a = torch.sigmoid(features(g, x) @ u + b)[:, None]
        both = a * logits(g, x).softmax(1) + (1 - a) * logits(p, x).softmax(1)
        return -both[range(len(y)), y].log().mean()

    def second(w: Tensor) -> Vectors:
        own = {k: torch.cat([w, torch.zeros(9)]) for k in CLIENTS}
        seen = set()
        for t in range(ROUNDS):
            answers = {}
            for k in heard(t):
                x, y = images_of(k)
                v = descend(torch.cat([w, own[k]]), x, y, order(t, k, len(y)), mixed)
                answers[k], own[k] = v[:LENGTH], v[LENGTH:]
            seen |= answers.keys()
            w = mean_of(answers) if answers else w
        return {"global": w} | {f"own/{k}": own[k] for k in seen}

    def ours(world: World) -> Vectors:
        mine = {k: {n: v for n, v in s.items() if not n.startswith("shared.")} for k, s in method.seen.items()}
        return served(world) | {f"own/{k}": vector(s) for k, s in mine.items()}

    method = method_of("flda", {"get_client_models": _own_models})
    return pair(method, CHANGING, second, ours)


def _own_models(self: Any, *at: Any) -> Iterator[Any]:
    """Keeps the models that clients use themselves."""
    self.seen = {k: dict(m) for k, m in type(self).__mro__[1].get_client_models(self, *at)}  # type: ignore[attr-defined]
    return iter(self.seen.items())


def _distilled(w: Tensor, averaged: bool, gamma: float) -> Vectors:
    """Jeong et al. 2018, Algorithm 1: CE(y) + gamma CE(others' mean output on class y) of the round before."""
    own, tables, seen = dict.fromkeys(CLIENTS, w), dict[int, dict[int, Tensor]](), set()
    for t in range(ROUNDS):
        answers = {}
        for k in heard(t):
            rows = {
                c: torch.stack([f[c] for j, f in tables.items() if j != k and c in f]).mean(0)
                for c in range(4)
                if any(j != k and c in f for j, f in tables.items())
            }

            def loss(v: Tensor, x: Tensor, y: Tensor, rows: dict[int, Tensor] = rows) -> Tensor:
                z = logits(v, x)
                taught = [-(rows[c] * log_softmax(z[i], 0)).sum() for i, c in enumerate(y.tolist()) if c in rows]
                return cross_entropy(z, y) + gamma * sum(taught, torch.zeros(())) / len(y)

            x, y = images_of(k)
            answers[k] = descend(w if averaged else own[k], x, y, order(t, k, len(y)), loss)
        if not answers:
            continue
        tables = {}
        for k, v in answers.items():
            x, y = images_of(k)
            said = logits(v, x).softmax(1)
            tables[k] = {c: said[y == c].mean(0) for c in set(y.tolist())}
        own, seen = own | answers, seen | answers.keys()
        w = mean_of(answers)
    return {"global": w} if averaged else {f"own/{k}": own[k] for k in seen}


def fd() -> Pair:
    method = method_of("fd", {"get_client_models": _own_models}, gamma=0.7)
    return pair(
        method,
        CHANGING,
        lambda w: _distilled(w, False, 0.7),
        lambda world: {f"own/{k}": vector(s) for k, s in method.seen.items()},
    )


def fedavg_fd() -> Pair:
    method = method_of("fedavg_fd", gamma=0.7)
    return pair(method, CHANGING, lambda w: _distilled(w, True, 0.7), served)


def ifca() -> Pair:
    """Ghosh et al. 2020, Algorithm 1: a client trains the model of least loss; each is averaged by itself."""

    def start(self: Any, federation: Any) -> Any:
        state = type(self).__mro__[1].start(self, federation)  # type: ignore[attr-defined]
        self.first = {int(j): vector(m) for j, m in state["models"].items()}
        return state

    def combine(self: Any, *given: Any) -> Any:
        state = type(self).__mro__[1].combine(self, *given)  # type: ignore[attr-defined]
        self.models = {int(j): vector(m) for j, m in state["models"].items()}
        return state

    def second(w: Tensor) -> Vectors:
        models = dict(method.first)  # how the second one is drawn is given
        assert torch.equal(models[0], w)
        for t in range(ROUNDS):
            answers: dict[int, dict[int, Tensor]] = {j: {} for j in models}
            for k in heard(t):
                x, y = images_of(k)
                j = min(models, key=lambda i: float(cross_entropy(logits(models[i], x), y)))
                answers[j][k] = descend(models[j], x, y, order(t, k, len(y)))
            models = {j: mean_of(answers[j]) if answers[j] else m for j, m in models.items()}
        assert not any(torch.equal(models[j], method.first[j]) for j in models), "each is chosen by somebody"
        return {f"model/{j}": m for j, m in models.items()}

    method = method_of("ifca", {"start": start, "combine": combine})
    return pair(method, CHANGING, second, lambda _: {f"model/{j}": m for j, m in method.models.items()})


def power_of_choice() -> Pair:
    """Cho et al. 2020: of d candidates the m with the largest loss of the global model train; plain mean."""
    drawn: dict[int, list[int]] = {}

    class Noting(PowerOfChoice):
        def choose_candidates(self, choice: Choice) -> Any:
            drawn[choice.round] = super().choose_candidates(choice)
            return drawn[choice.round]

    def second(w: Tensor) -> Vectors:
        for t in range(ROUNDS):
            losses = {}
            for k in drawn[t]:
                x, y = images_of(k)
                losses[k] = float(cross_entropy(logits(w, x), y))
            answers = {}
            for k in sorted(losses, key=lambda k: -losses[k])[:2]:
                x, y = images_of(k)
                answers[k] = descend(w, x, y, order(t, k, len(y)))
            w = mean_of(answers, dict.fromkeys(answers, 1.0))
        return {"global": w}

    method = method_of("power_of_choice", {}, candidates=3, chosen=2)
    method.selection = Noting(method.config)
    return pair(method, STEADY, second, served)


def _kl(v: list[int]) -> float:
    shares = [c / sum(v) for c in v if c]
    return sum(p * log(p * len(v)) for p in shares)


def _chosen(n: dict[int, list[int]], h: int, least: float) -> dict[int, list[int]]:
    """Algorithm 2: whom the server chooses, in that order, and what each is to train on."""
    order = sorted(n, key=lambda k: -sum(n[k]))
    assert len({sum(c) for c in n.values()}) == len(n), "ties are drawn"
    first = order[0]
    given, v, room = {first: n[first]}, list(n[first]), max(n[first])
    while len(given) < h and _kl(v) >= least:
        fits = [
            (k, [min(room - have, c) for have, c in zip(v, n[k], strict=True)])
            for f in sorted(range(len(v)), key=lambda f: v[f])
            for k in order
            if k not in given and n[k][f] > 0
        ]
        fits = [(k, a) for k, a in fits if sum(a) > 0]
        if not fits:
            break
        k, a = fits[0]
        given[k], v = a, [x + y for x, y in zip(v, a, strict=True)]
    return given


def _agrees_on_choices() -> None:
    """Ours chooses and hands out the same for many clients with counts of any kind."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        drawn = rng.integers(0, 60, (12, 5)) * (rng.random((12, 5)) < 0.4)
        n = {k: row.tolist() for k, row in enumerate(drawn) if row.any()}
        if len({sum(c) for c in n.values()}) == len(n):
            volumes = {k: np.array(c) for k, c in n.items()}
            ours = allocate(volumes, 6, 0.05, np.random.default_rng(0))
            assert [(k, s.tolist()) for k, s in ours.items()] == list(_chosen(n, 6, 0.05).items())


def seol_kim() -> Pair:
    """Algorithms 1 to 3, with the allocation used as computed; which of a client's rows are drawn is given."""
    drawn: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
    h, least, beta, most = 3, 0.05, 3, 0.2

    def sampled(self: Any, client: Any) -> Any:
        found = type(self).__mro__[1]._draw_examples(self, client)  # type: ignore[attr-defined]
        drawn[client.round, client.index] = (found.x.double(), found.y)
        return found

    def volumes(delta: float, t: int) -> dict[int, list[int]]:
        found = {}
        for k in CLIENTS:
            n = counts_of(images_of(k)[1]).tolist()
            target = ceil(sum(n) / len(n) * exp(-delta * t))
            found[k] = [max(c, target) if c else 0 for c in n]
        return found

    def second(w: Tensor) -> Vectors:
        delta = 0.01
        for t in range(ROUNDS):
            n = volumes(delta, t)
            given, answers, used = _chosen(n, h, least), {}, {}
            for k, share in given.items():
                x, y = drawn[t, k]
                assert counts_of(y).tolist() == share
                if is_lost(t, k):
                    continue
                b = max(1, sum(share) // beta)
                answers[k] = descend(w, x, y, order(t, k, len(y), b), rate=most * atan(b))
                used[k] = float(sum(share))
            w = mean_of(answers, used) if answers else w
            raw = sum(len(PARTS[k]) for k in given)
            # nobody heard: the round leaves no trace
            if answers and (sum(sum(n[k]) for k in given) - raw) / raw > 0.02:
                delta += 0.1
        return {"global": w}

    _agrees_on_choices()
    settings = {"chosen": h, "theta_kld": least, "updates": beta, "eta_max": most, "lr_rule": "printed"}
    method = method_of("seol_kim", {"_draw_examples": sampled}, theta_over=0.02, **settings)
    return pair(method, STEADY | {"reply_loss": CHANGING["reply_loss"]}, second, served)
