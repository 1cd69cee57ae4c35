"""Noised prototypes: every class is always sent, as a noised sum of features and a noised count, together.

Prototypes as a noisy average: Dwork, McSherry, Nissim, Smith. TCC 2006, sums and counts apart, with the
Gaussian mechanism of Dwork, Roth 2014, A.1, and one clip for both, after McMahan et al. arXiv:1710.06963, sec. 2.

A client holds n_c examples of class c with mean features p_c. Classes that it lacks have n_c = 0, p_c = 0.

    p_c  <- p_c min(1, R / ||p_c||)                        R: norm
    f    <- min(1, N / sum_c n_c)                          N: examples, one factor for sums and counts
    s_c  <- f n_c p_c + N(0, (z sqrt(2) N R)^2)            ||(s_c)_c|| <= N R
    w_c  <- f n_c     + N(0, (z sqrt(2) N)^2)              ||(w_c)_c|| <= N
    sent: prototypes s_c / max(w_c, 1) and counts max(w_c, 1), of every class

The two releases together cost what one of multiplier z does: 1 / (2 z^2) + 1 / (2 z^2). What is sent
is computed from them, which costs nothing. Which classes a client holds is not told: all are listed, always, so
the whole-number array beside the features says nothing. The unit is the client and the server is an observer,
as for dp_gaussian. Differs from the sources: the mean is clipped, not each example's features, which never reach
the wire; so a single record is protected as part of its client only.
"""

import math

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.wire.protection import Protection, Sending

PAIR = (Kind.LOCAL_PROTOTYPES, Kind.PROTO_COUNTS)


class NoisedPrototypes(Protection):
    title = "Noised prototypes of all classes"
    source = "Dwork et al., TCC 2006; arXiv:1710.06963, sec. 2"
    kinds = PAIR
    strength = "noise_multiplier"
    after_noise = "noised sums are divided by noised counts, and these are rounded"

    @settings
    class Config:
        classes: int = Field(default=10, ge=1, description="of the whole federation; all are always sent")
        norm: float = Field(
            default=1.0, gt=0, allow_inf_nan=False, description="R, largest L2 norm of a prototype"
        )
        examples: float = Field(
            default=100.0, gt=0, allow_inf_nan=False, description="N, examples that a client counts as at most"
        )
        noise_multiplier: float = Field(
            default=1.0, gt=0, allow_inf_nan=False, description="z, of sums and counts together"
        )

    def describe(self) -> str:
        c = self.config
        return (
            f"for each of {c.classes} classes, held or not, a noised sum of features and a noised count; "
            f"prototypes clipped to norm {c.norm:g}, clients scaled down to {c.examples:g} examples, Gaussian "
            f"noise of multiplier {c.noise_multiplier:g} for both together, added before the server receives it"
        )

    def adds_noise_to(self, kind: Kind) -> bool:
        return kind in PAIR

    def apply(self, sending: Sending) -> None:
        present = [k for k in PAIR if k in sending.message]
        if not present:
            return
        if len(present) < len(PAIR):
            raise UserError(
                f"noised_prototypes: the message holds {present[0]} alone",
                hint="use a method that sends prototypes with their counts, such as rebafl",
            )
        sums, counts = self._sum_classes(sending.message[PAIR[0]], sending.message[PAIR[1]])
        lines = [self._describe_release(sending, k) for k in PAIR]
        sums = sending.noise.release(lines[0], {"sums": sums})["sums"]
        counts = sending.noise.release(lines[1], {"counts": counts})["counts"]
        counts = counts.round().clamp(min=1)
        every = torch.arange(self.config.classes)
        sending.message[PAIR[0]] = {"classes": every, "features": sums / counts[:, None]}
        sending.message[PAIR[1]] = {"classes": every, "counts": counts.long()}
        sending.protected.update(PAIR)
        sending.releases += lines

    def _sum_classes(self, prototypes: dict[str, Tensor], counted: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Sums [C, D] and counts [C] over all classes, clipped together."""
        c, held = self.config, prototypes["classes"].long()
        if not torch.equal(held, counted["classes"].long()) or (len(held) and int(held.max()) >= c.classes):
            raise UserError(
                f"noised_prototypes: a message lists classes {held.tolist()[:20]}, and there are {c.classes}",
                hint="set classes to the number of classes of the data",
            )
        features = prototypes["features"].float()
        lengths = features.norm(dim=1, keepdim=True).clamp(min=math.ulp(0.0))
        features = features * (c.norm / lengths).clamp(max=1.0)
        numbers = counted["counts"].float()
        numbers = numbers * min(1.0, c.examples / max(float(numbers.sum()), 1.0))
        sums, counts = torch.zeros(c.classes, features.shape[1]), torch.zeros(c.classes)
        sums[held], counts[held] = numbers[:, None] * features, numbers
        return sums, counts

    def _describe_release(self, sending: Sending, kind: Kind) -> Release:
        c = self.config
        reach = c.examples * (c.norm if kind == Kind.LOCAL_PROTOTYPES else 1.0)
        return Release(
            round=sending.round,
            kind=kind,
            sender=str(sending.sender),
            observers=sending.observers,
            mechanism="gaussian",
            noise_std=math.sqrt(2) * c.noise_multiplier * reach,
            sensitivity=reach,
            clipped="on sums and counts of all classes by one factor, before noise",
            clip_norm=reach,
            clip_of="update",
            derived="clip",
            source="noised_prototypes",
        )
