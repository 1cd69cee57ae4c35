"""Replayed pairs: the two prototypes a client sends before and after one image joins a class.

Prototype differencing needs a class that grew between two rounds, and simulated clients keep their
data. The auditor therefore averages n of a client's own images, and the same n with one more, with
the model that client uploaded and through the same protections: the planted leak, and the curve
against n. Only attacks that read all rounds are given them.
"""

from collections.abc import Sequence

import numpy as np

from audit.controls.prototypes import Replays, sent_prototype
from audit.observer.models import KnownArchitecture
from audit.subject.simulated import World
from fl.artifact import Artifact, Channel
from fl.kinds import Kind
from fl.streams import Streams


def replay_pairs(world: World, recorded: Sequence[Artifact]) -> Replays:
    """Pairs of local_prototypes over n and n + 1 images, for every n in config.replay.sizes.

    As many of each n as config.replay.groups, spread over config.replay.clients clients and their
    classes. Empty where the method sends no prototypes or no model was recorded.
    """
    settings, made = world.config.replay, Replays([], {})
    latest = {
        a.sender.index: a
        for a in sorted(recorded, key=lambda a: a.round)
        if a.kind == Kind.LOCAL_MODEL and a.sender.index is not None
    }
    if Kind.LOCAL_PROTOTYPES not in world.method.card.uplink or not latest:
        return made
    rng, labels = world.streams.numpy("replay_pairs"), world.data.train.y
    clients = sorted(rng.permutation(sorted(latest))[: settings.clients].tolist())
    architecture = KnownArchitecture(world.make_net, world.data)
    cells = []  # (client, class, indices)
    for k in clients:
        index = world.population.parts[k]
        cells += [(k, int(c), index[labels[index] == c]) for c in np.unique(labels[index])]
    extractors = {k: architecture(latest[k].payload) for k in clients}
    for n in settings.sizes:
        possible = [cell for cell in cells if len(cell[2]) > n]
        for i in range(settings.groups if possible else 0):
            k, label, members = possible[i % len(possible)]
            chosen = rng.choice(members, n + 1, replace=False)
            features = extractors[k].features(world.data.train.x[chosen]).astype(np.float64)
            for size, name in ((n, "before"), (n + 1, "after")):
                # A stream of its own, so that two replays of one client meet different noise
                streams = Streams(world.streams.key("replay_pairs", n, i, name))
                mean = features[:size].mean(0)
                sent = sent_prototype(world, streams, latest[k], recorded, label, size, mean)
                if sent is None:
                    continue
                made.groups[f"replay/pair{n}/{i}/{name}"] = chosen[:size]
                made.artifacts.append(
                    Artifact(
                        id=f"replay/pair{n}/{i}/{name}",
                        kind=Kind.LOCAL_PROTOTYPES,
                        channel=Channel.UPLINK,
                        round=latest[k].round,
                        sender=latest[k].sender,
                        seen_by=latest[k].seen_by,
                        payload=sent,
                        origin="replayed",
                        note={"n": size, "pair": f"{n}/{i}"},
                    )
                )
    return made
