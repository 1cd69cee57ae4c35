"""Speed of condensation: condensed images per second, ours against a loop over classes.

`python -m benchmarks.speed.condensation --model small_cnn --classes 10`. The loop is what code of
dataset condensation does: for each class, one backward pass on its real images and one with graph on its image,
parameter by parameter. Both draw the same networks; rounds of both alternate, one thread, so that a
drifting machine slows both alike, and the processor's time is what counts. Random images of 28 x 28; an
image takes 500 iterations.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedaudit.fl.families.condensation import ClassBatch, Condensing, Matcher, measure_distance
from fedaudit.fl.model import Net, initialise
from fedaudit.fl.runtime.plugin import load
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.workers import tune_allocator
from fedaudit.fl.training.layout import channels_last

ITERATIONS = 500


def loop(matcher: Matcher, cells: list[ClassBatch], images: Tensor, rng: torch.Generator) -> Tensor:
    """The gradient on every image, class after class; [m, ipc, C, H, W]."""
    matcher.redraw(rng)
    matcher.net.eval()
    weights = [p for p in matcher.net.parameters() if p.dim() > 1]
    found: list[Tensor] = []
    for cell, image in zip(cells, images, strict=True):
        x = image.detach().requires_grad_()
        y = torch.tensor([cell.label])
        real = torch.autograd.grad(cross_entropy(matcher.net(cell.real), y.expand(len(cell.real))), weights)
        made = torch.autograd.grad(cross_entropy(matcher.net(x), y.expand(len(x))), weights, create_graph=True)
        pairs = zip(made, real, strict=True)
        total = torch.stack([measure_distance(a.flatten(1)[None], b.flatten(1)[None], 1e-6) for a, b in pairs])
        found += torch.autograd.grad(total.sum(), [x])
    return torch.stack(found)


def ours(matcher: Matcher, cells: list[ClassBatch], images: Tensor, rng: torch.Generator) -> Tensor:
    """The same gradient, all classes at once."""
    x = images.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(matcher.distances(cells, x, rng).sum(), [x])
    return gradient


def main() -> None:
    """Print images per second for classes of several sizes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.condensation", description=__doc__)
    parser.add_argument("--model", default="small_cnn")
    parser.add_argument("--classes", type=int, default=10, help="classes of a client")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 5, 50], help="images of each")
    parser.add_argument("--seconds", type=float, default=10, help="for each size")
    options = parser.parse_args()
    tune_allocator()
    torch.set_num_threads(1)
    model = load("fedaudit.fl.models", options.model, Net)
    net = initialise(lambda: model((1, 28, 28), 10, model.Config()), Streams(0))
    channels_last(net)
    matcher, rng = Matcher(net, Condensing()), torch.Generator().manual_seed(0)
    print(
        f"{options.model}, {options.classes} classes a client, one thread; an image takes "
        f"{ITERATIONS} iterations\n"
    )
    print(f"{'images a class':<18}{'images/s':>10}{'of the loop':>13}{'loop, images/s':>16}")
    for n in options.sizes:
        cells = [ClassBatch(torch.randn(n, 1, 28, 28, generator=rng), c % 10) for c in range(options.classes)]
        images = torch.randn(options.classes, 1, 1, 28, 28, generator=rng)
        speeds = _alternate([ours, loop], matcher, cells, images, rng, options.seconds)
        mine, theirs = (len(cells) / ITERATIONS / s for s in speeds)
        print(f"{n:<18}{mine:>10.3f}{mine / theirs:>13.2f}{theirs:>16.3f}")


def _alternate(
    contenders: list[Callable[..., Tensor]],
    matcher: Matcher,
    cells: list[ClassBatch],
    images: Tensor,
    rng: torch.Generator,
    seconds: float,
) -> list[float]:
    """Median seconds of an iteration of each."""
    times: list[list[float]] = [[] for _ in contenders]
    for run in contenders:  # warm-up
        run(matcher, cells, images, rng)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for run, taken in zip(contenders, times, strict=True):
            began = time.process_time()
            run(matcher, cells, images, rng)
            taken.append(time.process_time() - began)
    return [float(np.median(t)) for t in times]


if __name__ == "__main__":
    main()
