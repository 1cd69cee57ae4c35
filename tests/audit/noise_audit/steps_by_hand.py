"""Noised steps that a method makes by itself, of examples that it draws by their place or by their record."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.training.local import Trained
from fedaudit.fl.wire.protection import Protection, Sending

STEPS, CLIP, MULTIPLIER, RATE = 3, 1.0, 2.0, 0.2


def line_of(round: int, client: int) -> Release:
    """One step's."""
    return Release(
        round=round,
        kind=Kind.LOCAL_MODEL,
        sender=f"client/{client}",
        observers=("server", "client", "public"),
        mechanism="gaussian",
        noise_std=MULTIPLIER * CLIP,
        sensitivity=CLIP,
        unit="record",
        sampling="poisson",
        sample_rate=RATE,
        coin="each",
        participation_seen_by=(),
        clipped="on each example's gradient, in every step",
        source="StepsLedger",
        clip_norm=CLIP,
        clip_of="record",
        derived="clip",
    )


class StepsLedger(Protection):
    """Writes down what the steps of a training spend."""

    title = "Steps noised by hand"
    kinds = (Kind.LOCAL_MODEL,)

    @dataclass(frozen=True, kw_only=True)
    class Config:
        pass

    def adds_noise_to(self, kind: Kind) -> bool:
        return kind in self.kinds

    def apply(self, sending: Sending) -> None:
        line = replace(line_of(sending.round, sending.sender.number), count=STEPS, steps=STEPS)
        sending.releases.append(replace(line, observers=sending.observers))
        sending.protected.add(Kind.LOCAL_MODEL)

    def describe(self) -> str:
        return "clients train in noised steps"


class StepsByPlace(FedAvg):
    """Right: one stream of coins for a round, a coin for each place."""

    def toss(self, client: Client) -> Callable[[int], Tensor]:
        draw = client.generator("examples")
        return lambda _: torch.rand(len(client.x), generator=draw)

    def shorten(self, size: Tensor) -> Tensor:
        return (CLIP / size.clamp(min=1e-12)).clamp(max=1)

    def train(self, client: Client) -> Reply:
        net, weights = client.net.eval(), {n: v.clone() for n, v in client.start.items()}

        def loss(w: dict[str, Tensor], one: Tensor, label: Tensor) -> Any:
            logits = torch.func.functional_call(net, w, (one[None],))
            return torch.nn.functional.cross_entropy(logits, label[None])

        each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
        coins = self.toss(client)
        for step in range(STEPS):
            grads = each(weights, client.x, client.y)
            size = torch.sqrt(sum(g.flatten(1).double().pow(2).sum(1) for g in grads.values()))  # type: ignore[arg-type]
            factor = self.shorten(size) * (coins(step) < RATE)
            total = {n: torch.tensordot(factor, g.double(), 1).float() for n, g in grads.items()}
            noised = client.noise(f"step-{step}").release(line_of(client.round, client.index), total)
            weights = {n: w - self.config.lr * noised[n] / 40 for n, w in weights.items()}
        return self.finish(client, Trained(state=weights, steps=STEPS, loss=0.0))


class StepsByPlaceAnew(StepsByPlace):
    """Right: as many coins for whatever number of examples, of which places take theirs."""

    def toss(self, client: Client) -> Callable[[int], Tensor]:
        return lambda step: torch.rand(1000, generator=client.generator(f"examples-{step}"))[: len(client.x)]


class StepsByRecord(StepsByPlace):
    """Right: coins belong to records."""

    def toss(self, client: Client) -> Callable[[int], Tensor]:
        assert client.records is not None
        rows = client.records
        return lambda step: torch.rand(100_000, generator=client.generator(f"examples-{step}"))[rows]


class UnboundedByPlace(StepsByPlace):
    """Wrong: no gradient is clipped."""

    def shorten(self, size: Tensor) -> Tensor:
        return torch.ones_like(size)


class UnboundedByPlaceAnew(StepsByPlaceAnew):
    """Wrong: no gradient is clipped."""

    def shorten(self, size: Tensor) -> Tensor:
        return torch.ones_like(size)


class TwiceByRecord(StepsByRecord):
    """Wrong: a gradient may be twice as long as is said."""

    def shorten(self, size: Tensor) -> Tensor:
        return 2 * super().shorten(size)


class TwiceByPlaceAnew(StepsByPlaceAnew):
    """Wrong: a gradient may be twice as long as is said; the last place shows it."""

    def shorten(self, size: Tensor) -> Tensor:
        return 2 * super().shorten(size)


class TellsItsSize(StepsByPlace):
    """Wrong: the number of examples is in what leaves, whoever is drawn."""

    def train(self, client: Client) -> Reply:
        reply = super().train(client)
        model = reply.message[Kind.LOCAL_MODEL]
        name = next(iter(model))
        reply.message[Kind.LOCAL_MODEL] = {**model, name: model[name] + float(len(client.x))}
        return reply
