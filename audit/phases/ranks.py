"""What the other ranks of a torchrun job do: train clients, run attacks, run cells, as rank 0 calls for them."""

from functools import partial

from fedaudit.audit.phases import attack, cells, simulate
from fedaudit.audit.phases.shares import do_share
from fedaudit.audit.settings.config import SimulatedConfig
from fedaudit.fl.runtime import torchrun


def follow(config: SimulatedConfig) -> None:
    """Do this rank's shares until rank 0 needs nobody any more; for every other rank."""
    sites = simulate.make_sites(config)
    torchrun.follow(
        {
            "lend": lambda _, address: torchrun.lend(sites, address),
            "attacks": partial(do_share, attack.do_share, config),
            "cells": partial(do_share, cells.do_share, config),
        }
    )
