"""A simulated case: from a config to the objects it names: data, population, model, method, protections.

Every phase that needs them builds them anew from the config and the seed; nothing but artifacts and
logs is carried between phases. Built data are the auditor's: an attack gets what Knowledge grants.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from torch import nn
from torch.random import fork_rng

from fedaudit.audit.case import digests
from fedaudit.audit.case.base import make_base
from fedaudit.audit.case.case import About, Examples
from fedaudit.audit.case.messages import read_arrivals
from fedaudit.audit.case.sharing import share_result
from fedaudit.audit.settings import catalog, index
from fedaudit.audit.settings.config import SimulatedConfig
from fedaudit.audit.settings.federation import AdapterSettings
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.aggregation.aggregator import Aggregator
from fedaudit.fl.clients.time_model import Devices, TimeModel
from fedaudit.fl.data.dataset import Data, Dataset, sound
from fedaudit.fl.data.participation import UNKNOWN, Availability, Drawn, describe_drawing
from fedaudit.fl.data.partition import Partition
from fedaudit.fl.data.population import Population, populate
from fedaudit.fl.families.adapters import attach
from fedaudit.fl.kinds import Task
from fedaudit.fl.method import Card, LocalConfig, RoundMethod, is_bounded_by_training
from fedaudit.fl.model import Net, State, adapt, count, initialise, state_of
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.machine import choose_device
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.runtime.settings import check_settings
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.threats.adversary import Adversary
from fedaudit.fl.threats.compromise import Compromise
from fedaudit.fl.training.private import PrivateTraining
from fedaudit.fl.wire.protection import Protection

T = TypeVar("T")
OWN = 0.1  # share of an owner's examples that its client does not train on


@dataclass(frozen=True)
class SimulatedCase:
    """Everything one config describes, built on demand: a case of which nothing is unknown.

    `artifacts`, the folder of the recorded messages, is None before the run. `trained_on` are the digests
    that a run left of its data and population: a case of others is refused.
    """

    config: SimulatedConfig
    artifacts: Path | None = None
    trained_on: Mapping[str, str] | None = None

    @property
    def simulated(self) -> bool:
        return True

    @property
    def streams(self) -> Streams:
        return Streams(self.config.seed)

    @property
    def clients(self) -> int:
        return self.config.federation.clients

    @property
    def card(self) -> Card:
        return self.method.card

    @cached_property
    def device(self) -> str:
        return choose_device(self.config.device)

    @property
    def training(self) -> LocalConfig:
        found: LocalConfig = self.method.config
        return found

    @property
    def about(self) -> About:
        words = (self.partition.describe(), self.availability.describe())
        return About(dataset=self.dataset.title, clients=words, model=self.config.federation.model.name)

    @cached_property
    def dataset(self) -> Dataset:
        found: Dataset = plugin("datasets", self.config.locate_data(), "federation.dataset")
        return found

    @cached_property
    def data(self) -> Data:
        limits = self.config.federation
        data = share_result(
            ("data", repr(self.config.locate_data())), lambda: sound(self.dataset.load(), self.dataset.title)
        )
        data = replace(
            data,
            train=_draw_subset(data.train, limits.train_limit, self.streams, "train_limit"),
            test=_draw_subset(data.test, limits.test_limit, self.streams, "test_limit"),
            predicts=read_task(limits.model, "federation.model"),
        )
        return self._require_same("data", data, digests.of_data)

    @cached_property
    def partition(self) -> Partition:
        found: Partition = plugin("partitions", self.config.federation.partition, "federation.partition")
        return found

    @cached_property
    def availability(self) -> Availability:
        found: Availability = plugin(
            "availability", self.config.federation.availability, "federation.availability"
        )
        return found

    @cached_property
    def time_model(self) -> TimeModel | None:
        """The simulated clock, where the config names one or the method decides by time."""
        spec: str | PluginSpec = self.config.federation.time_model
        if isinstance(spec, str):
            if not self.card.timed:
                return None
            spec = PluginSpec(name="counted")
        devices: Devices = plugin("devices", spec, "federation.time_model")
        with fork_rng(devices=[]):  # construction draws weights that nobody uses
            net = self.make_net()
        return devices.time_model(net, self.data.shape, self.config.federation.clients, self.streams)

    @cached_property
    def population(self) -> Population:
        holdout = self.config.federation.holdout
        population = populate(
            self.data,
            self.partition,
            self.config.federation.clients,
            self.streams,
            auxiliary=holdout.auxiliary,
            reference=holdout.reference,
            server=holdout.server,
            own=(OWN if self.data.train.owner is not None else 0.0) if holdout.own is None else holdout.own,
        )
        if not any(map(len, population.parts)):
            raise UserError(
                f"no client of {self.dataset.title!r} has an example left: what the test part has as well and "
                "what is held out is not trained on",
                hint="give test examples that are no training examples, or a smaller federation.holdout",
            )
        return self._require_same("population", population, digests.of_population)

    def _require_same(self, name: str, value: T, digest: Callable[[T], str]) -> T:
        """`value`; raises UserError where the run was made with another."""
        if self.trained_on is not None and digest(value) != self.trained_on[name]:
            what = {"data": "the examples differ", "population": "other clients hold other examples"}[name]
            raise UserError(
                f"the data set {self.dataset.title!r} is not what this run was trained on: {what} (SHA-256)",
                hint="restore the data, or simulate again into a new folder: the truth would be wrong",
            )
        return value

    @cached_property
    def examples(self) -> Examples:
        population = self.population
        return Examples(
            parts=dict(enumerate(population.parts)),
            unseen={k: rows for k, rows in enumerate(population.own) if len(rows)},
            auxiliary=population.auxiliary,
            reference=population.reference,
            spare=population.server,
            auxiliary_kind=self.config.federation.holdout.auxiliary_kind,
        )

    def sampling(self, client: int | None) -> Drawn:
        """How a client comes to take part."""
        federation = self.config.federation
        if self.method.is_choosing("choose_candidates", "select"):
            return UNKNOWN
        return describe_drawing(
            self.availability, federation.clients, federation.empty_round, client, self._without
        )

    @cached_property
    def _without(self) -> int:
        """How many clients hold no example."""
        return sum(not len(part) for part in self.population.parts)

    @property
    def heard(self) -> Mapping[int, frozenset[int]] | None:
        """From the manifest; None before the run, or where it kept only some clients' messages."""
        return None if self.artifacts is None else read_arrivals(self.artifacts)

    @cached_property
    def method(self) -> RoundMethod:
        found: RoundMethod = plugin("methods", self.config.method, "method")
        return found

    @cached_property
    def aggregator(self) -> Aggregator:
        found: Aggregator = plugin("aggregators", self.config.aggregator, "aggregator")
        return found

    @cached_property
    def prototype_aggregator(self) -> Aggregator:
        found: Aggregator = plugin("aggregators", self.config.prototype_aggregator, "prototype_aggregator")
        return found

    @cached_property
    def compromise(self) -> Compromise:
        """Who is compromised, and by what."""
        if self.config.adversary is None:
            return Compromise()
        adversary: Adversary = plugin("adversaries", self.config.adversary, "adversary")
        return Compromise(adversary, adversary.choose_compromised_clients(self.clients, self.streams))

    @cached_property
    def protections(self) -> list[Protection]:
        return [
            plugin("protections", spec, f"protections[{i}]") for i, spec in enumerate(self.config.protections)
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

    @cached_property
    def make_net(self) -> "partial[Net]":
        """Builds the model; picklable, so that worker processes can."""
        adapters = self.config.federation.adapters
        if adapters is None:
            return self._make_whole
        seed = self.streams.key("adapters")
        return adapt_maker(self._make_whole, adapters, self._whole, self.method.folds_adapters, seed)

    @cached_property
    def _make_whole(self) -> "partial[Net]":
        """Builds the model without adapters."""
        model, schema = self.config.federation.model, self.data.schema
        pieces = None if schema is None else len(schema.pieces)
        return maker(model, self.data.shape, len(self.data.classes), "federation.model", pieces)

    @cached_property
    def _whole(self) -> State:
        """The weights of the model without adapters, before round 0: from the stream "model" or a base."""
        federation = self.config.federation
        asked = repr(federation.model), self.data.shape, len(self.data.classes), self.config.seed
        first = share_result(
            ("first model", *asked), lambda: state_of(initialise(self._make_whole, self.streams))
        )
        if federation.base is None:
            return first
        return make_base(federation.base, federation.dataset, self.data, self._make_whole, first)

    @property
    def parameters(self) -> int:
        return count_parameters(self.make_net, self.initial)

    def initial(self) -> State:
        """The weights every client starts from, drawn from the stream "model"."""
        if self.config.federation.adapters is not None:
            return state_of(initialise(self.make_net, self.streams))
        return {name: values.clone() for name, values in self._whole.items()}


def count_parameters(make_net: "partial[Net]", make: Callable[[], State]) -> int:
    """Numbers in the weights of a model; of one of ours the index keeps them, so that none is built for it."""
    key = name_model(make_net)
    if not key:
        return count(make())
    kept = index.recall("parameters", key)
    if isinstance(kept, int):
        return kept
    found = count(make())
    index.keep("parameters", key, found)
    return found


def name_model(make_net: "partial[Net]") -> str:
    """A model of ours with its shape and settings; empty for one of others, whose code can change."""
    cls, *rest = make_net.args
    return " ".join(map(repr, (cls.__qualname__, *rest))) if cls.__module__.startswith("fedaudit.") else ""


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


def plugin(kind: str, spec: PluginSpec, where: str) -> Any:
    """The configured plugin that one entry of the config names; `kind` is a shelf of the catalogue."""
    return configure(catalog.load(kind, spec.name), spec.settings, where)


def _draw_subset(arrays: Any, limit: int | None, streams: Streams, name: str) -> Any:
    """A random subset of `limit` examples; all where there is no limit."""
    if limit is None or limit >= len(arrays):
        return arrays
    chosen = streams.numpy(name).permutation(len(arrays))[:limit]
    chosen.sort()
    return arrays.take(chosen)
