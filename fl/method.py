"""The contracts of a federated-learning method.

Most algorithms are rounds: derive from RoundMethod and override two or three hooks. Methods with phases,
mediators or an event queue derive from Method, write run(federation), and still send through the wire.

Two rules keep audits honest. What a client's function returns is all that leaves it; and a client
returns its new memory instead of storing it, so that memory advances only if the message was
delivered (a lost reply never advances a control variate).
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from fedaudit.fl.clients.client import Client, Reply, count_of
from fedaudit.fl.clients.combining import choose_reader, combine_arrivals
from fedaudit.fl.clients.delivery import Deliveries, Delivery, find_reference, read_model, read_sample_count
from fedaudit.fl.clients.selection import Choice, Selection, is_blind
from fedaudit.fl.clients.time_model import Workload
from fedaudit.fl.federation import Federation, Tally
from fedaudit.fl.kinds import TRAINED, Kind
from fedaudit.fl.model import Net, State, head_names
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import Plugin
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne, AtLeastZero, BelowOne
from fedaudit.fl.runtime.records import require_returned
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.task import Task
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.threats.rehearsal import Job
from fedaudit.fl.training.local import Constants, Handle, Params, Trained, count_epochs, is_of_network
from fedaudit.fl.wire.protection import Message, Payload

Owned = Iterator[tuple[int, State]]  # models with their owners


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a method is and sends: for `fedaudit tools list methods`, the wire and the report."""

    title: str
    source: str  # identifier and algorithm number
    text: str  # one or two sentences for a reader outside the field
    downlink: tuple[Kind, ...] = (Kind.GLOBAL_MODEL,)
    uplink: tuple[Kind, ...] = (Kind.LOCAL_MODEL, Kind.NUM_EXAMPLES)
    relay: tuple[Kind, ...] = ()
    release: tuple[Kind, ...] = (Kind.GLOBAL_MODEL,)
    timed: bool = False  # decides by the simulated clock, so that a federation without one gets one
    collects: bool = True  # a round's replies come together, so that clients can collude on them
    needs_sgd: bool = False  # reads gradients off the length of SGD's steps
    folds_adapters: bool = False  # the server adds adapters to the weights below them
    needs: Literal["", "classes"] = ""  # of the task; "classes": each example is of one class
    selection: type[Selection] = Selection  # who is chosen, where the config says nothing else
    counts_made: bool = False  # num_examples counts examples that clients made or repeated, or leaves out some
    observed: ClassVar[tuple[Kind, ...]] = (Kind.TASK_TIME,)  # of all methods, where there is a clock

    @property
    def trained(self) -> Kind:
        """What a client's trained weights are sent as."""
        return Kind.ADAPTER if Kind.ADAPTER in self.uplink else Kind.LOCAL_MODEL


def send_stats(card: Card) -> Card:
    """The card of a method in a federation whose clients say what their columns are like before its rounds."""
    up, down = ((*kinds, Kind.FEATURE_STATS) for kinds in (card.uplink, card.downlink))
    return replace(card, uplink=up, downlink=down)


def choose_by(card: Card, selection: type[Selection]) -> Card:
    """The card of a method whose clients are those that a selection chooses."""
    up = (*card.uplink, *(kind for kind in selection.asks if kind not in card.uplink))
    return replace(card, selection=selection, uplink=up, timed=card.timed or selection.timed)


def require_task(card: Card, task: Task) -> None:
    """Raise UserError where a method means nothing for what is wanted of the network."""
    if card.needs == "classes" and not task.has_classes:
        raise UserError(
            f"{card.title} is made for classes, and the task of the data is {task!r}: {task.words}",
            hint="choose fedavg, or another method whose card needs no classes",
            key="method",
        )


class Method(Plugin):
    """Anything that can be run over a federation."""

    card: Card

    @abstractmethod
    def run(self, federation: Federation) -> State:
        """Run to the end, sending through federation.wire; returns the released model."""


@settings
class LocalConfig:
    """Settings of local training, common to all methods (fl/training/local.py has the loop)."""

    rounds: AtLeastOne = Field(default=20, description="rounds of the federation")
    local_epochs: AtLeastZero = Field(default=5, description="E: passes of a client over its data in a round")
    batch_size: AtLeastOne = Field(default=50, description="B: examples in a batch of local training")
    lr: Amount = Field(default=0.01, description="eta: step size of local training in round 0")
    optimiser: Literal["sgd", "adam", "adamw"] = Field(
        default="sgd", description="of local training; momentum is that of sgd alone"
    )
    momentum: BelowOne = Field(default=0.0, description="rho: momentum of local SGD; 0 is plain SGD")
    weight_decay: Amount = Field(
        default=0.0, description="L2 penalty that local SGD adds to the gradient; 0 switches it off"
    )
    grad_clip: Amount = Field(
        default=0.0, description="largest L2 norm of a batch's gradient; 0 means no clipping"
    )
    lr_decay: Amount = Field(
        default=1.0, description="the step size of round t is lr * lr_decay ** t; 1 keeps it constant"
    )
    weighting: Literal["samples", "uniform"] = Field(
        default="samples",
        description="how the server weights clients: by their numbers of examples, or all alike",
    )


class RoundMethod(Method):
    """A method of rounds: its server, its clients in their workers, and the loop that calls both.

    The defaults are those of FedAvg. Empty rounds, lost replies and clients without data are handled here, once.
    """

    parameters: tuple[str, ...]  # names of the network's
    head: tuple[str, ...]  # those of its last layer
    classes: int
    selection: Selection

    @settings
    class Config(LocalConfig):
        pass

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        own = self.card.selection  # by the method's settings where these are its own too
        self.selection = own(self.config) if issubclass(self.Config, own.Config) else own()

    # Server ---------------------------------------------------------------------------------------

    def open(self, federation: Federation) -> None:
        """Before the first round: check the settings, and tell server and workers of the model."""
        require_task(self.card, federation.public.task)
        _require_rounds(self, self.selection)
        kind = getattr(self.config, "optimiser", "sgd")
        if kind != "sgd" and self.card.needs_sgd:
            raise UserError(
                f"{self.card.title} reads gradients off what SGD did, and method.optimiser is {kind}",
                hint="use optimiser: sgd",
                key="method.optimiser",
            )
        if (central := federation.wire.chain.central) and not is_only_averaging(self):
            raise UserError(
                f"{central.title} cannot protect {self.card.title} as set: its server does more than take "
                "the unweighted mean of the models that come back",
                hint="use fedavg, fedprox or another method that only averages, with weighting: uniform",
            )
        sent = (*self.card.uplink, *self.card.relay)
        federation.compromise.check(self.card.title, sent, self.card.collects, federation.public.task)
        if federation.aggregator.needs_root and not self.card.collects:
            raise UserError(
                f"{federation.aggregator.title} needs a round that begins with one model for all, and "
                f"{self.card.title} has none",
                hint="use fedavg, or another aggregator",
                key="aggregator",
            )
        # The server knows the architecture, and with it the names of the parameters
        [(self.parameters, self.head)] = federation.workers.map("names", [None])
        self.classes = federation.public.classes
        federation.begin_with(federation.initial)

    def start(self, federation: Federation) -> Tree:
        """Return the server's state before round 0.

        Its entry "handed" is what every client was sent before the rounds, and has at hand in all of them.
        """
        return {"model": federation.initial}

    def broadcast(self, state: Tree) -> Message:
        """Return what the server sends to every selected client."""
        return {Kind.GLOBAL_MODEL: state["model"]}

    def send_to(self, state: Tree, client: int) -> Message:
        """Return what the server sends to one client besides, once it chose who trains; usually nothing."""
        return {}

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        """Return the server's new state from what arrived, one delivery at a time; never called with nobody."""
        return state | {"model": deliveries.average_models(state["model"], self.config.weighting)}

    def get_model(self, state: Tree) -> State:
        """Return the model that is evaluated and released; empty where a method has no global model."""
        model: State = state["model"]
        return model

    def get_client_models(self, state: Tree, memory: Mapping[int, Tree], t: int, federation: Federation) -> Owned:
        """Yield the models that clients use themselves, with their owners, where these are not the global model.

        They are states of the federation's model, or of what `prepare` returns.
        """
        return iter(())

    # Client ---------------------------------------------------------------------------------------

    def prepare(self, net: Net, classes: int) -> Net:
        """Return what clients train: the federation's model, or a network around it.

        Called once in every worker before the first round; see also open() for the server.
        """
        self.head = head_names(net)
        self.parameters = tuple(k for k, _ in net.named_parameters())
        self.classes = classes
        return net

    def receive(self, client: Client) -> Client:
        """Called first for every job: complete or replace what arrived (private layers, a choice)."""
        return client

    def train(self, client: Client) -> Reply:
        """Train locally, then finish()."""
        return finish(self, client, client.train(self, self.compute_constants(client)))

    def compute_constants(self, client: Client) -> Constants:
        """Return tensors that the loss needs for this client, of the same shapes for every client."""
        return {}

    def is_trainable(self, name: str) -> bool:
        """Whether clients train this parameter."""
        return True

    @is_of_network
    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        """Mean loss of a batch, x, y [b, ...]; a pure function. `net.weights` are the current weights."""
        return net.loss(x, y)

    def correct(self, grads: Params, params: Params, start: Params, const: Constants) -> Params:
        """Return the gradient really stepped along; a pure function. `start` is the round's first model."""
        return grads

    def after_step(self, params: Params, const: Constants, rate: float) -> Params:
        """Weights that a second move after the optimiser's step, outside its momentum, leads to; usually none.

        Elementwise in `params` and `const`, whose tensors may carry a leading dimension of stacked clients.
        """
        return {}

    def finish(self, client: Client, trained: Trained) -> Reply:
        """Return what leaves the client after training."""
        n = len(client.y)
        message: Message = {self.card.trained: trained.state}
        if self.config.weighting == "samples":  # nobody else asks for the number
            message[Kind.NUM_EXAMPLES] = count_of(n)
        return Reply(
            message=message, examples=n, stats={"train_loss": trained.loss, "steps": float(trained.steps)}
        )

    def estimate_cost(self, client: int, sent: Message, examples: int, workload: Workload) -> float:
        """Return the seconds of the profile that a client's training took for each example, in a round."""
        return count_epochs(self.config, examples) * workload.profile[0]

    # The loop -------------------------------------------------------------------------------------

    def run(self, federation: Federation) -> State:
        saved = federation.restore()
        self.open(federation)
        state: Tree = self._start(federation) if saved is None else saved.state
        federation.keep(state.get("handed", {}))
        memory: dict[int, Tree] = {} if saved is None else saved.memory
        for t in range(0 if saved is None else saved.round, self.config.rounds):
            if t == self.config.rounds - 1:
                federation.wire.records.mark_milestone(t)
            state = self.round(t, state, memory, federation)
            own = partial(self.get_client_models, state, memory, t, federation)
            federation.end_round(t, self.config.rounds, self.get_model(state), state, memory, own)
        return federation.finish(self.config.rounds, self.card, self.get_model(state), state, memory)

    def _start(self, federation: Federation) -> Tree:
        state = self.start(federation)
        of_their_own = overrides(self, ("broadcast", "get_model"))
        if not isinstance(state, Mapping) or not ("model" in state or of_their_own):
            what = "a state without a model" if isinstance(state, Mapping) else "no state"
            raise UserError(
                f"{type(self).__name__}.start() returns {what}, and the first round sends the model of it",
                hint="end it with return super().start(federation) | {...}",
                key="method.name",
            )
        kept = self.selection.start(Choice(self, federation, state, 0))
        return {**state, "selection": kept} if kept else state

    def round(self, t: int, state: Tree, memory: dict[int, Tree], federation: Federation) -> Tree:
        """One round: the new server state. `memory` gains what delivered clients remember."""
        choice = Choice(self, federation, state, t, memory=memory)
        candidates = self.selection.choose_candidates(choice)
        selected, answering = federation.participate(t, candidates, not self.selection.is_everybody)
        if not is_blind(self.selection):
            federation.wire.accounts.enter_selection(t)
        tally = Tally(selected=len(selected))
        tally.waited, notes = federation.attendance.ask_all(t, answering)
        tally.notes |= notes
        message = federation.wire.broadcast(t, self.broadcast(state), selected)
        federation.workers.everywhere("begin", t, message)
        chosen, learnt = self.selection.select(replace(choice, message=message), answering)
        answering, during = tuple(chosen), state | learnt
        personal = {k: m for k in selected if (m := self.send_to(during, k))}
        for k, extra in personal.items():
            federation.wire.downlink(t, extra, k)

        def job(k: int) -> Job:
            return k, memory.get(k, {}), personal.get(k, {})

        averages = federation.averages(
            t, state, self.parameters, self.head, _train_root(self, message, federation)
        )
        reader = choose_reader(self, federation.wire)
        tampering = federation.tampering(averages, during, message, reader, job)

        def base(k: int, sent: Message) -> Message:
            return find_reference(message | personal.get(k, {}), sent)

        def arriving() -> Iterator[Delivery]:
            replies: Iterator[Reply] = federation.workers.map("train", [job(k) for k in answering])
            for k, reply in tampering.replies(zip(answering, replies, strict=True), base):
                if not federation.attendance.is_heard(t, k):
                    tally.lost += 1  # trained, never heard; its memory stays
                    continue
                own = memory.get(k, {}) if reply.memory is None else reply.memory
                kept = dict(memory.get(k, {}).get("protections", {}))
                received = federation.wire.uplink(t, reply.message, k, base(k, reply.message), memory=kept)
                if received is None:
                    tally.rejected += 1
                    continue
                if own or kept:
                    memory[k] = own | {"protections": kept} if kept else own
                tally.heard.add(k)
                tally.add(received, reply.examples, reply.stats)
                down = message | personal.get(k, {})
                cost = partial(reader.estimate_cost, k, received, reply.examples)
                tally.times[k] = federation.clock.measure(t, k, down, received, reply.examples, cost)
                if federation.clock.model is not None:
                    federation.wire.observe(t, k, tally.times[k], down, received)
                examples = read_sample_count(received, reply.examples)
                yield Delivery(client=k, message=received, examples=examples, time=tally.times[k])

        arrivals = arriving()
        first, new = next(arrivals, None), state
        if first is not None:  # with nobody heard, the state stays as it is
            come = chain([first], arrivals)
            new, averages = combine_arrivals(self, reader, during, come, averages, federation.wire)
            new = {k: v for k, v in new.items() if k not in learnt} | averages.entries() | tampering.entries()
            tally.note(averages, tampering.notes())
        if federation.wire.chain.central:
            heard, clients = tally.delivered, len(federation.parts)
            mean = federation.wire.average(t, state["model"], new["model"], heard, clients)
            new = new | {"model": mean}
        kept = self.selection.remember(replace(choice, state=during), candidates, tally.heard)
        federation.tally = tally
        return {**new, "selection": kept} if kept else new


def finish(method: RoundMethod, client: Client, trained: Trained) -> Reply:
    """What leaves the client, by the method's finish(); raises UserError where that returns another thing."""
    reply = method.finish(client, trained)
    require_returned(method, RoundMethod, "finish", reply)
    return reply


def is_stackable(method: type[Plugin]) -> bool:
    """Whether its clients can train as one batch on an accelerator: they train as all do."""
    return issubclass(method, RoundMethod) and method.train is RoundMethod.train


def is_bounded_by_training(method: RoundMethod) -> bool:
    """Whether the model a client sends depends on its data through the shared loop alone.

    Only then does DP-SGD bound what the model tells of a record: a loss with the client's class
    counts in it, or weights changed after training, would go round it.
    """
    return not overrides(method, ("train", "finish", "compute_constants", "receive"))


def is_only_averaging(method: RoundMethod) -> bool:
    """Whether all that a round does to the model is to replace it by the unweighted mean.

    Only then can a central protection noise that mean once, at the server, for all clients.
    """
    hooks = ("run", "round", "start", "broadcast", "send_to", "combine", "get_model")
    sent = {*method.card.uplink, *method.card.downlink, *method.card.relay}
    known = {Kind.GLOBAL_MODEL, *TRAINED, Kind.NUM_EXAMPLES}
    plain = method.selection.is_everybody and not overrides(method, hooks)
    return plain and sent <= known and method.config.weighting == "uniform"


def overrides(method: RoundMethod, hooks: Iterable[str]) -> bool:
    """Whether the method's class, or the method itself, has one of these hooks of its own."""
    return any(h in vars(method) or getattr(type(method), h) is not getattr(RoundMethod, h) for h in hooks)


def select_by(method: Method, selection: Selection) -> None:
    """Have the rounds of a method be of the clients that a selection chooses.

    Raises UserError where the method has no rounds to choose for, or chooses its clients itself.
    """
    _require_rounds(method, selection)
    if not isinstance(method, RoundMethod) or not method.selection.is_everybody:
        raise UserError(
            f"{selection.title} chooses the clients of a round, and {method.card.title} does so itself",
            hint="leave federation.selection out, or choose a method that leaves it open, such as fedavg",
            key="federation.selection",
        )
    method.card, method.selection = choose_by(method.card, type(selection)), selection


def _require_rounds(method: Method, selection: Selection) -> None:
    """Raise UserError where clients are chosen for a method without rounds whose answers come together."""
    has_rounds = isinstance(method, RoundMethod) and method.card.collects and method.card.uplink
    if not selection.is_everybody and not has_rounds:
        raise UserError(
            f"{selection.title} chooses the clients of a round, and {method.card.title} has no rounds in which "
            "clients answer together",
            hint="leave federation.selection out, or choose a method of rounds, such as fedavg",
            key="federation.selection",
        )


def _train_root(method: RoundMethod, message: Message, federation: Federation) -> Payload:
    """What the server's own examples make of the model, as a change; nothing where no rule wants it."""
    if not federation.aggregator.needs_root:
        return {}
    [reply] = federation.workers.map("train_on_root", [None])
    base = find_reference(message, reply.message).get(Kind.GLOBAL_MODEL, {})
    model = read_model(reply.message)
    if not model or not base:
        raise UserError(
            f"{federation.aggregator.title} compares models with the server's own, and clients of "
            f"{method.card.title} send none",
            hint="use fedavg or another method whose clients send their models",
        )
    return {k: v.double() - base[k].cpu().double() for k, v in model.items() if k in base}
