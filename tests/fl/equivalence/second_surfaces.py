"""Second programs of methods that send something else than models: Fisher diagonals, logits, features."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedaudit.fl.runtime.streams import Streams
from tests.fl.equivalence.second import (
    BATCH,
    CHANGING,
    CLIENTS,
    DATA,
    DECAY,
    LENGTH,
    MOMENTUM,
    PARTS,
    RATE,
    ROUNDS,
    Pair,
    Vectors,
    descend,
    features,
    heard,
    images_of,
    logits,
    mean_of,
    method_of,
    order,
    pair,
    served,
)
from tests.fl.methods.by_hand import vector


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


def _own_models(self: Any, *at: Any) -> Iterator[Any]:
    """Keeps the models that clients use themselves."""
    self.seen = {k: dict(m) for k, m in type(self).__mro__[1].get_client_models(self, *at)}  # type: ignore[attr-defined]
    return iter(self.seen.items())


def fedmd() -> Pair:
    """Li and Wang 2019, Algorithm 1: fit the mean logits of the round before by |.|, then one's own examples.

    Public are the twelve examples that no client holds.
    """
    first, drawn, together = 3, 9, 4
    nobodys = np.setdiff1d(np.arange(len(DATA.train)), np.concatenate(PARTS))
    x_public = (torch.from_numpy(DATA.train.x[nobodys]).double() - 0.4) / 0.25

    def second(w: Tensor) -> Vectors:
        own, seen, mean = dict.fromkeys(CLIENTS, w), set[int](), None
        for t in range(ROUNDS):
            places = torch.randperm(len(x_public), generator=Streams(5).torch("public", t))[:drawn].sort().values
            answers = {}
            for k in heard(t):
                v, (x, y) = own[k], images_of(k)
                if mean is not None:
                    rows, target = mean

                    def fit(v: Tensor, xb: Tensor, yb: Tensor, target: Tensor = target) -> Tensor:
                        return sum((logits(v, xb) - target[yb]).abs().sum(1)) / (4 * len(xb))  # type: ignore[return-value]

                    rng = Streams(5).torch("public_batches", t, k)
                    batches = torch.randperm(drawn, generator=rng).split(together)
                    v = descend(v, x_public[rows], torch.arange(drawn), batches, fit)
                rng = Streams(5).torch("batches", t, k)
                epochs = 2 if k in seen else first
                each = [b for _ in range(epochs) for b in torch.randperm(len(y), generator=rng).split(BATCH)]
                answers[k] = descend(v, x, y, each)
            own, seen = own | answers, seen | answers.keys()
            if answers:
                said = [logits(v, x_public[places]) for v in answers.values()]
                mean = places, sum(said, torch.zeros(())) / len(said)
        return {f"own/{k}": own[k] for k in seen}

    made = method_of(
        "fedmd", {"get_client_models": _own_models}, public_size=drawn, align_batch=together, first_epochs=first
    )
    return pair(made, CHANGING, second, lambda world: {f"own/{k}": vector(s) for k, s in made.seen.items()})


def _gap(z: Tensor, teacher: Tensor, temperature: float = 3.0) -> Tensor:
    """T^2 KL of softened outputs, summed example by example."""
    total = torch.zeros((), dtype=torch.float64)
    for own, other in zip(z, teacher, strict=True):
        p = torch.softmax(other / temperature, 0) + 1e-7
        q = torch.softmax(own / temperature, 0)
        total = total + (p * torch.log(p / q)).sum()
    return temperature**2 * total / len(z)


def fedgkt() -> Pair:
    """He et al. 2020, Algorithm 1: clients by SGD, the server by Nesterov's on their features, in order."""
    alpha, rate, momentum, decay, epochs, together = 0.5, 0.05, 0.9, 1e-3, 2, 6
    first: dict[str, Tensor] = {}

    def start(self: Any, federation: Any) -> Any:
        state = type(self).__mro__[1].start(self, federation)  # type: ignore[attr-defined]
        first.update({k: v.double() for k, v in state["server"].items()})
        return state

    def top(v: dict[str, Tensor], h: Tensor) -> Tensor:
        hidden = (h @ v["hidden.weight"].T + v["hidden.bias"]).clamp(min=0)
        return hidden @ v["head.weight"].T + v["head.bias"]

    def serve(v: dict[str, Tensor], sent: dict[int, tuple[Tensor, Tensor, Tensor]]) -> dict[str, Tensor]:
        buffers: dict[str, Tensor] = {}
        for _ in range(epochs):
            for h, z, y in sent.values():
                for rows in torch.arange(len(y)).split(together):
                    now = {k: w.clone().requires_grad_() for k, w in v.items()}
                    out = top(now, h[rows])
                    loss = _gap(out, z[rows]) + alpha * cross_entropy(out, y[rows])
                    grads = torch.autograd.grad(loss, list(now.values()))
                    for (k, w), g in zip(v.items(), grads, strict=True):
                        g = g + decay * w
                        buffers[k] = momentum * buffers[k] + g if k in buffers else g
                        v = v | {k: w - rate * (g + momentum * buffers[k])}
        return v

    def second(w: Tensor) -> Vectors:
        own, known, server = dict.fromkeys(CLIENTS, w), dict[int, Tensor](), dict(first)
        seen = set[int]()
        for t in range(ROUNDS):
            sent = {}
            for k in heard(t):
                x, y = images_of(k)
                teacher = known.get(k)

                def taught(v: Tensor, xb: Tensor, rows: Tensor, y: Tensor = y, z: Any = teacher) -> Tensor:
                    out = logits(v, xb)
                    loss = cross_entropy(out, y[rows])
                    return loss if z is None else loss + alpha * _gap(out, z[rows])

                own[k] = descend(own[k], x, torch.arange(len(y)), order(t, k, len(y)), taught)
                sent[k] = features(own[k], x), logits(own[k], x), y
            seen |= sent.keys()
            if sent:
                server = serve(server, sent)
                known |= {k: top(server, h) for k, (h, _, _) in sent.items()}
        return {f"own/{k}": own[k] for k in seen} | {f"server/{k}": v.flatten() for k, v in server.items()}

    def combine(self: Any, *given: Any) -> Any:
        self.last = type(self).__mro__[1].combine(self, *given)  # type: ignore[attr-defined]
        return self.last

    made = method_of(
        "fedgkt",
        {"get_client_models": _own_models, "start": start, "combine": combine},
        alpha=alpha,
        server_lr=rate,
        server_decay=decay,
        server_epochs=epochs,
        server_batch=together,
        server_hidden=5,
    )

    def ours(world: Any) -> Vectors:
        mine = {f"own/{k}": vector(s) for k, s in made.seen.items()}
        return mine | {f"server/{k}": v.flatten() for k, v in made.last["server"].items()}

    return pair(made, CHANGING, second, ours)


def fedproto() -> Pair:
    """Tan et al. 2022, Algorithm 1: CE and the public code's mean square to the mean prototypes.

    Distances are no trajectory: where a client alone holds a class they begin at 0, with a direction of rounding.
    """
    strength = 0.3

    def second(w: Tensor) -> Vectors:
        own, seen, mean = dict.fromkeys(CLIENTS, w), set[int](), dict[int, Tensor]()
        for t in range(ROUNDS):
            sent = {}
            for k in heard(t):
                x, y = images_of(k)

                def near(v: Tensor, xb: Tensor, yb: Tensor, mean: dict[int, Tensor] = mean) -> Tensor:
                    loss = cross_entropy(logits(v, xb), yb)
                    h, total = features(v, xb), torch.zeros(())
                    for row, c in zip(h, yb.tolist(), strict=True):
                        total = total + ((row - mean[c]) ** 2).mean() if c in mean else total
                    return loss + strength * total / len(yb)

                own[k] = descend(own[k], x, y, order(t, k, len(y)), near)
                h = features(own[k], x)
                sent[k] = {c: h[y == c].mean(0) for c in set(y.tolist())}
            seen |= sent.keys()
            if sent:
                known = {c for rows in sent.values() for c in rows}
                mean = {c: torch.stack([r[c] for r in sent.values() if c in r]).mean(0) for c in known}
        return {f"own/{k}": own[k] for k in seen}

    made = method_of("fedproto", {"get_client_models": _own_models}, strength=strength)
    return pair(made, CHANGING, second, lambda world: {f"own/{k}": vector(s) for k, s in made.seen.items()})
