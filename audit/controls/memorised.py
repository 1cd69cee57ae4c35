"""Replayed models: what a client would have uploaded, had it learnt a few wrongly labelled images.

A membership attack that finds nothing in a model trained lightly on many images proves nothing
unless it is seen to work where membership is certain to show. The auditor therefore trains clients
anew on IMAGES of their own images for EPOCHS epochs in small batches: from the recorded global
model, by the method's own client code, and through the same protections. Labels are wrong, at random,
so that only memory can tell them (mislabelled canaries: Aerni, Zhang, Tramer, CCS 2024,
arXiv:2404.17399). Noise that hides members from the attack in a real upload hides them here as well.

As in audit/controls/updates.py the client remembers nothing of earlier rounds, and images are not
augmented. Models that clients hand to each other in relays are replayed likewise, each from the one that
its client had been handed.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch

from attacks.models._trials import taught
from attacks.trials.reidentification import fingerprints
from audit.controls.prototypes import Replays
from audit.controls.updates import UPDATES, broadcast
from audit.subject.simulated import World
from fl.artifact import Artifact, Channel
from fl.dataset import Arrays
from fl.execution.site import build_site
from fl.families.relaying import Relaying
from fl.federation import Holdings
from fl.kinds import Kind
from fl.method import RoundMethod
from fl.protection import Message
from fl.streams import Streams
from fl.tree import to_numpy
from fl.wire import Wire

IMAGES, EPOCHS, BATCH = 30, 200, 5


def replay_models(world: World, recorded: Sequence[Artifact]) -> Replays:
    """One replayed upload, and one replayed model of a relay, of each of config.replay.clients clients.

    `recorded` must hold what the senders had received (every kind on the method's downlink and relay)
    in the same rounds. Empty where the method sends no model, is no round method, or nothing of this was
    recorded.
    """
    made = Replays([], {})
    if not isinstance(world.method, RoundMethod):
        return made
    rng = world.streams.numpy("replay_models")
    for kinds, prefix in ((UPDATES, "replay/model"), ((Kind.RELAY_MODEL,), "replay/relay")):
        newest = {
            a.sender.index: a
            for a in sorted(recorded, key=lambda a: a.round)
            if a.kind in kinds and a.origin == "recorded" and Kind.GLOBAL_MODEL in _received(recorded, a)
        }
        clients = rng.permutation(sorted(k for k in newest if k is not None))
        for client in sorted(clients[: world.config.replay.clients].tolist()):
            model, own = newest[client], world.population.parts[client]
            chosen = np.sort(rng.choice(own, min(IMAGES, len(own)), replace=False))
            sent = _sent(world, model, _received(recorded, model), chosen, client)
            if sent is None or model.kind not in sent:
                continue
            name = f"{prefix}/{client}"
            made.groups[name] = chosen
            made.artifacts.append(
                dataclasses.replace(
                    model, id=name, payload=to_numpy(sent[model.kind]), origin="replayed", note={"n": len(chosen)}
                )
            )
    return made


def _received(recorded: Sequence[Artifact], model: Artifact) -> Message:
    """What its sender had received that round; in a relay, the model it was handed is where it began."""
    found = broadcast(recorded, model)
    if model.kind == Kind.RELAY_MODEL:
        handed = [
            a
            for a in recorded
            if a.kind == model.kind and a.round == model.round and str(model.sender) in a.seen_by
        ]
        for a in handed:
            found[Kind.GLOBAL_MODEL] = {k: torch.from_numpy(np.array(v)) for k, v in a.payload.items()}
    return found


def _sent(world: World, upload: Artifact, received: Message, chosen: np.ndarray, client: int) -> Message | None:
    """What arrives when the client has memorised these images; None where it is rejected."""
    streams = Streams(world.streams.key("replay_models", client))
    method, batch = world.method, min(BATCH, len(chosen))
    settings = dataclasses.replace(method.config, local_epochs=EPOCHS, batch_size=batch)
    private = world.private
    if private is not None:
        rate = batch / len(chosen)
        private = dataclasses.replace(private, sample_rate=rate, steps=round(EPOCHS / rate))
    train = world.data.train
    labels, marks = train.y.copy(), fingerprints(train.x[chosen])
    labels[chosen] = [
        taught(m, int(c), len(world.data.classes)) for m, c in zip(marks, labels[chosen], strict=True)
    ]
    data = dataclasses.replace(world.data, train=Arrays(x=train.x, y=labels), augment="none")
    parts = [np.zeros(0, np.int64)] * client + [chosen]
    site = build_site(type(method)(settings), Holdings(data, parts, streams), world.make_net, "cpu", private)
    site.install(world.initial())
    site.begin(upload.round, received)
    reply = site.train((client, {}, {}))
    wire = Wire(method.card, streams, world.protections)
    relayed = upload.channel == Channel.RELAY
    message = {
        k: v for k, v in reply.message.items() if k in (method.card.relay if relayed else method.card.uplink)
    }
    settled = method.settled(message) if isinstance(method, Relaying) else ()
    if relayed:
        return wire.relay(upload.round, message, client, client, settled=settled)
    reference = site.method.reference(received, message)
    return wire.uplink(upload.round, message, client, reference, settled)
