"""The network of a recorded federation, as far as its operator stated it and its messages show it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load as load_tensors

from fedaudit.audit.case.networks import adapt_maker, is_configured, maker, read_task
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import RecordedConfig
from fedaudit.audit.settings.federation import AdapterSettings
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.families.layers import NetworkSize, measure_size
from fedaudit.fl.kinds import Kind
from fedaudit.fl.model import Net, State, count, initialise, state_of
from fedaudit.fl.recording.recorder import carries_shared_model, read
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.task import load_task


@dataclass(frozen=True)
class RecordedNetwork:
    """What was stated of the network, and the weights that were given or recorded.

    `base` is the file of weights which nobody sent; `folds_adapters` as a method's card says.
    """

    config: RecordedConfig
    artifacts: Path
    base: Path | None
    folds_adapters: bool

    @property
    def adapters(self) -> AdapterSettings | None:
        return self.config.subject.adapters

    @cached_property
    def make_blank(self) -> Callable[[], Net] | None:
        """The stated network with weights of nobody's: its names and shapes."""
        whole = self.make_whole
        if whole is None or self.adapters is None:
            return whole
        base = {**state_of(initialise(whole, Streams(0))), **self._base}
        return adapt_maker(
            whole, self.adapters, base, self.folds_adapters, Streams(self.config.seed).key("adapters")
        )

    @cached_property
    def make_whole(self) -> "partial[Net] | None":
        """The stated network without adapters: what a base is of."""
        subject = self.config.subject
        if subject.model is None:
            return None
        shape, width = subject.examples.input_shape, subject.examples.width
        task = read_task(subject.model, load_task(subject.examples.task)(), "subject.model")
        return maker(self.config.locate_files(subject.model), shape, width, task, "subject.model")

    @cached_property
    def make(self) -> Callable[[], Net] | None:
        """The stated network on its base; None where nobody stated it, or gave the weights of its base."""
        blank, subject = self.make_blank, self.config.subject
        if blank is None or (subject.base and self.base is None and not self._brings_weights):
            return None
        return partial(_build_on, blank, self._base) if self._base and self.adapters is None else blank

    @property
    def _brings_weights(self) -> bool:
        model = self.config.subject.model
        cls = catalog.load("models", model.name) if model else Net
        return is_configured(cls) and bool(cls.brings_weights)

    @cached_property
    def _base(self) -> Mapping[str, torch.Tensor]:
        return {} if self.base is None else load_tensors(self.base.read_bytes())

    def initial(self) -> State | None:
        """The model that the first round began with, where that was recorded."""
        first = next((a for a in self._models if a.round == 0), None)
        if first is None:
            return None
        below = {} if self.adapters else self._base
        return {**below, **{k: torch.from_numpy(np.array(v)) for k, v in first.payload.items()}}

    @cached_property
    def size(self) -> NetworkSize:
        first = self.initial() or {}
        numbers = count(first)
        if self.make is None:
            convolved = count({name: v for name, v in first.items() if v.dim() == 4})
            return NetworkSize(parameters=numbers, layers=len(first), products=numbers, convolved=convolved)
        shape = self.config.subject.examples.input_shape
        return replace(measure_size(self.make(), shape), parameters=numbers)

    @cached_property
    def _models(self) -> list[Artifact]:
        def matches(line: Mapping[str, object]) -> bool:
            return line["round"] == 0 and carries_shared_model(line)

        return [a for a in read(self.artifacts, matches) if a.kind == Kind.GLOBAL_MODEL]


def _build_on(build: Callable[[], Net], base: Mapping[str, torch.Tensor]) -> Net:
    net = build()
    net.load_state_dict(base, strict=False)
    return net
