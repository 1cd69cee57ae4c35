"""What is claimed of protections, against the messages that are said to have gone through them.

No test knows a protection by its name, so they hold for other people's as well.

* Secure aggregation: no single upload may have reached the server.
* A projection: a protection that leaves its own output as it is (a clip, quantisation, sparsification, a
  threshold). What was recorded is said to be its output; applied once more it must change nothing.
* A release that a ledger describes, ours of a claimed protection or the operator's own: Gaussian noise of
  standard deviation s on d numbers is about s sqrt(d) long, and what is clipped to C as well at most
  C + s (sqrt(d) + 5). The first bound is given half its length: at d >= 100 shorter noise does not occur.

Where none of them can tell, or another protection acted afterwards, the claim is declared and nothing more.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedaudit.audit.case.case import Split
from fedaudit.fl.artifact import SERVER, Artifact, Channel, Party
from fedaudit.fl.kinds import UPDATES, Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.recording.noise import NoiseSource
from fedaudit.fl.recording.recorder import carries_shared_model, is_from_client, manifest, read_message
from fedaudit.fl.runtime.errors import quote_error
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.noising import base_of, change
from fedaudit.fl.wire.protection import Message, Payload, Protection, Sending, anew, describe_protection
from fedaudit.reports.imported import CheckedStatement, Status

MOST = 50  # messages looked at
MOVED = 0.01  # share of numbers that a projection may move in what it has made: sums in another order
DRAWS, LEVEL = 100, 0.01  # of noise on true numbers, and how unlikely all of them are right by chance
NUMBERS = 100  # that noise must lie on for its length to be known
SHORT = 0.5  # of the length of noise alone, below which it is not there
GAUSSIAN, NAME = "gaussian", "protection"


@dataclass(frozen=True)
class Upload:
    """A message of a client and the model that it had received."""

    sender: Party
    round: int
    seen_by: tuple[str, ...]
    message: Message
    received: Message


@dataclass
class TriedProtection:
    """What one protection does to recorded messages."""

    acts: set[Kind] = field(default_factory=set)
    moves: list[float] = field(default_factory=list)  # by message: share of the numbers it changed
    again: list[float] = field(default_factory=list)  # by message: share that it changes in its own output
    releases: list[tuple[Upload, Release]] = field(default_factory=list)
    refused: str = ""


def check_protections(
    protections: Sequence[Protection], examples: Split, latest: Sequence[Artifact], ledger: Iterable[Release]
) -> list[CheckedStatement]:
    """One check a claimed protection, and one of the operator's own `ledger`, where there is one."""
    sent, claimed = _uploads(latest), protections
    tried = [_try_protection(p, sent) for p in claimed]
    found = []
    for i, p in enumerate(claimed):
        after = [q.title for q, t in zip(claimed[i + 1 :], tried[i + 1 :], strict=True) if t.acts & tried[i].acts]
        status, text = _exact(examples, p, sent, tried[i]) or _claim(p, tried[i], sent, after)
        about = f"Claimed: {describe_protection(p)}. {text}"
        found.append(CheckedStatement(id=f"{NAME}-{i}", title=p.title, status=status, text=about))
    stated = list(ledger)
    return [*found, *([_ledger(stated, sent)] if stated else [])]


def acts_on(claimed: Sequence[Protection], latest: Sequence[Artifact], kind: Kind) -> bool:
    """Whether what clients sent of this kind is said to have been changed on its way."""
    sent = [u for u in _uploads(latest) if kind in u.message]
    return any(kind in _try_protection(p, sent[:1]).acts for p in claimed)


def _uploads(latest: Sequence[Artifact]) -> list[Upload]:
    """The latest messages of clients, whole, with what each had received."""
    models = {a.round: _tensors(a.payload) for a in latest if a.kind == Kind.GLOBAL_MODEL}
    grouped: dict[str, list[Artifact]] = {}
    for a in latest:
        if a.from_client:
            grouped.setdefault(a.id.rpartition("/")[0], []).append(a)
    found = []
    for parts in list(grouped.values())[:MOST]:
        one = parts[0]
        received = {Kind.GLOBAL_MODEL: models[one.round]} if one.round in models else {}
        message = {a.kind: _tensors(a.payload) for a in parts}
        found.append(Upload(one.sender, one.round, one.seen_by, message, received))
    return found


def _claim(
    p: Protection, tried: TriedProtection, sent: Sequence[Upload], after: Sequence[str]
) -> tuple[Status, str]:
    if p.hides_single_uploads():
        read = [u for u in sent if SERVER.role.value in u.seen_by and {*UPDATES} & u.message.keys()]
        if read:
            return "contradicted", f"The server read single clients' uploads: the record has {len(read):,}."
        return "declared", "No upload was recorded as the server read it; that none reached it cannot be seen."
    if not sent:
        return "declared", "No upload was recorded to hold it against."
    if tried.refused:
        return "open", f"It could not be applied to what was recorded: {tried.refused}."
    if p.central:
        pass  # its noise is a check of its own; its clip is a projection as any other
    elif p.training() is not None:
        return "declared", "It acts in training, before there is a message."
    elif not tried.acts:
        return "contradicted", "It acts on nothing that clients sent, so it protects nothing here."
    if after:
        return "declared", f"{after[0]} is said to act after it, so its own output was not recorded."
    if not tried.moves:
        return "declared", "No message of the record shows whether it acted."
    if max(tried.again) <= MOVED:
        over = sum(m > MOVED for m in tried.moves)
        if not over:
            return "holds", f"Applied again it changes none of the latest uploads ({len(tried.moves):,})."
        return "contradicted", (
            f"It leaves its own output as it is, and applied again it changes {over} of the {len(tried.moves)} "
            f"latest uploads, {max(tried.moves):.0%} of the numbers of one: they did not go through it."
        )
    return _noise(tried.releases) or ("declared", "No message of the record shows whether it acted.")


def _exact(
    examples: Split, p: Protection, sent: Sequence[Upload], tried: TriedProtection
) -> tuple[Status, str] | None:
    """Contradicted where all numbers of examples are true, and the protection would have changed some."""
    kind = Kind.NUM_EXAMPLES
    if kind not in tried.acts or tried.refused or max(tried.again, default=0.0) <= MOVED:
        return None
    chance, looked = 1.0, 0
    for u in sent:
        held = examples.parts.get(u.sender.index if u.sender.index is not None else -1)
        if held is None or kind not in u.message:
            continue
        if int(u.message[kind]["count"]) != len(held):
            return None
        alone = {kind: u.message[kind]}
        same = [
            not _measure_change(kind, u, u.message[kind], _apply(p, u, alone, i)[0].get(kind))
            for i in range(DRAWS)
        ]
        chance, looked = chance * (sum(same) + 1) / (DRAWS + 1), looked + 1
    if not looked or chance > LEVEL:
        return None
    text = f"All {looked} numbers of examples are the true ones, which it would leave so with probability "
    return "contradicted", f"{text}{chance:.2g}."


def _noise(releases: Sequence[tuple[Upload, Release]]) -> tuple[Status, str] | None:
    """Whether changes are as long as noise of the stated size makes them; None where no release says."""
    short, long, most, looked, least = 0, 0, 0.0, 0, math.inf
    for upload, r in releases:
        kind = next((k for k in upload.message if k == r.kind), None)
        if kind is None or r.unit != "client" or r.mechanism not in ("gaussian", "laplace"):
            continue
        moving = change(upload.message[kind], base_of(kind, upload.received))
        d = sum(v.numel() for v in moving.values())
        if d < NUMBERS or not r.noise_std:
            continue
        std = r.noise_std / math.sqrt(r.aggregated) * (1.0 if r.mechanism == GAUSSIAN else math.sqrt(2))
        length = math.sqrt(sum(float(v.double().pow(2).sum()) for v in moving.values()))
        looked, most, least = looked + 1, max(most, length), min(least, std * math.sqrt(d))
        short += length < SHORT * std * math.sqrt(d)
        bounded = r.clip_norm is not None and r.clip_of == "update"
        long += bounded and length > float(r.clip_norm or 0) + std * (math.sqrt(d) + 5)
    if not looked:
        return None
    seen = f"of the {looked} latest uploads held against it the longest change is {most:.3g}"
    if short:
        text = f"{seen}, and noise as stated alone would make one of about {least:.3g}"
        return "contradicted", f"{text[0].upper()}{text[1:]}: in {short} of them it is not there."
    if long:
        text = f"{seen}: {long} are longer than the stated clip and noise allow."
        return "contradicted", f"{text[0].upper()}{text[1:]}"
    text = f"{seen}, long enough to hold noise as stated ({least:.3g}), which does not show that it is noise."
    return "declared", f"{text[0].upper()}{text[1:]}"


def is_shorter_than_noise(values: NDArray[np.float64], std: float) -> bool:
    """Whether numbers are too short to hold Gaussian noise of this standard deviation each."""
    return values.size >= NUMBERS and float(np.linalg.norm(values)) < SHORT * std * math.sqrt(values.size)


def _ledger(stated: Sequence[Release], sent: Sequence[Upload]) -> CheckedStatement:
    """The noise that the operator's own ledger states; whether it lists every upload is seen with its budget."""
    pairs = [(u, r) for u in sent for r in stated if r.round == u.round and r.sender == str(u.sender)]
    status, text = _noise(pairs) or (
        "declared",
        "No message of the record shows whether the noise it states was added.",
    )
    return CheckedStatement(id="ledger", title="The operator's ledger", status=status, text=text)


def _try_protection(protection: Protection, sent: Sequence[Upload]) -> TriedProtection:
    found = TriedProtection()
    for number, upload in enumerate(sent):
        try:
            once, sending = _apply(protection, upload, upload.message, 2 * number)
            twice, _ = _apply(protection, upload, once, 2 * number + 1)
            other = _unlike(upload, number)
            others, _ = _apply(protection, upload, other, 2 * number)
        except Exception as error:  # other people's code, or a message it was never meant for  # noqa: BLE001
            found.refused = quote_error(error)
            return found
        moved = {k: _measure_change(k, upload, upload.message[k], once.get(k)) for k in upload.message}
        own = sending.protected | {k for k in moved if _measure_change(k, upload, other[k], others.get(k))}
        found.acts |= own
        found.releases += [(upload, r) for r in sending.releases]
        if own:
            found.moves.append(max(moved[k] for k in own if k in moved))
            found.again.append(max(_measure_change(k, upload, once[k], twice.get(k)) for k in own if k in once))
    return found


def _apply(protection: Protection, upload: Upload, message: Message, seed: int) -> tuple[Message, Sending]:
    """What the protection, as it is before the first round, makes of a message."""
    (fresh,) = anew([protection])
    copy = {k: {n: v.clone() for n, v in payload.items()} for k, payload in message.items()}
    rng, noise = torch.Generator().manual_seed(seed), NoiseSource(Streams(seed).noise("import"))
    sending = Sending(upload.round, upload.sender, upload.seen_by, copy, upload.received, rng, noise=noise)
    fresh.apply(sending)
    return sending.message, sending


def _unlike(upload: Upload, seed: int) -> Message:
    """The message with changes of the same length in its floating-point numbers, drawn at random: no output of
    any protection, which tells what a protection acts on."""
    rng = torch.Generator().manual_seed(seed)
    found: Message = {}
    for kind, payload in upload.message.items():
        base = base_of(kind, upload.received)
        found[kind] = dict(payload)
        for name, v in change(payload, base).items():
            noise = torch.randn(v.shape, generator=rng) * max(1e-3, float(v.double().norm()) / v.numel() ** 0.5)
            found[kind][name] = (base[name] + noise if name in base else noise).to(v.dtype)
    return found


def _measure_change(kind: Kind, upload: Upload, before: Payload, after: Payload | None) -> float:
    """Share of the numbers of a payload that changed by more than rounding does; 1 where its arrays differ."""
    if after is None or {n: v.shape for n, v in before.items()} != {n: v.shape for n, v in after.items()}:
        return 1.0
    base = base_of(kind, upload.received)
    moved = total = 0
    for name, value in before.items():
        old, new = value.double(), after[name].double()
        start = base[name].double() if name in base else torch.zeros_like(old)
        slack = 1e-5 * (old - start).abs() + 1e-6 * torch.maximum(old.abs(), start.abs())
        moved += int(((new - old).abs() > slack).sum())
        total += value.numel()
    return moved / max(1, total)


def _tensors(payload: Mapping[str, NDArray[np.generic]]) -> Payload:
    return {name: torch.from_numpy(np.array(value)) for name, value in payload.items()}


def every_upload(artifacts: Path) -> list[Artifact]:
    """Every client's latest message, whole, and the models of those rounds."""
    newest: dict[str, int] = {}
    for line in manifest(artifacts):
        if "message" in line and is_from_client(line):
            newest[line["sender"]] = max(newest.get(line["sender"], -1), line["round"])
    senders = sorted(newest, key=lambda s: int(s.partition("/")[2] or 0))[:MOST]
    rounds = {newest[s] for s in senders}
    found: list[Artifact] = []
    for line in manifest(artifacts):
        own = is_from_client(line) and line["sender"] in senders
        if "message" in line and (
            (own and newest[line["sender"]] == line["round"])
            or (line["round"] in rounds and (line["channel"] == Channel.DOWNLINK or carries_shared_model(line)))
        ):
            found += read_message(artifacts, line)
    return found
