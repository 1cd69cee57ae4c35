"""Central differential privacy of clients (DP-FedAvg): the server noises each round's mean once.

McMahan, Ramage, Talwar, Zhang. Learning Differentially Private Recurrent Language Models. ICLR 2018.
arXiv:1710.06963, Algorithm 1 with flat clipping, equal weights and the estimator of fixed
denominator. Each client clips the change of its whole model on its side, and the server clips again what
arrives, so that leaving it out gains nothing; under secure aggregation it cannot. It adds up and goes on with

    w <- w + sum_k clip(w_k - w, C) / m + N(0, (z C / m)^2)   per coordinate,  C: clip_norm, z: noise_multiplier

where m is the number of clients expected in a round, q K, and never the number that answered. A round in
which nobody answered gets its noise too. That noised model is the server's state from then on.

The unit is the client, the observers are the other clients and the public. The server is trusted: it
reads the clipped uploads without noise, or with secure aggregation their sum, and the ledger says so.

How the clients of a round are drawn decides what neighbours the guarantee speaks of:

* all of them, or each by its own coin: one client more or less, sensitivity C / m; a coin's rate is credited
  once for all rounds that share it.
* a fixed number without replacement: one client replaced, 2 C / m. Who was not drawn itself knows that
  the others were drawn the likelier, so the ledger credits m / (K - 1) instead of m / K.
* otherwise (empty rounds drawn again, clients that go and come): one replaced, and no credit.

Differs from the paper: server side, weights are equal and the step is 1; whole-number arrays (the batch
counter of BatchNorm) stay as they were, because no noise fits them. Running statistics count as part of
the model and are clipped and noised with it. K, C, z and m are taken to be public.
"""

import math

from pydantic import Field

from fedaudit.fl.artifact import SERVER
from fedaudit.fl.kinds import TRAINED, Kind
from fedaudit.fl.ledger import Adjacency, Release
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import Amount, Positive
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.wire.noising import base_of, clip
from fedaudit.fl.wire.protection import Averaging, Message, Protection, Sending

SIZED = "fixed_without_replacement"


class CentralDP(Protection):
    title = "Central differential privacy (DP-FedAvg)"
    source = "arXiv:1710.06963, Alg. 1"
    kinds = TRAINED
    strength = "noise_multiplier"
    central = True
    enforced_by = "server"  # its clip is done again on arrival

    @settings
    class Config:
        clip_norm: float = Field(
            default=1.0,
            gt=0,
            description="C: largest L2 norm of one client's change of the model; .inf means no clipping",
        )
        noise_multiplier: Amount = Field(
            default=1.0, description="z: standard deviation of the noise on the sum over C; 0 adds no noise"
        )
        expected: Positive | None = Field(
            default=None, description="m: clients in a round; null is as many as availability says"
        )

        def __post_init__(self) -> None:
            if self.noise_multiplier and math.isinf(self.clip_norm):
                raise UserError(
                    "central_dp: noise without a finite clip_norm protects nothing",
                    hint="set clip_norm, or noise_multiplier: 0",
                )

    def describe(self) -> str:
        c = self.config
        m = "the expected number of clients" if c.expected is None else f"{c.expected:g}"
        return (
            f"each client clips its change of the model to norm {c.clip_norm:g} on its side; the server "
            f"divides the sum by {m} and adds Gaussian noise of standard deviation "
            f"{c.noise_multiplier * c.clip_norm if c.noise_multiplier else 0:g} (multiplier "
            f"{c.noise_multiplier:g}) divided by that number before anybody else gets the model; the "
            "server itself reads the uploads, or under secure aggregation their sum, without noise"
        )

    def adds_noise_to(self, kind: Kind) -> bool:
        return bool(self.config.noise_multiplier) and kind in (*TRAINED, Kind.GLOBAL_MODEL)

    def limit(self, message: Message, reference: Message) -> Message:
        bound = self.config.clip_norm
        kinds = [k for k in TRAINED if k in message][:1]
        return message | {k: clip(message[k], base_of(k, reference), bound) for k in kinds}

    def apply(self, sending: Sending) -> None:
        """The client's part: the clip. What it sends is released to the server alone."""
        kind = next((k for k in TRAINED if k in sending.message), None)
        if kind is None:
            return
        bound = self.config.clip_norm
        sending.message.update(self.limit(sending.message, sending.reference))
        if kind in sending.protected:  # another protection has listed the upload
            return
        sending.protected.add(kind)
        server = SERVER.role.value
        read = kind if server in sending.observers else Kind.AGGREGATE
        bounded = math.isfinite(bound)
        sending.releases.append(
            Release(
                round=sending.round,
                kind=read,
                sender=str(sending.sender),
                observers=(server,),
                mechanism="none",
                source="central_dp",
                clip_norm=bound if bounded else None,
                clip_of="update" if bounded else "",
                clipped=_WHERE if bounded else "",
            )
        )

    def average(self, averaging: Averaging) -> None:
        """The server's part: the fixed denominator and the noise."""
        c = self.config
        m = averaging.expected if c.expected is None else c.expected
        if not m > 0:
            raise UserError(
                f"central_dp: {m:g} clients are expected in a round",
                hint="set protections.expected, or an availability above 0",
            )
        std = c.noise_multiplier * c.clip_norm / m if c.noise_multiplier else 0.0
        line, share = self._release(averaging, m, std), averaging.delivered / m
        # by name: a run that is continued reads its model back in another order
        before = dict(sorted(averaging.before.items()))
        clean = {}
        for name, old in before.items():
            if not old.is_floating_point():
                continue
            new = averaging.model[name]
            clean[name] = (
                new if share == 1 else (old.double() + share * (new.double() - old.double())).to(old.dtype)
            )
        if std:
            clean = averaging.noise.release(line, clean)
        averaging.model = before | clean
        averaging.releases.append(line)

    def _release(self, averaging: Averaging, m: float, std: float) -> Release:
        """One line for all clients: whoever takes part, the noise is there."""
        sampling, rate = averaging.drawn[:2]
        adjacency: Adjacency = "replace_one"
        if sampling in ("none", "poisson"):
            adjacency = "add_or_remove_one"
        elif sampling == SIZED:
            rate = min(1.0, rate * averaging.clients / max(1, averaging.clients - 1))
        bounded = math.isfinite(self.config.clip_norm)
        reach = self.config.clip_norm / m  # of one client in the mean
        factor = 1.0 if adjacency == "add_or_remove_one" else 2.0
        return Release(
            round=averaging.round,
            kind=Kind.GLOBAL_MODEL,
            sender="client/*",
            observers=("client", "public"),
            participation_seen_by=(SERVER.role.value,),
            mechanism="gaussian" if std else "none",
            noise_std=std,
            sensitivity=factor * reach if bounded else None,
            adjacency=adjacency,
            sampling=sampling,
            sample_rate=rate,
            aggregated=max(1, round(m)),
            clip_norm=reach if bounded else None,
            clip_of="update" if bounded else "",
            clipped=f"{_WHERE}, and divided by {m:g}" if bounded else "",
            derived="clip" if bounded else "declared",
            source="central_dp",
        )


_WHERE = "on the client's whole change of the model, on its side"
