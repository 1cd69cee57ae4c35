"""Replayed pairs: the two prototypes a client sends before and after one image joins a class.

Prototype differencing needs a class that grew between two rounds, and simulated clients keep their
data. The auditor therefore replays the prototype of n of a client's own images, and of the same n with one more
(audit/controls/prototypes.py): the planted leak, and the curve against n.
"""

from collections import Counter
from collections.abc import Sequence

from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.audit.controls.effort import PlayedClients, count_groups, count_reading
from fedaudit.audit.controls.lab import Lab, Replays
from fedaudit.audit.controls.prototypes import cells, senders, sent_prototype
from fedaudit.audit.settings.controls import Replay
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.runtime.streams import Streams


def count_steps(clients: PlayedClients, settings: Replay, training: LocalConfig) -> dict[int, int]:  # noqa: ARG001
    """Batch size -> steps, and visits, of these clients, about."""
    held, others = clients.take(settings.clients), clients.mean_classes - 1
    able = [n for n in settings.sizes if count_groups(held, n + 1, 1)]
    return sum((count_reading(2 * settings.groups, n + others) for n in able), Counter[int]())


def plant(lab: Lab, recorded: Sequence[Artifact], settings: Replay) -> Replays:
    """Pairs of local_prototypes over n and n + 1 images, for every n in settings.sizes.

    As many of each n as settings.groups, spread over settings.clients clients and their classes. Empty
    where no prototypes were recorded together with a model of that round.
    """
    recorded, seeds = index(recorded), lab.holdings.streams
    made, latest = Replays(), senders(lab.owned, recorded)
    if not latest:
        return made
    rng = seeds.numpy("replay_pairs")
    clients = sorted(rng.permutation(sorted(latest))[: settings.clients].tolist())
    held = [c for k in clients for c in cells(lab, latest[k])]
    for n in settings.sizes:
        possible = [cell for cell in held if len(cell.members) > n]
        for i in range(settings.groups if possible else 0):
            cell = possible[i % len(possible)]
            chosen = rng.choice(cell.members, n + 1, replace=False)
            for size, name in ((n, "before"), (n + 1, "after")):
                streams = Streams(seeds.key("replay_pairs", n, i, name))
                sent = sent_prototype(lab, cell, chosen[:size], recorded, streams)
                note: dict[str, float | str] = {"n": size, "pair": f"{n}/{i}"}
                made.add(f"replay/pair{n}/{i}/{name}", cell.sent, sent, chosen[:size], note)
    return made
