"""Networks as a config names them: ours, users' own, and either with adapters on a frozen base."""

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.federation import AdapterSettings
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.families.adapters import attach
from fedaudit.fl.kinds import Task
from fedaudit.fl.model import Net, State, adapt
from fedaudit.fl.runtime.errors import UserError, quote_error
from fedaudit.fl.runtime.plugin import is_shipped
from fedaudit.fl.runtime.settings import check_settings

ONE_LOGIT = "of one logit z for two classes make two: torch.cat([torch.zeros_like(z), z], 1)"

SUM_APART = 1e-4  # of a softmax in 32 bits from 1


def name_model(make_net: "partial[Net]") -> str:
    """A model of ours with its shape and settings; empty for one of others, whose code can change."""
    cls, *rest = make_net.args
    return " ".join(map(repr, (cls.__qualname__, *rest))) if is_shipped(cls) else ""


def maker(
    spec: PluginSpec, shape: tuple[int, ...], classes: int, where: str, pieces: int | None = None
) -> "partial[Net]":
    """Builds the network that one entry of the config names; `pieces` is the size of the data's vocabulary."""
    cls = catalog.load("models", spec.name)
    if not is_configured(cls):
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


def is_configured(cls: type[Any]) -> bool:
    """Whether a network has settings of its own; what others wrote is a class, or a function that builds one."""
    return isinstance(cls, type) and issubclass(cls, Net)


def read_task(spec: PluginSpec, where: str) -> Task:
    """What a network makes of an example: its setting, where it has one, or what it always does."""
    cls = catalog.load("models", spec.name)
    config: Any = check_settings(cls.Config, spec.settings, where) if is_configured(cls) else None
    found: Task = getattr(config, "task", getattr(cls, "task", "classify"))
    return found


def count_logits(net: nn.Module, x: Tensor) -> int:
    """How many logits a network gives for each of the examples x [n, ...]; it is left in evaluation mode.

    Raises UserError where what it gives is no logits [n, classes], or its weights are no 32-bit numbers.
    """
    if is_unfinished(net):
        raise UserError("lazy layers of the network are not initialised", hint="call it once with an example")
    kinds = {p.dtype for p in net.parameters() if p.is_floating_point() or p.is_complex()}
    if other := kinds - {torch.float32}:
        raise UserError(
            f"the network's weights are {_name_dtype(other.pop())}, expected float32",
            hint="call .float() on it; examples are float32",
        )
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        logits = net.eval()(x)
    found = f"a {type(logits).__name__}"
    if isinstance(logits, Tensor):
        if logits.is_floating_point() and logits.ndim == 2 and len(logits) == len(x):
            _refuse_probabilities(logits)
            return logits.shape[1]
        found = f"{_name_dtype(logits.dtype)} {list(logits.shape)}"
    raise UserError(
        f"the network gives {found} for {len(x)} examples, expected logits [{len(x)}, classes]",
        hint=f"give the logits alone, before any softmax; {ONE_LOGIT}",
    )


def _refuse_probabilities(given: Tensor) -> None:
    """Raise UserError for numbers [n, classes] that are no logits: none is below 0, and they add up to 1."""
    if given.shape[1] > 1 and bool((given >= 0).all() and (given.sum(1) - 1).abs().max() < SUM_APART):
        raise UserError(
            "the network gives probabilities: no number is below 0, and they add up to 1, expected logits",
            hint="leave out the last softmax, which the loss has already",
        )


def require_logits(logits: int, classes: int, where: str = "") -> None:
    """Raise UserError where a network has no logit for some of the classes."""
    if logits < classes:
        number = f"{logits} logit{'s'[: logits != 1]}"
        raise UserError(
            f"the network gives {number} an example, and labels are of {classes} classes",
            hint=ONE_LOGIT if logits == 1 else f"end it with nn.Linear(..., {classes}); labels count from 0",
            key=where,
        )


def check_trained_network(net: nn.Module, x: Tensor, classes: int, where: str) -> None:
    """Raise UserError for a network that cannot be trained to tell classes of examples like x [n, ...] apart."""
    if not any(p.requires_grad for p in net.parameters()):
        held = "all its parameters are frozen" if any(True for _ in net.parameters()) else "it has no parameters"
        raise UserError(
            f"the network has nothing to train: {held}",
            hint="leave requires_grad on for some of them, or train adapters: federation.adapters",
            key=where,
        )
    require_logits(count_logits(net, x), classes, where)


def _name_dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


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
    """A user's own nn.Module: its class, or a function, called with (shape, classes) or else with nothing.

    Layers that are made when they first compute are made here. Raises UserError where it takes neither.
    """
    try:
        made = cls(shape, classes)
    except TypeError:
        try:
            made = cls()
        except TypeError as error:
            raise UserError(
                f"{cls.__name__} is built with (shape, classes), or with nothing, and takes neither: "
                f"{quote_error(error)}",
                hint="give its other arguments defaults",
                key="federation.model",
            ) from error
    net = adapt(made)
    if is_unfinished(net):
        x = torch.zeros((2, *shape), dtype=torch.int64 if len(shape) == 1 else torch.float32)
        with torch.no_grad():
            net.eval()(x)
        net.train()
    return net


def is_unfinished(net: nn.Module) -> bool:
    """Whether it has layers that are made when they first compute."""
    return any(map(is_lazy, chain(net.parameters(), net.buffers())))
