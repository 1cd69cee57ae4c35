"""What a server of split learning reads on handwritten digits: images from activations, labels from gradients.

    python -m benchmarks.strength.split_learning_table [fashion_mnist]

An MLP of 64, 32 hidden units, cut after the first ReLU, trained by split learning of one client (which is
training in one place) on 1000 digits, or images of Fashion-MNIST; the attacks learn from 797 others. Five seeds,
some two minutes.
"""

import sys
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import Ridge
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.strength.bench import load_images
from fedaudit.attacks.batches.gradient_labels import LabelCosine, LabelNorm
from fedaudit.attacks.evaluation.prototype_inversion import Standard
from fedaudit.fl.families.cutting import cut_network
from fedaudit.fl.model import Net
from fedaudit.fl.models.mlp import MLP

SEEDS, EPOCHS, PRIVATE = range(5), (0, 1, 5, 20, 100), 1000
NOISE = (0.1, 0.5, 1.0, 2.0)  # norm of the noise over the clip
RARE = (0, 8)


def train(seed: int, x: Tensor, y: Tensor, classes: int, epochs: int) -> Net:
    """A network after so many epochs of SGD: batches of 32, rate .1."""
    torch.manual_seed(seed)
    net = MLP(tuple(x.shape[1:]), classes, MLP.Config(hidden=(64, 32)))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(y)), 32):
            optimiser.zero_grad()
            cross_entropy(net(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return net


def invert(net: Net, x: Tensor, aux: Tensor, noise: float, rng: np.random.Generator) -> float:
    """Mean squared error of ridge inversion; `noise`: its norm over the clip, the median norm of activations."""
    body = cut_network(net, 1).body.module
    with torch.no_grad():
        z, known = (body(images).numpy() for images in (x, aux))
    if noise:
        clip = float(np.median(np.linalg.norm(z, axis=1)))

        def send(rows: Any) -> Any:
            clipped = rows * np.minimum(1, clip / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))
            return clipped + noise * clip / rows.shape[1] ** 0.5 * rng.normal(size=rows.shape)

        z, known = send(z), send(known)
    scale = Standard(known)
    fit = Ridge(alpha=1.0).fit(scale(known), aux.flatten(1).numpy())
    return float(np.square(np.clip(fit.predict(scale(z)), 0, 1) - x.flatten(1).numpy()).mean())


def infer(net: Net, x: Tensor, y: Tensor, rng: np.random.Generator) -> tuple[float, float]:
    """AUC by norm and by direction, means over batches of 128 in which both labels are."""
    cut = cut_network(net, 1)
    norms, cosines = list[float](), list[float]()
    for rows in torch.split(torch.arange(len(y)), 128):
        z = cut.body.module(x[rows]).detach().requires_grad_()
        [g] = torch.autograd.grad(cross_entropy(cut.middle.module(z), y[rows], reduction="sum"), [z])
        labels = y[rows].numpy()
        norms += LabelNorm().score(g.numpy(), labels, rng)
        cosines += LabelCosine().score(g.numpy(), labels, rng)
    return float(np.mean(norms)), float(np.mean(cosines))


def main() -> None:
    images, labels = map(torch.from_numpy, load_images(*sys.argv[1:]))
    errors: dict[str, list[float]] = {}
    areas: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        order = torch.from_numpy(rng.permutation(len(labels)))
        own, others = order[:PRIVATE], order[PRIVATE:]
        x, y, aux = images[own], labels[own], images[others]
        net = train(seed, x, y, 10, 20)
        for noise in (0.0, *NOISE):
            errors.setdefault(f"ridge, noise {noise:g} x clip", []).append(invert(net, x, aux, noise, rng))
        means = torch.stack([aux[labels[others] == c].mean(0) for c in range(10)])
        errors.setdefault("class mean", []).append(float((means[y] - x).square().mean()))
        errors.setdefault("mean image", []).append(float((aux.mean(0) - x).square().mean()))
        for rare in RARE:
            for epochs in EPOCHS:
                binary = (y == rare).long()
                net = train(seed, x, binary, 2, epochs)
                areas.setdefault((rare, epochs), []).append(infer(net, x, binary, rng))
    for name, values in errors.items():
        print(f"{name:26s} MSE {np.mean(values):.4f}")
    for (rare, epochs), pairs in areas.items():
        norm, cosine = np.mean(pairs, axis=0)
        print(f"label {rare} against nine, epoch {epochs:3d}: norm AUC {norm:.4f}, cosine AUC {cosine:.4f}")


if __name__ == "__main__":
    main()
