"""Noise on what a client hands on in a relay, as GANDALF states it and as it would have to be.

GANDALF, sec. 3.5 and Theorem 1: std = sigma * s with the sensitivity s of the weights, sigma >= c / epsilon,
c = sqrt(2 ln(1.25 / delta)).

    printed     w + N(0, (sigma s)^2). Nothing clips to s, so it bounds nothing: not private,
                whatever sigma is. The formula is for epsilon < 1 besides: the paper's sigma = 1e-5
                would give 484,000, and an exact account of it 5.0e9 for every visit.
    accounted   received + clip(w - received, s) + N(0, (sigma s)^2): one visit's change of all weights
                of a network, as one vector, has at most norm s with the client and is 0 without.

Every visit is a release of its own in the ledger, to be composed over visits and rounds.
"""

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from fedaudit.fl.artifact import Party
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.model import State
from fedaudit.fl.recording.noise import NoiseSource, with_origin
from fedaudit.fl.runtime.ranges import Amount, Positive
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.wire.noising import NON_FINITE, clip, replace_non_finite

STATED_DELTA = 1e-5


@settings
class NoiseConfig:
    """Noise deviations are `scale` times the sensitivities; the paper states none of the latter."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    mode: Literal["printed", "accounted"] = Field(
        default="printed",
        description="noise as GANDALF prints it, which bounds nothing, or clipped and accounted for",
    )
    scale: Amount = Field(
        default=1e-5, description="sigma_n: standard deviation of the noise over the sensitivity; 0 adds no noise"
    )
    generator: Positive = Field(
        default=1.0, description="s_g: L2 norm of one visit's change of the generator, declared or clipped to"
    )
    critic: Positive = Field(
        default=1.0, description="s_d: L2 norm of one visit's change of the critic, declared or clipped to"
    )
    model: Positive = Field(
        default=1.0, description="s_c: L2 norm of one visit's change of the model, declared or clipped to"
    )
    labels_scale: Amount = Field(
        default=1e-5, description="standard deviation of the noise on the label distribution over its sensitivity"
    )
    labels: Positive = Field(
        default=1.0, description="L2 norm of the label distribution; at most 1 for any distribution"
    )

    @property
    def clips(self) -> bool:
        return self.mode == "accounted"

    def sensitivity(self, kind: Kind) -> float:
        """s of a kind."""
        return {Kind.GAN_G: self.generator, Kind.GAN_D: self.critic, Kind.NOISED_LABEL_DIST: self.labels}.get(
            kind, self.model
        )

    def deviation(self, kind: Kind) -> float:
        """Standard deviation of the noise on each number."""
        scale = self.labels_scale if kind == Kind.NOISED_LABEL_DIST else self.scale
        return scale * self.sensitivity(kind)


def no_noise() -> NoiseConfig:
    """For methods that add none of their own."""
    return NoiseConfig(scale=0.0, labels_scale=0.0)


def protect(
    kind: Kind,
    sent: State,
    received: Mapping[str, Tensor],
    config: NoiseConfig,
    noise: NoiseSource,
    line: Release | None,
) -> State:
    """What is handed on of `sent`, as line_of() says; without noise and clipping the very same tensors."""
    if line is None:
        return sent
    if config.clips:
        base = {name: received[name].cpu() for name in sent if name in received}
        sent = clip(replace_non_finite(sent, base), base, config.sensitivity(kind))
    clean = {name: value for name, value in sent.items() if value.is_floating_point()}
    return sent | noise.release(line, clean) if line.noise_std else sent


def line_of(
    kind: Kind, round: int, client: int, config: NoiseConfig, observers: tuple[str, ...], stream: str = ""
) -> Release | None:
    """The ledger's line for one visit; None where there is neither noise nor clipping."""
    deviation, bound = config.deviation(kind), config.sensitivity(kind)
    if not deviation and not config.clips:
        return None
    stated = math.sqrt(2 * math.log(1.25 / STATED_DELTA)) * bound / deviation if deviation else None
    line = Release(
        round=round,
        kind=kind,
        sender=str(Party.client(client)),
        observers=observers,
        mechanism="gaussian" if deviation else "none",
        noise_std=deviation,
        sensitivity=bound,
        clipped=f"on one visit's change of all weights, before noise; {NON_FINITE}" if config.clips else "",
        clip_norm=bound if config.clips else None,
        clip_of="update" if config.clips else "",
        derived="clip" if config.clips else "declared",
        source="gandalf",
        claimed_epsilon=None if config.clips else stated,
        claimed_delta=None if config.clips or stated is None else STATED_DELTA,
        stream=stream,
    )
    return with_origin(line)
