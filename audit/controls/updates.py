"""Replayed updates: what a client would have uploaded, had it trained on B of its images for s steps.

An attack on updates that recovers nothing from thirty steps over a thousand images proves nothing
unless it is seen to work on one step over one image. The auditor therefore trains clients anew, on B
of their own images only: from the recorded global model, by the method's own client code, and
through the same protections (audit/controls/lab.py). s epochs over one batch are s steps. B = 1, s = 1 is the
planted leak.
"""

from collections.abc import Sequence

import numpy as np

from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.prototypes._weights import uploads as read
from fedaudit.attacks.updates._gradients import KINDS
from fedaudit.audit.case.case import Case
from fedaudit.audit.controls.lab import Lab, Replays, has_received_model, owned, received
from fedaudit.audit.settings.controls import Replay
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import published_noise

MOST_BYTES = 2**30  # of replayed updates in memory; of larger models there are fewer groups


def plant(case: Case, recorded: Sequence[Artifact], settings: Replay) -> Replays:
    """Replayed uploads of whatever kind, settings.update_groups of every size and step count.

    `recorded` must hold the broadcasts (every kind on the method's downlink) of the uploads' rounds.
    Empty where the method sends no model, its clients cannot be played, or no broadcast was recorded.
    """
    made, recorded = Replays(), index(recorded)
    noise = {f"noise_std.{k}": published_noise(case.protections, k) or 0.0 for k in KINDS}
    uploads = [a for a in read(recorded, noise, KINDS) if a.origin == "recorded"]  # those that attacks read
    uploads = [a for a in uploads if has_received_model(recorded, a)]
    lab = Lab.of(case) if uploads else None
    if lab is None:
        return made
    rng = case.streams.numpy("replay_updates")
    parts = owned(case)
    latest = {a.sender.index: a for a in sorted(uploads, key=lambda a: a.round)}
    clients = sorted(rng.permutation(sorted(k for k in latest if k is not None and k in parts)).tolist())
    clients = clients[: settings.clients]
    each = max(a.size_bytes for a in uploads) * len(settings.updates) * len(settings.update_steps)
    groups = min(settings.update_groups, max(1, MOST_BYTES // max(1, each)))
    for batch in settings.updates:
        able = [k for k in clients if len(parts[k]) >= batch]
        for i in range(groups if able else 0):
            client = able[i % len(able)]
            upload = latest[client]
            chosen = np.sort(rng.choice(parts[client], batch, replace=False))
            for steps in settings.update_steps:
                # A stream of its own, so that two replays of one client meet different noise
                streams = Streams(case.streams.key("replay_updates", batch, steps, i))
                # one batch of all its images: every one is in every step
                alone = lab.alone(client, chosen, streams, epochs=steps, batch=batch)
                sent = alone.replayed(upload, received(recorded, upload))
                id, note = f"replay/update-b{batch}-s{steps}/{i}", {"batch": batch, "steps": steps}
                made.add(id, upload, sent, chosen, note)
    return made
