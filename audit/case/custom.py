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
from torch import nn

from fedaudit.audit.case.case import Split
from fedaudit.audit.case.recorded import RecordedCase
from fedaudit.audit.case.recorded_network import RecordedNetwork
from fedaudit.fl.artifact import SERVER, Channel, Party, Route
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.data.population import content
from fedaudit.fl.kinds import Kind
from fedaudit.fl.model import Net, State, adapt, state_of
from fedaudit.fl.recording.recorder import Recorder
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.task import Task, load_task

Messages = Mapping[int, Mapping[Kind, Mapping[str, torch.Tensor]]]  # client -> what it sends, by kind


@dataclass(frozen=True, kw_only=True)
class CustomHoldings:
    """Examples, and who has them. No example may be a member and something else besides."""

    members: Mapping[int, Arrays]  # of clients; without an entry where nobody said
    nonmembers: Arrays  # nobody trained on them
    auxiliary: Arrays  # an adversary has these

    def join(self) -> tuple[Arrays, Split]:
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
        return every, Split(parts=parts, reference=rows[-2], auxiliary=rows[-1])


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
    joined: tuple[Arrays, Split] | None = None

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
    def examples(self) -> Split:
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
