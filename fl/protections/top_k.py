"""Top-k: of each message only the largest numbers are sent, as they are or as a sign and one magnitude.

Sattler, Wiedemann, Mueller, Samek. Robust and Communication-Efficient Federated Learning from Non-IID Data.
IEEE TNNLS 2020. arXiv:1903.02891, Algorithm 1 (sparse ternary compression, STC). Of the numbers v of a kind, all
arrays together, the ceil(share * size) of largest magnitude are kept and the others are 0; with `values: ternary`
each kept number becomes sign(v) times their mean magnitude. A model counts as its change from the model received.
Ties keep the first. Whole-number arrays stay.

With `residual` a client adds what it left out to what it sends of that kind next, as STC does (Algorithm 2);
after an upload that was lost it is as it was before. The compression of what the server sends is in the method
`stc`. Bytes are those of the Golomb-Rice code (fl/recording/coded.py); by the paper's count (eq. 15 to 17) a
kept number takes `describe()`'s bits.

Leaving out is no noise: it promises no differential privacy, and the ledger lists what it touched as released in
clear; which numbers are left tells of the data as well. After a protection that adds noise it loses nothing of
its promise. share 1 with exact values changes nothing.
"""

from typing import Literal

from pydantic import Field

from fedaudit.fl.kinds import UPDATES, Kind
from fedaudit.fl.recording.coded import Coded, keep_largest, rice, size_of
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import PositiveShare
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.wire.noising import base_of, change, rebuild
from fedaudit.fl.wire.protection import Payload, Protection, Sending


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
        residual: bool = Field(
            default=False, description="whether a client adds what it left out to what it sends next (STC)"
        )

    def describe(self) -> str:
        c = self.config
        rest = "; what is left out is added to what is sent next" if c.residual else ""
        how = "as they are" if c.values == "exact" else "as signs and one magnitude"
        return (
            f"of {', '.join(c.kinds)} the largest {c.share:.3g} of the numbers, {how}, about "
            f"{self.bits():.3g} bits for each with its place{rest}"
        )

    def bits(self) -> float:
        """Bits of a number that is sent: its Golomb-coded distance to the one before, and its value."""
        value, share = 32.0 if self.config.values == "exact" else 1.0, self.config.share
        return float(value + rice(share) + 1 / (1 - (1 - share) ** (2 ** rice(share))))

    def remembers(self) -> bool:
        return bool(self.config.residual)

    def apply(self, sending: Sending) -> None:
        if self.config.share == 1 and self.config.values == "exact":
            return
        for kind in self.config.kinds:
            if kind in sending.message:
                payload, base = sending.message[kind], base_of(kind, sending.reference)
                kept = self._keep(kind, change(payload, base), sending)
                whole = {k: v for k, v in payload.items() if k not in kept}
                sent = rebuild(payload, base, kept)
                sending.message[kind] = Coded(sent, size_of(kept) + size_of(whole))

    def _keep(self, kind: Kind, moved: Payload, sending: Sending) -> Coded:
        """The largest numbers; raises UserError where those left out before were of arrays of other shapes."""
        before: Payload = sending.memory.get(kind.value, {})
        if any(before[k].shape != v.shape for k, v in moved.items() if k in before):
            raise UserError(
                f"{self.title} with a residual cannot protect {kind.value}: {sending.sender} sends another part "
                "of the network than before",
                hint="leave the residual out, or choose a method whose clients send whole models",
            )
        kept, left = keep_largest(moved, before, self.config.share, self.config.values == "ternary")
        if self.config.residual:
            sending.memory[kind.value] = left
        return kept
