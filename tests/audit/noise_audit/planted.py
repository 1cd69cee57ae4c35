"""Protections with a fault, as programs have them: what each does differs from what its ledger says."""

import dataclasses

import torch

from fedaudit.fl.ledger import Release
from fedaudit.fl.protections.dp_gaussian import DPGaussian
from fedaudit.fl.recording.noise import NoiseSource
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Payload, Sending

CLIP, Z = 2.0, 1.5


def correct(adjacency: str = "add_or_remove_one") -> DPGaussian:
    return _configured(DPGaussian, adjacency)


def _configured(cls: type[DPGaussian], adjacency: str = "add_or_remove_one") -> DPGaussian:
    return cls(
        DPGaussian.Config(clip_norm=CLIP, noise_multiplier=Z, adjacency=adjacency)  # type: ignore[arg-type]
    )


class _Scaled(DPGaussian):
    """Clips as it says, and adds less noise than it says."""

    share = 1.0

    def _add_noise(self, payload: Payload, base: Payload, noise: NoiseSource, line: Release) -> Payload:
        return super()._add_noise(
            payload, base, noise, dataclasses.replace(line, noise_std=self.share * line.noise_std)
        )


class HalfTheNoise(_Scaled):
    """Noise for half the sensitivity."""

    share = 0.5


class TenthOfTheNoise(_Scaled):
    share = 0.1


class SlightlyLess(_Scaled):
    """A twentieth less noise: no guessing adversary sees that."""

    share = 0.95


class HalfTheSensitivity(DPGaussian):
    """The ledger says that a client moves the sum by half of what it does."""

    def _releases(self, kind, sending):  # type: ignore[no-untyped-def]
        said = super()._releases(kind, sending)
        return [dataclasses.replace(r, sensitivity=CLIP / 2) for r in said]


class NoClip(DPGaussian):
    def _add_noise(self, payload: Payload, base: Payload, noise: NoiseSource, line: Release) -> Payload:
        return {
            k: v + noise.generator.draw_gaussian(v.numel()).reshape(v.shape).float() * (CLIP * Z)
            for k, v in payload.items()
        }


class ClipPerTensor(DPGaussian):
    """Every tensor is clipped alone, so the whole vector is longer than the clip."""

    def _add_noise(self, payload: Payload, base: Payload, noise: NoiseSource, line: Release) -> Payload:
        out: Payload = {}
        for name, value in payload.items():
            out |= super()._add_noise({name: value}, {k: v for k, v in base.items() if k == name}, noise, line)
        return out


class _Reseeded(DPGaussian):
    def seed(self, sending: Sending) -> int:
        raise NotImplementedError

    def apply(self, sending: Sending) -> None:
        sending.noise = NoiseSource(Streams(self.seed(sending)).noise("again"))
        super().apply(sending)


class SameEveryRound(_Reseeded):
    def seed(self, sending: Sending) -> int:
        return int(sending.sender.index or 0)


class SameForEveryClient(_Reseeded):
    def seed(self, sending: Sending) -> int:
        return sending.round


class SameInEveryTensor(DPGaussian):
    def _add_noise(self, payload: Payload, base: Payload, noise: NoiseSource, line: Release) -> Payload:
        out, whole = {}, super()._add_noise(payload, base, noise, line)
        n = len(whole["bias"])
        same = noise.generator.draw_gaussian(n).float() * (CLIP * Z)
        for name, value in whole.items():
            out[name] = value.clone()
            out[name][:n] = payload[name][:n].clamp(-CLIP, CLIP) + same
        return out


class DroppedComposition(DPGaussian):
    """Only the first round is in the ledger."""

    def apply(self, sending: Sending) -> None:
        super().apply(sending)
        if sending.round:
            sending.releases.clear()


class GrowsWithTheUpdate(DPGaussian):
    """Noise in proportion to the message, as "1 % of the update": it says how large that is."""

    def _add_noise(self, payload: Payload, base: Payload, noise: NoiseSource, line: Release) -> Payload:
        norm = min(CLIP, float(torch.cat(list(payload.values())).norm()))
        spread = CLIP * Z * (1 + norm / CLIP)
        return {
            k: v * min(1.0, CLIP / max(norm, 1e-9))
            + noise.generator.draw_gaussian(v.numel()).reshape(v.shape).float() * spread
            for k, v in payload.items()
        }


FAULTS = {
    cls.__name__: _configured(cls)
    for cls in (
        HalfTheNoise,
        TenthOfTheNoise,
        SlightlyLess,
        HalfTheSensitivity,
        NoClip,
        ClipPerTensor,
        SameEveryRound,
        SameForEveryClient,
        SameInEveryTensor,
        DroppedComposition,
        GrowsWithTheUpdate,
    )
}


class Refusing(DPGaussian):
    """Takes no message but those of one model."""

    def apply(self, sending: Sending) -> None:
        raise ValueError("unknown layers")


class PerRecord(DPGaussian):
    """Says, for one record, what holds: a clipped update changes by twice the clip at most."""

    share = 1.0

    def _releases(self, kind, sending) -> list[Release]:  # type: ignore[no-untyped-def]
        bound = 2 * self.config.clip_norm * self.share
        return [
            dataclasses.replace(r, unit="record", adjacency="replace_one", sensitivity=bound)
            for r in super()._releases(kind, sending)
        ]


class PerRecordMean(PerRecord):
    """Says 2 L / m, as of one mean of m clipped examples; several steps of batches are no mean."""

    share = 1 / 400
