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
from fedaudit.fl.model import Net, State, adapt
from fedaudit.fl.runtime.errors import UserError, quote_error
from fedaudit.fl.runtime.plugin import is_shipped
from fedaudit.fl.runtime.settings import check_settings
from fedaudit.fl.runtime.task import Task
from fedaudit.fl.tasks.text import Text

ONE_LOGIT = "of one logit z for two classes make two: torch.cat([torch.zeros_like(z), z], 1)"

SUM_APART = 1e-4  # of a softmax in 32 bits from 1


def name_model(make_net: "partial[Net]") -> str:
    """A model of ours with its shape, settings and task; empty for one of others, whose code can change."""
    cls, *rest = make_net.args
    task = make_net.keywords.get("task")
    return " ".join(map(repr, (cls.__qualname__, *rest, task))) if is_shipped(cls) else ""


def maker(
    spec: PluginSpec, shape: tuple[int, ...], width: int, task: Task, where: str, pieces: int | None = None
) -> "partial[Net]":
    """Builds the network that one entry of the config names, of so many outputs; `pieces` is the size of the
    data's vocabulary."""
    cls = catalog.load("models", spec.name)
    if not is_configured(cls):
        if spec.settings:
            raise UserError(
                f"{where}: {spec.name} takes no settings",
                hint="derive it from fedaudit.fl.model.Net to give it a Config",
            )
        return partial(build_foreign, cls, shape, width, task=task)
    config: Any = check_settings(cls.Config, spec.settings, where)
    if pieces is not None and getattr(config, "vocabulary", 0) is None:
        config = replace(config, vocabulary=pieces)
    return partial(build, cls, shape, width, config, task=task)


def is_configured(cls: type[Any]) -> bool:
    """Whether a network has settings of its own; what others wrote is a class, or a function that builds one."""
    return isinstance(cls, type) and issubclass(cls, Net)


def read_task(spec: PluginSpec, of_data: Task, where: str) -> Task:
    """What is wanted of a network on data of this task: the next token, where its setting or its kind says so."""
    cls = catalog.load("models", spec.name)
    config: Any = check_settings(cls.Config, spec.settings, where) if is_configured(cls) else None
    predicts_tokens = getattr(config, "task", "") == "lm" or isinstance(getattr(cls, "task", None), Text)
    return Text() if predicts_tokens else of_data


def count_outputs(net: nn.Module, x: Tensor, task: Task) -> int:
    """How many numbers a network gives for each of the examples x [n, ...], or for each place of them.

    It is left in evaluation mode. Raises UserError where it gives something else, or its weights are no 32-bit
    numbers.
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
        places = x.shape[2:] if task.by_place else ()
        if logits.is_floating_point() and logits.ndim > 1 and logits.shape == (len(x), logits.shape[1], *places):
            if task.has_classes:
                _refuse_probabilities(logits)
            return logits.shape[1]
        found = f"{_name_dtype(logits.dtype)} {list(logits.shape)}"
    outputs = "classes" if task.has_classes else "outputs"
    raise UserError(
        f"the network gives {found} for {len(x)} examples, expected logits "
        f"[{len(x)}, {outputs}{', *places' * task.by_place}]",
        hint=f"give the logits alone, before any softmax; {ONE_LOGIT}" if task.has_classes else "",
    )


def _refuse_probabilities(given: Tensor) -> None:
    """Raise UserError for numbers [n, classes] that are no logits: none is below 0, and they add up to 1."""
    if given.shape[1] > 1 and bool((given >= 0).all() and (given.sum(1) - 1).abs().max() < SUM_APART):
        raise UserError(
            "the network gives probabilities: no number is below 0, and they add up to 1, expected logits",
            hint="leave out the last softmax, which the loss has already",
        )


def require_outputs(logits: int, classes: int, task: Task, where: str = "") -> None:
    """Raise UserError where a network has no logit for some of the classes, or other outputs than are wanted."""
    if not (task.has_classes or task.by_place) and logits != classes:
        raise UserError(
            f"the network gives {logits} numbers an example, and labels of {task!r} want {classes}: {task.words}",
            hint=f"end it with nn.Linear(..., {classes})",
            key=where,
        )
    if logits < classes:
        number = f"{logits} logit{'s'[: logits != 1]}"
        raise UserError(
            f"the network gives {number} an example, and labels are of {classes} classes",
            hint=ONE_LOGIT if logits == 1 else f"end it with nn.Linear(..., {classes}); labels count from 0",
            key=where,
        )


def check_trained_network(net: nn.Module, x: Tensor, width: int, task: Task, where: str) -> None:
    """Raise UserError for a network that cannot be trained to give so many numbers for examples x [n, ...]."""
    if not any(p.requires_grad for p in net.parameters()):
        held = "all its parameters are frozen" if any(True for _ in net.parameters()) else "it has no parameters"
        raise UserError(
            f"the network has nothing to train: {held}",
            hint="leave requires_grad on for some of them, or train adapters: federation.adapters",
            key=where,
        )
    try:
        found = count_outputs(net, x, task)
    except RuntimeError as error:  # of a network of ours; others' say so themselves
        given = f"{_name_dtype(x.dtype)} {list(x.shape[1:])}"
        raise UserError(
            f"the network takes other examples than this data set's, {given}: {quote_error(error)}",
            hint="choose a model for this kind of data: `fedaudit tools list models`",
            key=where,
        ) from error
    require_outputs(found, width, task, where)


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
    given = (cls, shape, classes, config, FrozenBase(base), adapters, folds, seed)
    return partial(build_adapted, *given, **make.keywords)


def build_adapted(
    cls: type[nn.Module],
    shape: tuple[int, ...],
    classes: int,
    config: Any,
    base: FrozenBase,
    adapters: AdapterSettings,
    folds: bool,
    seed: int,
    task: Task | None = None,
) -> Net:
    """A network of ours, or of a user's own where it has no settings, on a frozen base."""
    if issubclass(cls, Net):
        net = build(cls, shape, classes, config, task)
    else:
        net = build_foreign(cls, shape, classes, task)
    net.load_state_dict(base.state)
    alpha = 2.0 * adapters.rank if adapters.alpha is None else adapters.alpha
    return attach(net, adapters.rank, alpha, adapters.targets, adapters.in_full, folds=folds, seed=seed)


def build(cls: type[Net], shape: tuple[int, ...], classes: int, config: Any, task: Task | None = None) -> Net:
    """A network of ours; `task` is what is wanted of it, None: what it is made for."""
    net = cls(shape, classes, config)
    net.task = task or net.task
    return net


def build_foreign(cls: type[nn.Module], shape: tuple[int, ...], classes: int, task: Task | None = None) -> Net:
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
    net.task = task or net.task
    if is_unfinished(net):
        x = torch.zeros((2, *shape), dtype=torch.int64 if len(shape) == 1 else torch.float32)
        with torch.no_grad():
            net.eval()(x)
        net.train()
    return net


def is_unfinished(net: nn.Module) -> bool:
    """Whether it has layers that are made when they first compute."""
    return any(map(is_lazy, chain(net.parameters(), net.buffers())))
