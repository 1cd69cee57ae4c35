"""A case that a caller puts together of a network, messages and examples, to attack it without a federation.

It is a recorded case (audit/case/recorded.py) whose network is a module in memory and whose examples are told
apart by the caller, so attacks, controls and measures work on it as they do on any other.
"""

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedaudit.audit.case import networks
from fedaudit.audit.case.case import Examples
from fedaudit.audit.case.recorded import RecordedCase
from fedaudit.audit.case.recorded_network import RecordedNetwork
from fedaudit.fl.artifact import SERVER, Channel, Party, Route
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.data.population import content
from fedaudit.fl.kinds import Kind
from fedaudit.fl.model import Net, State, adapt, state_of
from fedaudit.fl.recording.recorder import Recorder
from fedaudit.fl.runtime.errors import UserError, quote_error
from fedaudit.fl.tasks._task import Task, choose_task, load_task

Messages = Mapping[int, Mapping[Kind, Mapping[str, torch.Tensor]]]  # client -> what it sends, by kind


@dataclass(frozen=True, kw_only=True)
class CustomHoldings:
    """Examples, and who has them. No example may be a member and something else besides."""

    members: Mapping[int, Arrays]  # of clients; without an entry where nobody said
    nonmembers: Arrays  # nobody trained on them
    auxiliary: Arrays  # an adversary has these

    def join(self) -> tuple[Arrays, Examples]:
        """All of them, one group after the other, and whose rows they are. Raises UserError for a copy."""
        groups: list[tuple[str, Arrays]] = [(f"members of client {k}", part) for k, part in self.members.items()]
        groups += [("nonmembers", self.nonmembers), ("auxiliary", self.auxiliary)]
        ends = np.cumsum([0, *(len(part) for _, part in groups)])
        rows = [np.arange(a, b) for a, b in itertools.pairwise(ends)]
        _refuse_copies(groups[: len(self.members)], groups[len(self.members) :])
        every = Arrays(
            x=np.concatenate([part.x for _, part in groups]), y=np.concatenate([part.y for _, part in groups])
        )
        parts = dict(zip(self.members, rows, strict=False))
        return every, Examples(parts=parts, reference=rows[-2], auxiliary=rows[-1])


def _refuse_copies(members: Sequence[tuple[str, Arrays]], others: Sequence[tuple[str, Arrays]]) -> None:
    trained = {content(x) for _, part in members for x in part.x}
    for name, part in others:
        if copies := sum(content(x) in trained for x in part.x):
            raise UserError(
                f"{copies:,} of {len(part):,} {name} are members too",
                hint=f"leave them out of {name}: a measure of membership needs examples that nobody trained on",
            )


@dataclass(frozen=True)
class CustomCase(RecordedCase):
    """`net` has the weights that were sent; `joined` are its examples."""

    net: nn.Module | None = None
    joined: tuple[Arrays, Examples] | None = None

    @cached_property
    def network(self) -> "CustomNetwork":
        assert self.net is not None
        return CustomNetwork(self.config, self.artifacts, None, False, self.net)

    @cached_property
    def data(self) -> Data:
        assert self.joined is not None
        stated, every = self.subject.examples, self.joined[0]
        return Data(
            train=every,
            test=every.take(np.zeros(0, np.int64)),
            classes=tuple(stated.classes),
            mean=tuple(stated.mean),
            std=tuple(stated.std),
            task=load_task(stated.task)().learn_scale(every.y[self.examples.reference]),
        )

    @cached_property
    def examples(self) -> Examples:
        assert self.joined is not None
        return self.joined[1]


@dataclass(frozen=True)
class CustomNetwork(RecordedNetwork):
    """A module in memory."""

    net: nn.Module

    @cached_property
    def make(self) -> "partial[Net]":
        return partial(redraw, self.net, load_task(self.config.subject.examples.task)())

    def initial(self) -> State:
        return state_of(adapt(self.net))


def redraw(net: nn.Module, task: Task | None = None) -> Net:
    """A copy with weights drawn anew: by a layer's own `reset_parameters`, or its numbers in another order.

    Layers that are frozen beside others that train stay as they are: everybody has them.
    """
    made = copy.deepcopy(net)
    some_train = any(p.requires_grad for p in made.parameters())
    for layer in made.modules():
        own = list(layer.parameters(recurse=False))
        if own and some_train and not any(p.requires_grad for p in own):
            continue
        reset: Any = getattr(layer, "reset_parameters", None)
        if reset is not None:
            reset()
            continue
        with torch.no_grad():
            for p in own:
                p.copy_(p.flatten()[torch.randperm(p.numel())].reshape(p.shape))
    found = adapt(made)
    found.task = task or found.task
    return found


def record_messages(folder: Path, net: nn.Module, members: Sequence[int], messages: Messages) -> None:
    """Write what crossed the wire: the network to everybody, then what clients sent, in one round.

    Where nobody sends anything the network is what was released of a training on the members' examples.
    """
    recorder, model = Recorder(folder), {Kind.GLOBAL_MODEL: state_of(adapt(net))}
    if messages:
        route = Route(0, Channel.DOWNLINK, SERVER, ("client",), ("client", "server"))
        recorder.message(route, model, len(messages))
    for client, payloads in messages.items():
        recorder.message(Route(0, Channel.UPLINK, Party.client(client), ("server",), ("server",)), payloads)
    if not messages:
        recorder.provenance.note_pooling(members)
        recorder.message(Route(0, Channel.RELEASE, SERVER, ("public",), ("server", "public")), model)
    recorder.end_round(0)
    recorder.manifest.close()


def make_examples(
    name: str, given: Any, shape: tuple[int, ...] | None = None, like: Arrays | None = None, task: str = ""
) -> Arrays:
    """Examples given as (x, y), arrays or tensors. Raises UserError that names what is wrong.

    Images are [N, C, H, W] from 0 to 1, other examples numbers of any shape; labels are as `task` has them, or as
    their shape allows. None: no examples of `shape`, with labels of the shape of those `like` them.
    """
    if given is None:
        labels = np.zeros(0, np.int64) if like is None else like.y[:0]
        return Arrays(x=np.zeros((0, *(shape or (1, 1, 1))), np.float32), y=labels)
    try:
        x, y = (to_array(values) for values in given)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name} are no pair of images and labels", hint=f"{name}=(x, y)") from error
    if x.dtype == np.uint8:
        x = x / np.float32(255)
    problem = ""
    if x.ndim < 2 or x.dtype.kind != "f":
        problem = f"are {x.dtype} {list(x.shape)}"
    elif not np.isfinite(x).all():
        problem = f"hold {int((~np.isfinite(x)).sum()):,} numbers that are NaN or infinite"
    elif x.ndim == 4 and x.size and (x.min() < 0 or x.max() > 1):
        problem = f"go from {x.min():g} to {x.max():g}"
    if problem:
        raise UserError(
            f"{name}: examples {problem}",
            hint="give images [N, channels, height, width] from 0 to 1, or rows [N, columns]; mean= and std= say "
            "what the model sees",
        )
    if shape is not None and x.shape[1:] != shape:
        raise UserError(
            f"{name}: examples are {list(x.shape[1:])}, and members {list(shape)}", hint="give them alike"
        )
    wanted: Task = load_task(task)() if task else choose_task(y, x.shape[1:])
    if wrong := wanted.misfit(y, len(x)):
        raise UserError(f"{name}: labels are {wrong}", hint=f"the task is {wanted!r}: {wanted.words}")
    return Arrays(x=x.astype(np.float32), y=y.astype(np.float32 if y.dtype.kind == "f" else np.int64))


def to_array(values: Any) -> NDArray[Any]:
    """An array of an array or a tensor; numbers that numpy has no type for become float32."""
    if not isinstance(values, torch.Tensor):
        return np.asarray(values)
    values = values.detach().cpu()
    return np.asarray(values.float() if values.dtype == torch.bfloat16 else values)


def count_outputs(net: nn.Module, shape: tuple[int, ...], task: Task) -> int:
    """How many logits the network gives for an example of this shape. Raises UserError where it gives none."""
    if not isinstance(net, nn.Module) or isinstance(net, torch.jit.ScriptModule):
        what = "compiled by TorchScript" if isinstance(net, nn.Module) else f"a {type(net).__name__}"
        raise UserError(
            f"the model is {what}, expected a torch.nn.Module with its weights",
            hint="of a class pass an instance; weights of a file go in by load_state_dict()",
        )
    if not net.state_dict():
        raise UserError("the model has no weights", hint="pass a network that was trained")
    try:
        return networks.count_outputs(copy.deepcopy(net), torch.zeros((1, *shape)), task)
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise UserError(
            f"the model refuses a batch of shape {[1, *shape]}: {quote_error(error)}",
            hint="it takes examples as they are given, such as images [N, channels, height, width], and gives "
            "logits [N, classes]",
        ) from error
