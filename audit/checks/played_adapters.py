"""Adapters, played: what clients' code sends where it does not train, what it trains on, and of what rank.

An upload of adapters is what training made of those received. So each client's code runs once more without a
single pass over its examples: what it then sends has to be what it received, to the bit, and a change has to
be zero. What differs was written besides training, from whatever the code could read, and no attack needs to read
it. Then it runs with one pass, and the rows that enter the network are counted.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.audit.case.case import KnownFederation, ObservedFederation
from fedaudit.audit.case.messages import messages
from fedaudit.audit.checks._training_rows import count_training_rows
from fedaudit.audit.controls.lab import Lab, find_received_message
from fedaudit.audit.observer.check import Check, Seen
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.families.adapters import A, B
from fedaudit.fl.kinds import DELTAS, TRAINED, Kind
from fedaudit.reports import format as fmt
from fedaudit.reports.result import Finding, Severity

PLUGINS = ("untrained_adapters", "adapter_rows", "full_rank")
SENT = (*TRAINED, *DELTAS)
MOST_PLAYED = 10  # clients that run once more, at most


class UntrainedAdapters(Check):
    """Untrained adapters: what clients send where nobody trains is not what they received."""

    def inspect(self, federation: ObservedFederation, lab: Lab | None) -> Iterator[Seen]:
        recorded = read_adapters(federation)
        if lab is None or not recorded:
            return
        written: dict[int, list[str]] = {}
        for sent in list_ends(federation, recorded):
            client = sent.sender.number
            if names := list_written(lab, recorded, sent):
                written.setdefault(client, names)
        if not written:
            return
        client, names = next(iter(written.items()))
        yield Finding(
            id="untrained-adapters",
            title="Clients' code writes numbers into what it sends that no training made",
            summary=f"{len(written)} clients ran once more without training. Client {client} then sends "
            f"{len(names)} arrays that are not as it received them, neither clipped nor noised in training, such "
            f"as {names[0]}: their start, rank, rows or hidden numbers follow from something else, as a count or "
            "a text.",
            severity=Severity.HIGH,
            reason="It follows from what the client's code can read, and no clip, noise or rank bounds it.",
            artifacts=[*dict.fromkeys(n.partition("/")[0] for names in written.values() for n in names)],
            does_not_show="what these numbers stand for, and what code does in its training alone",
            remedy="look at what the client's code writes after training, and send what was trained alone",
        )


class AdapterRows(Check):
    """Adapter rows: clients train on fewer examples in some round than they hold and state."""

    def inspect(self, federation: ObservedFederation, lab: Lab | None) -> Iterator[Seen]:
        recorded, parts = read_adapters(federation), federation.examples.parts
        if not recorded or federation.card.counts_made:
            return
        fewer: dict[int, tuple[int, int]] = {}
        for sent in list_ends(federation, recorded):
            played, held = count_training_rows(lab, recorded, sent), len(parts[sent.sender.number])
            if played is not None and played.rows < held:
                fewer[sent.sender.number] = (played.rows, sent.round)
        if not fewer:
            return
        client, (rows, round) = min(fewer.items(), key=lambda item: item[1])
        few = "a single example" if rows == 1 else f"{rows:,} of them"
        yield Finding(
            id="adapter-rows",
            title="Clients train adapters on fewer examples than they say",
            summary=f"Rounds were played again: {fmt.plural(len(fewer), 'client')} had trained on fewer. Client "
            f"{client} holds {len(parts[client]):,} examples, and in round {round} its adapter "
            f"depends on {few} alone.",
            severity=Severity.MEDIUM,
            reason="An adapter of few examples may show them, and the server believes that they were more.",
            artifacts=[str(k) for k in TRAINED if k in federation.card.uplink],
            does_not_show="what can be read of these examples: the attacks on adapters try it",
            remedy="train on all examples in every round, or say how many it were",
        )


class FullRank(Check):
    """Full rank: what is called an adapter is as wide as the layer that it changes."""

    def inspect(self, federation: ObservedFederation, lab: Lab | None) -> Iterator[Seen]:
        ranks = [r for sent in list_ends(federation, read_adapters(federation)) for r in list_ranks(sent)]
        if not ranks or any(rank < whole for rank, whole in ranks):
            return
        rank, whole = ranks[0]
        yield Finding(
            id="full-rank-adapters",
            title="What is called an adapter has the full rank of its layer",
            summary=f"Adapters have rank {rank} where layers have at most {whole}: they hold any change of the "
            "layer, and nothing that is said of a low rank holds for them.",
            severity=Severity.LOW,
            reason="A change of full rank shows as much as one of the whole layer, which is no leak by itself.",
            artifacts=[str(k) for k in TRAINED if k in federation.card.uplink],
            does_not_show="whether an attack gains by it: those on updates try it",
            remedy="choose a rank well below the width of the layers, or call it the whole model",
        )


def read_adapters(federation: ObservedFederation) -> Sequence[Artifact]:
    """What clients of a simulation sent of adapters and what they received; nothing where there are none."""
    if federation.artifacts is None or not federation.simulated or federation.network.adapters is None:
        return ()
    return index(messages(federation.artifacts, {*SENT, *federation.card.downlink}, "all"))


def list_ends(federation: KnownFederation, recorded: Sequence[Artifact]) -> list[Artifact]:
    """The first and the latest messages of each kind of the first clients that hold examples.

    In the first round nothing has gone through the server that clients wrote before. Compromised clients are left
    out, whose lies are the auditor's.
    """
    mine = [
        a
        for a in recorded
        if a.kind in SENT
        and a.from_client
        and a.sender.index not in federation.compromise.clients
        and len(federation.examples.parts.get(a.sender.number, ()))
    ]
    some = sorted({a.sender.number for a in mine})[:MOST_PLAYED]
    ends: dict[tuple[int, Kind], list[Artifact]] = {}
    for a in sorted(mine, key=lambda a: a.round):
        if a.sender.number in some:
            ends.setdefault((a.sender.number, a.kind), []).append(a)
    return [a for sent in ends.values() for a in (sent[0], *sent[1:][-1:])]


def list_written(lab: Lab, recorded: Sequence[Artifact], sent: Artifact) -> list[str]:
    """KIND/NAME of arrays that the sender's code makes without training and that are not as received."""
    received = find_received_message(recorded, sent)
    if Kind.GLOBAL_MODEL not in received:
        return []
    client = sent.sender.number
    rows, streams = lab.holdings.parts[client], lab.holdings.streams
    alone = lab.alone(client, rows, streams, epochs=0, batch=lab.method.config.batch_size)
    try:
        reply = alone.train(client, sent.round, received)
    except (KeyError, NotImplementedError):  # it needs what only a whole round gives it
        return []
    start, found = received[Kind.GLOBAL_MODEL], list[str]()
    for name, value in reply.message.get(sent.kind, {}).items():
        now = value.detach().cpu().numpy()
        before = np.zeros_like(now) if sent.kind in DELTAS else start.get(name)
        if before is None or not np.array_equal(now, np.asarray(before)):
            found.append(f"{sent.kind}/{name}")
    return found


def list_ranks(sent: Artifact) -> list[tuple[int, int]]:
    """Of each layer with both factors: the adapter's rank, and the largest of any change of the layer."""
    found = []
    for name, a in sent.payload.items():
        b = sent.payload.get(name.removesuffix(A) + B)
        if name.endswith(A) and b is not None:
            found.append((int(np.shape(a)[0]), min(int(np.shape(a)[1]), int(np.shape(b)[0]))))
    return found
