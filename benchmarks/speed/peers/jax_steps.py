"""FedAvg in JAX: all steps of a client are one compiled function, and clients come one after the other.

As a user of JAX writes it, for the small network: channels last, pooling as a maximum over an axis. A scan over
the steps is unrolled, since XLA runs a convolution inside of a loop twenty times as slowly on a processor.
"""

import sys
from functools import partial
from typing import Any

import jax
import numpy as np
import torch
from jax import Array, lax
from jax import numpy as jnp

from benchmarks.speed.peers.contract import Turns, Workload, cores, read

Weights = dict[str, Array]
LAYOUT = ("NHWC", "HWIO", "NHWC")


def forward(weights: Weights, x: Array) -> Array:
    """Logits of the network `small`, of images [b, H, W, C]."""
    for layer in ("conv1", "conv2"):
        kernel = weights[f"{layer}.weight"].transpose(2, 3, 1, 0)
        x = lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=LAYOUT)
        b, h, w, c = x.shape
        x = (x + weights[f"{layer}.bias"]).reshape(b, h // 2, 2, w // 2, 2, c).max((2, 4))
        x = jax.nn.relu(x)
    x = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
    x = jax.nn.relu(x @ weights["fc.weight"].T + weights["fc.bias"])
    return x @ weights["head.weight"].T + weights["head.bias"]


def loss(weights: Weights, x: Array, y: Array) -> Array:
    """Mean cross-entropy of a batch."""
    return -jnp.take_along_axis(jax.nn.log_softmax(forward(weights, x)), y[:, None], 1).mean()


@partial(jax.jit, static_argnames=("epochs", "lr", "decay"))
def add_client(
    total: Weights, weights: Weights, x: Array, y: Array, *, epochs: int, lr: float, decay: float
) -> Weights:
    """The sum of weights with those that a client trains on its batches x [steps, b, H, W, C], y [steps, b]."""
    own = weights
    for step in [*range(len(y))] * epochs:
        slopes = jax.grad(loss)(own, x[step], y[step])
        own = {k: w - lr * (slopes[k] + decay * w) for k, w in own.items()}
    return {k: total[k] + own[k] for k in own}


def main() -> None:
    work = read(sys.argv[1])
    if work.name != "small" or work.each % work.batch_size:
        raise RuntimeError("written for the small network, and for batches of one size")
    turns, model = Turns(work), work.network()
    parts = [*zip(_split(work, work.x.permute(0, 2, 3, 1)), _split(work, work.y), strict=True)]
    weights = {k: jnp.asarray(v.cpu().numpy()) for k, v in model.state_dict().items()}
    nothing = {k: jnp.zeros_like(w) for k, w in weights.items()}
    settings: Any = {"lr": work.settings["lr"], "decay": work.settings["weight_decay"]}
    train = partial(add_client, epochs=work.epochs, **settings)
    jax.block_until_ready(train(nothing, weights, *parts[0]))  # compiles
    turns.ready(jax.__version__, f"1 process, {jax.default_backend()} of {cores()} threads")
    for cohort in work.cohorts:
        if not turns.begin():
            return
        total = nothing
        for client in cohort:
            total = train(total, weights, *parts[client])
        weights = {k: w / len(cohort) for k, w in total.items()}
        jax.block_until_ready(weights)
        model.load_state_dict({k: torch.from_numpy(np.array(w)) for k, w in weights.items()})
        turns.end(model)


def _split(work: Workload, values: torch.Tensor) -> list[Array]:
    """Of each client [steps, b, ...]."""
    split = values.cpu().numpy().reshape(work.clients, -1, work.batch_size, *values.shape[1:])
    return [jnp.asarray(client) for client in split]


if __name__ == "__main__":
    main()
