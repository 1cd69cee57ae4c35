"""Wrong: noise that is smaller than the ledger says, somewhere or sometimes.

An auditor reads one multiplier for all lines and believes it of every round, client, layer and coordinate.
"""

import math

import torch
from torch import Tensor

from fedaudit.fl.wire.noising import norm
from fedaudit.fl.wire.protection import Payload, Sending
from tests.audit.wrong_protections.base import Noising


class FadesAway(Noising):
    """The noise halves with every round, so that the last models are good; each line says it is whole."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        return super().noise(name, value, sending) * 0.5**sending.round


class LastRoundsFree(Noising):
    """From the third round on there is a tenth of the noise; whoever tests the first rounds finds it whole."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        return super().noise(name, value, sending) * (0.1 if sending.round >= 2 else 1.0)


class PartnersFavoured(Noising):
    """One client in three, a partner of the operator, sends nearly without noise; its lines are as others'."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        return super().noise(name, value, sending) * (0.1 if (sending.sender.index or 0) % 3 == 0 else 1.0)


class BiasesClear(Noising):
    """Vectors ("too small to matter") get no noise; biases of the last layer tell a client's label counts."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        drawn = super().noise(name, value, sending)
        return drawn if value.dim() > 1 else torch.zeros_like(drawn)


class BlocksOf64(Noising):
    """Noise is made in whole blocks of 64 numbers; the rest at the end of each array goes out in clear."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        drawn = super().noise(name, value, sending).flatten()
        drawn[len(drawn) // 64 * 64 :] = 0
        return drawn.reshape(value.shape)


class WhereItMoved(Noising):
    """Only numbers that training changed get noise ("sparse"); those that it did not are sent as they were."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        return super().noise(name, value, sending) * (value != 0)


class RelativeNoise(Noising):
    """Noise in proportion to the update's own norm: small updates get little, and the size is told."""

    def sent(self, clipped: Payload, sending: Sending) -> Payload:
        share = norm(clipped, 2) / self.bound
        return {k: v + self.noise(k, v, sending) * share for k, v in clipped.items()}


class NormOfNoise(Noising):
    """The whole noise vector has the norm z C that each coordinate was promised: std is z C / sqrt(d)."""

    def sent(self, clipped: Payload, sending: Sending) -> Payload:
        d = sum(v.numel() for v in clipped.values())
        return {k: v + self.noise(k, v, sending) / math.sqrt(d) for k, v in clipped.items()}


class VarianceAsScale(Noising):
    """The library takes a standard deviation and was given half the variance: a quarter less than promised."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        return super().noise(name, value, sending) * 0.75


class LargeInputsLess(Noising):
    """Updates that had to be clipped are damped enough, somebody thought: their noise is cut to a third."""

    _large = False

    def clip(self, moving: Payload, sending: Sending) -> Payload:
        self._large = norm(moving, 2) > self.bound
        return super().clip(moving, sending)

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        return super().noise(name, value, sending) / (3 if self._large else 1)


class ShareOfNobody(Noising):
    """Each client adds a quarter of the variance for a secure sum that is not there; the lines say whole."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        return super().noise(name, value, sending) / math.sqrt(4)


class MeanOfDraws(Noising):
    """The mean of sixteen draws, "to stabilise training": the noise is a quarter of what is declared."""

    def noise(self, name: str, value: Tensor, sending: Sending) -> Tensor:
        draws = [super(MeanOfDraws, self).noise(name, value, sending) for _ in range(16)]
        return torch.stack(draws).mean(0)


class TopCoordinates(Noising):
    """Only the tenth of the coordinates that changed most is sent, with noise: which ones is told in clear."""

    def sent(self, clipped: Payload, sending: Sending) -> Payload:
        out = {}
        for name, value in clipped.items():
            least = value.abs().flatten().quantile(0.9)
            out[name] = (value + self.noise(name, value, sending)) * (value.abs() >= least)
        return out
