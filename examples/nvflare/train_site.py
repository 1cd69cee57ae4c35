"""A site of the example: softmax regression with numpy on digits of its own, SITE.npz in a folder."""

import sys

import numpy as np
import nvflare.client as flare
from nvflare.app_common.app_constant import AlgorithmConstants

RATE, BATCH = np.float32(0.1), 10


def trained(weights: np.ndarray, x: np.ndarray, y: np.ndarray, towards: np.ndarray) -> tuple[np.ndarray, int]:
    """Five epochs of SGD in batches of ten, with SCAFFOLD's correction; weights, and steps taken.

    x [n, 65] ends in a one, weights [10, 65] in the bias.
    """
    rng, steps = np.random.default_rng(), 0
    for _ in range(5):
        for rows in np.array_split(rng.permutation(len(y)), max(1, len(y) // BATCH)):
            z = x[rows] @ weights.T
            p = np.exp(z - z.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            p[np.arange(len(rows)), y[rows]] -= 1
            weights, steps = weights - RATE * (p.T @ x[rows] / len(rows) + towards), steps + 1
    return weights, steps


def main(folder: str, workflow: str = "recipe") -> None:
    flare.init()
    with np.load(f"{folder}/{flare.get_site_name()}.npz") as file:
        y, x = file["y"], file["x"].reshape(len(file["y"]), -1)
    x = np.hstack([x, np.ones((len(x), 1), np.float32)])
    own = np.zeros((10, x.shape[1]), np.float32)  # SCAFFOLD's control of this site
    while flare.is_running():
        received = flare.receive()
        before, towards = np.asarray(received.params["numpy_key"], np.float32), np.zeros_like(own)
        if workflow == "scaffold":
            common = received.meta[AlgorithmConstants.SCAFFOLD_CTRL_GLOBAL]["numpy_key"]
            towards = np.asarray(common, np.float32) - own
        weights, steps = trained(before, x, y, towards)
        meta = {"NUM_STEPS_CURRENT_ROUND": len(y)}  # what the server weighs by
        if workflow == "scaffold":
            change = (before - weights) / (steps * RATE) - towards - own
            own = own + change
            meta[AlgorithmConstants.SCAFFOLD_CTRL_DIFF] = {"numpy_key": change}
        flare.send(flare.FLModel(params={"numpy_key": weights}, params_type="FULL", meta=meta))


if __name__ == "__main__":
    main(*sys.argv[1:])
