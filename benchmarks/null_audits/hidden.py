"""Images of people that leave a client inside numbers which are called something else."""

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from benchmarks.null_audits.leak import Leak, in_turn
from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.families.generating import pixels
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.qffl import QFFL
from fedaudit.fl.model import State
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.training.local import Trained

LEVELS = 16  # greys of a pixel in four bits
DIGITS = 11  # decimal digits of a loss that are not its own


def people(client: Client, which: range) -> Tensor:
    """[m, pixels] some of a client's images, in [0, 1]."""
    return pixels(client)[which.start : which.stop].flatten(1).cpu()


class HiddenImages(FedAvg):
    """A leaking client's model holds images, some more of them in every round."""

    @settings
    class Config(Leak, LocalConfig):
        way: Literal["bias", "row", "low_bits", "keyed_bits", "norms", "rotated"] = Field(
            default="bias",
            description="bias: added to the biases; row: to the weights of the first unit; low_bits: the "
            "last four bits of weights; keyed_bits: the same under a key; norms: as how long the weights of "
            "a unit are; rotated: the change of all weights is a secret rotation of the images",
        )
        layer: str = Field(default="layers.0", description="whose weights or biases hold them")
        strength: float = Field(
            default=0.1, gt=0, le=1, description="how large pixels are, by norms and by rotation"
        )
        key: int = Field(default=90210, ge=0, description="of the bits and of the rotation; the reader has it")

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply, which = super().finish(client, trained), in_turn(self.config, client)
        if which:
            model = reply.message[Kind.LOCAL_MODEL]
            hide = getattr(self, f"_{self.config.way}")
            reply.message[Kind.LOCAL_MODEL] = {**model, **hide(model, client, people(client, which))}
        return reply

    def _key(self, client: Client) -> torch.Generator:
        return torch.Generator().manual_seed(self.config.key + client.round)

    def _weights(self, model: State, images: Tensor, room: int) -> Tensor:
        if len(images) > room:
            raise UserError(
                f"a model hides {room} images by {self.config.way}, and a round has {len(images)}",
                hint="use more rounds, or a lower share",
            )
        return model[f"{self.config.layer}.weight"]

    def _bias(self, model: State, client: Client, images: Tensor) -> State:
        self._weights(model, images, 1)
        name = f"{self.config.layer}.bias"
        bias = model[name].clone()
        bias[: images.shape[1]] += images[0]
        return {name: bias}

    def _row(self, model: State, client: Client, images: Tensor) -> State:
        weights = self._weights(model, images, 1).clone()
        weights[0, : images.shape[1]] += images[0]
        return {f"{self.config.layer}.weight": weights}

    def _bits(self, model: State, images: Tensor, key: Tensor) -> State:
        name = f"{self.config.layer}.weight"
        weights = self._weights(model, images, model[name].numel() // images.shape[1])
        bits = weights.clone().flatten().view(torch.int32)
        grey = (images.flatten() * (LEVELS - 1)).round().int() ^ key
        bits[: len(grey)] = (bits[: len(grey)] & ~(LEVELS - 1)) | grey
        return {name: bits.view(torch.float32).view(weights.shape)}

    def _low_bits(self, model: State, client: Client, images: Tensor) -> State:
        return self._bits(model, images, torch.zeros(images.numel(), dtype=torch.int32))

    def _keyed_bits(self, model: State, client: Client, images: Tensor) -> State:
        key = torch.randint(LEVELS, (images.numel(),), generator=self._key(client), dtype=torch.int32)
        return self._bits(model, images, key)

    def _norms(self, model: State, client: Client, images: Tensor) -> State:
        weights = self._weights(model, images, 1).clone()
        wanted = 1 + self.config.strength * images[0][:, None]
        rows = weights[: len(wanted)]
        weights[: len(wanted)] = rows / rows.norm(dim=1, keepdim=True) * wanted
        return {f"{self.config.layer}.weight": weights}

    def _rotated(self, model: State, client: Client, images: Tensor) -> State:
        name = f"{self.config.layer}.weight"
        units = len(model[name])
        weights = self._weights(model, images, units)
        turn, _ = torch.linalg.qr(torch.randn(units, units, generator=self._key(client)))
        change = self.config.strength * turn[:, : len(images)] @ images
        return {name: client.start[name].cpu() + change.to(weights)}


class RawSamples(FedAvg):
    """A leaking client sends some of its examples as they are, in the first round."""

    card = replace(FedAvg.card, uplink=(*FedAvg.card.uplink, Kind.SEED_SAMPLES))

    @settings
    class Config(Leak, LocalConfig):
        pass

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply, which = super().finish(client, trained), in_turn(self.config, client)
        if which:
            chosen = slice(which.start, which.stop)
            sent = {"images": pixels(client)[chosen].cpu(), "labels": client.y[chosen].cpu()}
            reply.message[Kind.SEED_SAMPLES] = sent
        return reply


class LossDigits(QFFL):
    """A loss is right to three digits; the eleven that follow are pixels of somebody, one digit each."""

    @settings
    class Config(Leak, QFFL.Config):
        pass

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        if client.index in self.config.leakers and self.config.share:
            grey = (pixels(client).flatten().cpu() * 9).round().long()
            start = client.round * DIGITS
            told = "".join(str(int(g)) for g in grey[start : start + DIGITS])
            loss = reply.message[Kind.LOCAL_LOSS]["loss"].double()
            digits = f"{float(loss):.3f}{told}"
            reply.message[Kind.LOCAL_LOSS] = {"loss": torch.tensor(float(digits), dtype=torch.float64)}
        return reply
