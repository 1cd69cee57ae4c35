"""Networks as a config names them: ours, users' own, and either with adapters on a frozen base."""

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import nn

from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.federation import AdapterSettings
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.families.adapters import attach
from fedaudit.fl.kinds import Task
from fedaudit.fl.model import Net, State, adapt
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import is_shipped
from fedaudit.fl.runtime.settings import check_settings


def name_model(make_net: "partial[Net]") -> str:
    """A model of ours with its shape and settings; empty for one of others, whose code can change."""
    cls, *rest = make_net.args
    return " ".join(map(repr, (cls.__qualname__, *rest))) if is_shipped(cls) else ""


def maker(
    spec: PluginSpec, shape: tuple[int, ...], classes: int, where: str, pieces: int | None = None
) -> "partial[Net]":
    """Builds the network that one entry of the config names; `pieces` is the size of the data's vocabulary."""
    cls = catalog.load("models", spec.name)
    if not issubclass(cls, Net):
        if spec.settings:
            raise UserError(
                f"{where}: {spec.name} takes no settings",
                hint="derive it from fedaudit.fl.model.Net to give it a Config",
            )
        return partial(build_foreign, cls, shape, classes)
    config: Any = check_settings(cls.Config, spec.settings, where)
    if pieces is not None and getattr(config, "vocabulary", 0) is None:
        config = replace(config, vocabulary=pieces)
    return partial(build, cls, shape, classes, config)


def read_task(spec: PluginSpec, where: str) -> Task:
    """What a network makes of an example: its setting, where it has one, or what it always does."""
    cls = catalog.load("models", spec.name)
    config: Any = check_settings(cls.Config, spec.settings, where) if issubclass(cls, Net) else None
    found: Task = getattr(config, "task", getattr(cls, "task", "classify"))
    return found


@dataclass(frozen=True)
class FrozenBase:
    """Weights below adapters, told apart by their digest."""

    state: State

    def __repr__(self) -> str:
        seen = hashlib.sha256()
        for name, value in self.state.items():
            seen.update(f"{name} {tuple(value.shape)}".encode() + value.numpy().tobytes())
        return f"base {seen.hexdigest()}"


def adapt_maker(
    make: "partial[Net]", adapters: AdapterSettings, base: State, folds: bool, seed: int
) -> "partial[Net]":
    """Builds the network of `make` on `base`, with adapters."""
    cls, shape, classes, config = make.args if len(make.args) == 4 else (*make.args, None)
    return partial(build_adapted, cls, shape, classes, config, FrozenBase(base), adapters, folds, seed)


def build_adapted(
    cls: type[nn.Module],
    shape: tuple[int, ...],
    classes: int,
    config: Any,
    base: FrozenBase,
    adapters: AdapterSettings,
    folds: bool,
    seed: int,
) -> Net:
    """A network of ours, or of a user's own where it has no settings, on a frozen base."""
    net = build(cls, shape, classes, config) if issubclass(cls, Net) else build_foreign(cls, shape, classes)
    net.load_state_dict(base.state)
    alpha = 2.0 * adapters.rank if adapters.alpha is None else adapters.alpha
    return attach(net, adapters.rank, alpha, adapters.targets, adapters.in_full, folds=folds, seed=seed)


def build(cls: type[Net], shape: tuple[int, ...], classes: int, config: Any) -> Net:
    return cls(shape, classes, config)


def build_foreign(cls: type[nn.Module], shape: tuple[int, ...], classes: int) -> Net:
    """A user's own nn.Module: called with (shape, classes) where it takes them, else with nothing."""
    try:
        return adapt(cls(shape, classes))
    except TypeError:
        return adapt(cls())
