"""The catalogue: which kinds of plugin there are, where their files lie and what class each holds.

Nothing here imports a plugin until its class is wanted, so names can be checked and listed
without torch.
"""

import dataclasses
import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from fedaudit.audit.settings.index import BROKEN, Entry
from fedaudit.fl.runtime import foreign, plugin
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.settings import check_settings


@dataclass(frozen=True)
class Shelf:
    """One kind of plugin: the packages that hold its files, and its contract as "module:Class"."""

    packages: tuple[str, ...]
    base: str
    takes_functions: bool = False  # module:function that gives an instance does as well as module:Class


SHELVES = {
    "methods": Shelf(("fedaudit.fl.methods",), "fedaudit.fl.method:Method"),
    "attacks": Shelf(
        (
            "fedaudit.attacks.messages",
            "fedaudit.attacks.prototypes",
            "fedaudit.attacks.updates",
            "fedaudit.attacks.models",
            "fedaudit.attacks.condensed",
            "fedaudit.attacks.generators",
            "fedaudit.attacks.counts",
            "fedaudit.attacks.summaries",
            "fedaudit.attacks.batches",
            "fedaudit.attacks.timing",
            "fedaudit.attacks.text",
        ),
        "fedaudit.attacks.attack:Attack",
    ),
    "datasets": Shelf(("fedaudit.fl.datasets",), "fedaudit.fl.data.dataset:Dataset"),
    "tasks": Shelf(("fedaudit.fl.tasks",), "fedaudit.fl.runtime.task:Task"),
    "partitions": Shelf(("fedaudit.fl.partitions",), "fedaudit.fl.data.partition:Partition"),
    "availability": Shelf(("fedaudit.fl.availability",), "fedaudit.fl.data.participation:Availability"),
    "selections": Shelf(("fedaudit.fl.selections",), "fedaudit.fl.clients.selection:Selection"),
    "models": Shelf(("fedaudit.fl.models",), "torch.nn:Module", takes_functions=True),
    "devices": Shelf(("fedaudit.fl.devices",), "fedaudit.fl.clients.time_model:Devices"),
    "adversaries": Shelf(("fedaudit.attacks.poisoning",), "fedaudit.fl.threats.adversary:Adversary"),
    "aggregators": Shelf(("fedaudit.fl.aggregators",), "fedaudit.fl.aggregation.aggregator:Aggregator"),
    "protections": Shelf(("fedaudit.fl.protections",), "fedaudit.fl.wire.protection:Protection"),
    "checks": Shelf(("fedaudit.audit.checks",), "fedaudit.audit.observer.check:Check"),
    "accountants": Shelf(
        ("fedaudit.audit.accounting.accountants",), "fedaudit.audit.accounting.accountant:Accountant"
    ),
    "sections": Shelf(("fedaudit.reports.sections",), "fedaudit.reports.section:Section"),
    "renderers": Shelf(("fedaudit.reports.renderers",), "fedaudit.reports.renderer:Renderer"),
}


REPLACED = {  # plugins that are no more, and which of the same kind reads what they read
    "played_update": "played_message",
    "gradient_cosine": "played_message",
    "update_norm": "played_message",
    "rare_class": "label_counts_from_update",
    "property_inference": "played_message",
}


def names(kind: str) -> list[str]:
    """Names of all plugins of a kind, without importing them."""
    return plugin.names(*SHELVES[kind].packages)


def find(kind: str, name: str, where: str = "") -> str:
    """The module of a plugin of ours, named by the key `where`; raises UserError where there is none."""
    if (now := REPLACED.get(name)) in names(kind):
        raise UserError(
            f"{where}: {name} is gone: {now} reads what it read".removeprefix(": "),
            hint=f"write {now} instead",
            key=where,
        )
    return plugin.find_module(SHELVES[kind].packages, name, where)


def load(kind: str, name: str, where: str = "") -> type[Any]:
    """The class of one plugin, named by the key `where`; raises UserError naming the nearest known name.

    Where a format may stand, a section of a user's own may as well: it is of every format.
    """
    shelf = SHELVES["sections" if kind == "renderers" and _is_section(name, where) else kind]
    if ":" not in name:
        find(kind, name, where)
    module, _, base = shelf.base.partition(":")
    contract = getattr(importlib.import_module(module), base)
    found: type[Any] = plugin.load(shelf.packages, name, contract, where, takes_functions=shelf.takes_functions)
    return found


def _is_section(name: str, where: str) -> bool:
    from fedaudit.reports.section import Section

    found = foreign.find(name, where) if ":" in name else None
    return isinstance(found, type) and issubclass(found, Section)


def settings(kind: str, name: str, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """All settings of a plugin, defaults included, as plain values in the order it declares them."""
    cls = load(kind, name, where)
    declared = getattr(cls, "Config", None)
    if declared is None:  # a user's own nn.Module, or a section or renderer
        if given:
            raise UserError(
                f"{where}: {name} takes no settings, got {', '.join(map(str, given))}",
                hint="give its class a nested frozen dataclass `Config`",
                key=where,
            )
        return {}
    found = check_settings(declared, given, where)
    return {f.name: plain(getattr(found, f.name)) for f in dataclasses.fields(found)}


def plain(value: Any) -> Any:
    """A setting as YAML can write it: text, numbers, lists and mappings."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(plain(v) for v in value)
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


def entries(kind: str) -> list[Entry]:
    """Every plugin of a kind with its card. One that cannot be imported says why and stays listed."""
    found = []
    for name in names(kind):
        try:
            found.append(entry(kind, name))
        except Exception as error:  # noqa: BLE001
            text = f"{BROKEN}{error.args[0] if error.args else type(error).__name__}"
            found.append(Entry(name=name, title="", source="", text=text))
    return found


def entry(kind: str, name: str) -> Entry:
    """The card of one plugin, by importing it."""
    return _entry(name, load(kind, name))


def _entry(name: str, cls: type[Any]) -> Entry:
    card = getattr(cls, "card", cls)
    # a plugin's file, or its class in a shared file, begins "Name: what it does, in plain words"
    file = None if plugin.shares_file(cls) else inspect.getdoc(inspect.getmodule(cls))
    first = " ".join((file or inspect.getdoc(cls) or "").partition("\n\n")[0].split())
    source = getattr(card, "source", "")
    if not source and hasattr(card, "order"):
        source = f"place {card.order}"
    return Entry(
        name=name,
        title=str(getattr(card, "title", "") or cls.__name__),
        source=str(source),
        text=first.partition(": ")[2] or first,
        more=_more(card, cls),
    )


def _more(card: Any, cls: type[Any]) -> dict[str, str]:
    """What a method sends and receives, and how its clients train on an accelerator.

    Of an attack from where it works, with what, what it needs, and how it works on an accelerator.
    """
    if hasattr(card, "uplink"):
        from fedaudit.fl.method import is_stackable  # which loads torch

        sent = {"sends": card.uplink, "receives": card.downlink}
        trains = "clients side by side" if is_stackable(cls) else "clients one by one"
        said = {name: ", ".join(kinds) or "nothing" for name, kinds in sent.items()}
        return said | {"on an accelerator": trains}
    if hasattr(card, "threat"):
        threat, knows = card.threat, ", ".join(sorted(card.threat.knows)).replace("_", " ")
        adversary = f"{threat.position}, {threat.conduct}".replace("_", " ")
        position = adversary + (f"; knows {knows}" if knows else "")
        if hasattr(card, "does"):
            return {"adversary": position, "does": card.does, "forges": ", ".join(card.kinds)}
        works = getattr(cls, "on_accelerator", "one piece after the other")
        needs = ", ".join(card.requires or card.also_reads)
        return {"adversary": position, "needs": needs, "on an accelerator": works}
    return {}
