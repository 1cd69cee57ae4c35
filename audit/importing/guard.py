"""Guard: what is about to leave a site, held against what the site holds.

It asks what needs no other client: whether examples stand in the message as they are, or in numbers of the model
or of its change at any scale and offset, in their last bits, in signs of zeros, in pieces or in another order;
whether a layer changed as one step on one example changes it; whether numbers of examples are true; whether noise
that is claimed is there. What it does not find may still leak: members and classes are questions of an audit.
"""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from fedaudit.attacks.evaluation.payloads import (
    Payload,
    Standing,
    find_in_payload,
    find_records,
    find_unopened,
    read_numbers,
    subtract_arrays,
)
from fedaudit.audit.attestation import envelope
from fedaudit.audit.checks.hidden_texts import begin_texts, count_standing
from fedaudit.audit.checks.sample_counts import explain_difference
from fedaudit.audit.importing.protections import is_shorter_than_noise
from fedaudit.audit.noise_audit.noise_samples import NoiseSample
from fedaudit.audit.noise_audit.noise_tests import run_tests
from fedaudit.fl.artifact import Artifact, Channel
from fedaudit.fl.data.dataset import Arrays
from fedaudit.fl.kinds import DELTAS, UPDATES, Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.recording.recorder import manifest, read_message
from fedaudit.fl.runtime import durable
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports import format as fmt

PAYLOAD = "application/vnd.fedaudit.guard+json"
MOST_NOISE = 100_000  # numbers of a message whose noise is tested for its amount, its law and copies
CHANCE = 0.01  # that correct noise raises an alarm
GRADIENTS = (Kind.GRADIENT, Kind.NORMALIZED_DELTA, Kind.CONTROL_DELTA)  # sums over examples, as changes are
RANK_ONE = 1e-3  # of a change's length: what is further from rank one is more than one example, or class
LEAST_ROWS = 3  # of a layer that changed, and as many columns: two outputs are always each other's opposite
ROUNDING = 4  # times the precision of the numbers sent, over which a difference is told from rounding
LOUDEST_ROUNDING = 0.02  # of a change's length; where rounding is more, nothing is told
Action = Literal["stop", "warn", "pass"]  # what becomes of a message


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """One thing that should not leave."""

    check: str  # "examples", "counts" or "noise"
    text: str


@dataclass(frozen=True, kw_only=True)
class Outgoing:
    """A message of a client, and what it had received in that round."""

    line: Mapping[str, Any]
    parts: Sequence[Artifact]
    received: Payload  # the shared model; empty where none was recorded

    @classmethod
    def read(cls, outbox: Path) -> "Outgoing":
        """The last upload in a folder of messages; raises UserError where there is none."""
        lines = [x for x in manifest(outbox) if "message" in x]
        sent = next((x for x in reversed(lines) if x["channel"] == Channel.UPLINK), None)
        if sent is None:
            raise UserError(f"{outbox} holds no message of a client", hint="record what is about to leave")
        models = [
            x
            for x in lines
            if x["channel"] == Channel.DOWNLINK
            and x["round"] == sent["round"]
            and Kind.GLOBAL_MODEL in x["kinds"]
            and {"client", sent["sender"]} & {*x["seen_by"]}
        ]
        received = [a for x in models[-1:] for a in read_message(outbox, x) if a.kind == Kind.GLOBAL_MODEL]
        parts = read_message(outbox, sent)
        return cls(line=sent, parts=parts, received=received[0].payload if received else {})


def check_outgoing(
    sent: Outgoing,
    own: Arrays,
    *,
    noised: frozenset[Kind] = frozenset(),
    noise_std: float = 0.0,
    clean: Outgoing | None = None,
) -> list[Alarm]:
    """Alarms about one message.

    Args:
        sent: What is about to leave.
        own: The examples that the site trains on, as it has them before normalisation.
        noised: Kinds of counts that a protection changes, which are not held against the examples.
        noise_std: Standard deviation of the noise that is claimed on every number of the update.
        clean: The same message before the noise, where the site can give it.
    """
    return [
        *_check_examples(sent, own),
        *_check_rank(sent),
        *_check_counts(sent, own, noised),
        *(_check_noise(sent, noise_std, clean) if noise_std else []),
    ]


def write_line(
    log: Path, key: Ed25519PrivateKey, sent: Outgoing, alarms: Sequence[Alarm], on_alarm: Action
) -> Action:
    """Append a signed line to the log: a DSSE envelope. Returns what becomes of the message."""
    action = on_alarm if alarms else "pass"
    body = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "sender": sent.line["sender"],
        "round": sent.line["round"],
        "message": sent.line["sha256"],
        "action": action,
        "alarms": [{"check": a.check, "text": a.text} for a in alarms],
    }
    line = envelope.sign(PAYLOAD, json.dumps(body).encode(), key).model_dump()
    file = durable.Log(log)
    file.add(line)
    durable.sync([file])
    file.close()
    return action


def _check_examples(sent: Outgoing, own: Arrays) -> list[Alarm]:
    """Examples that are sent as they are, and those that stand in a model or its change."""
    alarms = []
    for a in sent.parts:
        if own.x.dtype.kind in "iu" and own.x.ndim == 2 and (texts := _count_texts(a, sent.received, own)):
            text = f"tokens of {fmt.plural(texts, 'text')} stand in {a.kind} in their order"
            alarms.append(Alarm(check="examples", text=text))
        with ThreadPoolExecutor(2) as pool:
            moved = pool.submit(_find_in_change, a, sent.received, own)
            found = find_in_payload(a.payload, own.x) + moved.result()
        copied = {x.record for x in found if not x.how}
        if copied:
            text = f"{fmt.plural(len(copied), 'example')} can be read from {a.kind}"
            if copied <= {x.record for x in found if x.is_row} and a.kind in UPDATES:
                text += (
                    ", in rows of a layer that reads examples as they are; training on few of them makes such "
                    "rows, whatever the code intends"
                )
            alarms.append(Alarm(check="examples", text=text))
        for how in dict.fromkeys(x.how for x in found if x.how):
            if left := {x.record for x in found if x.how == how} - copied:
                text = f"{fmt.plural(len(left), 'example')} can be read from {a.kind}, {how}"
                alarms.append(Alarm(check="examples", text=text))
        for name, what in find_unopened(a.payload).items():
            alarms.append(
                Alarm(check="examples", text=f"{a.kind}/{name} holds {what}, which nothing can be read from")
            )
    return alarms


def _check_rank(sent: Outgoing) -> list[Alarm]:
    """Layers that changed by one outer product, which is what one step on one example leaves."""
    alarms = []
    for a in sent.parts:
        if a.kind not in (*UPDATES, *GRADIENTS):
            continue
        moved = _change(a, sent.received) or (a.payload if a.kind in (Kind.MODEL_DELTA, *GRADIENTS) else {})
        layers = [n for n, v in sorted(moved.items()) if is_of_rank_one(v, a.payload[n])]
        if layers:
            text = (
                f"{a.kind} changes {', '.join(layers[:3])} by a matrix of rank one, as one step on one example "
                "or steps on one class do: what that example, or the mean of that class, gave to the layer can "
                "be read from it, whatever the code intends"
            )
            alarms.append(Alarm(check="examples", text=text))
    return alarms


def is_of_rank_one(change: NDArray[Any], sent: NDArray[Any]) -> bool:
    """Whether a change [o, i] of what was `sent` is one outer product, as far as its precision tells.

    All rows of such a change are multiples of its longest row r: of its squared length nothing is left beside
    ||change @ r||^2 / ||r||^2. False of fewer than three rows or columns that changed at all.
    """
    if change.ndim != 2 or change.dtype.kind != "f" or min(change.shape) < LEAST_ROWS:
        return False
    rows = np.einsum("oi,oi->o", change, change, dtype=np.float64)
    total, longest = float(rows.sum()), int(rows.argmax())
    if not total or not np.isfinite(total):
        return False
    rounding = ROUNDING * float(np.finfo(sent.dtype).eps) * float(np.linalg.norm(sent.astype(np.float64)))
    noise = rounding / total**0.5
    if noise > LOUDEST_ROUNDING:
        return False
    row = change[longest].astype(np.float64)
    kept = float(np.square(change @ row.astype(change.dtype), dtype=np.float64).sum()) / float(rows[longest])
    if total - kept > (RANK_ONE + noise) ** 2 * total:
        return False
    moved = (rows > 1e-6 * rows.max()).sum(), (np.abs(row) > 1e-3 * np.abs(row).max()).sum()
    is_flat = float(row.std()) <= RANK_ONE * float(np.abs(row).max())  # an input that tells nothing
    return bool(min(moved) >= LEAST_ROWS) and not is_flat


def _find_in_change(a: Artifact, received: Payload, own: Arrays) -> list[Standing]:
    return find_records(read_numbers(_change(a, received)), own.x, disguised=False)


def _count_texts(a: Artifact, received: Payload, own: Arrays) -> int:
    """How many texts begin somewhere among the numbers of a message, or of what a model changed."""
    start = replace(a, payload=received) if received and a.kind in UPDATES else None
    return count_standing(a, start, begin_texts(own.x))


def _change(a: Artifact, received: Payload) -> Payload:
    """What a model changed; nothing of a kind that is no model, or where it began with is not known."""
    if a.kind not in UPDATES or a.kind in DELTAS:
        return {}
    return subtract_arrays(a.payload, received)


def _check_counts(sent: Outgoing, own: Arrays, noised: frozenset[Kind]) -> list[Alarm]:
    held = np.bincount(own.y) if len(own.y) else np.zeros(1, np.int64)
    alarms = []
    for a in sent.parts:
        if a.kind.counted and a.kind not in noised:
            counts = np.asarray(a.payload.get(a.kind.counted, ()))
            classes = np.asarray(a.payload.get("classes", np.arange(counts.size if counts.ndim else 0)))
            most = int(classes.max(initial=-1)) + 1 if classes.dtype.kind in "iu" else 0
            padded = np.pad(held, (0, max(0, min(most, 1 << 20) - len(held))))
            if words := explain_difference(a, padded):
                alarms.append(Alarm(check="counts", text=f"{a.kind} says {words}"))
    return alarms


def _check_noise(sent: Outgoing, std: float, clean: Outgoing | None) -> list[Alarm]:
    """Noise that is claimed: its length, and with the message before it all tests of the noise."""
    alarms: list[Alarm] = []
    for a in sent.parts:
        if a.kind not in UPDATES:
            continue
        moved = {n: v for n, v in (_change(a, sent.received) or a.payload).items() if v.dtype.kind == "f"}
        values = np.concatenate([np.asarray(v, np.float64).ravel() for v in moved.values()])
        if is_shorter_than_noise(values, std):
            text = f"the update is {np.linalg.norm(values):.3g} long, and noise of standard deviation {std:g} on "
            text += f"its {values.size:,} numbers would be about {std * values.size**0.5:.3g}: it is not there"
            alarms.append(Alarm(check="noise", text=text))
        before = next((b.payload for b in clean.parts if b.kind == a.kind), None) if clean else None
        if before is not None and not alarms:
            alarms += _test_noise(a, before, std)
    return alarms


def _test_noise(a: Artifact, before: Payload, std: float) -> list[Alarm]:
    line = Release(
        round=a.round,
        kind=str(a.kind),
        sender=str(a.sender),
        observers=a.seen_by,
        mechanism="gaussian",
        noise_std=std,
        sensitivity=1.0,
    )
    samples, left = [], MOST_NOISE
    for name, value in sorted(a.payload.items()):
        if value.dtype.kind == "f" and name in before and left > 0:
            noise = (np.asarray(value, np.float64) - np.asarray(before[name], np.float64)).ravel()[:left]
            samples.append(NoiseSample(line=line, array=name, values=noise))
            left -= noise.size
    failed = [t for t in run_tests(samples, alpha=CHANCE) if not t.passed] if samples else []
    return [Alarm(check="noise", text=t.text) for t in failed]
