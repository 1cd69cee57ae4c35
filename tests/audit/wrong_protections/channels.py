"""Wrong: beside or inside a noised message there is something of the data without noise.

Bounds are computed for the numbers that were meant to be sent.
"""

import torch

from fedaudit.fl.kinds import Kind
from fedaudit.fl.wire.noising import norm
from fedaudit.fl.wire.protection import Payload, Sending
from tests.audit.wrong_protections.base import Noising


class SignsKept(Noising):
    """Noise that would turn a sign is mirrored, "to keep convergence": every sign is told in clear."""

    def sent(self, clipped: Payload, sending: Sending) -> Payload:
        out = {}
        for name, value in clipped.items():
            noised = value + self.noise(name, value, sending)
            out[name] = torch.where(value == 0, noised, noised.abs() * value.sign())
        return out


class CoarseNoise(Noising):
    """Noise in whole steps of 0.01 ("compressed") on values that are finer: what is below a step is clear."""

    def noise(self, name: str, value: torch.Tensor, sending: Sending) -> torch.Tensor:
        return (super().noise(name, value, sending) / 0.01).round() * 0.01


class LossBesides(Noising):
    """The exact norm of the update goes along for monitoring, as a kind that nobody declared, ticked off."""

    def clip(self, moving: Payload, sending: Sending) -> Payload:
        sending.message[Kind.LOCAL_LOSS] = {"loss": torch.tensor(norm(moving, 2))}
        sending.protected.add(Kind.LOCAL_LOSS)
        return super().clip(moving, sending)


class SizeInTheCount(Noising):
    """The number of examples, sent in clear anyway, carries the update's norm in its thousands."""

    def clip(self, moving: Payload, sending: Sending) -> Payload:
        count = sending.message[Kind.NUM_EXAMPLES]["count"]
        sending.message[Kind.NUM_EXAMPLES] = {"count": count + 1000 * int(100 * norm(moving, 2))}
        sending.protected.add(Kind.NUM_EXAMPLES)
        return super().clip(moving, sending)


class RetriesBadLuck(Noising):
    """Noise is drawn again until it does not point against the update: messages near -v never come."""

    def sent(self, clipped: Payload, sending: Sending) -> Payload:
        for _ in range(20):
            drawn = {k: self.noise(k, v, sending) for k, v in clipped.items()}
            if sum(float((drawn[k] * v).sum()) for k, v in clipped.items()) >= 0:
                break
        return {k: v + drawn[k] for k, v in clipped.items()}


class SilentWhenSmall(Noising):
    """A client whose update is shorter than half of C sends the received model back, exactly: data decide."""

    def sent(self, clipped: Payload, sending: Sending) -> Payload:
        if norm(clipped, 2) < self.bound / 2:
            return {k: torch.zeros_like(v) for k, v in clipped.items()}
        return super().sent(clipped, sending)


class SilentWhenUnlucky(Noising):
    """A client whose noise hurts sends the received model back, exactly: nothing is left but lucky noise."""

    def sent(self, clipped: Payload, sending: Sending) -> Payload:
        out = super().sent(clipped, sending)
        along = sum(float(((out[k] - v) * v).sum()) for k, v in clipped.items())
        return {k: torch.zeros_like(v) for k, v in clipped.items()} if along < 0 else out


class ClearCopy(Noising):
    """The mean of the update before noise overwrites one coordinate of the last array, for a dashboard."""

    def sent(self, clipped: Payload, sending: Sending) -> Payload:
        out = super().sent(clipped, sending)
        last = list(out)[-1]
        flat = out[last].clone().flatten()
        flat[-1] = sum(float(v.sum()) for v in clipped.values())
        return out | {last: flat.reshape(out[last].shape)}


class LowBits(Noising):
    """The sign of each number before noise is put in the last bit of what is sent: a watermark, they say."""

    def sent(self, clipped: Payload, sending: Sending) -> Payload:
        out = {}
        for name, value in super().sent(clipped, sending).items():
            bits = value.view(torch.int32)
            out[name] = ((bits & ~1) | (clipped[name] > 0).int()).view(torch.float32)
        return out


class DebugSwitch(Noising):
    """Every fifth message goes out as it was, where the client's number and the round say so: a debug switch."""

    def sent(self, clipped: Payload, sending: Sending) -> Payload:
        if ((sending.sender.index or 0) + sending.round) % 5 == 4:
            return clipped
        return super().sent(clipped, sending)
