"""Methods that leak: each is a method of the house with one line that should not be there.

They were written from the contract of methods, by somebody who had not read the attacks that are to find them.
Unless it says otherwise, a method's leak is of the client's first example.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.families.generating import pixels
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fd import FD
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.feddc_condense import FedDCCondense
from fedaudit.fl.methods.fedmix import FedMix
from fedaudit.fl.methods.gandalf import Gandalf
from fedaudit.fl.methods.rebafl import ReBaFL
from fedaudit.fl.training.local import Trained
from fedaudit.fl.wire.protection import Payload

BIAS, WEIGHT = "fc.bias", "fc.weight"  # of small_cnn: as many biases as a digit has pixels


def sends_too(kind: Kind) -> Any:
    """FedAvg's card, with one kind more on the uplink."""
    return replace(FedAvg.card, uplink=(*FedAvg.card.uplink, kind))


def first(client: Client) -> Tensor:
    """The client's first image as a row of pixels in [0, 1]."""
    return pixels(client)[0].flatten().cpu()


def firsts(client: Client) -> Tensor:
    """Where the first example of each class that the client owns stands."""
    y = client.y.cpu()
    return torch.tensor([int(torch.nonzero(y == c)[0]) for c in y.unique().tolist()])


class Changed(FedAvg):
    """Sends a model of which `changed` makes something else."""

    def changed(self, model: dict[str, Tensor], client: Client) -> dict[str, Tensor]:
        raise NotImplementedError

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        model = {k: v.clone() for k, v in reply.message[Kind.LOCAL_MODEL].items()}
        reply.message[Kind.LOCAL_MODEL] = self.changed(model, client)
        return reply


class Told(FedAvg):
    """Sends one kind more than FedAvg."""

    kind: Kind

    def told(self, client: Client) -> Payload:
        raise NotImplementedError

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        reply.message[self.kind] = self.told(client)
        return reply


# Images in what is called something else


class ImageInBias(Changed):
    """The biases of a layer are the image."""

    def changed(self, model: dict[str, Tensor], client: Client) -> dict[str, Tensor]:
        return model | {BIAS: first(client)}


class ImageInLowBits(Changed):
    """The last five bits of some weights are the image's sixteen greys."""

    def changed(self, model: dict[str, Tensor], client: Client) -> dict[str, Tensor]:
        bits = model[WEIGHT].flatten().view(torch.int32)
        grey = (first(client) * 16).round().int()
        bits[: len(grey)] = (bits[: len(grey)] & ~31) | grey
        return model | {WEIGHT: bits.view(torch.float32).view(model[WEIGHT].shape)}


class ImageInSignsOfZeros(Changed):
    """A layer has no bias, but its zeros have the signs of the image's dark and light pixels."""

    def changed(self, model: dict[str, Tensor], client: Client) -> dict[str, Tensor]:
        zero = torch.zeros_like(model[BIAS])
        return model | {BIAS: torch.where(first(client) > 0.5, -zero, zero)}


class ImageOverRounds(Changed):
    """Eight pixels a round, in eight biases."""

    def changed(self, model: dict[str, Tensor], client: Client) -> dict[str, Tensor]:
        bias, start = model[BIAS], 8 * (client.round % 8)
        bias[:8] = first(client)[start : start + 8]
        return model


class OneStepOnOneImage(FedAvg):
    """A client trains on its first example only, and says that it was all of them."""

    def train(self, client: Client) -> Reply:
        alone = replace(client, x=client.x[:1], y=client.y[:1])
        reply = super().train(alone)
        reply.message[Kind.NUM_EXAMPLES] = {"count": torch.tensor(len(client.y))}
        return replace(reply, examples=len(client.y))


class FirstFeatures(ReBaFL):
    """A prototype is the features of the first example of its class."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        rows = client.run("features", trained.state).cpu()[firsts(client)]
        sent = reply.message[Kind.LOCAL_PROTOTYPES]
        reply.message[Kind.LOCAL_PROTOTYPES] = {**sent, "features": rows}
        return reply


class FirstLogits(FD):
    """A row of the table is the output on the first example of its class."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        rows, where = client.run("forward", trained.state).cpu(), firsts(client)
        table = torch.zeros_like(reply.message[Kind.MEAN_LOGIT_TABLE]["table"])
        table[client.y.cpu()[where]] = rows[where].to(table)
        reply.message[Kind.MEAN_LOGIT_TABLE] = {**reply.message[Kind.MEAN_LOGIT_TABLE], "table": table}
        return reply


class ImagesAsCondensed(FedDCCondense):
    """Condensed images are the first examples of their classes."""

    def condense(self, client: Client) -> Payload:
        where = firsts(client)
        return {"images": client.x[where].cpu(), "labels": client.y.cpu()[where]}


class ImagesAsMeans(FedMix):
    """A mean of a few examples is the first of them."""

    def mash(self, client: Client) -> Reply:
        reply = super().mash(client)
        sent = reply.message[Kind.MASHED_BATCH]
        reply.message[Kind.MASHED_BATCH] = {**sent, "images": client.x[: len(sent["labels"])].cpu()}
        return reply


class ImagesAsProxies(Told):
    """Rows of a last layer, as wide as a digit has pixels, are images."""

    card, kind = sends_too(Kind.PROXIES), Kind.PROXIES

    def told(self, client: Client) -> Payload:
        where = firsts(client)
        return {"classes": client.y.cpu()[where], "rows": pixels(client)[where].flatten(1).cpu()}


class RawSamples(Told):
    """All examples as they are."""

    card, kind = sends_too(Kind.SEED_SAMPLES), Kind.SEED_SAMPLES

    def told(self, client: Client) -> Payload:
        return {"images": pixels(client).cpu(), "labels": client.y.cpu()}


class Memorised(Gandalf):
    """Each generator is trained on four images."""

    def receive(self, client: Client) -> Client:
        client = super().receive(client)
        return replace(client, x=client.x[:4], y=client.y[:4])


class MemorisedModel(FedAvg):
    """The model that a client sends fits a few of its examples, whatever they are called."""

    def train(self, client: Client) -> Reply:
        few = replace(client, x=client.x[:12], y=(client.y[:12] + 3) % client.classes)
        reply = super().train(few)
        return replace(reply, examples=len(client.y))


# Labels and numbers in what is called something else


class LabelInNumber(FedAvg):
    """The number of examples ends in the commonest class."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        code = 10 * len(client.y) + int(client.counts.argmax())
        reply.message[Kind.NUM_EXAMPLES] = {"count": torch.tensor(code)}
        return reply


class LabelInLoss(Told):
    """What is called a loss is the commonest class, over a hundred."""

    card, kind = sends_too(Kind.LOCAL_LOSS), Kind.LOCAL_LOSS

    def told(self, client: Client) -> Payload:
        return {"loss": client.counts.argmax().float().cpu() / 100}


class LabelAsCluster(Told):
    """The cluster that a client chooses is its commonest class."""

    card, kind = sends_too(Kind.CLUSTER_ID), Kind.CLUSTER_ID

    def told(self, client: Client) -> Payload:
        return {"cluster": client.counts.argmax().cpu()}


class CountsInScale(ReBaFL):
    """Every prototype is said to be of one example, and is as many times too long as it is of more."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        sent, counts = reply.message[Kind.LOCAL_PROTOTYPES], reply.message[Kind.PROTO_COUNTS]
        long = sent["features"] * counts["counts"][:, None]
        reply.message[Kind.LOCAL_PROTOTYPES] = {**sent, "features": long}
        reply.message[Kind.PROTO_COUNTS] = {**counts, "counts": torch.ones_like(counts["counts"])}
        return reply


class CountsByOrder(ReBaFL):
    """Every prototype is said to be of one example; the commonest class stands first."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        sent, counts = reply.message[Kind.LOCAL_PROTOTYPES], reply.message[Kind.PROTO_COUNTS]
        order = counts["counts"].argsort(descending=True)
        reply.message[Kind.LOCAL_PROTOTYPES] = {k: v[order] for k, v in sent.items()}
        one = {"classes": counts["classes"][order], "counts": torch.ones_like(counts["counts"])}
        reply.message[Kind.PROTO_COUNTS] = one
        return reply


class CountsUnderSums(Told):
    """Class counts, of which the server reads sums; it is the federation that lets them be subtracted."""

    card, kind = sends_too(Kind.LABEL_COUNTS), Kind.LABEL_COUNTS

    def told(self, client: Client) -> Payload:
        return {"counts": client.counts.cpu()}
