"""The network of a simulated federation: what builds it, the weights it begins with, and how large it is."""

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch

from fedaudit.audit.case.base import Base, describe_base
from fedaudit.audit.case.networks import adapt_maker, check_trained_network, maker
from fedaudit.audit.settings.config import SimulatedConfig
from fedaudit.audit.settings.federation import AdapterSettings
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.data.scale import normalise
from fedaudit.fl.families.layers import NetworkSize, measure_size
from fedaudit.fl.model import Net, State, initialise, state_of
from fedaudit.fl.runtime.sharing import share_result
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.tasks.text import Text


@dataclass(frozen=True)
class SimulatedNetwork:
    """What a config says of the network, on its data; `folds_adapters` as a method's card says."""

    config: SimulatedConfig
    data: Data
    folds_adapters: bool

    @property
    def adapters(self) -> AdapterSettings | None:
        return self.config.federation.adapters

    @cached_property
    def make(self) -> "partial[Net]":
        """Builds the network; picklable, so that worker processes can."""
        return self._adapt(self._whole)

    @cached_property
    def make_untrained(self) -> "partial[Net]":
        """Builds it on weights of no base: its size and its times are the same, and nothing is trained."""
        _ = self._base  # raises UserError where it does not fit
        return self._adapt(self._first)

    @cached_property
    def blank(self) -> Net:
        """The network before round 0, on weights of no base; only looked at."""
        return initialise(self.make_untrained, self._streams)

    @cached_property
    def size(self) -> NetworkSize:
        return measure_size(self.blank, self.data.input_shape)

    def initial(self) -> State:
        """The weights every client starts from, drawn from the stream "model"."""
        if self.adapters is not None:
            return state_of(initialise(self.make, self._streams))
        return {name: values.clone() for name, values in self._whole.items()}

    @property
    def _streams(self) -> Streams:
        return Streams(self.config.seed)

    def _adapt(self, whole: State) -> "partial[Net]":
        """Builds the network with adapters, if there are any, on these weights."""
        if self.adapters is None:
            return self._make_whole
        seed = self._streams.key("adapters")
        return adapt_maker(self._make_whole, self.adapters, whole, self.folds_adapters, seed)

    @cached_property
    def _make_whole(self) -> "partial[Net]":
        """Builds the network without adapters."""
        model, schema = self.config.locate_files(self.config.federation.model), self.data.schema
        pieces = None if schema is None else len(schema.pieces)
        return maker(model, self.data.input_shape, self.data.width, self.data.task, "federation.model", pieces)

    @cached_property
    def _first(self) -> State:
        """The weights of the network without adapters or base, from the stream "model"."""
        asked = repr(self.config.federation.model), self.data.input_shape, self.data.width, self.config.seed

        def make() -> State:
            net = initialise(self._make_whole, self._streams)
            state = state_of(net)
            if self.adapters is None and not isinstance(net.task, Text):
                some = normalise(torch.from_numpy(np.array(self.data.train.x[:2])), self.data)
                check_trained_network(net, some, self.data.width, net.task, "federation.model")
            return state

        return share_result(("first model", *asked), make)

    @cached_property
    def _base(self) -> Base | None:
        settings = self.config.federation.base
        if settings is None:
            return None
        dataset = self.config.locate_files(self.config.federation.dataset)
        return describe_base(settings, dataset, self.data, self._make_whole)

    @cached_property
    def _whole(self) -> State:
        """The weights of the network without adapters, before round 0."""
        return self._first if self._base is None else self._base.replace_weights(self._first)
