"""Relays over the wire: mediators pass a model along their clients, the server averages the mediators.

The base of GANDALF (sec. 3.4). In a round each of M_c groups starts from w; its members train one after
the other, E_m times round, each handing its model to the next; and with w^m the last model of group m

    w <- sum over m of (n_m / n) w^m,    n_m: examples of the clients whose work is in w^m

The paper prints w - sum (n_m / n) (w^m - w*), which has the wrong sign. The next client reads the model
of one single client. Mediators only decide who is next (fl/families/relay.py, planned ahead on a simulated
clock);
what they exchange with clients on that is not sent as messages but kept as `events` in the metrics.
With as many groups as clients this is FedAvg, bit for bit.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from pydantic import Field

from fedaudit.fl.artifact import Party
from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.failures import Faults, RandomFaults
from fedaudit.fl.families.relay import START, Relay, Task, ToleranceConfig, plan
from fedaudit.fl.families.visit_noise import NoiseConfig, line_of, protect
from fedaudit.fl.federation import Federation, Tally
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import EVERYONE
from fedaudit.fl.method import LocalConfig, RoundMethod
from fedaudit.fl.model import State
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree, finite
from fedaudit.fl.wire.protection import Message

Groups = Sequence[Sequence[int]]
First = Callable[[int, Task, int], Message]  # group, task, step -> what it starts from


@dataclass
class RelayOutcome:
    """What one relay ends with; `contributors` is empty where it ends with nothing."""

    content: Message = field(default_factory=dict)
    sender: int = -1
    contributors: list[int] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)  # of the tasks behind the result

    def mean_stats(self) -> dict[str, float]:
        names = self.replies[0].stats if self.replies else {}
        return {n: sum(r.stats[n] for r in self.replies) / len(self.replies) for n in names}


class Relaying(RoundMethod):
    """Subclasses write the phases of run() with `pass_around` and `averaged_round`."""

    @settings
    class Config(LocalConfig):
        mediators: AtLeastOne = Field(
            default=2, description="M_c: groups that train the model; as many as clients is FedAvg"
        )
        mediator_epochs: AtLeastOne = Field(
            default=1, description="E_m: times a group is gone through in a round"
        )
        faults: ToleranceConfig = Field(
            default_factory=ToleranceConfig, description="how the mediators deal with clients that fail"
        )
        noise: NoiseConfig = Field(default_factory=NoiseConfig, description="noise on what a client hands on")

    def list_protected_kinds(self, kinds: Iterable[Kind]) -> list[Kind]:
        """Kinds that this method noises or clips itself; the ledger then has its own lines."""
        noise = self.config.noise
        return [k for k in kinds if noise.clips or noise.deviation(k)]

    # Server and mediators ------------------------------------------------------------------

    def faults(self, t: int, lost: Collection[int], federation: Federation) -> Faults:
        """What will go wrong this round."""
        return RandomFaults(federation.attendance.failures, federation.streams, t, frozenset(lost))

    def schedule(
        self, t: int, groups: Groups, state: Tree, federation: Federation, cap: int = 1
    ) -> tuple[list[Relay], Tally, Tree]:
        """This round's relays, what the metrics say of them, and the new clock and task counts."""
        members = [k for group in groups for k in group]
        selected, answering = federation.participate(t, sorted(members))
        there, lost = set(answering), [k for k in answering if federation.attendance.is_reply_lost(t, k)]
        completed = {int(k): n for k, n in state["completed"].items()}
        faults = self.faults(t, lost, federation)
        relays = [
            plan(
                [k for k in group if k in there],
                completed,
                self.config.faults,
                federation.attendance.failures,
                faults,
                cap,
            )
            for group in groups
        ]
        asked = {x.client for r in relays for x in r.tasks}
        tally = Tally(selected=len(selected), lost=len(asked.difference(*(r.contributors for r in relays))))
        clock = state["clock"] + max((r.time for r in relays), default=0.0)
        events = [e | {"group": g} for g, r in enumerate(relays) for e in r.events]
        tally.notes = {"clock": clock, "requests": sum(len(r.tasks) for r in relays), "events": events}
        for relay in relays:
            for k in relay.contributors:
                completed[k] = completed.get(k, 0) + relay.tasks_of(k)
        return (relays, tally, {"clock": clock, "completed": {str(k): n for k, n in completed.items()}})

    def pass_around(
        self,
        t: int,
        work: str,
        relays: Sequence[Relay],
        first: First,
        memory: Mapping[int, Tree],
        federation: Federation,
        tally: Tally,
    ) -> list[RelayOutcome]:
        """Carry the relays out, side by side; `work` names the clients' function.

        Of what a client returns, the kinds of card.relay are handed on, the others go to the server.
        A result that is not finite is dropped, except in kinds that get noise: the next client starts where this
        one did.
        """
        federation.workers.everywhere("begin", t, {})
        content: list[dict[int, Message]] = [{} for _ in relays]
        replies: list[dict[int, Reply]] = [{} for _ in relays]
        for step in range(max((len(r.tasks) for r in relays), default=0)):
            turns = [(g, r.tasks[step]) for g, r in enumerate(relays) if step < len(r.tasks)]
            given = {g: self._hand(t, g, step, relays[g], content[g], first, federation) for g, _ in turns}
            working = [(g, task) for g, task in turns if task.done]
            jobs = [
                (work, (task.client, memory.get(task.client, {}), given[g] | _order(task))) for g, task in working
            ]
            done = federation.workers.map("work", jobs)
            for (g, task), reply in zip(working, done, strict=True):
                sent = federation.wire.chain.make_finite(t, Party.client(task.client), reply.message, {})
                reply = replace(reply, message=sent)
                carried = {k: v for k, v in sent.items() if k in self.card.relay}
                rest = {k: v for k, v in sent.items() if k not in self.card.relay}
                content[g][step] = given[g]
                if not all(finite(p) for p in sent.values()):
                    tally.rejected += 1
                    continue
                content[g][step], replies[g][step] = carried, reply
                self.enter(t, task, carried, federation)
                if rest:
                    federation.wire.uplink(t, rest, task.client, {})
        outcomes = []
        for g, relay in enumerate(relays):
            behind = [i for i in relay.chain if i in replies[g]]
            outcome = RelayOutcome(
                contributors=sorted({relay.tasks[i].client for i in behind}),
                replies=[replies[g][i] for i in behind],
            )
            if behind:
                outcome.content = content[g][relay.chain[-1]]
                outcome.sender = relay.tasks[relay.chain[-1]].client
            outcomes.append(outcome)
        return outcomes

    def _hand(
        self,
        t: int,
        g: int,
        step: int,
        relay: Relay,
        content: Mapping[int, Message],
        first: First,
        federation: Federation,
    ) -> Message:
        """What the client of a step receives, over the wire."""
        task = relay.tasks[step]
        if task.source == START:
            return first(g, task, step)
        message, sender = content[task.source], relay.tasks[task.source].client
        if sender == task.client:  # it still has what it made
            return message
        settled = self.list_protected_kinds(message)
        return federation.wire.relay(t, message, sender, task.client, settled=settled) or message

    def enter(self, t: int, task: Task, message: Message, federation: Federation) -> None:
        """A visit's releases, into the ledger; whoever gets the model reads it in the end."""
        for kind in message:
            stream = f"{noise_stream(kind, task.attempt)}/{t}/{task.client}"
            line = line_of(kind, t, task.client, self.config.noise, EVERYONE, stream)
            if line is not None:
                federation.wire.accounts.enter(line)

    def averaged_round(
        self,
        t: int,
        model: State,
        groups: Groups,
        sizes: Mapping[int, float],
        state: Tree,
        memory: Mapping[int, Tree],
        federation: Federation,
    ) -> tuple[State, Tree]:
        """One round of training: the new model, and the new clock, task counts and aggregator's state."""
        relays, tally, entries = self.schedule(t, groups, state, federation, self.config.mediator_epochs)
        message: Message = {Kind.GLOBAL_MODEL: model}
        firsts = sorted(r.tasks[0].client for r in relays if r.tasks)
        federation.wire.broadcast(t, message, firsts)

        def make_first_message(g: int, task: Task, step: int) -> Message:  # noqa: ARG001
            if step:
                federation.wire.downlink(t, message, task.client)
            return {Kind.RELAY_MODEL: model}

        averages = federation.averages(t, state, self.parameters)
        mean = averages.begin()
        for outcome in self.pass_around(t, "visit", relays, make_first_message, memory, federation, tally):
            if not outcome.contributors:
                continue
            up: Message = {Kind.LOCAL_MODEL: outcome.content[Kind.RELAY_MODEL]}
            received = federation.wire.uplink(
                t, up, outcome.sender, message, settled=self.list_protected_kinds(up)
            )
            if received is None:
                tally.rejected += 1
                continue
            each = {r: sizes.get(r, 0.0) for r in outcome.contributors}  # a rejected claim weighs nothing
            tally.heard |= set(outcome.contributors)
            tally.add(received, int(sum(each.values())), outcome.mean_stats())
            uniform = self.config.weighting == "uniform"
            weight = float(len(each)) if uniform else sum(each.values())
            mean.add(outcome.sender, received[Kind.LOCAL_MODEL], weight, model)
        federation.tally = tally
        if not mean.total:
            return model, entries
        new = mean.value()
        tally.note(averages)
        return new, entries | averages.entries()

    # Clients -------------------------------------------------------------------------------

    def receive(self, client: Client) -> Client:
        """A model handed on is where training starts."""
        if Kind.RELAY_MODEL not in client.message:
            return client
        start = {Kind.GLOBAL_MODEL: client.message[Kind.RELAY_MODEL]}
        return replace(client, message=client.message | start)

    def train(self, client: Client) -> Reply:
        """A visit as it reaches the next client, or the server after the last one."""
        reply = self.visit(client)
        last: Message = {Kind.LOCAL_MODEL: reply.message[Kind.RELAY_MODEL]}
        return replace(reply, message=reply.message | last)

    def visit(self, client: Client) -> Reply:
        """Train the model that was handed on."""
        turn = _count_visits(client)
        stream = f"batches/{turn}" if turn else "batches"
        trained = client.train(self, self.compute_constants(client), stream=stream)
        return Reply(
            message=self.hand_on(client, {Kind.RELAY_MODEL: trained.state}),
            examples=len(client.y),
            stats={"train_loss": trained.loss, "steps": float(trained.steps)},
        )

    def hand_on(self, client: Client, message: Message) -> Message:
        """The message as it leaves the client: clipped and noised, where the settings say so."""
        turn, noise = _count_visits(client), self.config.noise
        return {
            kind: protect(
                kind,
                payload,
                client.message.get(kind, {}),
                noise,
                client.noise(noise_stream(kind, turn)),
                line_of(kind, client.round, client.index, noise, EVERYONE),
            )
            for kind, payload in message.items()
        }


def noise_stream(kind: Kind, turn: int) -> str:
    return f"noise/{kind}/{turn}"


def _count_visits(client: Client) -> int:
    """How many visits the mediator requested of it before; one that was requested nothing else: none."""
    order = client.message.get(Kind.TRAIN_ORDER)
    return int(order["visit"]) if order else 0


def _order(task: Task) -> Message:
    return {Kind.TRAIN_ORDER: {"visit": torch.tensor(task.attempt)}}
