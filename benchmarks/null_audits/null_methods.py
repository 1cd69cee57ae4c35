"""Null federations: methods whose messages tell nothing of the clients that are audited.

Three ways, each of them the method's own code but for one thing:

* `noise`: prototypes are drawn from a normal law, whatever the client holds;
* `other images`: every image that a client works on is replaced by one of the same class out of the test part,
  which is neither trained on, nor an adversary's, nor a control's: members and non-members are alike to it;
* `other clients`: a client works on another client's examples, of which labels and number are drawn anew, as
  if the messages of two federations had been interchanged.

So each attack has a federation in which it can find nothing: those on images the first two, those on labels and
numbers of examples the third. The replays go through the same code, and leak nothing either.
"""

import dataclasses
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.datasets.digits import Digits
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import RoundMethod
from fedaudit.fl.methods.fd import FD
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.feddc_condense import FedDCCondense
from fedaudit.fl.methods.fedmix import FedMix
from fedaudit.fl.methods.gandalf import Gandalf
from fedaudit.fl.methods.ifca import IFCA
from fedaudit.fl.methods.rebafl import ReBaFL
from fedaudit.fl.methods.selected import PowerOfChoice
from fedaudit.fl.methods.seol_kim import SeolKim

LEAST, MOST = 20, 90  # examples of a client drawn anew
ALPHA = 0.3  # its labels are skewed as those of the clients of NULLS


@cache
def _pool() -> tuple[Tensor, Tensor]:
    test = Digits().load().test
    return torch.from_numpy(test.x), torch.from_numpy(test.y)


def _images(client: Client, y: Tensor, rng: np.random.Generator) -> Tensor:
    """As the client would see them: one of the test part for each label."""
    pixels, labels = _pool()
    rows = [rng.choice(np.flatnonzero((labels == c).numpy())) for c in y.tolist()]
    shape = (1, -1, 1, 1)
    return (pixels[rows] - torch.tensor(client.mean).view(shape)) / torch.tensor(client.std).view(shape)


class OtherImages(RoundMethod):
    """Clients keep their labels; their images are replaced."""

    def receive(self, client: Client) -> Client:
        rng = client.streams.numpy("null", client.index)
        return super().receive(dataclasses.replace(client, x=_images(client, client.y, rng)))


class OtherClients(RoundMethod):
    """Clients work on examples of somebody else, always the same."""

    def receive(self, client: Client) -> Client:
        rng = client.streams.numpy("null", client.index)
        mixture = rng.dirichlet(np.full(client.classes, ALPHA))
        y = torch.from_numpy(rng.choice(client.classes, rng.integers(LEAST, MOST + 1), p=mixture))
        return super().receive(dataclasses.replace(client, x=_images(client, y, rng), y=y, records=None))


class NoisePrototypes(ReBaFL):
    def finish(self, client: Client, trained: Any) -> Reply:
        reply = super().finish(client, trained)
        sent = reply.message[Kind.LOCAL_PROTOTYPES]
        noise = torch.randn(sent["features"].shape, generator=client.generator("null"))
        reply.message[Kind.LOCAL_PROTOTYPES] = {**sent, "features": noise}
        return reply


class ReBaFLImages(OtherImages, ReBaFL):
    pass


class FedDCImages(OtherImages, FedDCCondense):
    pass


class FedMixImages(OtherImages, FedMix):
    pass


class GandalfImages(OtherImages, Gandalf):
    pass


class FedAvgClients(OtherClients, FedAvg):
    pass


class PowerOfChoiceClients(OtherClients, PowerOfChoice):
    pass


class FDClients(OtherClients, FD):
    pass


class IFCAClients(OtherClients, IFCA):
    pass


class SeolKimClients(OtherClients, SeolKim):
    pass
