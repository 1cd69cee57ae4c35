"""Replayed updates: what a client would have uploaded, had it trained on B of its images for s steps.

An attack on updates that recovers nothing from thirty steps over a thousand images proves nothing
unless it is seen to work on one step over one image. The auditor therefore trains clients anew, on B
of their own images only: from the recorded global model, by the method's own client code, and
through the same protections (audit/controls/lab.py). s epochs over one batch are s steps. B = 1, s = 1 is the
planted leak: single people are planted through every client's code, with the run's protections and without.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np

from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.gradients import KINDS
from fedaudit.attacks.evaluation.sources import uploads as read
from fedaudit.audit.controls.effort import VISITS, PlayedClients
from fedaudit.audit.controls.lab import EACH, Lab, Replays, find_received_message, has_received_model, name_replay
from fedaudit.audit.settings.controls import Played, Replay
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.data.partition import Index
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Message, published_noise

MOST_BYTES = 2**30  # of replayed updates in memory; of larger models there are fewer groups


def count_steps(clients: PlayedClients, settings: Replay, training: LocalConfig) -> dict[int, int]:  # noqa: ARG001
    """Batch size -> steps, and visits, that these clients are played for, about."""
    sizes, steps = clients.sizes, Counter[int]()
    for n, some, times in fit_updates(clients.upload_bytes, settings):
        if n <= max(sizes, default=0):
            steps += Counter({n: clients.protected_step * times * some, VISITS: times})
    each = fit_people(EACH, clients.upload_bytes * len(clients) * clients.origins) if settings.updates else 0
    people = sum(min(each, n) for n in sizes)
    return steps + Counter({1: clients.step * people, VISITS: clients.visits * people})


def plant(lab: Lab, recorded: Sequence[Artifact], settings: Replay) -> Replays:
    """Replayed uploads of whatever kind, as many of each as settings.updates says.

    `recorded` must hold the broadcasts (every kind on the method's downlink) of the uploads' rounds.
    Empty where the method sends no model, or no broadcast was recorded.
    """
    made, recorded, seeds = Replays(folder=lab.scratch), index(recorded), lab.holdings.streams
    noise = {f"noise_std.{k}": published_noise(lab.protections, k) or 0.0 for k in KINDS}
    uploads = [a for a in read(recorded, noise, KINDS) if a.origin == "recorded"]  # those that attacks read
    uploads = [a for a in uploads if has_received_model(recorded, a)]
    if not uploads:
        return made
    rng = seeds.numpy("replay_updates")
    latest = {a.sender.index: a for a in sorted(uploads, key=lambda a: a.round)}
    every = sorted(rng.permutation(sorted(k for k in latest if k is not None and k in lab.owned)).tolist())
    clients = every[: settings.clients]
    wanted = fit_updates(max(a.size_bytes for a in uploads), settings)
    for batch, some in groupby(wanted, key=itemgetter(0)):
        of_batch = list(some)
        able = [k for k in clients if len(lab.owned[k]) >= batch >= lab.smallest_batch]
        for i in range(max(times for _, _, times in of_batch) if able else 0):
            client = able[i % len(able)]
            chosen = np.sort(rng.choice(lab.owned[client], batch, replace=False))
            for steps in (steps for _, steps, times in of_batch if i < times):
                id = f"replay/update-b{batch}-s{steps}/{i}"
                streams = Streams(seeds.key("replay_updates", batch, steps, i))
                note = {"batch": batch, "steps": steps}
                made.add(
                    id, latest[client], _send(lab, latest[client], chosen, steps, recorded, streams), chosen, note
                )
    if settings.updates and every and lab.smallest_batch == 1:
        _plant_people(lab, {k: latest[k] for k in every}, recorded, made)
    return made


def fit_updates(upload: int, settings: Replay) -> list[Played]:
    """The updates to replay, fewer of each where an upload has so many bytes that they fill the memory."""
    most = max(1, MOST_BYTES // max(1, upload * len(settings.updates)))
    return [(n, steps, min(times, most)) for n, steps, times in settings.updates]


def fit_people(each: int, size: int) -> int:
    """People of each client, so many at most, where one of each takes so many bytes."""
    return min(each, max(1, MOST_BYTES // max(1, size)))


def _plant_people(lab: Lab, latest: Mapping[int, Artifact], recorded: Sequence[Artifact], made: Replays) -> None:
    """Single people through every client's code, one step on each: without the run's protections, and with them.

    What of these was made before counts; a client has EACH of its own people, as far as it has so many and memory
    holds them.
    """
    seeds = lab.holdings.streams
    rng = seeds.numpy("replay_people")
    size = max(a.size_bytes for a in latest.values()) * len(latest) * (2 if lab.is_protected else 1)
    each = fit_people(EACH, size)
    people = {client: rng.permutation(lab.owned[client])[:each] for client in latest}
    for i in range(each):  # so that an attack which takes the first few has them of many clients
        for client, upload in latest.items():
            if i >= len(people[client]):
                continue
            chosen, note = people[client][i : i + 1], {"batch": 1, "steps": 1}
            streams = Streams(seeds.key("replay_people", client, i))
            alone = lab.alone(client, chosen, streams, epochs=1, batch=1)
            for origin, sent in alone.replay_each(upload, find_received_message(recorded, upload)):
                id = name_replay(f"replay/person/{client}.{i}", origin)
                made.add(id, upload, sent, chosen, note, origin)


def _send(
    lab: Lab, upload: Artifact, chosen: Index, steps: int, recorded: Sequence[Artifact], streams: Streams
) -> Message | None:
    """What arrives of the sender of `upload` where it owns the chosen rows: one batch of them, s times.

    `streams` are the replay's own, so that two replays of one client meet different noise.
    """
    client = upload.sender.number
    alone = lab.alone(client, chosen, streams, epochs=steps, batch=len(chosen))
    return alone.replay(upload, find_received_message(recorded, upload))
