"""Noised activations: each example's activations are clipped and get Gaussian noise before they leave the client.

The Gaussian mechanism for one example (Dwork, Roth. 2014, A.1; the bound is the exact one of Balle, Wang. ICML
2018, arXiv:1805.06530, Theorem 8), on what split learning sends of it:

    z <- z min(1, C / ||z||) + N(0, (noise_multiplier C)^2)    for each row z of a batch

Another example in its place moves its own row by at most 2 C. It moves others too: a client trains its layers on
it, and what these make of every example afterwards depends on it. So the ledger counts every message of a client,
and of a message of b rows that all of them move: its sensitivity is 2 C sqrt(b). What crosses beside the
activations is not noised, and the ledger says so: labels of a batch, and the client's trained layers. With kinds:
[smashed, smashed_gradient] the gradients that a client of the U-shape sends are treated alike.
"""

import math
from collections.abc import Collection
from typing import Any

from pydantic import Field

from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import Amount, Positive
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim
from fedaudit.fl.wire.noising import in_clear, perturb
from fedaudit.fl.wire.protection import Protection, Sending, Uploads

BATCHES = (Kind.SMASHED, Kind.SMASHED_GRADIENT)
TRIED = 0.1  # multiplier that an audit tries: the norm of the noise is then some times that of the activations


class NoisedActivations(Protection):
    title = "Clipped and noised activations"
    source = "arXiv:1805.06530, Theorem 8"
    kinds = BATCHES
    answers = frozenset({Aim.INVERSION, Aim.RECONSTRUCTION})
    strength = "noise_multiplier"

    @settings
    class Config:
        kinds: tuple[Kind, ...] = Field(default=(Kind.SMASHED,), description="smashed, smashed_gradient or both")
        clip_norm: Positive = Field(
            default=1.0, description="C: largest L2 norm of the activations of one example"
        )
        noise_multiplier: Amount = Field(
            default=1.0, description="z: standard deviation of the noise over C; 0 clips and adds no noise"
        )

        def __post_init__(self) -> None:
            if not self.kinds or not set(self.kinds) <= set(BATCHES):
                raise UserError(
                    f"noised_activations.kinds must be of {', '.join(BATCHES)}, got {list(self.kinds)}",
                    hint="dp_gaussian clips and noises models and means",
                )

    @classmethod
    def propose(cls, uploads: Uploads) -> dict[str, Any] | None:
        """Clipping at the median norm of an example's activations, with noise that a model may survive."""
        able = [k for k in BATCHES if k in uploads.kinds and uploads.norms.get(k)]
        if Kind.SMASHED not in able:
            return None
        return {"clip_norm": uploads.norms[Kind.SMASHED], "noise_multiplier": TRIED}

    def describe(self) -> str:
        c = self.config
        return (
            f"{', '.join(c.kinds)} clipped to norm {c.clip_norm:g} example by example, with Gaussian noise of "
            f"standard deviation {c.noise_multiplier * c.clip_norm:g} (multiplier {c.noise_multiplier:g}) "
            "added before the server receives it"
        )

    def noise_std(self, kind: Kind) -> float:
        c = self.config
        return float(c.noise_multiplier * c.clip_norm) if kind in c.kinds else 0.0

    def refuses(self, uplink: Collection[Kind]) -> str:
        missing = [k for k in self.config.kinds if k not in uplink]
        return f"its clients send no {' or '.join(missing)}" if missing else ""

    def apply(self, sending: Sending) -> None:
        c = self.config
        for kind in c.kinds:
            if kind not in sending.message:
                continue
            line = self._describe_release(sending, kind)
            sending.message[kind] = perturb(
                sending.message[kind], {}, c.clip_norm, sending.noise, line, rows=True
            )
            sending.protected.add(kind)
            sending.releases += [line, *in_clear(kind, sending, "noised_activations")]

    def _describe_release(self, sending: Sending, kind: Kind) -> Release:
        c, rows = self.config, max(len(v) for v in sending.message[kind].values())
        return Release(
            round=sending.round,
            kind=kind,
            sender=str(sending.sender),
            observers=sending.observers,
            mechanism="gaussian" if c.noise_multiplier else "none",
            noise_std=c.noise_multiplier * c.clip_norm,
            sensitivity=2 * c.clip_norm * math.sqrt(rows),
            unit="record",
            adjacency="replace_one",
            clipped="on the activations of each example, before noise",
            clip_norm=c.clip_norm,
            clip_of="record",
            derived="clip",
            source="noised_activations",
        )
