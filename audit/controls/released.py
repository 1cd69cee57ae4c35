"""Replayed models of a federation in which each class is one person: what may be released, at worst.

An attack that finds nobody in a model which many taught proves nothing unless it is seen to work on one which
few did. The auditor therefore trains clients anew, by the method's own code and through the run's protections,
from the first model that was recorded, on one person of each class for as long as the run trains, nobody else
taking part. About PEOPLE people are planted, through every client's code in turn.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence

import numpy as np

from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.audit.controls.effort import VISITS, PlayedClients
from fedaudit.audit.controls.lab import Lab, Replays, find_received_message, has_received_model, name_replay
from fedaudit.audit.settings.controls import Replay
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import UPDATES, Kind
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.runtime.streams import Streams

PEOPLE = 100
MOST = 20  # models


def count_steps(clients: PlayedClients, settings: Replay, training: LocalConfig) -> dict[int, int]:  # noqa: ARG001
    """Batch size -> steps, and visits, that these clients are played for, about."""
    classes = max((len(own) for own in clients.classes), default=0)
    models = _count_models(classes, len(clients))
    return Counter(
        {max(1, classes): clients.step * models * training.local_epochs, VISITS: clients.visits * models}
    )


def plant(lab: Lab, recorded: Sequence[Artifact], settings: Replay) -> Replays:  # noqa: ARG001
    """Replayed uploads, each of one person of every class; empty where no model was sent, or recorded."""
    made, recorded, seeds = Replays(folder=lab.scratch), index(recorded), lab.holdings.streams
    rng, lab = seeds.numpy("replay_released"), dataclasses.replace(lab, others=lambda round, client: ())
    sent = [
        a
        for a in sorted(recorded, key=lambda a: a.round)
        if a.kind in (*UPDATES, Kind.NORMALIZED_DELTA)
        and a.origin == "recorded"
        and a.sender.index in lab.owned
        and has_received_model(recorded, a)
    ]
    first = {a.sender.number: a for a in sent[::-1] if a.round == sent[0].round}
    rows = np.unique(np.concatenate([np.zeros(0, np.int64), *lab.owned.values()]))
    labels = lab.holdings.data.group(lab.holdings.data.train)[rows]
    classes = np.unique(labels)
    of_class = [rng.permutation(rows[labels == c]) for c in classes]
    clients = sorted(first)
    for i in range(_count_models(len(classes), len(clients))):
        client = clients[i % len(clients)]
        chosen = np.sort([own[i % len(own)] for own in of_class])
        streams = Streams(seeds.key("replay_released", i))
        alone = lab.alone(client, chosen, streams, epochs=lab.method.config.local_epochs, batch=len(chosen))
        for origin, arrived in alone.replay_each(first[client], find_received_message(recorded, first[client])):
            id = name_replay(f"replay/released/{i}", origin)
            made.add(id, first[client], arrived, chosen, {"n": len(chosen)}, origin)
    return made


def _count_models(classes: int, clients: int) -> int:
    """How many models of one person a class: of every client, and of PEOPLE people at least, but MOST at most."""
    return min(MOST, max(clients, -(-PEOPLE // max(1, classes)))) if clients and classes else 0
