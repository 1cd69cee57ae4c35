"""What the other ranks of a torchrun job do: train clients, run attacks, run cells, as rank 0 calls for them."""

from functools import partial

from fedaudit.audit.case.federation import Simulation
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.experiments import cells
from fedaudit.audit.phases import attack
from fedaudit.audit.planning.shares import do_share
from fedaudit.audit.settings.config import SimulatedConfig
from fedaudit.fl.runtime import torchrun
from fedaudit.fl.runtime.machine import hide_unused


def follow(config: SimulatedConfig) -> None:
    """Do this rank's shares until rank 0 needs nobody any more; for every other rank."""
    hide_unused(config.device)
    case = SimulatedCase(config)
    simulation = Simulation(case)
    site = simulation.make_site(simulation.holdings)
    torchrun.follow(
        {
            "lend": lambda _, address: torchrun.lend(site, address),
            "attacks": partial(do_share, partial(attack.do_share, config.origin)),
            "cells": partial(do_share, partial(cells.do_share, config.origin)),
        }
    )
