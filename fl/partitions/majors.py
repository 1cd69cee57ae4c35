"""Majors: client i has a few classes in plenty and a little of every other one (P-4).

GANDALF: 20 clients, 4 major classes each, client i's being 4i to 4i+3 modulo C. With kappa_c clients
for whom class c is major, a client gets of that class

    ratio      minor 1 / (K + (rho - 1) kappa_c), major rho times as much        (the paper, rho = 10)
    additive   minor m, major m + (1 - m K) / kappa_c                            (public code, m = 0.01)

On CINIC-10 (kappa = 8) the additive mode gives 0.11 and 0.01, that is 11 times, not 10.
"""

from typing import Literal

import numpy as np
from pydantic import Field

from fedaudit.fl.data.partition import Index, OwnedLabels, Partition
from fedaudit.fl.partitions._shares import by_shares
from fedaudit.fl.partitions.n_class import windows
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne, BelowOne
from fedaudit.fl.runtime.settings import settings


class Majors(Partition):
    title = "Major and minor classes"
    source = "GANDALF"

    @settings
    class Config:
        mode: Literal["ratio", "additive"] = Field(
            default="ratio",
            description="how much more of its major classes a client gets: by the paper's ratio, or by the "
            "public code's sum",
        )
        majors: AtLeastOne = Field(default=4, description="major classes of a client; 4 is the paper's")
        ratio: float = Field(
            default=10.0,
            ge=1,
            allow_inf_nan=False,
            description="rho: examples of a major class over those of a minor one, with mode: ratio",
        )
        minor: BelowOne = Field(
            default=0.01, description="m: share of a minor class that each client gets, with mode: additive"
        )

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        config = self.config
        major = windows(labels.classes, clients, config.majors)
        if config.mode == "ratio":
            # by_shares divides each column by its sum, K + (rho - 1) kappa_c
            return by_shares(labels.y, np.where(major, config.ratio, 1.0), rng)
        if config.minor * clients > 1:
            raise UserError(
                f"partition.minor: {clients} clients x {config.minor:g} is more than the whole class",
                hint=f"use at most {1 / clients:g}, or mode: ratio",
            )
        extra = (1 - config.minor * clients) / major.sum(axis=0)  # kappa, [classes]
        return by_shares(labels.y, config.minor + np.where(major, extra, 0.0), rng)

    def describe(self) -> str:
        config = self.config
        how = (
            f"{config.ratio:g} times as much"
            if config.mode == "ratio"
            else f"the rest after {config.minor:g} of a class for everybody"
        )
        return (
            f"client i has {config.majors} major classes, {config.majors}i onwards, of which it gets "
            f"{how} (majors, mode {config.mode})"
        )
