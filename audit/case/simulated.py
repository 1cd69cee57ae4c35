"""A simulated case: from a config to the objects it names: data, population, model, method, protections.

Every phase that needs them builds them anew from the config and the seed; nothing but artifacts and
logs is carried between phases. Built data are the auditor's: an attack gets what Knowledge grants.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from torch.random import fork_rng

from fedaudit.audit.case.case import About, Participation, Split
from fedaudit.audit.case.data_digests import of_data, of_population
from fedaudit.audit.case.networks import read_task
from fedaudit.audit.case.plugins import build_plugin
from fedaudit.audit.case.simulated_network import SimulatedNetwork
from fedaudit.audit.settings.config import SimulatedConfig
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.aggregation.aggregator import Aggregator
from fedaudit.fl.clients.selection import Selection
from fedaudit.fl.clients.time_model import Devices, TimeModel
from fedaudit.fl.data.dataset import Data, Dataset, read_data
from fedaudit.fl.data.participation import UNKNOWN, Availability, Drawn, describe_drawing
from fedaudit.fl.data.partition import Partition
from fedaudit.fl.data.population import Population, populate
from fedaudit.fl.method import Card, LocalConfig, RoundMethod, is_bounded_by_training, select_by, send_stats
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.machine import choose_device
from fedaudit.fl.runtime.sharing import share_result
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.threats.adversary import Adversary
from fedaudit.fl.threats.compromise import Compromise, choose_compromised_clients
from fedaudit.fl.training.private import PrivateTraining, require_separable
from fedaudit.fl.wire.protection import Protection

T = TypeVar("T")
OWN = 0.1  # share of an owner's examples that its client does not train on


@dataclass(frozen=True)
class SimulatedCase:
    """Everything one config describes, built on demand: a case of which nothing is unknown.

    `artifacts`, the folder of the recorded messages, is None before the run. `trained_on` are the digests
    that a run left of its data and population, none before it: others are refused.
    """

    config: SimulatedConfig
    artifacts: Path | None = None
    trained_on: Mapping[str, str] = field(default_factory=dict)

    @property
    def streams(self) -> Streams:
        return Streams(self.config.seed)

    @property
    def clients(self) -> int:
        return self.config.federation.clients

    @property
    def simulated(self) -> bool:
        return True

    @property
    def about(self) -> About:
        words = (self._partition.describe(), *self.participation.sentences)
        return About(
            dataset=self.dataset.title,
            clients=words,
            model=self.config.federation.model.name,
            is_invented=self.dataset.holds == "invented",
        )

    # Who has which data -----------------------------------------------------------------------

    @property
    def _named_data(self) -> PluginSpec:
        return self.config.locate_files(self.config.federation.dataset)

    @cached_property
    def dataset(self) -> Dataset:
        found: Dataset = build_plugin("datasets", self._named_data, "federation.dataset")
        return found

    @cached_property
    def data(self) -> Data:
        data = self._subset
        if data.columns is not None and data.is_scaled_by_clients:  # as the server does with their messages
            held = [data.train.x[rows] for rows in self.population.parts if len(rows)]
            data = replace(data, columns=data.columns.pool([data.columns.describe(x) for x in held]))
        return self._require_same("data", data, of_data)

    @cached_property
    def _subset(self) -> Data:
        federation = self.config.federation
        # hundreds of runs of a matrix are open together: they hold the same arrays
        key = ("subset", repr(self._named_data), *federation.limits, self.config.seed)
        data = share_result(key, self._draw_subset)
        return replace(data, task=read_task(federation.model, data.task, "federation.model"))

    def _draw_subset(self) -> Data:
        """Examples within the limits of the config."""
        data = share_result(("data", repr(self._named_data)), lambda: read_data(self.dataset))
        train, test = self.config.federation.limits
        return replace(
            data,
            train=_draw_examples(data.train, train, self.streams, "train_limit"),
            test=_draw_examples(data.test, test, self.streams, "test_limit"),
        )

    @cached_property
    def _partition(self) -> Partition:
        found: Partition = build_plugin("partitions", self.config.federation.partition, "federation.partition")
        return found

    @cached_property
    def population(self) -> Population:
        holdout = self.config.federation.holdout
        population = populate(
            self._subset,
            self._partition,
            self.config.federation.clients,
            self.streams,
            auxiliary=holdout.auxiliary,
            reference=holdout.reference,
            server=holdout.server,
            own=(OWN if self._subset.train.repeats_owners else 0.0) if holdout.own is None else holdout.own,
        )
        if not any(map(len, population.parts)):
            raise UserError(
                f"no client of {self.dataset.title!r} has an example left: what the test part has as well and "
                "what is held out is not trained on",
                hint="give test examples that are no training examples, or a smaller federation.holdout",
            )
        return self._require_same("population", population, of_population)

    def _require_same(self, name: str, value: T, digest: Callable[[T], str]) -> T:
        """`value`; raises UserError where the run was made with another."""
        if self.trained_on and digest(value) != self.trained_on[name]:
            what = {"data": "the examples differ", "population": "other clients hold other examples"}[name]
            raise UserError(
                f"the data set {self.dataset.title!r} is not what this run was trained on: {what} (SHA-256)",
                hint="restore the data, or simulate again into a new folder: the truth would be wrong",
            )
        return value

    @cached_property
    def examples(self) -> Split:
        population = self.population
        return Split(
            parts=dict(enumerate(population.parts)),
            unseen={k: rows for k, rows in enumerate(population.own) if len(rows)},
            auxiliary=population.auxiliary,
            reference=population.reference,
            spare=population.server,
        )

    # What clients run ---------------------------------------------------------------------------

    @cached_property
    def method(self) -> RoundMethod:
        found: RoundMethod = build_plugin("methods", self.config.method, "method")
        if getattr(self.dataset.config, "scaled_by", "public") == "clients":
            found.card = send_stats(found.card)
        if self.config.federation.selection is not None:
            spec = self.config.federation.selection
            select_by(found, build_plugin("selections", spec, "federation.selection"))
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
        require_separable(self.data.task)
        if not is_bounded_by_training(self.method):
            raise UserError(
                f"{private[0].title} does not bound what {self.method.card.title} sends: its clients use "
                "their data outside of local training too",
                hint="use fedavg, fedprox or another method that only averages trained models, or "
                "clip and noise the messages with dp_gaussian",
            )
        return private[0].training()

    @cached_property
    def network(self) -> SimulatedNetwork:
        return SimulatedNetwork(self.config, self.data, self.method.card.folds_adapters)

    @cached_property
    def device(self) -> str:
        return choose_device(self.config.device)

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
            net = self.network.make()
        return devices.time_model(net, self.data.input_shape, self.config.federation.clients, self.streams)

    # Who takes part, how the server combines, who works against it ------------------------------

    @cached_property
    def participation(self) -> Participation:
        return Participation(
            self.artifacts, self._availability, self._selection, self._describe_drawing, self._empty_round
        )

    @property
    def _selection(self) -> Selection:
        """Whom the method chooses; everybody where it has no rounds."""
        return self.method.selection if isinstance(self.method, RoundMethod) else Selection()

    @cached_property
    def _availability(self) -> Availability:
        found: Availability = build_plugin(
            "availability", self.config.federation.availability, "federation.availability"
        )
        return found.among(lambda: self.population.counts)

    def _describe_drawing(self, client: int | None) -> Drawn:
        if not self._selection.is_everybody:
            return UNKNOWN
        clients = self.config.federation.clients
        return describe_drawing(self._availability, clients, self._empty_round, client, self._without)

    @property
    def _empty_round(self) -> Literal["redraw", "skip"]:
        """What is done when nobody answers: a draw that is made again is nobody's own coin any more."""
        counted = any(p.central for p in self.protections)
        return self.config.federation.empty_round or ("skip" if counted else "redraw")

    @cached_property
    def _without(self) -> int:
        """How many clients hold no example."""
        return sum(not len(part) for part in self.population.parts)

    @cached_property
    def aggregator(self) -> Aggregator:
        found: Aggregator = build_plugin("aggregators", self.config.aggregator, "aggregator")
        return found

    @cached_property
    def compromise(self) -> Compromise:
        """Who is compromised, and by what."""
        if self.config.adversary is None:
            return Compromise()
        adversary: Adversary = build_plugin("adversaries", self.config.adversary, "adversary")
        return Compromise(adversary, choose_compromised_clients(adversary, self.clients, self.streams))


def _draw_examples(arrays: Any, limit: int | None, streams: Streams, name: str) -> Any:
    """A random subset of `limit` examples; all where there is no limit."""
    if limit is None or limit >= len(arrays):
        return arrays
    chosen = streams.numpy(name).permutation(len(arrays))[:limit]
    chosen.sort()
    return arrays.take(chosen)
