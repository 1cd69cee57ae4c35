"""Series: what a client would have sent in every round that it took part in, had it owned one text alone.

What adapters of one round hide, those of several show, so a leak is planted over rounds as well: for some
people of every client, that client's training of every recorded round is played again on the one of them, by
the method's own client code, from what it had received, with the run's protections and without. Messages of one
person bear the same note `series`.
"""

from collections.abc import Sequence

import numpy as np

from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.prototypes._weights import uploads as read
from fedaudit.attacks.updates._gradients import KINDS
from fedaudit.audit.case.case import Case
from fedaudit.audit.controls.lab import (
    Replays,
    find_bench,
    find_received_message,
    has_received_model,
    list_owned_examples,
    name_replay,
)
from fedaudit.audit.controls.updates import MOST_BYTES
from fedaudit.audit.settings.controls import Replay
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import published_noise

EACH = 2  # people planted through each client's code
MOST_ROUNDS = 20  # of each client, the last


def plant(case: Case, recorded: Sequence[Artifact], settings: Replay) -> Replays:
    """Replayed uploads of every round, EACH people of every client.

    `recorded` must hold the broadcasts of the uploads' rounds. Empty where the method sends no model, its clients
    cannot be played, or no broadcast was recorded.
    """
    made, recorded = Replays(), index(recorded)
    noise = {f"noise_std.{k}": published_noise(case.protections, k) or 0.0 for k in KINDS}
    uploads = [a for a in read(recorded, noise, KINDS) if a.origin == "recorded"]
    uploads = [a for a in uploads if has_received_model(recorded, a)]
    lab = find_bench(case) if uploads and settings.update_groups else None
    if lab is None:
        return made
    rng, parts = case.streams.numpy("replay_series"), list_owned_examples(case.examples, case.clients)
    by_client: dict[int, list[Artifact]] = {}
    for a in sorted(uploads, key=lambda a: a.round):
        if a.sender.index in parts and a.sender.index is not None:
            by_client.setdefault(a.sender.index, []).append(a)
    epochs = max(1, int(getattr(lab.method.config, "local_epochs", 1)))
    size = sum(a.size_bytes for some in by_client.values() for a in some[-MOST_ROUNDS:])
    size *= 2 if lab.is_protected else 1
    each = min(EACH, max(1, MOST_BYTES // max(1, size)))
    for client, some in sorted(by_client.items()):
        for i, row in enumerate(rng.permutation(parts[client])[:each].tolist()):
            chosen = np.array([row])
            note: dict[str, float | str] = {"batch": 1, "steps": epochs, "series": f"{client}.{i}"}
            for a in some[-MOST_ROUNDS:]:
                streams = Streams(case.streams.key("replay_series", client, i, a.round))
                alone = lab.alone(client, chosen, streams, epochs=epochs, batch=1)
                for origin, sent in alone.replay_each(a, find_received_message(recorded, a)):
                    id = name_replay(f"replay/series/{client}.{i}/{a.round}", origin)
                    made.add(id, a, sent, chosen, note, origin)
    return made
