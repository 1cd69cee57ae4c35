"""A simulated case: from a config to the objects it names: data, population, model, method, protections.

Every phase that needs them builds them anew from the config and the seed; nothing but artifacts and
logs is carried between phases. Built data are the auditor's: an attack gets what Knowledge grants.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property, partial
from typing import Literal

import numpy as np
import torch
from torch.random import fork_rng

from fedaudit.audit.case.base import Base, describe_base
from fedaudit.audit.case.case import About
from fedaudit.audit.case.messages import read_arrivals
from fedaudit.audit.case.networks import adapt_maker, check_trained_network, maker
from fedaudit.audit.case.plugins import build_plugin
from fedaudit.audit.case.simulated_data import FromConfig, SimulatedData
from fedaudit.audit.settings.federation import AdapterSettings
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.aggregation.aggregator import Aggregator
from fedaudit.fl.clients.time_model import Devices, TimeModel
from fedaudit.fl.data.participation import UNKNOWN, Availability, Drawn, describe_drawing
from fedaudit.fl.data.partition import Index
from fedaudit.fl.data.scale import normalise
from fedaudit.fl.execution.site import Site, build_site
from fedaudit.fl.families.layers import NetworkSize, measure_size
from fedaudit.fl.federation import Federation, Holdings
from fedaudit.fl.method import Card, LocalConfig, RoundMethod, is_bounded_by_training
from fedaudit.fl.model import Net, State, initialise, state_of
from fedaudit.fl.recording.checkpoint import Checkpoints
from fedaudit.fl.runtime.durable import Log
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.machine import choose_device
from fedaudit.fl.runtime.sharing import share_result
from fedaudit.fl.runtime.workers import InProcess, Workers
from fedaudit.fl.threats.adversary import Adversary
from fedaudit.fl.threats.compromise import Compromise, choose_compromised_clients
from fedaudit.fl.training.batches import find_smallest_batch
from fedaudit.fl.training.private import PrivateTraining
from fedaudit.fl.wire.protection import Protection
from fedaudit.fl.wire.wire import Wire


class SimulatedServer(FromConfig):
    """How the server makes one model of many, and who works against it."""

    @cached_property
    def aggregator(self) -> Aggregator:
        found: Aggregator = build_plugin("aggregators", self.config.aggregator, "aggregator")
        return found

    @cached_property
    def prototype_aggregator(self) -> Aggregator:
        found: Aggregator = build_plugin("aggregators", self.config.prototype_aggregator, "prototype_aggregator")
        return found

    @cached_property
    def compromise(self) -> Compromise:
        """Who is compromised, and by what."""
        if self.config.adversary is None:
            return Compromise()
        adversary: Adversary = build_plugin("adversaries", self.config.adversary, "adversary")
        return Compromise(adversary, choose_compromised_clients(adversary, self.clients, self.streams))


class SimulatedClients(SimulatedData):
    """What clients run: method, network, protections and clock."""

    @cached_property
    def method(self) -> RoundMethod:
        found: RoundMethod = build_plugin("methods", self.config.method, "method")
        return found

    @property
    def card(self) -> Card:
        return self.method.card

    @property
    def training(self) -> LocalConfig:
        found: LocalConfig = self.method.config
        return found

    @cached_property
    def protections(self) -> list[Protection]:
        return [
            build_plugin("protections", spec, f"protections[{i}]")
            for i, spec in enumerate(self.config.protections)
        ]

    @cached_property
    def private(self) -> PrivateTraining | None:
        """How clients train, where a protection says so; raises UserError where it could not hold."""
        private = [p for p in self.protections if p.training() is not None]
        if not private:
            return None
        if len(private) > 1:
            raise UserError("protections: two of them say how clients train", hint="keep one of them")
        if not is_bounded_by_training(self.method):
            raise UserError(
                f"{private[0].title} does not bound what {self.method.card.title} sends: its clients use "
                "their data outside of local training too",
                hint="use fedavg, fedprox or another method that only averages trained models, or "
                "clip and noise the messages with dp_gaussian",
            )
        return private[0].training()

    @property
    def adapters(self) -> AdapterSettings | None:
        return self.config.federation.adapters

    @cached_property
    def device(self) -> str:
        return choose_device(self.config.device)

    @cached_property
    def make_net(self) -> "partial[Net]":
        """Builds the model; picklable, so that worker processes can."""
        return self._adapt(self._whole)

    @cached_property
    def make_untrained(self) -> "partial[Net]":
        """Builds the model on weights of no base: its size and its times are the same, and nothing is trained."""
        _ = self._base  # raises UserError where it does not fit
        return self._adapt(self._first)

    def _adapt(self, whole: State) -> "partial[Net]":
        """Builds the model with adapters, if there are any, on these weights."""
        if self.adapters is None:
            return self._make_whole
        seed = self.streams.key("adapters")
        return adapt_maker(self._make_whole, self.adapters, whole, self.method.folds_adapters, seed)

    @cached_property
    def _make_whole(self) -> "partial[Net]":
        """Builds the model without adapters."""
        model, schema = self.config.locate_files(self.config.federation.model), self.data.schema
        pieces = None if schema is None else len(schema.pieces)
        return maker(model, self.data.shape, len(self.data.classes), "federation.model", pieces)

    @cached_property
    def _first(self) -> State:
        """The weights of the model without adapters or base, from the stream "model"."""
        asked = repr(self.config.federation.model), self.data.shape, len(self.data.classes), self.config.seed

        def make() -> State:
            net = initialise(self._make_whole, self.streams)
            state = state_of(net)
            if self.adapters is None and net.task == "classify":
                some = torch.from_numpy(np.array(self.data.train.x[:2]))
                check_trained_network(net, some, len(self.data.classes), "federation.model")
            return state

        return share_result(("first model", *asked), make)

    @cached_property
    def _base(self) -> Base | None:
        settings = self.config.federation.base
        if settings is None:
            return None
        return describe_base(settings, self._named_data, self.data, self._make_whole)

    @cached_property
    def _whole(self) -> State:
        """The weights of the model without adapters, before round 0."""
        return self._first if self._base is None else self._base.replace_weights(self._first)

    def initial(self) -> State:
        """The weights every client starts from, drawn from the stream "model"."""
        if self.adapters is not None:
            return state_of(initialise(self.make_net, self.streams))
        return {name: values.clone() for name, values in self._whole.items()}

    @cached_property
    def network_size(self) -> NetworkSize:
        return measure_size(self._blank_network, self.data.shape)

    @cached_property
    def _blank_network(self) -> Net:
        """The model before round 0, on weights of no base; only looked at."""
        return initialise(self.make_untrained, self.streams)

    @cached_property
    def time_model(self) -> TimeModel | None:
        """The simulated clock, where the config names one or the method decides by time."""
        spec: str | PluginSpec = self.config.federation.time_model
        if isinstance(spec, str):
            if not self.card.timed:
                return None
            spec = PluginSpec(name="counted")
        devices: Devices = build_plugin("devices", spec, "federation.time_model")
        with fork_rng(devices=[]):  # construction draws weights that nobody uses
            net = self.make_net()
        return devices.time_model(net, self.data.shape, self.config.federation.clients, self.streams)


class SimulatedCase(SimulatedClients, SimulatedServer):
    """Everything one config describes: a case of which nothing is unknown."""

    @property
    def simulated(self) -> bool:
        return True

    @property
    def about(self) -> About:
        words = (self.partition.describe(), self.availability.describe())
        return About(dataset=self.dataset.title, clients=words, model=self.config.federation.model.name)

    @cached_property
    def availability(self) -> Availability:
        found: Availability = build_plugin(
            "availability", self.config.federation.availability, "federation.availability"
        )
        return found

    def sampling(self, client: int | None) -> Drawn:
        """How a client comes to take part."""
        if self.method.is_choosing("choose_candidates", "select"):
            return UNKNOWN
        clients = self.config.federation.clients
        return describe_drawing(self.availability, clients, self.empty_round, client, self._without)

    @property
    def empty_round(self) -> Literal["redraw", "skip"]:
        """What is done when nobody answers: a draw that is made again is nobody's own coin any more."""
        counted = any(p.central for p in self.protections)
        return self.config.federation.empty_round or ("skip" if counted else "redraw")

    @cached_property
    def holdings(self) -> Holdings:
        """Who holds what."""
        population = self.population
        return Holdings(self.data, population.parts, self.streams, population.server, self.time_model)

    def make_site(self, holdings: Holdings) -> "partial[Site]":
        """What makes a worker's side of the federation over these holdings, on whichever machine."""
        return partial(
            build_site, self.method, holdings, self.make_net, self.device, self.private, self.compromise
        )

    @cached_property
    def _without(self) -> int:
        """How many clients hold no example."""
        return sum(not len(part) for part in self.population.parts)

    @property
    def heard(self) -> Mapping[int, frozenset[int]] | None:
        """From the manifest; None before the run, or where it kept only some clients' messages."""
        return None if self.artifacts is None else read_arrivals(self.artifacts)

    def refuse_unfit(self) -> None:
        """Raise UserError for what a run refuses before its first round; nothing trains, and no base is read."""
        _ = self.device
        method = copy(self.method)  # which learns of the network
        with fork_rng(devices=[]):
            make, initial = self.make_untrained, state_of(self._blank_network)
            site = partial(build_site, method, self.holdings, make, "cpu", self.private, self.compromise)
            with InProcess(site) as workers:
                wire = Wire(self.card, self.streams, self.protections)
                method.open(self.build_federation(self.holdings, wire, workers, initial=initial))

    def _refuse_lone_examples(self, parts: Sequence[Index], workers: Workers) -> None:
        """Raise UserError where a client has a batch of a single example, on which the network cannot train."""
        each = self.training.batch_size == 1
        lone = next((k for k, rows in enumerate(parts) if len(rows) == 1 or (each and len(rows))), None)
        if lone is None:
            return
        x = normalise(torch.from_numpy(self.data.train.x[parts[lone][:1]]), self.data)
        if max(workers.map("inspect", [partial(find_smallest_batch, x=x)])) > 1:
            other = (
                "take fewer clients, another partition, or group normalisation in place of batch normalisation"
            )
            raise UserError(
                f"client {lone} trains on a batch of one example, and the model's batch normalisation needs two",
                hint="set method.batch_size to 2 or more" if each else other,
                key="method.batch_size" if each else "federation.partition",
            )

    def build_federation(
        self,
        holdings: Holdings,
        wire: Wire,
        workers: Workers,
        *,
        initial: State | None = None,
        metrics: Log | None = None,
        checkpoints: Checkpoints | None = None,
        progress: Callable[[str, int, int], None] = lambda *_: None,
    ) -> Federation:
        """Over these holdings, from its own weights or `initial`.

        Without `metrics` and `checkpoints` nothing is kept on disk. Raises UserError where the network cannot
        train on what a client holds.
        """
        self._refuse_lone_examples(holdings.parts, workers)
        federation = self.config.federation
        return Federation(
            holdings=holdings,
            initial=self.initial() if initial is None else initial,
            availability=self.availability,
            aggregator=self.aggregator,
            prototype_aggregator=self.prototype_aggregator,
            compromise=self.compromise,
            wire=wire,
            workers=workers,
            metrics=metrics,
            checkpoints=checkpoints,
            empty_round=self.empty_round,
            reply_loss=federation.reply_loss,
            failures=federation.failures,
            evaluate_every=self.config.evaluate_every,
            checkpoint_every=self.config.checkpoint_every,
            progress=progress,
        )
