"""The first layers of a network, as an adversary runs them on images of its own."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples, Floats, Knowledge, Layered
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.eager import eager


def imitate_noise(
    activations: Floats, sent: Floats, knowledge: Knowledge, rng: np.random.Generator
) -> NDArray[np.float32]:
    """[N, D] activations of the adversary's own images as the clients' protections would send them.

    The noise is published. What rows are clipped to follows from the lengths of those that were `sent`, [b, D]:
    in the mean, the square of a length is that of the clip and of the noise together.
    """
    noise = knowledge.training.get(f"noise_std.{Kind.SMASHED}", 0.0)
    if not noise:
        return np.asarray(activations, np.float32)
    squares = np.square(sent, dtype=np.float64).sum(axis=1)
    clip = max(float(np.mean(squares)) - sent.shape[1] * noise**2, 0.0) ** 0.5
    lengths = np.linalg.norm(activations, axis=1, keepdims=True)
    clipped = activations * np.minimum(1.0, clip / np.maximum(lengths, 1e-12))
    return np.asarray(clipped + noise * rng.normal(size=clipped.shape), np.float32)


def run_first_layers(
    weights: Mapping[str, NDArray[Any]], images: Floats, knowledge: Knowledge, batch: int = 500
) -> NDArray[np.float32]:
    """[N, D] what the clients' layers with these weights make of images [N, C, H, W] in [0, 1]."""
    import torch

    whole = cast(Layered, knowledge.granted_architecture(weights))
    layers = whole.first_layers(int(knowledge.training["cut"]))
    with torch.no_grad():
        x = torch.from_numpy(np.ascontiguousarray(images)).to(knowledge.device)
        made = torch.cat([layers(part).flatten(1).cpu() for part in torch.split(x, batch)])
    return np.asarray(made.numpy())


def draw_network(knowledge: Knowledge, seed: int) -> Layered:
    """The whole network with weights drawn anew, of `seed` alone."""
    import torch

    whole = cast(Layered, knowledge.granted_architecture({}))
    module = whole.module().cpu()  # where every machine draws the same
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for part in module.modules():
            if callable(reset := getattr(part, "reset_parameters", None)):
                reset()
    module.to(knowledge.device)
    return whole


def descend(optimiser: Any, weights: Sequence[Any], loss: Any) -> None:
    """One step of these weights alone, whatever else the loss depends on."""
    import torch

    for w, slope in zip(weights, torch.autograd.grad(loss, weights, allow_unused=True), strict=True):
        w.grad = slope
    optimiser.step()


def train_network(knowledge: Knowledge, images: Examples, epochs: int, seed: int) -> Layered:
    """The whole network, drawn anew and trained on these images as clients train, by cross-entropy alone."""
    import torch
    from torch.nn.functional import cross_entropy

    whole, device = draw_network(knowledge, seed), knowledge.device
    module, rng = whole.module(), np.random.default_rng(seed)
    weights = [p.requires_grad_() for p in module.parameters()]
    optimiser = eager(torch.optim.SGD)(weights, lr=knowledge.training.get("lr", 0.05))
    size = max(1, int(knowledge.training.get("batch_size", 32)))
    x, y = (torch.from_numpy(of).to(device) for of in (np.ascontiguousarray(images.x), np.int64(images.y)))
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(len(images))).to(device)
        for rows in torch.tensor_split(order, max(1, -(-len(images) // size))):
            descend(optimiser, weights, cross_entropy(module(x[rows]), y[rows]))
    module.requires_grad_(False)
    return whole
