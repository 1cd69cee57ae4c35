"""Who is who: whether the node that is said to be a client really holds what is said to be its truth.

A wrong map makes every attack look weak, so it is never taken on trust. Example counts decide where they differ
from client to client; else the loss of every client's latest upload on every client's data: among the uploads, a
client's own must fit its data best. If uploads and data were matched at random, at least h of k clients would be
their own best with probability P(at least h fixed points of a random permutation); below LEVEL the map holds.
Where the best assignment (Hungarian method) is another one, it was chosen after looking. Were losses to tell
nothing, every client's data would be fitted best by an upload at random; the map is contradicted where so many
different uploads would then be somebody's best with a probability below LEVEL.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy
import torch
from numpy.typing import NDArray

from fedaudit.audit.case.case import Split
from fedaudit.audit.case.messages import messages
from fedaudit.audit.importing.protections import acts_on
from fedaudit.audit.observer.models import KnownArchitecture
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.kinds import TRAINED, UPDATES, Kind
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.tasks.text import Text
from fedaudit.fl.wire.protection import Protection
from fedaudit.reports.imported import CheckedStatement

TITLE = "Who is who"
LEVEL = 0.01
MOST_CLIENTS = 60  # of a matrix
MOST_EXAMPLES = 500  # of a client, for its losses
MOST_LOSS = 1e9  # what is more, or no number, is as bad as any
Build = Callable[[Data], KnownArchitecture]  # the stated network, for examples of these data


@dataclass(frozen=True, kw_only=True)
class LatestUploads:
    """What clients sent last, with what is stated of it and the examples that it is held against."""

    messages: Sequence[Artifact]  # clients' latest uploads, and the broadcasts of those rounds
    build: Build | None  # None: no network is stated
    data: Data
    examples: Split
    protections: Sequence[Protection]
    streams: Streams


def check_identities(uploads: LatestUploads) -> CheckedStatement:
    """The map from nodes to truth."""
    examples, latest = uploads.examples, uploads.messages
    if not examples.parts:
        return CheckedStatement(
            id="who", title=TITLE, status="open", text="No client's examples were given: nothing to mix up."
        )
    if not any(a.kind in UPDATES or a.kind == Kind.NUM_EXAMPLES for a in latest):
        text = (
            "No client's model or number of examples was recorded: what is measured is measured on what all are "
            "said to hold."
        )
        return CheckedStatement(id="who", title=TITLE, status="declared", text=text)
    counts = {int(str(a.sender.index)): int(a.payload["count"]) for a in latest if a.kind == Kind.NUM_EXAMPLES}
    if acts_on(uploads.protections, latest, Kind.NUM_EXAMPLES):  # said to be noised
        counts = {}
    held = {k: len(rows) for k, rows in examples.parts.items()}
    told = {k: n for k, n in counts.items() if k in held}
    wrong = [k for k, n in told.items() if n != held[k]]
    often = Counter(held.values()) | Counter(counts.values())
    alone = {k for k, n in told.items() if often[n] == 1}  # of all clients that were heard or have truth
    sent = {a.sender.index for a in latest if a.sender.index is not None} & held.keys()
    by_counts = (
        f"{len(told) - len(wrong)} of {len(told)} clients sent the number of examples that their truth has"
    )
    clients, table = _measure_losses(uploads)
    if told and len(wrong) == 0 and alone == sent:
        text = f"{by_counts}, and no other client has that number."
        found = CheckedStatement(id="who", title=TITLE, status="holds", text=text)
    else:
        found = _judge_losses(clients, table, uploads.build is not None)
    names = [f"client/{k}" for k in clients]
    found = found.model_copy(update={"matrix": table.round(4).tolist(), "names": names})
    if wrong:
        k = wrong[0]
        text = (
            f"Client {k} sent {told[k]:,} as its number of examples, and its truth has {held[k]:,}; {by_counts}. "
        )
        return found.model_copy(update={"status": "contradicted", "text": text + found.text})
    return found


def matches(hits: int, clients: int) -> float:
    """Probability that a random permutation of `clients` keeps at least `hits` in their place."""
    total = 0.0
    for h in range(hits, clients + 1):
        rest = clients - h
        total += sum((-1) ** i / math.factorial(i) for i in range(rest + 1)) / math.factorial(h)
    return min(1.0, max(0.0, total))


def distinct(kinds: int, clients: int) -> float:
    """Probability that `clients` independent draws from as many uploads give at least `kinds` different ones."""
    law = np.zeros(clients + 1)
    law[0] = 1.0
    for _ in range(clients):
        seen = np.arange(clients + 1) / clients
        law = law * seen + np.concatenate([[0.0], (law * (1 - seen))[:-1]])
    return float(law[kinds:].sum())


def _measure_losses(uploads: LatestUploads) -> tuple[list[int], NDArray[np.float64]]:
    """Clients with truth and an upload, and [upload, data] mean loss; empty where no network is known."""
    build, data, parts = uploads.build, uploads.data, uploads.examples.parts
    models = client_models(uploads.messages)
    clients = sorted(models.keys() & parts.keys())[:MOST_CLIENTS]
    if build is None or len(clients) < 2:
        return [], np.zeros((0, 0))
    run, rng, train = build(data), uploads.streams.numpy("who"), data.train
    rows = {k: np.sort(rng.permutation(parts[k])[:MOST_EXAMPLES]) for k in clients}
    table = np.zeros((len(clients), len(clients)))
    for i, k in enumerate(clients):
        net = run(models[k])
        for j, other in enumerate(clients):
            x, y = train.x[rows[other]], torch.from_numpy(train.y[rows[other]])
            if isinstance(data.task, Text):
                graded = net.grade(x).astype(np.float64)
                table[i, j] = graded[:, 0].sum() / max(1.0, graded[:, 2].sum())
                continue
            logits = torch.from_numpy(net.logits(x)).double()
            table[i, j] = float(data.task.loss(logits, y))
    return clients, np.where(table < MOST_LOSS, table, MOST_LOSS)


def _judge_losses(clients: list[int], table: NDArray[np.float64], is_stated: bool) -> CheckedStatement:
    """What the [upload, data] losses say; `is_stated`: somebody stated the network."""
    if not clients:
        why = "fewer than two clients can be compared" if is_stated else "the network is not stated"
        return CheckedStatement(id="who", title=TITLE, status="open", text=f"Could not be checked: {why}.")
    k = len(clients)
    own = int((table.argmin(axis=0) == np.arange(k)).sum())
    chance = matches(own, k)
    text = f"Of {k} clients' data, {own} are fitted best by that client's own upload; matched at random "
    text += f"that many or more would be with probability {chance:.2g}."
    if chance <= LEVEL:
        return CheckedStatement(id="who", title=TITLE, status="holds", text=text)
    centred = table - np.median(table, axis=0)
    _, best = scipy.optimize.linear_sum_assignment(centred.T)  # upload of each data
    other = int((table.argmin(axis=0) == best).sum())
    moved = [f"{clients[j]} by that of {clients[i]}" for j, i in enumerate(best) if i != j]
    if moved and (luck := distinct(other, k)) <= LEVEL:
        text += f" Another map fits: data of client {', '.join(moved[:8])}, which would be so by chance with "
        text += f"probability {luck:.2g}. The stated map is not theirs."
        return CheckedStatement(id="who", title=TITLE, status="contradicted", text=text)
    return CheckedStatement(
        id="who", title=TITLE, status="open", text=f"{text} Who is who does not follow from that."
    )


def client_models(latest: Sequence[Artifact]) -> dict[int, Mapping[str, NDArray[np.generic]]]:
    """Client -> its latest model; a change is added to what the round began with."""
    start = {a.round: a.payload for a in latest if a.kind == Kind.GLOBAL_MODEL}
    found: dict[int, Mapping[str, NDArray[np.generic]]] = {}
    for a in latest:
        if a.kind not in UPDATES or a.sender.index is None:
            continue
        if a.kind in TRAINED:
            found[a.sender.index] = {
                **start.get(a.round, {}),
                **a.payload,
            }  # layers that it did not send are as before
        elif a.round in start:
            base = start[a.round]
            found[a.sender.index] = {n: base[n] + v for n, v in a.payload.items() if n in base}  # type: ignore[operator]
    return found


def latest_uploads(artifacts: Path) -> list[Artifact]:
    return messages(artifacts, {*UPDATES, Kind.NUM_EXAMPLES, Kind.GLOBAL_MODEL}, "latest")
