"""Replayed updates: what a client would have uploaded, had it trained on B of its images for s steps.

An attack on updates that recovers nothing from thirty steps over a thousand images proves nothing
unless it is seen to work on one step over one image. The auditor therefore trains clients anew, on B
of their own images only: from the recorded global model, by the method's own client code, and
through the same protections. s epochs over one batch are s steps. B = 1, s = 1 is the planted leak.

Two things differ from a real visit. The client remembers nothing of earlier rounds (no control variate,
no model of its own), as one that takes part for the first time. And images are not augmented, since
the truth that a reconstruction is held against is the image itself.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch

from audit.controls.prototypes import Replays
from audit.subject.simulated import World
from fl.artifact import Artifact, Channel
from fl.execution.site import Site, build_site
from fl.federation import Holdings
from fl.kinds import Kind
from fl.method import RoundMethod
from fl.protection import Message
from fl.streams import Streams
from fl.tree import to_numpy
from fl.wire import Wire

UPDATES = (Kind.LOCAL_MODEL, Kind.MODEL_DELTA)
MOST_BYTES = 2**30  # of replayed updates in memory; of larger models there are fewer groups


def replay_updates(world: World, recorded: Sequence[Artifact]) -> Replays:
    """Replayed local_model or model_delta, config.replay.update_groups of every size and step count.

    `recorded` must hold the broadcasts (every kind on the method's downlink) of the uploads' rounds.
    Empty where the method sends no model, is no round method, or no broadcast was recorded.
    """
    settings, made = world.config.replay, Replays([], {})
    uploads = [a for a in recorded if a.kind in UPDATES and a.origin == "recorded"]
    uploads = [a for a in uploads if Kind.GLOBAL_MODEL in broadcast(recorded, a)]
    if not uploads or not isinstance(world.method, RoundMethod):
        return made
    rng = world.streams.numpy("replay_updates")
    parts = world.population.parts
    latest = {a.sender.index: a for a in sorted(uploads, key=lambda a: a.round)}
    clients = sorted(rng.permutation(sorted(k for k in latest if k is not None)).tolist())
    clients = clients[: settings.clients]
    each = max(a.size_bytes for a in uploads) * len(settings.updates) * len(settings.update_steps)
    groups = min(settings.update_groups, max(1, MOST_BYTES // max(1, each)))
    for batch in settings.updates:
        able = [k for k in clients if len(parts[k]) >= batch]
        for i in range(groups if able else 0):
            upload = latest[able[i % len(able)]]
            chosen = np.sort(rng.choice(parts[able[i % len(able)]], batch, replace=False))
            for steps in settings.update_steps:
                name = f"replay/update-b{batch}-s{steps}/{i}"
                sent = _sent(world, upload, broadcast(recorded, upload), chosen, steps, i)
                if sent is None:
                    continue
                made.groups[name] = chosen
                made.artifacts.append(
                    dataclasses.replace(
                        upload,
                        id=name,
                        payload=to_numpy(sent[upload.kind]),
                        origin="replayed",
                        note={"batch": batch, "steps": steps},
                    )
                )
    return made


def broadcast(recorded: Sequence[Artifact], upload: Artifact) -> Message:
    """What the sender of an upload had received in that round, as far as it was recorded."""
    to_it = {"client", str(upload.sender)}
    return {
        a.kind: {k: torch.from_numpy(np.array(v)) for k, v in a.payload.items()}
        for a in recorded
        if a.channel == Channel.DOWNLINK and a.round == upload.round and to_it & set(a.seen_by)
    }


def _sent(
    world: World, upload: Artifact, received: Message, chosen: np.ndarray, steps: int, number: int
) -> Message | None:
    """What arrives when the client owns the `chosen` images only; None where it is rejected."""
    client = upload.sender.index
    assert client is not None
    streams = Streams(world.streams.key("replay_updates", len(chosen), steps, number))
    site = _site(world, chosen, steps, client, streams)
    site.install(world.initial())
    site.begin(upload.round, received)
    reply = site.train((client, {}, {}))
    reference = site.method.reference(received, reply.message)
    # A stream of its own, so that two replays of one client meet different noise
    wire = Wire(world.method.card, streams, world.protections)
    return wire.uplink(upload.round, reply.message, client, reference)


def _site(world: World, chosen: np.ndarray, steps: int, client: int, streams: Streams) -> Site:
    """A worker with one client, which owns only the chosen images and trains in one batch."""
    method = world.method
    settings = dataclasses.replace(method.config, local_epochs=steps, batch_size=len(chosen))
    private = world.private
    if private is not None:  # every image in every step: what the noise alone hides
        private = dataclasses.replace(private, sample_rate=1.0, steps=steps)
    data = dataclasses.replace(world.data, augment="none")
    parts = [np.zeros(0, np.int64)] * client + [chosen]
    return build_site(type(method)(settings), Holdings(data, parts, streams), world.make_net, "cpu", private)
