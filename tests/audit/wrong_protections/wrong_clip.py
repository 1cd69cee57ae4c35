"""Wrong: a clip that does not bound what the ledger says it bounds.

The noise is whole; the sensitivity that it is measured against is not.
"""

import torch

from fedaudit.fl.wire.noising import norm
from fedaudit.fl.wire.protection import Payload, Sending
from tests.audit.wrong_protections.base import Noising


class EachTensor(Noising):
    """Every array is clipped to C by itself: T arrays together reach C sqrt(T), and the line says C."""

    def clip(self, moving: Payload, sending: Sending) -> Payload:
        return {k: v * min(1.0, self.bound / max(float(v.norm()), 1e-12)) for k, v in moving.items()}


class EachRow(Noising):
    """Every row is clipped to C by itself; the line says C for the whole message."""

    def clip(self, moving: Payload, sending: Sending) -> Payload:
        def rows(v: torch.Tensor) -> torch.Tensor:
            flat = v.reshape(len(v), -1)
            return (flat * (self.bound / flat.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1)).view_as(v)

        return {k: rows(v) for k, v in moving.items()}


class EachCoordinate(Noising):
    """Every number is held within [-C, C]; the L2 norm of d of them reaches C sqrt(d)."""

    def clip(self, moving: Payload, sending: Sending) -> Payload:
        return {k: v.clamp(-self.bound, self.bound) for k, v in moving.items()}


class LargestEntry(Noising):
    """Scaled down by the largest entry where it should be the L2 norm."""

    def clip(self, moving: Payload, sending: Sending) -> Payload:
        largest = max(float(v.abs().max()) for v in moving.values())
        return {k: v * min(1.0, self.bound / max(largest, 1e-12)) for k, v in moving.items()}


class AfterNoise(Noising):
    """Noise on the update as it is, and the sum clipped: long updates drown the noise and are told."""

    def clip(self, moving: Payload, sending: Sending) -> Payload:
        return moving

    def sent(self, clipped: Payload, sending: Sending) -> Payload:
        return Noising.clip(self, super().sent(clipped, sending), sending)


class NotFinite(Noising):
    """The norm is computed in half precision and ignored where it overflows: large updates are not clipped."""

    def clip(self, moving: Payload, sending: Sending) -> Payload:
        length = float(sum(v.half().pow(2).sum() for v in moving.values())) ** 0.5
        finite = length == length and length != float("inf")
        factor = min(1.0, self.bound / max(length, 1e-12)) if finite else 1.0
        return {k: v * factor for k, v in moving.items()}


class MedianOfNorms(Noising):
    """C follows the median norm of the updates seen, which is private, and the noise does not follow C."""

    def clip(self, moving: Payload, sending: Sending) -> Payload:
        seen = self.__dict__.setdefault("_norms", [])
        seen.append(norm(moving, 2))
        bound = max(self.bound, sorted(seen)[len(seen) // 2])
        return {k: v * min(1.0, bound / max(norm(moving, 2), 1e-12)) for k, v in moving.items()}


class PartnersUnclipped(Noising):
    """Client 0, which the operator trusts, is not clipped; its line says it is."""

    def clip(self, moving: Payload, sending: Sending) -> Payload:
        return moving if sending.sender.index == 0 else super().clip(moving, sending)


class FirstTensorsOnly(Noising):
    """The norm is that of the weight matrices; vectors are scaled with them and not counted."""

    def clip(self, moving: Payload, sending: Sending) -> Payload:
        counted = {k: v for k, v in moving.items() if v.dim() > 1}
        factor = min(1.0, self.bound / max(norm(counted, 2), 1e-12))
        return {k: v * factor for k, v in moving.items()}


class Diameter(Noising):
    """Every update is scaled to length 2 C, the diameter of what the line says: up as well as down."""

    def clip(self, moving: Payload, sending: Sending) -> Payload:
        factor = 2 * self.bound / max(norm(moving, 2), 1e-12)
        return {k: v * factor for k, v in moving.items()}


class OwnBase(Noising):
    """The change is taken from the client's own last model, in clear, and added to it again: that model is sent
    with the noise of one round, and all its earlier training is neither clipped nor counted."""

    def sent(self, clipped: Payload, sending: Sending) -> Payload:
        kept = self.__dict__.setdefault("_drift", {})
        drift = kept.get(str(sending.sender))
        total = clipped if drift is None else {k: v + drift[k] for k, v in clipped.items()}
        kept[str(sending.sender)] = total
        return {k: v + self.noise(k, v, sending) for k, v in total.items()}
