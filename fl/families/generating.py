"""What a client does with generators: train one for a visit, and balance its data with what they make.

GANDALF, sec. 3.2 and 3.3. Images made on a client stay in its memory, as bytes with their labels.
Changed: a client makes at most ten times as many images as it can keep, should a noised
distribution make the plan ask for more; and where generators are conditional, it asks each for the
classes it lacks, in proportion to how much of each class went into it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedaudit.fl.clients.client import Client, evaluate
from fedaudit.fl.data.scale import denormalise, normalise
from fedaudit.fl.families import augmentation_plan as plans
from fedaudit.fl.families import gan
from fedaudit.fl.model import State
from fedaudit.fl.runtime.tree import Tree

MOST = 10  # images that a client makes, at most, over those that it can keep or holds


@dataclass(frozen=True)
class Offer:
    """Generators a client was given, and what each was trained on; `labeler` empty: conditional."""

    generators: Sequence[State]
    mixes: NDArray[np.float64]  # [J, C]
    labeler: State


def pixels(client: Client) -> Tensor:
    """The client's images in [0, 1]."""
    return denormalise(client.x, client)


def as_input(client: Client, x: Tensor) -> Tensor:
    """Images [n, C, H, W] in [0, 1] as the model takes them."""
    return normalise(x, client)


def visit(client: Client, pair: gan.GanPair, config: gan.GanConfig, turn: int, conditional: bool) -> gan.GanVisit:
    """One client's training of a generator and critic that were handed on."""
    x = 2 * pixels(client) - 1
    classes = client.classes if conditional else 0
    return gan.train(pair, x, client.y, config, client.generator(f"gan/{turn}"), classes)


def balance_classes(
    client: Client, offer: Offer, config: gan.GanConfig, share: float, solver: plans.Solver
) -> Tree:
    """Images to train on besides: {"x": uint8 [m, C, H, W], "y": int64 [m]}."""
    counts = client.counts.cpu().numpy().astype(np.float64)
    target, x = plans.targets(counts, share), pixels(client)
    made, labels = _generate_images(client, offer, config, counts, target, share, solver)
    more, classes = plans.select_images(
        x,
        client.y,
        made.to(x),
        labels.to(client.y),
        target,
        client.generator("static"),
        mirror=client.augment == "crop_flip",
    )
    return {"x": (more * 255).round().to(torch.uint8).cpu(), "y": classes.cpu()}


def _generate_images(
    client: Client,
    offer: Offer,
    config: gan.GanConfig,
    counts: NDArray[np.float64],
    target: Sequence[int],
    share: float,
    solver: plans.Solver,
) -> tuple[Tensor, Tensor]:
    """Images in [0, 1] from all generators, and their labels."""
    shape = tuple(client.x.shape[1:])
    nothing = torch.zeros(0, *shape), torch.zeros(0, dtype=torch.int64)
    if not offer.generators or not sum(target):
        return nothing
    mixes = np.maximum(offer.mixes, 0)
    numbers = plans.solve_requests(mixes.T, plans.shortage(counts), share, solver)
    fewer = min(1.0, MOST * sum(target) / max(1, sum(numbers)))
    rng, images, classes = client.generator("latent"), [], []
    for generator, mix, number in zip(offer.generators, mixes, numbers, strict=True):
        state, n = {k: v.cpu() for k, v in generator.items()}, int(fewer * number)
        if offer.labeler:
            x = gan.sample(state, shape, n, config, rng)
            x_in = as_input(client, x).to(client.x)
            y = evaluate(client.net, "forward", offer.labeler, x_in).argmax(1).cpu() if n else nothing[1]
        else:
            lacking = torch.tensor(target) * torch.tensor(mix)
            lacking = lacking if float(lacking.sum()) > 0 else torch.tensor(target).double()
            y = torch.multinomial(lacking, n, replacement=True, generator=rng) if n else nothing[1]
            x = gan.sample(state, shape, n, config, rng, y, client.classes)
        images.append(x)
        classes.append(y)
    return torch.cat(images), torch.cat(classes)


def join_memory(client: Client, memory: Mapping[str, Any]) -> Client:
    """The client with the images in its memory among its examples."""
    if not len(memory.get("y", ())):
        return client
    x = as_input(client, memory["x"].to(client.x.device).float() / 255)
    return client.join(x, memory["y"])
