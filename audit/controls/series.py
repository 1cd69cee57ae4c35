"""Series: what a client would have sent in every round that it took part in, had it owned one text alone.

What adapters of one round hide, those of several show, so a leak is planted over rounds as well: for some
people of every client, that client's training of every recorded round is played again on the one of them, by
the method's own client code, from what it had received, with the run's protections and without. Messages of one
person bear the same note `series`.
"""

from collections.abc import Sequence

import numpy as np

from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.gradients import KINDS
from fedaudit.attacks.evaluation.sources import uploads as read
from fedaudit.audit.controls.effort import VISITS, PlayedClients
from fedaudit.audit.controls.lab import Lab, Replays, find_received_message, has_received_model, name_replay
from fedaudit.audit.controls.updates import fit_people
from fedaudit.audit.settings.controls import Replay
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import published_noise

EACH = 2  # people planted through each client's code
MOST_ROUNDS = 20  # of each client, the last


def count_steps(clients: PlayedClients, settings: Replay, training: LocalConfig) -> dict[int, int]:
    """Batch size -> steps, and visits, that these clients are played for, about."""
    rounds = min(training.rounds, MOST_ROUNDS)
    each = fit_people(EACH, clients.upload_bytes * len(clients) * rounds * clients.origins)
    people = sum(min(each, n) for n in clients.sizes) if settings.updates else 0
    steps = clients.step * max(1, training.local_epochs)
    return {1: people * rounds * steps, VISITS: people * rounds * clients.visits}


def plant(lab: Lab, recorded: Sequence[Artifact], settings: Replay) -> Replays:
    """Replayed uploads of every round, EACH people of every client.

    `recorded` must hold the broadcasts of the uploads' rounds. Empty where the method sends no model, or no
    broadcast was recorded.
    """
    made, recorded, seeds = Replays(), index(recorded), lab.holdings.streams
    noise = {f"noise_std.{k}": published_noise(lab.protections, k) or 0.0 for k in KINDS}
    uploads = [a for a in read(recorded, noise, KINDS) if a.origin == "recorded"]
    uploads = [a for a in uploads if has_received_model(recorded, a)]
    if not uploads or not settings.updates:
        return made
    rng = seeds.numpy("replay_series")
    by_client: dict[int, list[Artifact]] = {}
    for a in sorted(uploads, key=lambda a: a.round):
        if a.sender.index in lab.owned and a.sender.index is not None:
            by_client.setdefault(a.sender.index, []).append(a)
    epochs = max(1, int(getattr(lab.method.config, "local_epochs", 1)))
    size = sum(a.size_bytes for some in by_client.values() for a in some[-MOST_ROUNDS:])
    size *= 2 if lab.is_protected else 1
    each = fit_people(EACH, size)
    for client, some in sorted(by_client.items()):
        for i, row in enumerate(rng.permutation(lab.owned[client])[:each].tolist()):
            chosen = np.array([row])
            note: dict[str, float | str] = {"batch": 1, "steps": epochs, "series": f"{client}.{i}"}
            for a in some[-MOST_ROUNDS:]:
                streams = Streams(seeds.key("replay_series", client, i, a.round))
                alone = lab.alone(client, chosen, streams, epochs=epochs, batch=1)
                for origin, sent in alone.replay_each(a, find_received_message(recorded, a)):
                    id = name_replay(f"replay/series/{client}.{i}/{a.round}", origin)
                    made.add(id, a, sent, chosen, note, origin)
    return made
