"""Wrong: what is sent is as declared or not, and the ledger's lines say too little of it.

Accountants read only lines: each of these gives a smaller epsilon than the run spent, or a column with none.
"""

from dataclasses import replace

import torch

from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import EACH, Release
from fedaudit.fl.wire.protection import Sending
from tests.audit.wrong_protections.base import Noising


class SigmaDoubled(Noising):
    """The lines say twice the noise that is added."""

    def line(self, kind: Kind, sending: Sending) -> Release:
        return replace(super().line(kind, sending), noise_std=2 * self.std)


class HalfSensitivity(Noising):
    """The lines say half of the norm that is really enforced."""

    def line(self, kind: Kind, sending: Sending) -> Release:
        return replace(super().line(kind, sending), sensitivity=self.bound / 2, clip_norm=self.bound / 2)


class RecordsInstead(Noising):
    """The clip bounds a client's update; the lines say it is the record's, one in a hundred by its own coin."""

    def line(self, kind: Kind, sending: Sending) -> Release:
        return replace(
            super().line(kind, sending),
            unit="record",
            sampling="poisson",
            sample_rate=0.01,
            coin=EACH,
            participation_seen_by=(),
        )


class ReplacedUnpaid(Noising):
    """Replacing one client moves the message by 2 C; the lines say replace_one, and C."""

    def line(self, kind: Kind, sending: Sending) -> Release:
        return replace(super().line(kind, sending), adjacency="replace_one")


class ServerUnseen(Noising):
    """The lines leave out the server, which reads every upload: its column has no bound to read."""

    def line(self, kind: Kind, sending: Sending) -> Release:
        return replace(super().line(kind, sending), observers=("client", "public"))


class EveryOtherLine(Noising):
    """Odd rounds are not listed ("a retransmission"): half of the releases are missing."""

    def lines(self, kind: Kind, sending: Sending) -> list[Release]:
        return super().lines(kind, sending) if sending.round % 2 == 0 else []


class OneLineForAll(Noising):
    """One line a round for "client/*" whose noise is called that of ten clients' sum, which nobody makes."""

    def lines(self, kind: Kind, sending: Sending) -> list[Release]:
        if sending.round in self.__dict__.setdefault("_done", set()):
            return []
        self._done.add(sending.round)  # type: ignore[attr-defined]
        line = replace(
            super().line(kind, sending), sender="client/*", aggregated=10, noise_std=self.std * 10**0.5
        )
        return [line]


class AmplifiedByHand(Noising):
    """One line for "client/*" says that nobody sees who takes part, and one client in ten does."""

    def line(self, kind: Kind, sending: Sending) -> Release:
        return replace(
            super().line(kind, sending),
            sender="client/*",
            participation_seen_by=(),
            sampling="poisson",
            sample_rate=0.1,
        )


class SomebodyElse(Noising):
    """All lines name client/99, which does not exist: every real client's bound is that of no release."""

    def line(self, kind: Kind, sending: Sending) -> Release:
        return replace(super().line(kind, sending), sender="client/99")


class FirstRoundOnly(Noising):
    """The update of the first round is sent again in every round with new noise, and listed once ("cached")."""

    def sent(self, clipped: dict[str, torch.Tensor], sending: Sending) -> dict[str, torch.Tensor]:
        kept = self.__dict__.setdefault("_kept", {})
        return super().sent(kept.setdefault(str(sending.sender), clipped), sending)

    def lines(self, kind: Kind, sending: Sending) -> list[Release]:
        return super().lines(kind, sending) if sending.round == 0 else []


class CountsCalledNoised(Noising):
    """The number of examples is listed as noised like the model and goes out as it is."""

    def apply(self, sending: Sending) -> None:
        super().apply(sending)
        if Kind.NUM_EXAMPLES in sending.message:
            sending.protected.add(Kind.NUM_EXAMPLES)
            sending.releases.append(self.line(Kind.NUM_EXAMPLES, sending))


class CountsUnlisted(Noising):
    """The number of examples is ticked off as protected, without a line."""

    def apply(self, sending: Sending) -> None:
        super().apply(sending)
        sending.protected.add(Kind.NUM_EXAMPLES)


class NamedLaplace(Noising):
    """Gaussian noise under the name of Laplace, whose scale and norm are other numbers: delta is 0 on paper."""

    def line(self, kind: Kind, sending: Sending) -> Release:
        return replace(super().line(kind, sending), mechanism="laplace")


class CheapClaim(Noising):
    """The lines claim epsilon 0.1 for a release of multiplier 1."""

    def line(self, kind: Kind, sending: Sending) -> Release:
        return replace(super().line(kind, sending), claimed_epsilon=0.1, claimed_delta=1e-5)


class SameLineTwice(Noising):
    """A late line takes the first's place: round 0 is listed in every round, and later rounds never."""

    def line(self, kind: Kind, sending: Sending) -> Release:
        return replace(super().line(kind, sending), round=0)


class HalfPrecision(Noising):
    """Rounded to half precision after the noise, and listed as float64 without a spacing."""

    def sent(self, clipped: dict[str, torch.Tensor], sending: Sending) -> dict[str, torch.Tensor]:
        return {k: v.half().float() for k, v in super().sent(clipped, sending).items()}

    def line(self, kind: Kind, sending: Sending) -> Release:
        return replace(super().line(kind, sending), precision="float64")
