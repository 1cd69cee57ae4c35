"""Wrong: a central mechanism that noises the mean too little, the wrong thing, or not always."""

from fedaudit.fl.kinds import Kind
from fedaudit.fl.protections.central_dp import CentralDP
from fedaudit.fl.recording.noise import NoiseSource
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.noising import base_of, clip
from fedaudit.fl.wire.protection import Averaging, Sending


def floating(averaging: Averaging) -> list[str]:
    return [k for k, v in averaging.model.items() if v.is_floating_point()]


class DividedTwice(CentralDP):
    """Noise for the mean is divided by the number of clients once more; the line says it is not."""

    def average(self, averaging: Averaging) -> None:
        clear = averaging.model
        super().average(averaging)
        m = averaging.expected
        averaging.model |= {k: clear[k] + (averaging.model[k] - clear[k]) / m for k in floating(averaging)}


class HalfMixed(CentralDP):
    """The noised mean is averaged with the mean without noise ("smoothing"), after it was listed."""

    def average(self, averaging: Averaging) -> None:
        clear = averaging.model
        super().average(averaging)
        averaging.model |= {k: (averaging.model[k] + clear[k]) / 2 for k in floating(averaging)}


class SkipsFewAnswers(CentralDP):
    """Rounds in which fewer clients answered than expected get no noise, because it would drown them."""

    def average(self, averaging: Averaging) -> None:
        clear, few = averaging.model, averaging.delivered < averaging.expected
        super().average(averaging)
        if few:
            averaging.model = clear


class ServerTrusts(CentralDP):
    """The clip is left out on the client's side and on the server's: the line says both are there."""

    def apply(self, sending: Sending) -> None:
        kept = dict(sending.message)
        super().apply(sending)
        sending.message.update(kept)


class SameEachRound(CentralDP):
    """The server seeds its generator with 0 in each round: two models subtracted have no noise."""

    def average(self, averaging: Averaging) -> None:
        averaging.noise = NoiseSource(Streams(0).noise("again"))
        super().average(averaging)


class NoiseOnOldModel(CentralDP):
    """Noise goes on the arrays that training left as they were, the mean's others get none: one layer in two."""

    def average(self, averaging: Averaging) -> None:
        clear = averaging.model
        super().average(averaging)
        averaging.model |= {k: clear[k] for k in floating(averaging)[::2]}


class ClipsTooLate(CentralDP):
    """Clients clip to ten times the norm that the line names, because the server "will clip again"."""

    def apply(self, sending: Sending) -> None:
        payload = sending.message[Kind.LOCAL_MODEL]
        loose = clip(payload, base_of(Kind.LOCAL_MODEL, sending.reference), 10 * self.config.clip_norm)
        super().apply(sending)
        sending.message[Kind.LOCAL_MODEL] = loose
