"""FedAvg in JAX: a round is one compiled scan over its clients, and a client one over its batches.

As a user of JAX writes it, for the small network. Every client's examples lie on the device.
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
LAYOUT = ("NCHW", "OIHW", "NCHW")


def forward(weights: Weights, x: Array) -> Array:
    """Logits of the network `small`."""
    for layer in ("conv1", "conv2"):
        x = lax.conv_general_dilated(x, weights[f"{layer}.weight"], (1, 1), "VALID", dimension_numbers=LAYOUT)
        x = x + weights[f"{layer}.bias"][:, None, None]
        x = jax.nn.relu(lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"))
    x = x.reshape(len(x), -1)
    x = jax.nn.relu(x @ weights["fc.weight"].T + weights["fc.bias"])
    return x @ weights["head.weight"].T + weights["head.bias"]


def loss(weights: Weights, x: Array, y: Array) -> Array:
    """Mean cross-entropy of a batch."""
    return -jnp.take_along_axis(jax.nn.log_softmax(forward(weights, x)), y[:, None], 1).mean()


@partial(jax.jit, static_argnames=("epochs", "lr", "decay"))
def run_round(
    weights: Weights, x: Array, y: Array, cohort: Array, epochs: int, lr: float, decay: float
) -> Weights:
    """The mean of what a cohort trains, of all clients' batches x [clients, steps, b, C, H, W]."""

    def step(own: Weights, batch: tuple[Array, Array]) -> tuple[Weights, None]:
        slopes = jax.grad(loss)(own, *batch)
        return {k: w - lr * (slopes[k] + decay * w) for k, w in own.items()}, None

    def train(total: Weights, client: Array) -> tuple[Weights, None]:
        own = weights
        for _ in range(epochs):
            own, _ = lax.scan(step, own, (x[client], y[client]))
        return {k: total[k] + own[k] for k in own}, None

    total, _ = lax.scan(train, {k: jnp.zeros_like(w) for k, w in weights.items()}, cohort)
    return {k: w / len(cohort) for k, w in total.items()}


def main() -> None:
    work = read(sys.argv[1])
    if work.name != "small" or work.each % work.batch_size:
        raise RuntimeError("written for the small network, and for batches of one size")
    turns, model = Turns(work), work.network()
    x, y = (_split(work, values) for values in (work.x, work.y))
    weights = {k: jnp.asarray(v.cpu().numpy()) for k, v in model.state_dict().items()}
    settings: Any = {"lr": work.settings["lr"], "decay": work.settings["weight_decay"]}
    compiled = {
        n: run_round.lower(weights, x, y, jnp.arange(n), epochs=work.epochs, **settings).compile()
        for n in {len(cohort) for cohort in work.cohorts}
    }
    turns.ready(jax.__version__, f"1 process, {jax.default_backend()} of {cores()} threads")
    for cohort in work.cohorts:
        if not turns.begin():
            return
        weights = compiled[len(cohort)](weights, x, y, jnp.asarray(cohort))
        jax.block_until_ready(weights)
        model.load_state_dict({k: torch.from_numpy(np.array(w)) for k, w in weights.items()})
        turns.end(model)


def _split(work: Workload, values: torch.Tensor) -> Array:
    """[clients, steps, b, ...]"""
    return jnp.asarray(values.cpu().numpy().reshape(work.clients, -1, work.batch_size, *values.shape[1:]))


if __name__ == "__main__":
    main()
