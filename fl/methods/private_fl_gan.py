"""Private FL-GAN: one generator, which all clients train one after the other.

Xin, Yang, Geng, Chen, Wang, Huang. Private FL-GAN: Differential Privacy Synthetic Data Generation Based
on Federated Learning. ICASSP 2020; as GANDALF compares it (sec. 4): its phase 1 with one group, and
phases 2 and 3 unchanged, so it is GANDALF with `groups: 1`.

Left out: the original's noise within each training step (its DP-SGD on the critic).
"""

from dataclasses import replace
from typing import Literal

from pydantic import Field

from fedaudit.fl.methods.gandalf import Gandalf
from fedaudit.fl.runtime.settings import settings


class PrivateFLGAN(Gandalf):
    card = replace(
        Gandalf.card,
        title="Private FL-GAN",
        source="ICASSP 2020; GANDALF, sec. 4",
        text="All clients hand one image generator round, fill their rare classes with what it makes, "
        "and then train the model one after the other.",
    )

    @settings
    class Config(Gandalf.Config):
        groups: Literal[1] = Field(default=1, description="one generator that all clients train")
