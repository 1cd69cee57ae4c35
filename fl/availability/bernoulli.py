"""Clients that answer at random: alike, for a while, in clusters, or while they are there."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.data.participation import Availability, Drawn, Participation
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne, AtLeastZero, Share
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.streams import Streams

PLUGINS = ("bernoulli", "persistent", "clustered", "leaving")


class Bernoulli(Availability):
    """Bernoulli: everybody is selected, and each client answers with probability p (V-B).

    ReBaFL, p in {0.1, 0.3, 0.5}. Clients and rounds are independent. A client's draw depends on its
    number only, not on who else is selected.
    """

    title = "Bernoulli availability"
    source = "ReBaFL"

    @settings
    class Config:
        p: Share = Field(
            default=0.5, description="probability that a client answers in a round; ReBaFL takes 0.1, 0.3 and 0.5"
        )

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        u = streams.numpy("participation", round, attempt).random(max(candidates, default=-1) + 1)
        return Participation(tuple(candidates), tuple(k for k in candidates if u[k] < self.config.p))

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("poisson", float(self.config.p))

    def describe(self) -> str:
        return f"each client answers with probability {self.config.p:g}, independently every round"


class Persistent(Bernoulli):
    """Persistent: clients answer at random, and who answers stays the same for s rounds (V-S).

    ReBaFL, s in {2, 5, 10, 20}. The Bernoulli pattern is drawn in rounds 0, s, 2s, ... and kept in
    between; s = 1 is Bernoulli exactly. An empty pattern that is drawn again is
    replaced for its whole period.
    """

    title = "Persistent availability"
    source = "ReBaFL"

    @settings
    class Config:
        p: Share = Field(default=0.5, description="probability that a client answers")
        period: AtLeastOne = Field(
            default=5, description="s: rounds for which who answers stays the same; ReBaFL takes 2, 5, 10 and 20"
        )

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        return super().draw(round - round % self.config.period, candidates, streams, attempt)

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("poisson", float(self.config.p), self.config.period)

    def describe(self) -> str:
        return (
            f"each client answers with probability {self.config.p:g}; who answers is drawn anew "
            f"every {self.config.period} rounds"
        )


class Clustered(Availability):
    """Clustered: groups of clients that answer often, sometimes or seldom (V-C).

    ReBaFL: five clusters that answer with probability 0.5, 0.5, 0.3, 0.3 and 0.2; client k is in cluster
    k mod 5, as in fl/partitions/clustered.py. Clients and rounds are independent.
    """

    title = "Clustered availability"
    source = "ReBaFL"

    @settings
    class Config:
        p: tuple[Share, ...] = Field(
            default=(0.5, 0.5, 0.3, 0.3, 0.2),
            min_length=1,
            description="probability that a client of each cluster answers; the default is the paper's",
        )

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        p = self.config.p
        u = streams.numpy("participation", round, attempt).random(max(candidates, default=-1) + 1)
        return Participation(tuple(candidates), tuple(k for k in candidates if u[k] < p[k % len(p)]))

    def sampling(self, client: int | None, clients: int) -> Drawn:
        p = self.config.p
        return Drawn("poisson", float(max(p) if client is None else p[client % len(p)]))

    def describe(self) -> str:
        listed = ", ".join(f"{p:g}" for p in self.config.p)
        return f"clients in {len(self.config.p)} clusters that answer with probability {listed}"


class Leaving(Bernoulli):
    """Leaving: some clients are away from one round to another; all others answer with probability p throughout.

    Of this project: what happens to a class whose only holders leave, and how soon it is learnt again. With the
    same p and seed, everybody else answers in the same rounds as under Bernoulli.
    """

    title = "Clients that leave and return"
    source = "ours"

    @settings
    class Config:
        p: Share = Field(default=1.0, description="probability that a client that is there answers")
        clients: tuple[AtLeastZero, ...] = Field(default=(), description="those that leave, by number")
        label: AtLeastZero | None = Field(
            default=None,
            description="number of a class: all who hold an example of it leave, in place of clients",
        )
        leave: AtLeastZero = Field(default=0, description="first round without them")
        back: AtLeastZero = Field(default=0, description="first round with them again")

        def __post_init__(self) -> None:
            if self.label is not None and self.back <= self.leave:
                raise UserError(
                    f"back must be after leave ({self.leave}), got {self.back}", hint="rounds are numbered from 0"
                )

    def among(self, count: Callable[[], NDArray[np.int64]]) -> Availability:
        label = self.config.label
        if label is None:
            return self
        counts = count()
        clients, classes = counts.shape
        if label >= classes:
            raise UserError(
                f"availability leaving: label must be below {classes}, the number of classes, got {label}",
                hint="classes are numbered from 0",
                key="federation.availability",
            )
        holders = tuple(int(k) for k in (counts[:, label] > 0).nonzero()[0])
        if not 0 < len(holders) <= clients / 2:
            raise UserError(
                f"{len(holders)} of {clients} clients hold class {label}; a class's only holders leave where "
                "they are at most half of the clients",
                hint="choose a partition by classes, such as {name: n_class_exhaustive, classes_per_client: 2}",
                key="federation.availability",
            )
        return Leaving(replace(self.config, clients=holders, label=None))

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        found = super().draw(round, candidates, streams, attempt)
        if not self.config.leave <= round < self.config.back:
            return found
        return Participation(found.selected, tuple(k for k in found.answering if k not in self.config.clients))

    def describe(self) -> str:
        away = ", ".join(map(str, self.config.clients)) or "none"
        return (
            f"each client answers with probability {self.config.p:g}; clients {away} are away from round "
            f"{self.config.leave} to {self.config.back - 1}"
        )
