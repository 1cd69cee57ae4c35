"""The contract of aggregators: what the server makes of a round's models, and who counts how much.

A rule is a function of what a round delivered: uploads with their clients and weights, the round, named streams,
and its own state from the round before. It gives one model, says whom it kept, and gives its new state, which
goes into the server's state and so into checkpoints. Every method whose server averages models uses the
federation's aggregator (fl/clients/delivery.py); what is not a model (losses, control variates, prototypes,
logit tables) it averages itself. `mean` streams and holds no upload; a RowRule sees all of them as rows of a
matrix.
"""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.aggregation.weighted_mean import WeightedMean
from fedaudit.fl.model import State
from fedaudit.fl.runtime.errors import BrokenPlugin, UserError
from fedaudit.fl.runtime.plugin import Plugin, load
from fedaudit.fl.runtime.records import require_returned
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import Tree

MOST_BYTES = 4 << 30  # of a round's uploads, held as rows


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a rule knows beside the uploads."""

    round: int
    name: str  # which of the method's models: "model", or for instance a cluster's number
    streams: Streams
    state: Tree  # what the rule returned for this model the last time
    parameters: Collection[str]  # other arrays are buffers, which no rule but the plain mean acts on; empty: all
    root: Mapping[str, Tensor] = field(default_factory=dict)  # the server's own change, where the rule wants one
    start: Mapping[str, Tensor] = field(default_factory=dict)  # what uploads are changes from; empty: of nothing
    head: Collection[str] = ()  # parameters of the last layer
    columns: Mapping[str, slice] = field(default_factory=dict)  # of rows: where each parameter stands
    few: bool = False  # rows of one class, of which there may be fewer than the rule needs

    def generator(self) -> torch.Generator:
        """The rule's own stream for this model and round."""
        return self.streams.torch("aggregator", self.name, self.round)


class Aggregation:
    """One model in the making: add() each upload, then value(); `kept` and `state` are set by then."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.total = 0.0  # sum of the weights added
        self.state: Tree = context.state
        self.kept: dict[int, float] = {}  # client -> weight the rule gave it; empty: everybody's own
        self.is_short = False  # of uploads: fewer came than the rule needs

    @abstractmethod
    def add(self, client: int, upload: Mapping[str, Tensor], weight: float, start: Mapping[str, Tensor]) -> None:
        """An upload: a model trained from `start`, or a change, with start {}."""

    @abstractmethod
    def value(self) -> State:
        """The model, or the change; raises ZeroDivisionError where the weights sum to 0."""


class Aggregator(Plugin):
    """A rule. Plugins are files of fl/aggregators/."""

    title: str
    source: str = ""
    reads_single_uploads = True  # the server has to see each upload by itself
    by_class = False  # works on the few prototypes of a class as well
    needs_root = False  # wants the change that the server's own examples make of the model
    of_one = False  # says something about a single upload
    nonexpansive = False  # of two weighted means it makes models that lie no further apart

    @abstractmethod
    def begin(self, context: Context) -> Aggregation:
        """A new aggregation; the rule itself keeps nothing."""

    @property
    def of_prototypes(self) -> "Aggregator":
        """The rule for prototypes, class by class."""
        return mean()


@dataclass(frozen=True, kw_only=True)
class Combined:
    """What a RowRule makes of a round."""

    change: Tensor  # [P] to be added to the model before
    kept: Mapping[int, float]  # client -> weight
    state: Tree = field(default_factory=dict)


TooFew = Literal["skip", "median", "stop"]


class RowRule(Aggregator):
    """A rule over all uploads at once; refused where these would take more than 4 GiB."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        too_few: Annotated[
            TooFew,
            Field(
                description="what becomes of a round with fewer uploads than the rule needs: skip (the model "
                "stays), median (of each weight, of those that came), or stop (the run ends with an error)"
            ),
        ] = "skip"

    def needs(self, heard: int) -> int:
        """The fewest uploads it works on, where `heard` came; a rule may assume a share of them malicious."""
        return 1

    def check_clients(self, clients: int) -> None:
        """Raises UserError where that many clients, all of them heard, are too few in every round."""
        if (least := self.needs(clients)) > clients:
            raise UserError(
                f"{self.title} as set needs {least} uploads a round, and {clients} clients hold data",
                hint="assume fewer malicious clients (f), or have more clients",
                key="aggregator",
            )

    @abstractmethod
    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        """rows [n, P] float32: what each client changed; weights [n] float64, as the method gave them."""

    def begin(self, context: Context) -> Aggregation:
        return _Rows(self, context)


class _Rows(Aggregation):
    def __init__(self, rule: RowRule, context: Context) -> None:
        super().__init__(context)
        self._rule = rule
        self._rows = torch.empty(0, 0)  # with room for more than have come, which takes no memory yet
        self._rest: list[Mapping[str, Tensor]] = []  # the uploads' buffers
        self._rest_before: list[Mapping[str, Tensor]] = []  # what these were, or no change
        self._clients: list[int] = []
        self._weights: list[float] = []
        self._starts = WeightedMean()
        self._start: Mapping[str, Tensor] = {}  # of the last uploads, of this weight together
        self._together = 0.0
        self._like: Mapping[str, Tensor] = {}  # the parameters of an upload, for names, shapes and precision

    def add(self, client: int, upload: Mapping[str, Tensor], weight: float, start: Mapping[str, Tensor]) -> None:
        known = self.context.parameters
        own = {k: v for k, v in upload.items() if v.is_floating_point() and (not known or k in known)}
        size = 4 * sum(v.numel() for v in own.values())
        if (len(self._clients) + 1) * size > MOST_BYTES:
            raise UserError(
                f"{self._rule.title} needs all uploads of a round at once: {len(self._clients) + 1} of "
                f"{size / 2**20:.0f} MiB are more than {MOST_BYTES >> 30} GiB",
                hint="use aggregator: mean, a smaller model, or fewer clients a round",
            )
        self.total += weight
        row, at = self._take_row(size // 4), 0
        for k, v in own.items():
            base = start[k] if start else None
            if base is None or v.dtype == base.dtype == torch.float32:  # whose difference rounds as in double
                change = v if base is None else v - base
            else:
                change = v.double() - base.double()
            row[at : at + v.numel()] = change.flatten()
            at += v.numel()
        self._note_start({k: start[k] for k in own} if start else {}, weight)
        rest = {k: v for k, v in upload.items() if k not in own}
        self._rest.append(rest)
        self._rest_before.append({k: start[k] if k in start else torch.zeros_like(v) for k, v in rest.items()})
        self._clients.append(client)
        self._weights.append(weight)
        self._like = own

    def _note_start(self, start: Mapping[str, Tensor], weight: float) -> None:
        """Note what an upload is a change from; most often it is what the one before is."""
        same = start.keys() == self._start.keys() and all(v is self._start[k] for k, v in start.items())
        if not same:
            self._starts.add(self._start, self._together)
        self._start, self._together = start, weight + (self._together if same else 0.0)

    def _take_row(self, size: int) -> Tensor:
        """The row of the next upload, of `size` numbers."""
        n = len(self._clients)
        if n and size != self._rows.shape[1]:
            raise ValueError(f"uploads of one model have {self._rows.shape[1]} and {size} weights")
        if n == len(self._rows):
            grown = torch.empty(max(8, 2 * n), size)
            if n:
                grown[:n] = self._rows
            self._rows = grown
        return self._rows[n]

    def value(self) -> State:
        if not self.total:
            raise ZeroDivisionError("no uploads, or only such of weight zero")
        heard, rule = len(self._clients), self._choose_rule()
        weights = torch.tensor(self._weights, dtype=torch.float64)
        ends = list(accumulate(v.numel() for v in self._like.values()))
        starts = [0, *ends[:-1]]
        columns = {k: slice(*ab) for k, ab in zip(self._like, zip(starts, ends, strict=True), strict=True)}
        root = {k: self.context.root[k] for k in self._like if self.context.root}
        self._starts.add(self._start, self._together)
        before = self._starts.value()
        context = replace(self.context, root=root, columns=columns, start=before)
        rows, clients = self._rows[:heard], tuple(self._clients)
        combined = (
            rule.combine(rows, weights, clients, context)
            if rule is not None
            else Combined(change=torch.zeros(ends[-1]), kept=dict.fromkeys(clients, 0.0))
        )
        require_returned(rule, RowRule, "combine", combined)
        made = combined.change
        if made.shape != (ends[-1],) or not bool(torch.isfinite(made).all()):
            finite = "all finite" if bool(torch.isfinite(made).all()) else "some of them not finite"
            raise BrokenPlugin(
                f"{self._rule.title} makes numbers of shape {list(made.shape)}, {finite}, of the uploads of "
                f"round {context.round}; expected [{ends[-1]}], all finite: the change of each weight",
                hint="combine() gives one number for each column of its rows",
                key="aggregator",
            )
        self.state, self.kept = combined.state, dict(combined.kept)  # an empty state leaves the last one
        buffers, model = WeightedMean(), {}
        for name, like in self._like.items():
            change = made[columns[name]].reshape(like.shape).double()
            model[name] = (before[name].double() + change if name in before else change).to(like.dtype)
        for client, rest in zip(self._clients, self._rest, strict=True):
            if weight := self.kept.get(client):
                buffers.add(rest, weight)
        if not buffers.total:  # nobody is kept: they stay as they were
            for rest, weight in zip(self._rest_before, self._weights, strict=True):
                buffers.add(rest, weight)
        return model | buffers.value()

    def _choose_rule(self) -> RowRule | None:
        """The rule for as many uploads as came; None: the round is skipped. Raises UserError where it stops."""
        rule, heard = self._rule, len(self._clients)
        least = rule.needs(heard)
        if heard >= least:
            return rule
        too_few: TooFew = "median" if self.context.few else getattr(rule.config, "too_few", "skip")
        if too_few == "stop":
            raise UserError(
                f"{rule.title} as set needs {least} uploads a round, round {self.context.round} has {heard}",
                hint="assume fewer malicious clients (f), have more clients answer, or set too_few: skip",
                key="aggregator",
            )
        self.is_short = not self.context.few
        return load("fedaudit.fl.aggregators", "median", RowRule)() if too_few == "median" else None


def mean() -> Aggregator:
    """The rule where a config names none."""
    return load("fedaudit.fl.aggregators", "mean", Aggregator)()


@dataclass
class Averages:
    """The aggregations of one round, and the rule's state for each of the method's models."""

    rule: Aggregator
    round: int
    streams: Streams
    state: Tree = field(default_factory=dict)  # name -> the rule's state before this round
    parameters: Collection[str] = ()
    root: Mapping[str, Tensor] = field(default_factory=dict)
    head: Collection[str] = ()
    _begun: dict[str, Aggregation] = field(default_factory=dict)

    def begin(self, name: str = "model") -> Aggregation:
        """One of the method's models; a name is used once a round."""
        assert name not in self._begun, f"{name} is averaged twice in a round"
        self._begun[name] = self.rule.begin(self.context(name))
        return self._begun[name]

    def begin_anew(self) -> "Averages":
        """The same round's, with nothing begun."""
        return replace(self, _begun={})

    def prototype(self, label: int) -> Aggregation:
        """The prototype of one class, by the rule for prototypes: rows of features, weighted by counts."""
        context = replace(self.context(f"prototype/{label}"), state={}, parameters=(), few=True)
        return self.rule.of_prototypes.begin(context)

    def context(self, name: str) -> Context:
        """What the rule knows of one of the method's models."""
        return Context(
            round=self.round,
            name=name,
            streams=self.streams,
            state=self.state.get(name, {}),
            parameters=self.parameters,
            root=self.root,
            head=self.head,
        )

    def entries(self) -> Tree:
        """What goes into the server's state: nothing, where the rule has no state."""
        states = self.state | {name: a.state for name, a in self._begun.items() if a.state}
        return {"aggregator": states} if states else {}

    def get_client_weights(self) -> dict[str, dict[int, float]]:
        """Model -> client -> weight, for the metrics; empty where everybody's own weight counts."""
        return {name: a.kept for name, a in self._begun.items() if a.kept}

    def short(self) -> list[str]:
        """The models for which fewer uploads came than the rule needs."""
        return [name for name, a in self._begun.items() if a.is_short]
