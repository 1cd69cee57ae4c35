"""Whether a run folder is whole: its messages, traffic, metrics and config, held against each other.

Digests say that nothing changed since a phase ended. This says that what is there can be what such a run leaves,
also where the owner of the folder made all digests anew.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedaudit.audit.case.digests import of_file
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.settings.record import Recorded
from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card
from fedaudit.fl.recording.recorder import MANIFEST, is_from_client, read_head, read_role

ARTIFACTS, METRICS = "artifacts", "metrics.jsonl"


def check_rounds(
    folder: Path, rounds: int, lines: Sequence[Mapping[str, Any]], history: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """What of rounds and traffic does not fit together, as sentences.

    `rounds` are those of the config, 0 of a recorded federation; `lines` are those of the manifest.
    """
    metrics = folder / METRICS
    measured = [int(h["round"]) for h in history]
    crossed = sorted({int(line["round"]) for line in lines if "traffic" in line})
    ended = max(crossed, default=-1) + 1
    if measured != list(range(len(measured))):
        yield f"{metrics} does not hold every round once, in order"
    elif len(measured) < rounds:
        yield f"{metrics} ends after {len(measured):,} of the {rounds:,} rounds of the config"
    if absent := set(crossed) - set(measured) - {ended - 1}:  # the last round may only hand the model out
        yield f"{metrics} has no line of round {min(absent)}, in which messages crossed"
    if ended < rounds and any(h.get("delivered") for h in history[ended:]):
        yield f"{folder / ARTIFACTS / MANIFEST} ends after round {ended - 1}, and {metrics} does not"
    yield from _check_bytes(lines, history)


def check_simulation(
    folder: Path,
    card: Card,
    evaluate_every: int,
    record: Recorded,
    lines: Sequence[Mapping[str, Any]],
    history: Sequence[Mapping[str, Any]],
) -> Iterator[str]:
    """What a run of these settings does not leave, as sentences; `card` is that of its method."""
    yield from _check_scores(folder / METRICS, evaluate_every, history)
    yield from _check_senders(folder / ARTIFACTS / MANIFEST, record, lines)
    yield from _check_kinds(folder / ARTIFACTS / MANIFEST, card, lines)


def _check_scores(metrics: Path, every: int, history: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A model is scored in every round in which the config asks for it, whole and by class, or in none.

    Of a method with phases that holds in each of them: generators come before there is a model to score.
    """
    scored = {t for t, h in enumerate(history) if "accuracy" in h}
    phases = {history[t].get("phase") for t in scored}
    if scored != {t for t, h in enumerate(history) if "class_accuracy" in h}:
        yield f"{metrics} lacks an accuracy, of the whole or by class, where it has the other"
    due = {t for t in range(len(history)) if (t + 1) % every == 0 or t + 1 == len(history)}
    if absent := {t for t in due - scored if history[t].get("phase") in phases}:
        yield f"{metrics} has no accuracy of round {min(absent)}, and of others it has"


def _check_bytes(lines: Sequence[Mapping[str, Any]], history: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    sent: dict[tuple[int, str], int] = defaultdict(int)
    for line in lines:
        if "traffic" in line and line["traffic"] != Kind.AGGREGATE:  # a sum of what is counted already
            sent[int(line["round"]), line["channel"]] += int(line["bytes"])
    for h in history:
        for key, channel in (("bytes_up", Channel.UPLINK), ("bytes_relay", Channel.RELAY)):
            found, said = sent[int(h["round"]), channel], int(h.get(key, 0))
            if found != said:
                yield (
                    f"in round {h['round']} the manifest's traffic has {found:,} bytes on the {channel}, "
                    f"and {METRICS} says {said:,}"
                )
                return


def _check_senders(manifest: Path, record: Recorded, lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Of every kind that clients sent to the same readers, as many were recorded as the traffic counts."""
    recorded: dict[tuple[int, str, str, frozenset[str]], set[str]] = defaultdict(set)
    for line in lines:
        if "message" in line and is_from_client(line):
            readers = frozenset(map(read_role, line["seen_by"]))
            for kind in line["kinds"]:
                recorded[int(line["round"]), line["channel"], kind, readers].add(line["sender"])
    for line in lines:
        if "traffic" not in line or not is_from_client(line):
            continue
        readers = frozenset(map(read_role, line["seen_by"]))
        found = len(recorded[int(line["round"]), line["channel"], line["traffic"], readers])
        if found > line["senders"] or (record == "all" and found < line["senders"]):
            yield (
                f"in round {line['round']} {line['senders']} clients sent {line['traffic']}, "
                f"and {manifest} lists messages of {found}"
            )
            return


def _check_kinds(manifest: Path, card: Card, lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What crossed on a channel is of a kind that the method declares: the wire refuses all others."""
    for line in lines:
        if "channel" not in line:
            continue
        declared = {*getattr(card, line["channel"]), Kind.AGGREGATE}  # a sum is made of what is declared
        kinds = line["kinds"] if "message" in line else [line["traffic"]]
        if strange := sorted(set(kinds) - declared):
            where = f"{manifest} has {strange[0]!r:.80} on the {line['channel']} of round {line['round']}"
            yield f"{where}, which {card.title} does not send"
            return


def check_files(folder: Path, lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Messages that are not as the manifest's lines have them, missing, or in none."""
    run, listed = RunDir(folder), set()
    for line in (li for li in lines if "message" in li or "unread" in li):
        name = f"artifacts/{line.get('message', line.get('unread'))}.safetensors"
        path = run.inside(name)
        listed.add(path)
        if not path.is_file():
            yield f"{folder / name} is missing"
        elif of_file(path, name) != line["sha256"]:
            yield f"{folder / name} is not the one that was recorded: its SHA-256 differs"
        elif (found := _count_bytes(path)) != line.get("bytes", found):
            holds = "no arrays" if found is None else f"{found:,} bytes of arrays"
            yield f"{folder / name} holds {holds}, and its line says {line['bytes']:,}"
    if more := sorted(set(run.inside("artifacts").rglob("*.safetensors")) - listed):
        yield f"{more[0]} is in no line of the manifest"


def _count_bytes(path: Path) -> int | None:
    """Of all arrays of a message: what follows its head; None where it is no safetensors file."""
    size = path.stat().st_size
    with open(path, "rb") as file, suppress(ValueError):
        return size - 8 - len(read_head(file, size - 8))
    return None
