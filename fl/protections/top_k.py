"""Top-k: of each message only the largest numbers are sent, as they are or as a sign and one magnitude.

Sattler, Wiedemann, Mueller, Samek. Robust and Communication-Efficient Federated Learning from Non-IID Data.
IEEE TNNLS 2020. arXiv:1903.02891, Algorithm 1 (sparse ternary compression, STC). Of the numbers v of a kind, all
arrays together, the ceil(share * size) of largest magnitude are kept and the others are 0; with `values: ternary`
each kept number becomes sign(v) times their mean magnitude. A model counts as its change from the model received.
Ties keep the first. Whole-number arrays stay.

Left out: the residual that a client adds to its next update (protections remember nothing from round to round),
the server's own compression of what it sends down, and Golomb coding: what arrives is counted with its zeros. By
the paper's count (eq. 15 to 17) a kept number takes `describe()`'s bits.

Leaving out is no noise: it promises no differential privacy, and the ledger lists what it touched as released in
clear; which numbers are left tells of the data as well. After a protection that adds noise it loses nothing of
its promise. share 1 with exact values changes nothing.
"""

from dataclasses import dataclass
from math import ceil, floor, log, log2, sqrt
from typing import Annotated, Literal

import torch
from pydantic import Field

from fl.kinds import Kind
from fl.noising import base_of, change, rebuilt
from fl.protection import Payload, Protection, Sending
from fl.ranges import PositiveShare


class TopK(Protection):
    title = "Sparse updates"
    source = "arXiv:1903.02891, Alg. 1"
    after_noise = "all but the largest of the noised numbers are left out"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        kinds: Annotated[tuple[Kind, ...], Field(description="kinds of messages of which little is sent")] = (
            Kind.LOCAL_MODEL,
            Kind.UNFROZEN_LAYERS,
            Kind.MODEL_DELTA,
        )
        share: Annotated[
            PositiveShare, Field(description="of the numbers that is sent; STC takes 0.0025 to 0.04")
        ] = 0.01
        values: Annotated[
            Literal["exact", "ternary"],
            Field(description="the numbers themselves, or their signs and one magnitude for all (STC)"),
        ] = "exact"

    def describe(self) -> str:
        c = self.config
        how = "as they are" if c.values == "exact" else "as signs and one magnitude"
        return (
            f"of {', '.join(c.kinds)} the largest {c.share:.3g} of the numbers, {how}, about "
            f"{self.bits():.3g} bits for each with its place"
        )

    def bits(self) -> float:
        """Bits of a number that is sent: its Golomb-coded distance to the one before, and its value."""
        value = 32.0 if self.config.values == "exact" else 1.0
        share = self.config.share
        if share == 1:
            return value
        golden = (sqrt(5) - 1) / 2
        best = max(0, 1 + floor(log2(log(golden) / log(1 - share))))
        return float(value + best + 1 / (1 - (1 - share) ** (2**best)))

    def apply(self, sending: Sending) -> None:
        if self.config.share == 1 and self.config.values == "exact":
            return
        for kind in self.config.kinds:
            if kind in sending.message:
                payload, base = sending.message[kind], base_of(kind, sending)
                sending.message[kind] = rebuilt(payload, base, self._kept(change(payload, base)))

    def _kept(self, moving: Payload) -> Payload:
        if not sum(v.numel() for v in moving.values()):
            return moving
        flat = torch.cat([v.flatten().double() for v in moving.values()])
        kept = flat.abs().argsort(descending=True, stable=True)[: ceil(self.config.share * len(flat))]
        sent = torch.zeros_like(flat)
        if self.config.values == "exact":
            sent[kept] = flat[kept]
        else:
            sent[kept] = flat[kept].sign() * flat[kept].abs().mean()
        found, at = {}, 0
        for name, value in moving.items():
            found[name] = sent[at : at + value.numel()].reshape(value.shape).to(value.dtype)
            at += value.numel()
        return found
