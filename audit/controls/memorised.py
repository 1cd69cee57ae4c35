"""Replayed models: what a client would have uploaded, had it learnt a few wrongly labelled images.

A membership attack that finds nothing in a model trained lightly on many images proves nothing
unless it is seen to work where membership is certain to show. The auditor therefore trains every client
anew on up to IMAGES of its own images, TOGETHER at a time, for EPOCHS epochs, with the run's protections and
without: from the recorded global model, by the method's own client code, and through the same protections. Labels
are wrong, at random, so that only memory can tell them (mislabelled canaries: Aerni, Zhang, Tramer, CCS 2024,
arXiv:2404.17399). The smallest model memorises so few, and the direction of an update, or of a sum of many, still
tells of each. Where a loss depends on who else is in a batch, as Cox's does, all of them are learnt together: two
alone are taught nothing but their order. Noise that hides members from the attack in a real upload hides them
here as well.

Plants of other kinds say what an attack can find where it misses this one, or what this one hides (models that
learnt wrong labels are told by their confidence alone; the direction of so long a training tells little):
FEW of a client's images under their own labels, seen once, whose upload is their mean gradient; and half of a
client's images under their own labels, trained on as the run trains, as hard as what was really sent.

Models that clients hand to each other in relays are replayed likewise, each from the one that
its client had been handed.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.model_trials import draw_wrong
from fedaudit.attacks.evidence import REPLAYED
from fedaudit.attacks.modality.images import fingerprints
from fedaudit.audit.case.messages import messages
from fedaudit.audit.controls.effort import VISITS, PlayedClients
from fedaudit.audit.controls.lab import (
    EACH,
    Lab,
    Replays,
    Visit,
    find_received_message,
    has_received_model,
    name_replay,
)
from fedaudit.audit.settings.controls import Replay
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.data.partition import Index
from fedaudit.fl.kinds import UPDATES, Kind
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.runtime.side_by_side import collect
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Message

IMAGES, EPOCHS, TOGETHER, FEW = 20, 100, 2, 5
ALL = 200  # people planted through all clients' code, about


@dataclass(frozen=True)
class MemorisedRows:
    """Rows of data.train that a client learns, and how."""

    name: str  # empty: under wrong labels
    chosen: Index
    epochs: int
    batch: int
    curve: bool = False  # one n of a curve


def count_steps(clients: PlayedClients, settings: Replay, training: LocalConfig) -> dict[int, int]:
    """Batch size -> steps, and visits, that these clients are played for, about."""
    sizes, people = clients.sizes, _count_people(len(clients))
    pairs = sum(-(-min(people, n) // TOGETHER) for n in sizes)
    steps = Counter({TOGETHER: clients.step * pairs * EPOCHS, VISITS: clients.visits * pairs})
    lightly = sizes[: settings.clients]
    trained = [max(1, sum(lightly) // len(lightly) // 2)] * len(lightly) if lightly else []
    if not clients.has_truth:
        trained += [n for own in sizes for n in settings.sizes if n <= own]
    for n in trained:
        steps[VISITS] += 1
        batch = min(training.batch_size, n)
        steps[batch] += clients.protected_step * training.local_epochs * -(-n // batch)
    return steps


def plant(lab: Lab, recorded: Sequence[Artifact], settings: Replay) -> Replays:
    """A replayed upload, and a replayed model of a relay, for each plant and each of settings.clients clients.

    `recorded` must hold what the senders had received (every kind on the method's downlink and relay)
    in the same rounds. Empty where the method sends no model, or nothing of this was recorded.
    """
    jobs, recorded, seeds = list[_Training](), index(recorded), lab.holdings.streams
    rng, has_truth = seeds.numpy("replay_models"), any(map(len, lab.holdings.parts))
    for kinds, prefix in (
        ((*UPDATES, Kind.NORMALIZED_DELTA), "replay/model"),
        ((Kind.RELAY_MODEL,), "replay/relay"),
    ):
        newest = {
            a.sender.index: a
            for a in sorted(recorded, key=lambda a: a.round)
            if a.kind in kinds and a.origin == "recorded" and _can_begin(recorded, a)
        }
        every = sorted(k for k in newest if k is not None and k in lab.owned)
        some = {int(k) for k in rng.permutation(every)[: settings.clients]}  # that have plants of other kinds too
        people = _count_people(len(every))
        for client in every:
            model, own = newest[client], lab.owned[client]
            together = TOGETHER if lab.holdings.data.task.separable else people
            plants = [
                MemorisedRows("", np.sort(chosen), EPOCHS, len(chosen))
                for chosen in _split(_choose(own, people, rng), together, rng)
            ]
            is_upload = model.kind != Kind.RELAY_MODEL
            if is_upload and client in some:
                plants += _plant_lightly(own, lab.method.config, rng)
            if is_upload and not has_truth:
                wanted = {*settings.sizes, *list_sizes(lab.artifacts)[:1]}
                plants += _curve(own, lab.method.config, wanted, rng)
            jobs += [_Training(model, f"{prefix}/{client}", i, p) for i, p in enumerate(plants)]
    stacks = _stack(lab, recorded, jobs)
    played = collect(stacks, lambda numbers: _play(lab, recorded, [jobs[i] for i in numbers]))
    made = dict[int, Replays]()
    for numbers, replays in zip(stacks, played, strict=True):
        made.update(zip(numbers, replays, strict=True))
    return Replays.join(made[i] for i in range(len(jobs)))


def _count_people(clients: int) -> int:
    """How many of each of so many clients learn wrong labels, as far as it has so many."""
    return max(EACH, min(IMAGES, ALL // max(1, clients)))


@dataclass(frozen=True)
class _Training:
    """One model that a client is played for."""

    model: Artifact  # that it sent
    id: str  # of all that it is played for
    number: int  # of this one
    rows: MemorisedRows


def _stack(lab: Lab, recorded: Sequence[Artifact], jobs: Sequence[_Training]) -> list[list[int]]:
    """Numbers of the jobs that are played at once: many that learn wrong labels, where that is faster, or one."""
    alike, found = dict[int, list[int]](), list[list[int]]()
    for i, job in enumerate(jobs):
        if not job.rows.name:
            alike.setdefault(job.rows.batch, []).append(i)
    for numbers in alike.values():
        width = _visit(lab, recorded, jobs[numbers[0]]).lab.width
        found += [part.tolist() for part in np.array_split(numbers, -(-len(numbers) // width))]
    return [*found, *([i] for i, job in enumerate(jobs) if job.rows.name)]


def _play(lab: Lab, recorded: Sequence[Artifact], jobs: Sequence[_Training]) -> list[Replays]:
    """The models of these jobs, which train alike."""
    visits, made = [_visit(lab, recorded, job) for job in jobs], [Replays(folder=lab.scratch) for _ in jobs]
    if jobs[0].rows.name:
        arrived = [[(REPLAYED, v.lab.replay(v.like, v.received))] for v in visits]
    else:
        arrived = lab.replay_together(visits)
    for job, own, replies in zip(jobs, made, arrived, strict=True):
        rows, note = job.rows, dict[str, float | str](n=len(job.rows.chosen))
        note |= {"plant": rows.name} if rows.name else {}
        note |= {"curve": 1} if rows.curve else {}
        is_first = not job.number and not rows.name
        for origin, sent in replies:
            name = name_replay(job.id + ("" if is_first else f".{job.number}"), origin)
            own.add(name, job.model, sent, rows.chosen, note, origin)
    return made


def _visit(lab: Lab, recorded: Sequence[Artifact], job: _Training) -> Visit:
    """The client at that work."""
    client, rows, data = job.model.sender.number, job.rows, lab.holdings.data
    streams = Streams(lab.holdings.streams.key("replay_models", client, job.number))
    alone = lab.alone(
        client,
        rows.chosen,
        streams,
        epochs=rows.epochs,
        batch=rows.batch,
        data=data if rows.name else _change_labels(data, rows.chosen),
    )
    return Visit(alone, job.model, _find_start(recorded, job.model))


def _split(chosen: Index, together: int, rng: np.random.Generator) -> list[Index]:
    """These people in an order of chance, so many at a time."""
    return np.array_split(rng.permutation(chosen), -(-len(chosen) // together))


def _plant_lightly(own: Index, config: LocalConfig, rng: np.random.Generator) -> list[MemorisedRows]:
    few, half = _choose(own, FEW, rng), _choose(own, len(own) // 2, rng)
    return [
        MemorisedRows("a few examples, seen once", few, 1, len(few)),
        MemorisedRows("trained as the run trains", half, config.local_epochs, min(config.batch_size, len(half))),
    ]


def _choose(own: Index, number: int, rng: np.random.Generator) -> Index:
    return np.sort(rng.choice(own, max(1, min(number, len(own))), replace=False))


def _curve(own: Index, config: LocalConfig, wanted: set[int], rng: np.random.Generator) -> list[MemorisedRows]:
    """Plants of every size wanted, as far as there are examples, each trained on as the run trains."""
    return [
        MemorisedRows(
            "trained as the run trains",
            np.sort(rng.choice(own, n, replace=False)),
            config.local_epochs,
            min(config.batch_size, n),
            curve=True,
        )
        for n in sorted(wanted)
        if n <= len(own)
    ]


def _find_start(recorded: Sequence[Artifact], model: Artifact) -> Message:
    """What its sender had received that round; in a relay, the model it was handed is where it began."""
    found = find_received_message(recorded, model)
    for a in _find_relayed_models(recorded, model):
        found[Kind.GLOBAL_MODEL] = {k: torch.from_numpy(np.array(v)) for k, v in a.payload.items()}
    return found


def _can_begin(recorded: Sequence[Artifact], model: Artifact) -> bool:
    """Whether the model that its sender began with was recorded."""
    return bool(_find_relayed_models(recorded, model)) or has_received_model(recorded, model)


def _find_relayed_models(recorded: Sequence[Artifact], model: Artifact) -> list[Artifact]:
    """In a relay, the models that its sender was handed that round."""
    if model.kind != Kind.RELAY_MODEL:
        return []
    return index(recorded).select(round=model.round, kind=model.kind, seen_by=(str(model.sender),))


def _change_labels(data: Data, chosen: Index) -> Data:
    """The data with labels for the chosen examples that only memory can tell."""
    labels, draws = data.train.y.copy(), [draw_wrong(m) for m in fingerprints(data.train.x[chosen])]
    labels[chosen] = data.task.mislabel(labels[chosen], draws, data.width)
    return dataclasses.replace(data, train=Arrays(x=data.train.x, y=labels))


def list_sizes(artifacts: Path | None) -> list[int]:
    """Examples that each client says are behind its latest messages, in order; empty where none says it."""
    sent = [] if artifacts is None else messages(artifacts, {Kind.NUM_EXAMPLES}, "latest")
    said = [int(n) for a in sent for n in np.ravel(a.payload["count"]).tolist()]
    return sorted(n for n in said if n > 0)
