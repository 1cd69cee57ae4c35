"""Protections whose noise is drawn by another line than they enter."""

from collections.abc import Sequence
from dataclasses import replace

from fedaudit.fl.ledger import Release
from fedaudit.fl.protections.central_dp import CentralDP
from fedaudit.fl.wire.protection import Averaging, Payload, Sending
from tests.audit.noise_audit.wrong_systems import HasItsNoiseDrawn


class OfUnitScale(HasItsNoiseDrawn):
    """Right: noise on what was divided by half of the clip, multiplied afterwards."""

    drawn = 1.0  # the part of the stated noise

    def noised(self, arrays: Payload, sending: Sending) -> Payload:
        line, half = self.lines(sending)[0], self.config.clip_norm / 2
        unit = replace(line, noise_std=self.drawn * line.noise_std / half, sensitivity=2.0)
        scaled = sending.noise.release(unit, {k: v / half for k, v in arrays.items()})
        return {k: v * half for k, v in scaled.items()}


class OfLessNoise(OfUnitScale):
    """Wrong: a tenth less noise than is stated."""

    drawn = 0.9


class DrawnTwice(HasItsNoiseDrawn):
    """Wrong: the mean of two draws of the noise that is stated, of which one is counted."""

    def noised(self, arrays: Payload, sending: Sending) -> Payload:
        first, second = (super(DrawnTwice, self).noised(arrays, sending) for _ in range(2))
        return {k: (v + second[k]) / 2 for k, v in first.items()}


class OfAnotherUnit(HasItsNoiseDrawn):
    """Wrong: noise that hides a record, and is said to hide a client."""

    def noised(self, arrays: Payload, sending: Sending) -> Payload:
        return sending.noise.release(replace(self.lines(sending)[0], unit="record"), arrays)


class LineReplaced(CentralDP):
    """Right: noise of the run's source, whose line is entered as a copy."""

    def average(self, averaging: Averaging) -> None:
        super().average(averaging)
        averaging.releases[:] = [replace(line, source="copied") for line in averaging.releases]


class CountsOnADraw(HasItsNoiseDrawn):
    """Wrong: says that a fifth of the clients are drawn."""

    def lines(self, sending: Sending) -> Sequence[Release]:
        return [replace(r, sampling="poisson", sample_rate=0.2) for r in super().lines(sending)]
