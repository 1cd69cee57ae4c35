"""The contract of a control: it plants the leak that attacks have to find, and a dose of it.

Ours are the files of this folder that have plant() and count_steps(); one of somebody's own is a class of these.
"""

import importlib
from abc import abstractmethod
from collections.abc import Sequence
from typing import cast

from fedaudit.audit.controls.effort import PlayedClients
from fedaudit.audit.controls.lab import Lab, Replays
from fedaudit.audit.settings.controls import Replay
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.runtime import plugin
from fedaudit.fl.runtime.errors import UserError, suggest_name
from fedaudit.fl.runtime.records import check_returned

PACKAGE = __name__.rpartition(".")[0]


class Control(plugin.Plugin):
    """A control of somebody's own, beside the attack whose card names it: `control="mine:Plant"`."""

    @abstractmethod
    def plant(self, lab: Lab, recorded: Sequence[Artifact], settings: Replay) -> Replays:
        """What clients of the lab send once more of examples that it chooses (`Replays.add`), and of which."""

    @abstractmethod
    def count_steps(self, clients: PlayedClients, settings: Replay, training: LocalConfig) -> dict[int, int]:
        """Batch size -> steps of training that this takes, about; under VISITS how often a client is played."""


def load_control(name: str, where: str = "") -> Control:
    """What a card names; raises UserError where it is none, about the key `where`."""
    if ":" in name:
        return plugin.load((), name, Control, where)()
    if name in plugin.names(PACKAGE) and _plants(name):
        return cast(Control, importlib.import_module(f"{PACKAGE}.{name}"))
    known = list(filter(_plants, plugin.names(PACKAGE)))
    raise UserError(
        f"{where}: there is no control {name!r}, which its card names".removeprefix(": "),
        hint="; ".join(filter(None, (suggest_name(name, known), f"known: {', '.join(known)}"))),
        key=where,
    )


def plant(name: str, lab: Lab | None, recorded: Sequence[Artifact], settings: Replay) -> Replays:
    """The leaks of a control; none where clients cannot be played. Raises TypeError where it returns others."""
    control = load_control(name)
    if lab is None:
        return Replays()
    planted = control.plant(lab.among_others(), recorded, settings)
    check_returned(name, Control, "plant", planted)
    return planted


def _plants(name: str) -> bool:
    """Whether a file of this folder is a control, and not what several share."""
    return hasattr(importlib.import_module(f"{PACKAGE}.{name}"), "count_steps")
