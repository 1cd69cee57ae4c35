"""FedAvg with a selection of fl/selections, under the name of the method that its paper calls it.

`method: {name: tifl, tiers: 3}` is `method: fedavg` with `federation.selection: {name: tifl, tiers: 3}`, bit for
bit. A class here states the name, and whatever else the paper sets: its settings are those of the selection
beside those of FedAvg.
"""

from dataclasses import replace
from typing import Literal

from pydantic import Field

from fedaudit.fl.clients.selection import Selection
from fedaudit.fl.method import Card, LocalConfig, choose_by
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.selections import fedcs, power_of_choice, rbcs_f, tifl

PLUGINS = ("fedcs", "power_of_choice", "rbcs_f", "tifl")


def _name_after(selection: type[Selection]) -> Card:
    """FedAvg's card with the words of a selection, by which clients are chosen."""
    card = replace(FedAvg.card, title=selection.title, source=selection.source, text=selection.text)
    return choose_by(card, selection)


class FedCS(FedAvg):
    """FedCS: the server asks as many clients as can answer before a deadline."""

    card = _name_after(fedcs.FedCS)

    @settings
    class Config(fedcs.FedCS.Config, LocalConfig):
        pass


class PowerOfChoice(FedAvg):
    """Power-of-choice: of d candidates, the server lets those with the largest loss train; all weigh alike."""

    card = _name_after(power_of_choice.PowerOfChoice)

    @settings
    class Config(power_of_choice.PowerOfChoice.Config, LocalConfig):
        weighting: Literal["samples", "uniform"] = Field(
            default="uniform",
            description="how the server weights clients: all alike as in the paper, or by their numbers of "
            "examples",
        )


class RBCSF(FedAvg):
    """RBCS-F: short rounds in which every client still gets its share of turns in the long run."""

    card = _name_after(rbcs_f.RBCSF)

    @settings
    class Config(rbcs_f.RBCSF.Config, LocalConfig):
        pass


class TiFL(FedAvg):
    """TiFL: one tier of clients of like speed trains in a round, and tiers that lag are drawn more often."""

    card = _name_after(tifl.TiFL)

    @settings
    class Config(tifl.TiFL.Config, LocalConfig):
        pass
