"""Who has which data in a simulation: the data set, its partition, and what is held out of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from fedaudit.audit.case.case import Examples
from fedaudit.audit.case.data_digests import of_data, of_population
from fedaudit.audit.case.networks import read_task
from fedaudit.audit.case.plugins import build_plugin
from fedaudit.audit.settings.config import SimulatedConfig
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.data.dataset import Data, Dataset, read_data
from fedaudit.fl.data.partition import Partition
from fedaudit.fl.data.population import Population, populate
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.sharing import share_result
from fedaudit.fl.runtime.streams import Streams

T = TypeVar("T")
OWN = 0.1  # share of an owner's examples that its client does not train on


@dataclass(frozen=True)
class FromConfig:
    """What one config describes, built on demand.

    `artifacts`, the folder of the recorded messages, is None before the run. `trained_on` are the digests
    that a run left of its data and population: others are refused.
    """

    config: SimulatedConfig
    artifacts: Path | None = None
    trained_on: Mapping[str, str] | None = None

    @property
    def streams(self) -> Streams:
        return Streams(self.config.seed)

    @property
    def clients(self) -> int:
        return self.config.federation.clients


class SimulatedData(FromConfig):
    """Who has which data."""

    @property
    def _named_data(self) -> PluginSpec:
        return self.config.locate_files(self.config.federation.dataset)

    @cached_property
    def dataset(self) -> Dataset:
        found: Dataset = build_plugin("datasets", self._named_data, "federation.dataset")
        return found

    @cached_property
    def data(self) -> Data:
        federation = self.config.federation
        limits = federation.train_limit, federation.test_limit
        # hundreds of runs of a matrix are open together: they hold the same arrays
        data = share_result(("subset", repr(self._named_data), *limits, self.config.seed), self._draw_subset)
        data = replace(data, predicts=read_task(federation.model, "federation.model"))
        return self._require_same("data", data, of_data)

    def _draw_subset(self) -> Data:
        """Examples within the limits of the config."""
        data = share_result(("data", repr(self._named_data)), lambda: read_data(self.dataset))
        limits = self.config.federation
        return replace(
            data,
            train=_draw_examples(data.train, limits.train_limit, self.streams, "train_limit"),
            test=_draw_examples(data.test, limits.test_limit, self.streams, "test_limit"),
        )

    @cached_property
    def partition(self) -> Partition:
        found: Partition = build_plugin("partitions", self.config.federation.partition, "federation.partition")
        return found

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
        return self._require_same("population", population, of_population)

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


def _draw_examples(arrays: Any, limit: int | None, streams: Streams, name: str) -> Any:
    """A random subset of `limit` examples; all where there is no limit."""
    if limit is None or limit >= len(arrays):
        return arrays
    chosen = streams.numpy(name).permutation(len(arrays))[:limit]
    chosen.sort()
    return arrays.take(chosen)
