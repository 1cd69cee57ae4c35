"""Faces drawn from the gradients of single photographs: the picture of the README.

python -m benchmarks.face_inversion docs/faces.png

Twelve faces that come with scikit-image, one gradient each, at a network with random weights. Three rows stand
below them: what Deep Leakage from Gradients draws of the gradients; what it draws of gradients that were clipped
and noised; and the mean of other faces, which somebody draws who saw nothing. Twelve seconds on one core.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import fedaudit as fa

SHOWN = 12
CLIP, NOISE = 1.0, 0.01  # norm of a gradient, and standard deviation of its noise, coordinate by coordinate
Images = NDArray[np.float32]


def make_network() -> nn.Module:
    """Two convolutions and a dense layer, with smooth activations, as in the paper."""
    torch.manual_seed(0)
    first, second = nn.Conv2d(1, 16, 5, stride=2, padding=2), nn.Conv2d(16, 16, 5, stride=2, padding=2)
    return nn.Sequential(first, nn.Sigmoid(), second, nn.Sigmoid(), nn.Flatten(), nn.Linear(16 * 7 * 7, 2))


def take_gradient(network: nn.Module, image: Images) -> list[torch.Tensor]:
    """Of the cross-entropy of one face."""
    loss = nn.functional.cross_entropy(network(torch.from_numpy(image[None])), torch.tensor([0]))
    return list(torch.autograd.grad(loss, list(network.parameters())))


def add_noise(gradient: list[torch.Tensor], generator: torch.Generator) -> list[torch.Tensor]:
    """Clipped and noised."""
    norm = float(torch.stack([g.pow(2).sum() for g in gradient]).sum().sqrt())
    scale = min(1.0, CLIP / norm)
    return [scale * g + NOISE * torch.randn(g.shape, generator=generator) for g in gradient]


def draw_faces() -> dict[str, Images]:
    """Rows of the picture by name; the first one is the truth."""
    from skimage.data import lfw_subset

    images = lfw_subset()[:100, None].astype(np.float32)  # the second hundred shows no faces
    faces, others = images[:SHOWN], (images[SHOWN:], np.zeros(100 - SHOWN, np.int64))
    network, generator = make_network(), torch.Generator().manual_seed(0)
    gradients = [take_gradient(network, face) for face in faces]

    def invert(gradient: list[torch.Tensor]) -> fa.Reconstruction:
        return fa.invert(network, gradient, shape=faces.shape[1:], attack="dlg", auxiliary=others)

    plain = [invert(gradient) for gradient in gradients]
    noised = [invert(add_noise(gradient, generator)) for gradient in gradients]
    means = [drawn.class_means for drawn in plain if drawn.class_means is not None]
    return {
        "photograph": faces,
        "drawn from\nits gradient": np.concatenate([drawn.images for drawn in plain]),
        "drawn from a\nnoised gradient": np.concatenate([drawn.images for drawn in noised]),
        "mean of\nother faces": np.concatenate(means),
    }


def save(rows: dict[str, Images], path: Path) -> None:
    """One row of images below the other, each with its name on the left."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 2.12), dpi=140)
    axes: Any = figure.subplots(len(rows), SHOWN)
    for line, (name, images) in zip(axes, rows.items(), strict=True):
        for axis, image in zip(line, images, strict=True):
            axis.imshow(image[0], cmap="gray", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8, labelpad=6)
    figure.subplots_adjust(left=0.14, right=0.995, top=0.99, bottom=0.01, wspace=0.06, hspace=0.06)
    figure.savefig(path, metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="of the picture, as docs/faces.png")
    path = parser.parse_args().path
    rows = draw_faces()
    truth, *drawn = rows.items()
    for name, images in drawn:
        print(f"{name!r}: mean absolute error {np.abs(images - truth[1]).mean():.4f} of the range of grey")
    save(rows, path)


if __name__ == "__main__":
    main()
