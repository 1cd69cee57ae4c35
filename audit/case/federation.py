"""A simulation that runs: from a case to who holds what, a worker's side, and the server's."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch.random import fork_rng

from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.fl.data.partition import Index
from fedaudit.fl.data.scale import normalise
from fedaudit.fl.execution.site import Site, build_site
from fedaudit.fl.federation import Federation, Holdings
from fedaudit.fl.model import State, state_of
from fedaudit.fl.recording.checkpoint import Checkpoints
from fedaudit.fl.runtime.durable import Log
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.workers import InProcess, Workers
from fedaudit.fl.training.batches import find_smallest_batch
from fedaudit.fl.wire.wire import Wire


@dataclass(frozen=True)
class Simulation:
    """The federation of a case, at work."""

    case: SimulatedCase

    @cached_property
    def holdings(self) -> Holdings:
        """Who holds what."""
        population = self.case.population
        return Holdings(
            self.case.data, population.parts, self.case.streams, population.server, self.case.time_model
        )

    def make_site(self, holdings: Holdings) -> "partial[Site]":
        """What makes a worker's side of the federation over these holdings, on whichever machine."""
        return partial(
            build_site,
            self.case.method,
            holdings,
            self.case.network.make,
            self.case.device,
            self.case.private,
            self.case.compromise,
        )

    def refuse_unfit(self) -> None:
        """Raise UserError for what a run refuses before its first round; nothing trains, and no base is read."""
        _ = self.case.device
        method, holdings = copy(self.case.method), self.holdings  # the method learns of the network
        with fork_rng(devices=[]):
            make, initial = self.case.network.make_untrained, state_of(self.case.network.blank)
            site = partial(build_site, method, holdings, make, "cpu", self.case.private, self.case.compromise)
            with InProcess(site) as workers:
                wire = Wire(self.case.card, self.case.streams, self.case.protections)
                method.open(self.build(holdings, wire, workers, initial=initial))

    def _refuse_lone_examples(self, parts: Sequence[Index], workers: Workers) -> None:
        """Raise UserError where a client has a batch of a single example, on which the network cannot train."""
        each = self.case.training.batch_size == 1
        lone = next((k for k, rows in enumerate(parts) if len(rows) == 1 or (each and len(rows))), None)
        if lone is None:
            return
        x = normalise(torch.from_numpy(self.case.data.train.x[parts[lone][:1]]), self.case.data)
        if max(workers.map("inspect", [partial(find_smallest_batch, x=x)])) > 1:
            other = (
                "take fewer clients, another partition, or group normalisation in place of batch normalisation"
            )
            raise UserError(
                f"client {lone} trains on a batch of one example, and the model's batch normalisation needs two",
                hint="set method.batch_size to 2 or more" if each else other,
                key="method.batch_size" if each else "federation.partition",
            )

    def build(
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
        """Over these holdings, from the case's own weights or `initial`.

        Without `metrics` and `checkpoints` nothing is kept on disk. Raises UserError where the network cannot
        train on what a client holds.
        """
        self._refuse_lone_examples(holdings.parts, workers)
        config, federation = self.case.config, self.case.config.federation
        availability = self.case.participation.availability
        assert availability is not None
        return Federation(
            holdings=holdings,
            initial=self.case.network.initial() if initial is None else initial,
            availability=availability,
            aggregator=self.case.aggregator,
            compromise=self.case.compromise,
            wire=wire,
            workers=workers,
            metrics=metrics,
            checkpoints=checkpoints,
            empty_round=self.case.participation.empty_round,
            failures=federation.failures,
            evaluate_every=config.evaluate_every,
            progress=progress,
        )
