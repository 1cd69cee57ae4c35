"""Small federations that are played, and how well two worlds can be told apart in what an observer reads of them.

Clients send changes through the wire and its protections, which write the ledger; a rule and a server momentum
make the model of them. The first clients send a change as long as the clip in one world, and none, or its
opposite, in the other; all others send nothing, and the noise is the same in both. A change is spread evenly
over D coordinates, which are independent copies of each other, so that the sum over them is Gaussian whatever
the rule does:

    mu^2 = D d' S^-1 d        d: mean difference of the worlds, S: covariance of a coordinate over what is read

A test of that sum distinguishes the worlds at epsilon(mu), so that no sound bound is below (Balle and Wang
2018, Theorem 8, solved here once more). Where what is read is a linear function A of the noise n that was drawn,
S = A diag(var n) A' is exact, d does not depend on the noise, and the value is certified up to ROUNDING. Where a
rule is not linear, S is estimated from D coordinates, and mu is lowered by MARGIN, five of its errors.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedaudit.fl.aggregation.aggregator import Aggregator, Averages
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release, read
from fedaudit.fl.methods.fedopt import FedOpt
from fedaudit.fl.model import State
from fedaudit.fl.recording.noise import share_of_noise
from fedaudit.fl.recording.tap import AddNoise, MessageTap, Payload, listening
from fedaudit.fl.runtime.durable import Log
from fedaudit.fl.runtime.plugin import configure, load
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Protection
from fedaudit.fl.wire.wire import Wire

Array = NDArray[np.float64]
D, MARGIN = 65_536, 0.014  # 5 / sqrt(2 D)
ROUNDING = 1e-4  # of single precision in what is read, over its spread


@dataclass(frozen=True)
class Card:
    """What the wire reads of a method's card."""

    title: str = "A small federation"
    uplink: tuple[Kind, ...] = (Kind.LOCAL_MODEL, Kind.NUM_EXAMPLES)


@dataclass(frozen=True, kw_only=True)
class System:
    """A federation in which everybody answers in every round."""

    protections: Sequence[tuple[str, dict[str, object]]]
    clients: int = 4
    rounds: int = 3
    holders: int = 1  # clients whose change differs between the worlds
    opposite: bool = False  # the other change is the opposite one, not none
    rule: tuple[str, dict[str, object]] = ("mean", {})
    momentum: float = 0.0
    clip: float = 1.0
    colluders: int = 0  # the last clients, who subtract what they sent
    reads: str = "models"  # or "uploads" of the holders, or "sums" of a round's uploads
    counts: Sequence[int] = ()  # examples that clients say they hold: sums are weighted by them
    timed: bool = False  # the server has a clock, by which the holders are later in one world
    seed: int = 1


class Play(NamedTuple):
    read: Array  # [numbers, D]
    noise: Array  # [draws, D]
    deviations: Array  # [draws] of the noise, by its line
    ledger: list[Release]


class Distinction(NamedTuple):
    epsilon: float  # that a test of the two worlds reaches
    is_certified: bool  # computed; else estimated, and lowered by five errors
    ledger: list[Release]


@dataclass
class NoiseTap(MessageTap):
    """Keeps the noise that is drawn."""

    noise: list[torch.Tensor] = field(default_factory=list)
    deviations: list[float] = field(default_factory=list)

    def add_noise(self, line: Release, clean: Payload, add: AddNoise) -> Payload:
        before = clean["w"].double()
        noised = add({"w": clean["w"].clone()})
        self.noise.append(noised["w"].double() - before)
        self.deviations.append(share_of_noise(line))
        return noised


def play(system: System, change: float) -> Play:
    """Plays `system` where the holders send `change` times the clip."""
    tap = NoiseTap()
    with TemporaryDirectory() as folder, listening(tap):
        log = Log(Path(folder) / "ledger.jsonl")
        wire = Wire(Card(), Streams(system.seed), _load_protections(system), None, log)
        model, seen = {"w": torch.zeros(D)}, []
        server = FedOpt(FedOpt.Config(server="momentum", beta1=system.momentum))
        moments = server.moments({"w": torch.zeros(D, dtype=torch.float64)})
        for t in range(system.rounds):
            sent = [_send(wire, system, t, k, model, change) for k in range(system.clients)]
            if system.reads == "uploads":
                seen += [upload["w"] - model["w"] for upload in sent[: system.holders]]
            honest = sent[: system.clients - system.colluders]
            if system.reads == "sums":
                seen.append(torch.stack([upload["w"] - model["w"] for upload in honest]).sum(0))
            mean = _aggregate(system, sent, model, t)
            if wire.chain.central is not None:
                mean = wire.average(t, model, mean, len(sent), system.clients)
            step = server.direction({"w": mean["w"].double() - model["w"].double()}, moments)
            model, moments = {"w": (model["w"].double() + step.direction["w"]).float()}, step.moments
            wire.end_round(t)
            if system.reads == "models":
                seen.append(model["w"])
        log.close()
        made = torch.stack(tap.noise).numpy()
        ledger = read(Path(folder) / "ledger.jsonl")
        return Play(torch.stack(seen).double().numpy(), made, np.array(tap.deviations), ledger)


def _load_protections(system: System) -> list[Protection]:
    return [
        configure(load("fedaudit.fl.protections", name, Protection), dict(settings), "protections")
        for name, settings in system.protections
    ]


def _send(wire: Wire, system: System, t: int, client: int, model: State, change: float) -> State:
    size = change if client < system.holders else 0.0
    moved = {"w": model["w"] + size * system.clip / math.sqrt(D)}
    message = {Kind.LOCAL_MODEL: moved}
    if system.counts:
        message[Kind.NUM_EXAMPLES] = {"count": torch.tensor(system.counts[client])}
    heard = wire.uplink(t, message, client, {Kind.GLOBAL_MODEL: model})
    if system.timed:
        wire.observe(t, client, 1.0 + (change if client < system.holders else 0.0), {}, {})
    assert heard is not None
    return heard[Kind.LOCAL_MODEL]


def _aggregate(system: System, sent: Sequence[State], model: State, t: int) -> State:
    name, settings = system.rule
    rule = configure(load("fedaudit.fl.aggregators", name, Aggregator), dict(settings), "aggregator")
    made = Averages(rule, t, Streams(system.seed)).begin()
    for k, upload in enumerate(sent):
        made.add(k, upload, 1.0, model)
    return made.value()


def distinguish(system: System, delta: float) -> Distinction:
    """How well a test tells the two worlds apart, and the ledger that was written."""
    one, other = play(system, 1.0), play(system, -1.0 if system.opposite else 0.0)
    if system.timed:  # a server reads off its clock which of the worlds it is in
        return Distinction(math.inf, True, one.ledger)
    covariance = compute_covariance(one)
    margin = MARGIN if covariance is None else ROUNDING
    gap = (one.read - other.read).mean(1)
    estimate = np.atleast_2d(np.cov(one.read)) if covariance is None else covariance
    mu = math.sqrt(max(0.0, D * float(gap @ np.linalg.solve(estimate, gap))))
    return Distinction(gaussian_loss((1 - margin) * mu, delta), covariance is not None, one.ledger)


def compute_covariance(played: Play) -> Array | None:
    """The covariance of a coordinate over what is read; None where that is no linear function of the noise.

    Raises ValueError where noise was drawn with another deviation than its line has.
    """
    spread = played.noise.std(1)
    if (abs(spread / played.deviations - 1) > MARGIN).any():
        raise ValueError("noise has another deviation than its line in the ledger")
    noise = played.noise - played.noise.mean(1, keepdims=True)
    read = played.read - played.read.mean(1, keepdims=True)
    linear = np.linalg.lstsq(noise.T, read.T, rcond=None)[0].T
    if (abs(read - linear @ noise).max(1) > ROUNDING * read.std(1)).any():
        return None
    return np.asarray((linear * played.deviations**2) @ linear.T)


def gaussian_loss(mu: float, delta: float) -> float:
    """The epsilon at which two Gaussians mu standard deviations apart differ by delta; not below it."""
    from scipy.stats import norm

    def left(epsilon: float) -> float:
        tail = norm.logcdf(-mu / 2 - epsilon / mu)
        return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(min(0.0, epsilon + tail)))

    if mu == 0 or left(0.0) <= delta:
        return 0.0
    low, high = 0.0, mu * mu / 2 + 40 * mu + 1
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if left(middle) > delta else (low, middle)
    return low
