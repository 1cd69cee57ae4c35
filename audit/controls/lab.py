"""The auditor's bench: trains one client once more and sends what it says through the run's protections.

Every control needs this: a message as it would have arrived, had the client owned other examples. So the work
is done by the method's own client code, and what leaves it passes the run's own protections, whose noise is
drawn from streams that the caller names.

Two things differ from a real visit. The client remembers nothing of earlier rounds (no control variate, no
model of its own), as one that takes part for the first time. And images are not augmented where it owns chosen
ones (`alone`), since the truth that an attack is held against is the image itself.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedaudit.attacks.evaluation.artifacts import index, message_of
from fedaudit.attacks.evaluation.sums import average_sum
from fedaudit.attacks.evidence import REPLAYED, UNPROTECTED
from fedaudit.audit.case.case import NO_ROWS, Case
from fedaudit.audit.controls.on_disk import spill
from fedaudit.fl.artifact import Artifact, Channel, Role
from fedaudit.fl.clients.client import Reply
from fedaudit.fl.clients.delivery import find_reference
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.data.partition import Index
from fedaudit.fl.execution import batched
from fedaudit.fl.execution.batched import choose_width
from fedaudit.fl.execution.site import Site, build_site
from fedaudit.fl.families.relaying import Relaying
from fedaudit.fl.federation import Holdings
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import RoundMethod
from fedaudit.fl.model import Net, State
from fedaudit.fl.recording.recorder import manifest, read
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import to_numpy
from fedaudit.fl.training.batches import find_smallest_batch
from fedaudit.fl.training.local import bind
from fedaudit.fl.training.private import PrivateTraining
from fedaudit.fl.wire.protection import Message, Protection, anew
from fedaudit.fl.wire.sums import Sums
from fedaudit.fl.wire.wire import Wire

EACH = 6  # single people planted through each client's code, at least


def name_replay(id: str, origin: str) -> str:
    """The id of a replayed message: what is sent without the protections has a name of its own."""
    return id if origin == REPLAYED else f"{id}/unprotected"


@dataclass(frozen=True)
class Replays:
    """Messages that a control made, never mixed up with recorded ones: `origin` is REPLAYED or UNPROTECTED."""

    artifacts: list[Artifact] = field(default_factory=list)
    groups: dict[str, NDArray[np.int64]] = field(default_factory=dict)  # artifact id -> rows of data.train
    folder: Path | None = None  # of large messages

    def add(
        self,
        id: str,
        like: Artifact,
        sent: Message | None,
        group: Index,
        note: Mapping[str, float | str],
        origin: str = REPLAYED,
    ) -> None:
        """What arrived, as an artifact of `like`'s kind and sender; nothing where a protection withheld it.

        The server reads every upload where there are no protections, and what a sum tells of one that they hide.
        """
        if sent is None or like.kind not in sent:
            return
        self.groups[id] = group
        # laid out alike in every process: sums depend on it
        payload = {k: np.asarray(v, order="C") for k, v in to_numpy(sent[like.kind]).items()}
        if "norm" in sent.get(Kind.NUM_STEPS, {}):  # what a normalised delta was divided by
            note = {**note, "norm": float(sent[Kind.NUM_STEPS]["norm"])}
        seen_by = like.seen_by
        if Kind.AGGREGATE in sent:  # read in a sum, of which the server knows how many it is of
            note = {**note, Kind.AGGREGATE.value: float(sent[Kind.AGGREGATE]["clients"])}
            if Kind.NUM_EXAMPLES in sent:
                note["examples"] = float(sent[Kind.NUM_EXAMPLES]["count"])
        if like.channel == Channel.UPLINK and (origin == UNPROTECTED or Kind.AGGREGATE in sent):
            seen_by = (Role.SERVER.value,)
        kept = spill(payload, self.folder)
        made = dataclasses.replace(like, id=id, payload=kept, origin=origin, note=note, seen_by=seen_by)
        self.artifacts.append(made)

    @classmethod
    def join(cls, parts: Iterable["Replays"]) -> "Replays":
        """All of them, in their order."""
        whole = cls()
        for part in parts:
            whole.artifacts.extend(part.artifacts)
            whole.groups.update(part.groups)
        return whole


@dataclass(frozen=True, kw_only=True)
class Lab:
    """Clients that can be trained once more; all randomness is from `holdings.streams`."""

    method: RoundMethod
    holdings: Holdings
    make: Callable[[], Net]
    net: Net  # one for all visits
    initial: State
    newest: "NewestModel"
    protections: Sequence[Protection]
    private: PrivateTraining | None
    # client -> rows that it is played with: its own; where nobody told of any client's, the auditor's
    owned: Mapping[int, Index] = field(default_factory=dict)
    artifacts: Path | None = None  # folder of the recorded messages
    scratch: Path | None = None  # folder of large planted messages, for as long as they are read
    device: str = "cpu"  # where they train
    # round, client -> the others and what they uploaded in that round, for sums
    others: Callable[[int, int], Sequence[tuple[int, Message]]] = lambda round, client: ()

    @classmethod
    def from_case(cls, case: Case, scratch: Path | None = None) -> "Lab | None":
        """The case's clients; None where their code, network or first weights are not known."""
        method, make, initial = case.method, case.network.make, case.network.initial()
        if not isinstance(method, RoundMethod) or make is None or initial is None:
            return None
        examples, clients = case.examples, range(case.clients)
        parts = [examples.parts.get(k, NO_ROWS) for k in clients]
        holdings = Holdings(case.data, parts, case.streams, examples.spare, case.time_model)
        return cls(
            method=method,
            holdings=holdings,
            make=make,
            net=build_site(method, holdings, make, case.device).net,
            initial=initial,
            protections=case.protections,
            private=case.private,
            owned=examples.parts or {k: examples.planted for k in clients if len(examples.planted)},
            artifacts=case.artifacts,
            scratch=scratch,
            device=case.device,
            newest=NewestModel(case.artifacts),
        )

    def among_others(self) -> "Lab":
        """The same, whose messages arrive as the run's did: where only sums are read, in one with the others'."""
        return dataclasses.replace(self, others=RecordedUploads(self.artifacts))

    @property
    def is_protected(self) -> bool:
        """Whether a protection acts on what these clients send."""
        return bool(self.protections) or self.private is not None

    def drop_protections(self) -> "Lab":
        """The same clients without the run's protections: shows whether an attack works, not what is left."""
        return dataclasses.replace(self, protections=(), private=None)

    def with_and_without(self) -> "list[tuple[str, Lab]]":
        """Origins of what is planted, and who sends it: with the protections and, if there are any, without."""
        return [(REPLAYED, self), *([(UNPROTECTED, self.drop_protections())] if self.is_protected else [])]

    def holding(self, **changes: Any) -> "Lab":
        """The same with other data, parts or streams; two replays of one client meet different noise only with
        different streams."""
        return dataclasses.replace(self, holdings=dataclasses.replace(self.holdings, **changes))

    def alone(
        self, client: int, chosen: Index, streams: Streams, *, epochs: int, batch: int, data: Data | None = None
    ) -> "Lab":
        """The same, but the client owns the `chosen` rows only, of `data` where given, and trains so long.

        A protection that acts in training takes as many steps, on batches of that size in expectation; where
        nobody trains (no epochs) it does not act.
        """
        settings = dataclasses.replace(self.method.config, local_epochs=epochs, batch_size=batch)
        private = self.private if epochs else None
        if private is not None:
            rate = batch / len(chosen)
            private = dataclasses.replace(private, sample_rate=rate, steps=round(epochs / rate))
        data = dataclasses.replace(data or self.holdings.data, augment="none")
        parts = [np.zeros(0, np.int64)] * client + [chosen]
        holdings = dataclasses.replace(self.holdings, data=data, parts=parts, streams=streams, spare=chosen[:0])
        return dataclasses.replace(self, method=type(self.method)(settings), holdings=holdings, private=private)

    @cached_property
    def site(self) -> Site:
        """The worker that the clients train in."""
        site = Site(self.method, self.holdings, self.net, self.device, self.private)
        site.install(self.initial)
        return site

    @cached_property
    def smallest_batch(self) -> int:
        """Examples that the clients' network needs in a training batch."""
        first = next((rows[:1] for rows in self.owned.values() if len(rows)), None)
        if first is None:
            return 1
        x, _ = self.site.examples(self.holdings.data.train, first)
        return find_smallest_batch(self.site.trained, x)

    def begin(self, round: int, received: Message) -> Site:
        """The worker in a round that begins with what was received.

        What is not in it, such as the server's part of a network that is split, is as the newest model has it.
        """
        if self.initial.keys() - received.get(Kind.GLOBAL_MODEL, {}).keys():
            newest = {k: v for k, v in self.newest.weights.items() if k in self.initial}
            bind(self.net, self.initial | newest)
        self.site.begin(round, received)
        return self.site

    def train(self, client: int, round: int, received: Message) -> Reply:
        """A visit: what the client's function returns for what it received that round."""
        return self.begin(round, received).train((client, {}, {}))

    def send(
        self, client: int, round: int, message: Message, received: Message, channel: Channel = Channel.UPLINK
    ) -> Message | None:
        """What arrives of a client's message; None where it is rejected. Only kinds of that channel leave."""
        method = self.method
        declared: tuple[Kind, ...] = getattr(method.card, channel.value)
        message = {k: v for k, v in message.items() if k in declared}
        settled = method.list_protected_kinds(message) if isinstance(method, Relaying) else ()
        wire = Wire(method.card, self.holdings.streams, anew(self.protections))
        if channel == Channel.RELAY:
            return wire.relay(round, message, client, client, settled=settled)
        arrived = wire.uplink(round, message, client, find_reference(received, message), settled)
        return (
            self._read_in_sum(round, client, arrived)
            if arrived is not None and wire.chain.hides_single_uploads
            else arrived
        )

    def replay(self, like: Artifact, received: Message) -> Message | None:
        """A visit of `like`'s sender in its round, and what arrives of it on the same channel."""
        client = like.sender.number
        reply = self.train(client, like.round, received)
        return self.send(client, like.round, reply.message, received, like.channel)

    def replay_each(self, like: Artifact, received: Message) -> list[tuple[str, Message | None]]:
        """Origins, and what arrives of a visit of `like`'s sender: see `replay_together`."""
        return self.replay_together([Visit(self, like, received)])[0]

    @property
    def width(self) -> int:
        """How many such visits train side by side in one batch, at most."""
        return choose_width(self.site)

    @staticmethod
    def replay_together(visits: "Sequence[Visit]") -> list[list[tuple[str, Message | None]]]:
        """Origins, and what arrives of each visit: with the run's protections and, if there are any, without.

        All clients train alike, on data and with streams of their own. One visit serves both origins where no
        protection acts in training.
        """
        bare = [v._replace(lab=v.lab.drop_protections()) for v in visits]
        plain = train_together(bare)
        own = plain if visits[0].lab.private is None else train_together(visits)
        sent = [[(REPLAYED, _send(v, reply))] for v, reply in zip(visits, own, strict=True)]
        for some, visit, free, reply in zip(sent, visits, bare, plain, strict=True):
            if visit.lab.is_protected:
                some.append((UNPROTECTED, _send(free, reply)))
        return sent

    def _read_in_sum(self, round: int, client: int, message: Message) -> Message:
        """What the server reads of a message under secure aggregation: the mean of the run's own sum.

        How many clients it is of stands under AGGREGATE. Of a single one it is the message itself.
        """
        others = self.others(round, client)
        number: Message = {Kind.AGGREGATE: {"clients": torch.tensor(1 + len({k for k, _ in others}))}}
        if not others:
            return message | number
        sums = Sums()
        for upload in (message, *(m for _, m in others)):
            sums.add(upload)
        means = average_sum(to_numpy(sums.value()))
        return number | {
            kind: {k: torch.from_numpy(np.array(v)) for k, v in of.items()} for kind, of in means.items()
        }


class Visit(NamedTuple):
    """A client that is played again."""

    lab: Lab
    like: Artifact  # what it sent, and in which round
    received: Message


def train_together(visits: Sequence[Visit]) -> list[Reply]:
    """Visits side by side, with the same draws and steps as one by one."""
    clients = []
    for lab, like, received in visits:
        clients.append(lab.begin(like.round, received).client((like.sender.number, {}, {})))
    return batched.train_together(visits[0].lab.site, clients)


def _send(visit: Visit, reply: Reply) -> Message | None:
    lab, like, received = visit
    return lab.send(like.sender.number, like.round, reply.message, received, like.channel)


@dataclass(frozen=True)
class NewestModel:
    """The newest model that the server was recorded to send."""

    artifacts: Path | None

    @cached_property
    def weights(self) -> State:
        """Its arrays; empty where none was recorded."""
        if self.artifacts is None:
            return {}
        rounds = (m["round"] for m in manifest(self.artifacts) if m.get("kind") == Kind.GLOBAL_MODEL)
        newest = max(rounds, default=None)
        if newest is None:
            return {}
        found = read(self.artifacts, lambda m: m.get("kind") == Kind.GLOBAL_MODEL and m["round"] == newest)
        return {k: torch.from_numpy(np.array(v)) for a in found for k, v in a.payload.items()}


@dataclass(frozen=True)
class RecordedUploads:
    """What clients uploaded in a round, as it was recorded."""

    artifacts: Path | None

    def __call__(self, round: int, client: int) -> list[tuple[int, Message]]:
        """Who else uploaded, and each of their messages; nobody where the round was not recorded."""
        return [(sender, message) for sender, message in self._rounds(round) if sender != client]

    def _rounds(self, round: int) -> list[tuple[int, Message]]:
        if round not in self._uploads_by_round:
            self._uploads_by_round[round] = [] if self.artifacts is None else read_uploads(self.artifacts, round)
        return self._uploads_by_round[round]

    @cached_property
    def _uploads_by_round(self) -> dict[int, list[tuple[int, Message]]]:
        return {}


def read_uploads(folder: Path, round: int) -> list[tuple[int, Message]]:
    """Clients and the messages that they uploaded in a round, in the order of the manifest."""
    messages: dict[tuple[str, int], Message] = {}

    def is_upload(line: Mapping[str, Any]) -> bool:
        return line["round"] == round and line["channel"] == Channel.UPLINK and "/" in line["sender"]

    for a in read(folder, is_upload):
        own = messages.setdefault((message_of(a), a.sender.number), {})
        own[a.kind] = {k: torch.from_numpy(np.array(v)) for k, v in a.payload.items()}
    return [(client, message) for (_, client), message in messages.items()]


def find_received_message(recorded: Sequence[Artifact], upload: Artifact) -> Message:
    """What the sender of an upload had received in that round, as far as it was recorded."""
    return {
        a.kind: {k: torch.from_numpy(np.array(v)) for k, v in a.payload.items()}
        for a in find_downloads(recorded, upload)
    }


def has_received_model(recorded: Sequence[Artifact], upload: Artifact) -> bool:
    """Whether the model that the sender of an upload had received in that round was recorded."""
    return any(a.kind == Kind.GLOBAL_MODEL for a in find_downloads(recorded, upload))


def find_downloads(recorded: Sequence[Artifact], upload: Artifact) -> list[Artifact]:
    """What the server sent to the sender of an upload in that round, to it alone or to every client.

    Where there is no server, the model that a client sent the others to train.
    """
    readers, found = ("client", str(upload.sender)), index(recorded)
    down = found.select(round=upload.round, channel=Channel.DOWNLINK, seen_by=readers)
    return down or found.select(round=upload.round, channel=Channel.RELAY, kind=Kind.GLOBAL_MODEL)
