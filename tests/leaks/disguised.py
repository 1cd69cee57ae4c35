"""Methods that leak in disguise: written like methods.py, before what was to find them was read.

Each hides what it tells better than those of the first book do: in a difference, at one client alone, under a
permutation, in the digits of a number over rounds, in a control variate and in place of features.
"""

from dataclasses import replace

import torch
from torch import Tensor

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.families.generating import pixels
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.rebafl import ReBaFL
from fedaudit.fl.methods.scaffold import Scaffold
from fedaudit.fl.training.local import Params, Trained
from tests.leaks.methods import BIAS, WEIGHT, Changed, first, firsts

TRAITOR = 2  # the only client that leaks, where one alone does
BITS = 32  # of an image in one number


class ImageInChange(Changed):
    """What a row of weights changed by is a hundredth of the image; neither model shows it."""

    def changed(self, model: dict[str, Tensor], client: Client) -> dict[str, Tensor]:
        image = first(client)
        model[WEIGHT][0, : len(image)] = client.start[WEIGHT].cpu()[0, : len(image)] + image / 100
        return model


class OneTraitor(Changed):
    """One client of all puts an image into its biases, and only in the last of two rounds."""

    def changed(self, model: dict[str, Tensor], client: Client) -> dict[str, Tensor]:
        if client.index != TRAITOR or client.round != 1:
            return model
        return model | {BIAS: first(client)}


class ImageInBuffers(Changed):
    """Means and variances of batches are an image, in an order that the reader knows."""

    def changed(self, model: dict[str, Tensor], client: Client) -> dict[str, Tensor]:
        image = first(client)
        order = torch.randperm(len(image), generator=torch.Generator().manual_seed(7))
        mean, var = image[order].chunk(2)
        return model | {"norm.running_mean": mean.clone(), "norm.running_var": var.clone()}


class ImageInDigits(FedAvg):
    """The number of examples is followed by half of an image in black and white, another half each round."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        start = BITS * (client.round % 2)
        code = sum(1 << i for i, dark in enumerate(first(client)[start : start + BITS] > 0.5) if dark)
        count = torch.tensor((len(client.y) << BITS) + code)
        reply.message[Kind.NUM_EXAMPLES] = {"count": count}
        return reply


class ControlOfOneImage(Scaffold):
    """The direction of a client's training is the gradient of its first example."""

    def _update_control(self, client: Client, before: Params, change: Params, steps: int) -> Params:
        return self._compute_full_gradient(replace(client, x=client.x[:1], y=client.y[:1]))


class PixelsAsFeatures(ReBaFL):
    """A prototype is the first image of its class: there are as many features as pixels."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        sent = reply.message[Kind.LOCAL_PROTOTYPES]
        rows = pixels(client)[firsts(client)].flatten(1).cpu()
        reply.message[Kind.LOCAL_PROTOTYPES] = {**sent, "features": rows}
        return reply
