"""Replayed pairs: the two prototypes a client sends before and after one image joins a class.

Prototype differencing needs a class that grew between two rounds, and simulated clients keep their
data. The auditor therefore averages n of a client's own images, and the same n with one more, with
the model that client uploaded and through the same protections: the planted leak, and the curve
against n. Only attacks that read all rounds are given them.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from audit.controls.lab import Lab, Replays
from audit.controls.prototypes import sent_prototype
from audit.observer.models import KnownArchitecture
from audit.settings.config import Replay
from audit.subject.case import Case
from fl.artifact import Artifact
from fl.kinds import Kind
from fl.streams import Streams


def plant(case: Case, recorded: Sequence[Artifact], settings: Replay) -> Replays:
    """Pairs of local_prototypes over n and n + 1 images, for every n in settings.sizes.

    As many of each n as settings.groups, spread over settings.clients clients and their classes. Empty
    where the method sends no prototypes, its clients cannot be played, or no model was recorded.
    """
    made = Replays()
    latest = {
        a.sender.index: a
        for a in sorted(recorded, key=lambda a: a.round)
        if a.kind == Kind.LOCAL_MODEL and a.sender.index in case.parts
    }
    lab = Lab.of(case) if latest and Kind.LOCAL_PROTOTYPES in case.card.uplink else None
    if lab is None:
        return made
    rng, labels = case.streams.numpy("replay_pairs"), case.data.train.y
    clients = sorted(rng.permutation(sorted(k for k in latest if k is not None))[: settings.clients].tolist())
    architecture = KnownArchitecture(lab.make, case.data)
    cells = []  # (client, class, indices)
    for k in clients:
        index = case.parts[k]
        cells += [(k, int(c), index[labels[index] == c]) for c in np.unique(labels[index])]
    extractors = {k: architecture(latest[k].payload) for k in clients}
    for n in settings.sizes:
        possible = [cell for cell in cells if len(cell[2]) > n]
        for i in range(settings.groups if possible else 0):
            k, label, members = possible[i % len(possible)]
            chosen = rng.choice(members, n + 1, replace=False)
            features = extractors[k].features(case.data.train.x[chosen]).astype(np.float64)
            like = replace(latest[k], kind=Kind.LOCAL_PROTOTYPES)
            for size, name in ((n, "before"), (n + 1, "after")):
                # A stream of its own, so that two replays of one client meet different noise
                seeded = lab.holding(streams=Streams(case.streams.key("replay_pairs", n, i, name)))
                sent = sent_prototype(seeded, latest[k], recorded, label, size, features[:size].mean(0))
                note: dict[str, float | str] = {"n": size, "pair": f"{n}/{i}"}
                made.add(f"replay/pair{n}/{i}/{name}", like, sent, chosen[:size], note)
    return made
