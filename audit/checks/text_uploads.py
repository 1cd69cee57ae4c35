"""Uploads of clients that train on text: noise that spares rows, and adapters within reach of a span."""

from collections import defaultdict
from collections.abc import Collection, Iterator

import numpy as np

from fedaudit.attacks.evaluation.span import count_law, list_pairs
from fedaudit.audit.case.case import KnownFederation, ObservedFederation
from fedaudit.audit.case.messages import messages
from fedaudit.audit.controls.lab import Lab
from fedaudit.audit.observer.check import Check, Seen
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import DELTAS, UPDATES, Kind
from fedaudit.fl.recording.recorder import manifest
from fedaudit.fl.wire.protection import published_noise
from fedaudit.reports.result import Finding, Severity

PLUGINS = ("sparse_noise", "adapter_reach")
LEAST_ROWS = 10  # that did not move at all, of one array
FACTORS = (".lora_A.weight", ".lora_B.weight")


class SparseNoise(Check):
    """Sparse noise: noise is declared on what clients send, and rows of it did not move at all (lint T4).

    Gaussian noise leaves no number as it was. Noise that is drawn for the rows that moved names the words that
    were read, whatever its size, and bounds nothing.
    """

    def inspect(self, federation: ObservedFederation, lab: Lab | None) -> Iterator[Seen]:
        sent, artifacts = (*federation.card.uplink, *federation.card.relay), federation.artifacts
        kinds = [k for k in UPDATES if k in sent]
        if artifacts is None or not federation.data.is_text or not is_noised(federation, kinds):
            return
        recorded = messages(artifacts, {*kinds, Kind.GLOBAL_MODEL}, "latest")
        starts = {a.round: a for a in recorded if a.kind == Kind.GLOBAL_MODEL}
        uploads = [a for a in recorded if a.from_client and a.kind in kinds]
        still = [a for a in uploads if count_still_rows(a, starts.get(a.round)) >= LEAST_ROWS]
        if not still:
            return
        rows = max(count_still_rows(a, starts.get(a.round)) for a in still)
        yield Finding(
            id="sparse-noise",
            title="Noise is declared, and rows of what clients send did not move",
            summary=f"In {len(still)} of {len(uploads)} uploads rows are as they were received, {rows:,} in "
            "one. Noise on the others says which words were read, and the declared bound does not hold.",
            severity=Severity.HIGH,
            reason="Noise that spares the rows nobody read says which words were read.",
            artifacts=[*dict.fromkeys(str(a.kind) for a in still)],
            does_not_show="whether the noise on the rows that moved is as large as declared",
            remedy="add the noise to every row of the embedding, whether a word was read or not",
        )


def is_noised(federation: KnownFederation, kinds: Collection[Kind]) -> bool:
    """Whether noise is declared on what clients send, or on every step of their training."""
    in_training = federation.private is not None and federation.private.noise_multiplier > 0
    return in_training or any(published_noise(federation.protections, k) > 0 for k in kinds)


def count_still_rows(upload: Artifact, start: Artifact | None) -> int:
    """Rows of its largest matrix that are exactly as they were received, where others moved; padding apart."""
    matrices = {n: v for n, v in upload.payload.items() if v.ndim == 2}
    if not matrices:
        return 0
    name = max(matrices, key=lambda n: len(matrices[n]))
    change = np.asarray(matrices[name], np.float64)
    if upload.kind not in DELTAS:
        if start is None or name not in start.payload:
            return 0
        change = change - np.asarray(start.payload[name], np.float64)
    moved = change[1:].any(axis=1)
    return int((~moved).sum()) if moved.any() else 0


class AdapterReach(Check):
    """Adapter reach: a client's rounds have more directions than its texts have (lint T6).

    The law of attacks/evaluation/span.py: tokens + positions - components. Where the adapters of all recorded
    rounds together have as many rows as that, their low rank hides nothing from who follows them; where A is
    frozen, its rank alone counts.
    """

    def inspect(self, federation: ObservedFederation, lab: Lab | None) -> Iterator[Seen]:
        kinds = {Kind.ADAPTER, Kind.ADAPTER_DELTA} & {*federation.card.uplink}
        artifacts, data, parts = federation.artifacts, federation.data, federation.examples.parts
        if artifacts is None or not data.is_text or not kinds or not parts:
            return
        if is_noised(federation, kinds) or any(p.hides_single_uploads() for p in federation.protections):
            return  # nobody reads a client's own span
        rounds = defaultdict[int, set[int]](set)
        for line in manifest(artifacts):
            sender = str(line.get("sender", ""))
            if kinds & {*map(Kind, line.get("kinds", ()))} and sender.startswith("client/"):
                rounds[int(sender.partition("/")[2])].add(int(line["round"]))
        latest = {a.sender.index: a for a in messages(artifacts, kinds, "latest")}
        reached = []
        for client, rows in parts.items():
            sent = latest.get(client)
            if sent is None or not len(rows):
                continue
            law = count_law(list_pairs(data.train.x[rows]))
            if law <= count_directions(sent, len(rounds[client])):
                reached.append(law)
        if not reached:
            return
        law = min(reached)
        yield Finding(
            id="adapters-within-reach",
            title="Adapters of a low rank do not hide the words of some clients",
            summary=f"The texts of {len(reached)} of {len(latest)} clients have fewer directions (as few as "
            f"{law}) than the adapters of their recorded rounds have rows. Where training follows gradients, "
            "the words can be read exactly.",
            severity=Severity.LOW,
            reason="That is no leak by itself; a low rank is no protection here.",
            artifacts=sorted(map(str, kinds)),
            does_not_show="whether an adaptive optimiser, noise or rounding silences the attack: adapter_span "
            "tries it",
            remedy="do not rely on the rank: sum adapters securely, or noise them with a stated epsilon (dp_sgd)",
        )


def count_directions(adapter: Artifact, rounds: int) -> int:
    """Rows of A of the first block's maps over so many rounds; where A is not sent, its rank, once."""
    factors = [{n: v for n, v in adapter.payload.items() if n.endswith(f)} for f in FACTORS]
    number = {n: [int(p) for p in n.split(".") if p.isdecimal()] for some in factors for n in some}
    if factors[0]:
        first = min(number[n] for n in factors[0])
        return rounds * sum(len(v) for n, v in factors[0].items() if number[n] == first)
    return min((int(v.shape[1]) for v in factors[1].values()), default=0)
