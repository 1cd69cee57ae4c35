"""DP-SGD: clients train with clipped, noised steps, so that no single record shows in what they send.

Abadi et al., CCS 2016, arXiv:1607.00133, Alg. 1; see fl/training/private.py for the training itself, and for
what is changed. The unit is the record: one client's bound holds for each of its examples, and clients
with disjoint data are not added up. Which records a step used is seen by nobody. What the same client
sends beside its model (counts, prototypes) is not covered, and the ledger lists it.
"""

from pydantic import Field

from fedaudit.fl.kinds import UPDATES
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne, Positive, PositiveShare
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.training.private import PrivateTraining
from fedaudit.fl.wire.protection import Protection, Sending


class DPSGD(Protection):
    title = "DP-SGD in local training"
    source = "arXiv:1607.00133, Alg. 1"
    kinds = UPDATES
    strength = "noise_multiplier"

    @settings
    class Config:
        clip_norm: Positive = Field(default=1.0, description="C: largest L2 norm of one example's gradient")
        noise_multiplier: Amount = Field(
            default=1.0, description="z: standard deviation of the noise on a step's sum of gradients over C"
        )
        sample_rate: PositiveShare = Field(
            default=0.05, description="q: probability that an example enters a step"
        )
        steps: AtLeastOne = Field(
            default=20, description="steps of one local training, in the place of local_epochs"
        )

    def training(self) -> PrivateTraining:
        c = self.config
        return PrivateTraining(
            clip_norm=c.clip_norm, noise_multiplier=c.noise_multiplier, sample_rate=c.sample_rate, steps=c.steps
        )

    def describe(self) -> str:
        c = self.config
        return (
            f"Local training by DP-SGD: {c.steps} steps a round, each on every example with probability "
            f"{c.sample_rate:g}, gradients clipped to {c.clip_norm:g}, Gaussian noise of standard "
            f"deviation {c.noise_multiplier * c.clip_norm:g} on their sum"
        )

    def apply(self, sending: Sending) -> None:
        for kind in UPDATES:
            if kind in sending.message:
                sending.protected.add(kind)
                sending.releases.append(
                    self.training().line(sending.round, str(sending.sender), kind, sending.observers)
                )
