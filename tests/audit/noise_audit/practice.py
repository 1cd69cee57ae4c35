"""Mechanisms of practice that a team writes itself: right ones, and the same with one mistake.

Correlated noise (Denisov et al. arXiv:2202.08312), discrete noise on a grid with a modulus, a clip that follows
a noised share of clients (Andrew et al. arXiv:1905.03871), DP-SGD in a client's own code, noise that training
adds itself, and noise made together. A class that says "Right" states at least what it costs.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import EACH, Release
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.protections.central_dp import CentralDP
from fedaudit.fl.protections.dp_gaussian import DPGaussian
from fedaudit.fl.training.local import Trained
from fedaudit.fl.wire.noising import base_of, change, norm, rebuild
from fedaudit.fl.wire.protection import Averaging, Payload, Protection, Sending
from tests.audit.noise_audit.wrong_systems import HasItsNoiseDrawn, OwnNoise

ROUNDS = 4
SPREAD = math.sqrt((1 + (ROUNDS - 1) * 1.5**2) / ROUNDS)  # of I + L/2 over all rounds, an even part of each


class Rounds(FedAvg):
    """Right: FedAvg whose clients send their models alone."""

    card = replace(FedAvg.card, uplink=(Kind.LOCAL_MODEL,))


# Noise on the mean ----------------------------------------------------------------------------------------


class Correlated(CentralDP):
    """Right: noise C^-1 Z with C = I + L/2. The last noise is taken back by half before the next is drawn.

    Every client takes part in all four rounds, so all lines together cost the norm of C 1.
    """

    costs = SPREAD

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.last: Payload = {}

    def average(self, averaging: Averaging) -> None:
        m, c = averaging.expected, self.config
        line = self._release(averaging, m, c.noise_multiplier * c.clip_norm / m)
        line = replace(line, sensitivity=(line.sensitivity or 0.0) * self.costs)
        share, names = averaging.delivered / m, [k for k, v in averaging.before.items() if v.is_floating_point()]
        moved = {k: share * (averaging.model[k] - averaging.before[k]) for k in names}
        noised = self.draw(averaging, line, moved)
        averaging.model = averaging.before | {k: averaging.before[k] + noised[k] for k in names}
        averaging.releases.append(line)

    def draw(self, averaging: Averaging, line: Release, moved: Payload) -> Payload:
        clean = {k: v - 0.5 * self.last[k] if self.last else v for k, v in moved.items()}
        noised = averaging.noise.release(line, clean)
        self.last = {k: noised[k] - moved[k] for k in moved}
        return noised


class CorrelatedAfterwards(Correlated):
    """Right: the same, where noise is drawn on nothing and then added up."""

    def draw(self, averaging: Averaging, line: Release, moved: Payload) -> Payload:
        drawn = averaging.noise.release(line, {k: torch.zeros_like(v) for k, v in moved.items()})
        return self.add(moved, drawn)

    def add(self, moved: Payload, drawn: Payload) -> Payload:
        self.last = {k: v - 0.5 * self.last[k] if self.last else v for k, v in drawn.items()}
        return {k: v + self.last[k] for k, v in moved.items()}


class CorrelatedByItself(CorrelatedAfterwards):
    """Right: the same from a generator of its own."""

    def draw(self, averaging: Averaging, line: Release, moved: Payload) -> Payload:
        rng = averaging.rng
        drawn = {k: torch.randn(v.shape, generator=rng) * line.noise_std for k, v in moved.items()}
        return self.add(moved, drawn)


class CountedAsIndependent(Correlated):
    """Wrong: its lines cost what independent noise would."""

    costs = 1.0


class MomentumAfterTheSource(Correlated):
    """Wrong: the run's source draws right noise, and half of the last clean mean is added to what it noised."""

    costs = 1.0

    def draw(self, averaging: Averaging, line: Release, moved: Payload) -> Payload:
        noised = averaging.noise.release(line, moved)
        sent = {k: v + 0.5 * self.last[k] if self.last else v for k, v in noised.items()}
        self.last = moved
        return sent


class AdaptiveClip(CentralDP):
    """Right: the clip follows a noised share of short changes, which has a line of its own."""

    paid = True

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.short: list[float] = []

    def apply(self, sending: Sending) -> None:
        kind = Kind.LOCAL_MODEL
        length = norm(change(sending.message[kind], base_of(kind, sending.reference)), 2)
        self.short.append(float(length <= self.config.clip_norm))
        super().apply(sending)

    def average(self, averaging: Averaging) -> None:
        super().average(averaging)
        m, share = averaging.expected, torch.tensor([sum(self.short)])
        line = replace(averaging.releases[-1], noise_std=10 / m, sensitivity=1 / m, clip_norm=1 / m)
        share = share / m
        if self.paid:
            share = averaging.noise.release(line, {"short": share})["short"]
            averaging.releases.append(line)
        self.short = []
        clip = self.config.clip_norm * math.exp(-0.2 * (float(share) - 0.5))
        self.config = replace(self.config, clip_norm=clip)


class AdaptiveClipUnpaid(AdaptiveClip):
    """Wrong: the share of short changes gets no noise and has no line."""

    paid = False


# Noise of each client ---------------------------------------------------------------------------------------


class Modulus(HasItsNoiseDrawn):
    """Right: noised numbers are sent modulo 64."""

    def noised(self, arrays: Payload, sending: Sending) -> Payload:
        return {k: torch.remainder(v + 32, 64) - 32 for k, v in super().noised(arrays, sending).items()}


class Clamped(HasItsNoiseDrawn):
    """Right: noised numbers are cut at 3."""

    def noised(self, arrays: Payload, sending: Sending) -> Payload:
        return {k: v.clamp(-3, 3) for k, v in super().noised(arrays, sending).items()}


class Coarse(HasItsNoiseDrawn):
    """Right: noised numbers are rounded to halves."""

    def noised(self, arrays: Payload, sending: Sending) -> Payload:
        return {k: (v * 2).round() / 2 for k, v in super().noised(arrays, sending).items()}


class OnAGrid(OwnNoise):
    """Right: whole-number noise on a grid of half its deviation, to which the clipped change is cut."""

    steps = 2.0
    drawn = 1.0  # of the deviation that is stated

    def noised(self, arrays: Payload, sending: Sending) -> Payload:
        spacing = self.noise_std(Kind.LOCAL_MODEL) / self.steps
        return {k: ((v / spacing).trunc() + self.draw(v, sending)) * spacing for k, v in arrays.items()}

    def draw(self, like: Tensor, sending: Sending) -> Tensor:
        seed = int(torch.randint(2**62, (), generator=sending.rng))
        rng, support = np.random.default_rng(seed), np.arange(-40, 41)
        weights = np.exp(-(support**2) / (2 * (self.steps * self.drawn) ** 2))
        return torch.from_numpy(rng.choice(support, like.shape, p=weights / weights.sum())).to(like.dtype)


class OnAGridTooLittle(OnAGrid):
    """Wrong: four fifths of the noise that is stated."""

    drawn = 0.8


class FeedsBackItsClip(HasItsNoiseDrawn):
    """Right: what the clip took is added to the next change before its clip."""

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.left: dict[str, Payload] = {}

    def clipped(self, arrays: Payload, sending: Sending) -> Payload:
        old = self.left.get(str(sending.sender), {})
        wanted = {k: v + old[k] if k in old else v for k, v in arrays.items()}
        clipped = super().clipped(wanted, sending)
        self.left[str(sending.sender)] = {k: wanted[k] - v for k, v in clipped.items()}
        return clipped


# Noise of training ------------------------------------------------------------------------------------------


class StatedSteps(Protection):
    """Right beside `OwnSteps`: the lines of a client's own DP-SGD, four steps of a quarter of its records."""

    title, source, kinds = "Lines of DP-SGD", "a test of the audit", (Kind.LOCAL_MODEL,)
    count = 4

    def describe(self) -> str:
        return "clients train by DP-SGD of their own"

    def apply(self, sending: Sending) -> None:
        sending.protected.add(Kind.LOCAL_MODEL)
        sending.releases.append(
            Release(
                round=sending.round,
                kind=Kind.LOCAL_MODEL,
                sender=str(sending.sender),
                observers=sending.observers,
                mechanism="gaussian",
                noise_std=1.0,
                sensitivity=1.0,
                unit="record",
                sampling="poisson",
                sample_rate=0.25,
                coin=EACH,
                count=self.count,
                clip_norm=1.0,
                clip_of="record",
                clipped="on each record's gradient",
                derived="clip",
                source="StatedSteps",
                participation_seen_by=(),
            )
        )


class OwnSteps(Rounds):
    """Right: clients train by DP-SGD written by themselves, on a linear model."""

    def train(self, client: Client) -> Reply:
        rng, x, y = client.generator("steps"), client.x.flatten(1), client.y
        w = {k: v.clone() for k, v in client.start.items()}
        weight = next(k for k, v in w.items() if v.dim() == 2)
        bias = next(k for k, v in w.items() if v.dim() == 1)
        for _ in range(4):
            coins = torch.rand(len(y), generator=rng) < 0.25
            away = (x @ w[weight].T + w[bias]).softmax(1)
            away[torch.arange(len(y)), y] -= 1
            length = ((1 + x.square().sum(1)) * away.square().sum(1)).sqrt()
            away = away * (coins / length.clamp(min=1)).unsqueeze(1)
            for name, total in ((weight, away.T @ x), (bias, away.sum(0))):
                w[name] = w[name] - 0.2 * (total + torch.randn(total.shape, generator=rng))
        return Reply(message={Kind.LOCAL_MODEL: w}, examples=len(y), stats={"train_loss": 0.0, "steps": 4.0})


class StatedNoise(OwnNoise):
    """Right beside `NoisesItself`: the lines of noise that training has added already."""

    def apply(self, sending: Sending) -> None:
        sending.protected.add(Kind.LOCAL_MODEL)
        sending.releases += self.lines(sending)


class NoisesItself(Rounds):
    """Right: clients clip and noise their change before they hand it to anybody."""

    drawn = 2.0

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply, rng = super().finish(client, trained), client.generator("noise")
        moved = change(reply.message[Kind.LOCAL_MODEL], client.start)
        factor = min(1.0, 1 / max(norm(moved, 2), 1e-12))
        sent = {k: v * factor + torch.randn(v.shape, generator=rng) * self.drawn for k, v in moved.items()}
        whole = rebuild(reply.message[Kind.LOCAL_MODEL], client.start, sent)
        return replace(reply, message={Kind.LOCAL_MODEL: whole})


class NoisesItselfTooLittle(NoisesItself):
    """Wrong: half of the noise that its lines state."""

    drawn = 1.0


class NoisesNothing(NoisesItself):
    """Wrong: a clip, and no noise."""

    drawn = 0.0


# Noise made together ----------------------------------------------------------------------------------------


class OwnShares(HasItsNoiseDrawn):
    """Right: each of six clients adds a sixth of the variance."""

    def lines(self, sending: Sending) -> list[Release]:
        return [replace(r, aggregated=6) for r in super().lines(sending)]


class KeepsAFew(DPGaussian):
    """Wrong beneath shares: of what it noised a client sends the largest tenth; few clients noise any number."""

    def apply(self, sending: Sending) -> None:
        super().apply(sending)
        kind = Kind.LOCAL_MODEL
        payload, base = sending.message[kind], base_of(kind, sending.reference)
        moved = change(payload, base)
        least = torch.cat([v.abs().flatten() for v in moved.values()]).quantile(0.9)
        kept = {k: torch.where(v.abs() >= least, v, torch.zeros_like(v)) for k, v in moved.items()}
        sending.message[kind] = rebuild(payload, base, kept)
