"""SDA-FL: every client trains a generator of its own and shares it.

Li, Shao, Mao, Wang, Zhang. Federated Learning with GAN-based Data Synthesis for Non-IID Clients. 2022.
arXiv:2206.05507; as GANDALF compares it (sec. 4): its phase 1 with every client alone, and phases 2 and 3
unchanged. Generators cross no client's hands on their way to the server, but each of them was trained
on the images of a single client, and everybody gets it.

Left out: the original's pseudo-labels by the server.
"""

from dataclasses import replace
from typing import Literal

from pydantic import Field

from fedaudit.fl.methods.gandalf import Gandalf
from fedaudit.fl.runtime.settings import settings


class SDAFL(Gandalf):
    card = replace(
        Gandalf.card,
        title="SDA-FL",
        source="arXiv:2206.05507; GANDALF, sec. 4",
        text="Every client trains an image generator on its own images and gives it to all others, "
        "who fill their rare classes with what it makes.",
    )

    @settings
    class Config(Gandalf.Config):
        groups: Literal[0] = Field(default=0, description="every client trains a generator of its own")
