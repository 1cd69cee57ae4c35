"""Top-k: of each message only the largest numbers are sent, as they are or as a sign and one magnitude.

Sattler, Wiedemann, Mueller, Samek. Robust and Communication-Efficient Federated Learning from Non-IID Data.
IEEE TNNLS 2020. arXiv:1903.02891, Algorithm 1 (sparse ternary compression, STC). Of the numbers v of a kind, all
arrays together, the ceil(share * size) of largest magnitude are kept and the others are 0; with `values: ternary`
each kept number becomes sign(v) times their mean magnitude. A model counts as its change from the model received.
Ties keep the first. Whole-number arrays stay.

A protection remembers nothing from round to round and does not act on what the server sends: the residual that a
client adds to its next update and the compression of the server's own are in the method `stc`. Bytes are those of
the Golomb-Rice code (fl/recording/coded.py); by the paper's count (eq. 15 to 17) a kept number takes
`describe()`'s bits.

Leaving out is no noise: it promises no differential privacy, and the ledger lists what it touched as released in
clear; which numbers are left tells of the data as well. After a protection that adds noise it loses nothing of
its promise. share 1 with exact values changes nothing.
"""

from typing import Literal

from pydantic import Field

from fedaudit.fl.kinds import UPDATES, Kind
from fedaudit.fl.recording.coded import Coded, largest, rice, size_of
from fedaudit.fl.runtime.ranges import PositiveShare
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.wire.noising import base_of, change, rebuild
from fedaudit.fl.wire.protection import Protection, Sending


class TopK(Protection):
    title = "Sparse updates"
    source = "arXiv:1903.02891, Alg. 1"
    after_noise = "all but the largest of the noised numbers are left out"

    @settings
    class Config:
        kinds: tuple[Kind, ...] = Field(default=UPDATES, description="kinds of messages of which little is sent")
        share: PositiveShare = Field(
            default=0.01, description="of the numbers that is sent; STC takes 0.0025 to 0.04"
        )
        values: Literal["exact", "ternary"] = Field(
            default="exact", description="the numbers themselves, or their signs and one magnitude for all (STC)"
        )

    def describe(self) -> str:
        c = self.config
        how = "as they are" if c.values == "exact" else "as signs and one magnitude"
        return (
            f"of {', '.join(c.kinds)} the largest {c.share:.3g} of the numbers, {how}, about "
            f"{self.bits():.3g} bits for each with its place"
        )

    def bits(self) -> float:
        """Bits of a number that is sent: its Golomb-coded distance to the one before, and its value."""
        value, share = 32.0 if self.config.values == "exact" else 1.0, self.config.share
        return float(value + rice(share) + 1 / (1 - (1 - share) ** (2 ** rice(share))))

    def apply(self, sending: Sending) -> None:
        if self.config.share == 1 and self.config.values == "exact":
            return
        for kind in self.config.kinds:
            if kind in sending.message:
                payload, base = sending.message[kind], base_of(kind, sending.reference)
                kept = largest(change(payload, base), self.config.share, self.config.values == "ternary")
                whole = {k: v for k, v in payload.items() if k not in kept}
                sent = rebuild(payload, base, kept)
                sending.message[kind] = Coded(sent, size_of(kept) + size_of(whole))
