"""Protected copies of a recorded federation: its messages, as the wire would have carried them with other
protections.

Uploads and relayed messages pass through the same wire as in a simulation, which clips, noises, withholds, rounds
or adds them up, and records them. What the server sent stays as it was recorded. The clients and the server do
not act on what changed: what training would have made of it nobody knows, so no accuracy is known either.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fedaudit.audit.case.plugins import build_plugin
from fedaudit.audit.case.run_folder import RunDir, sha256
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.artifact import Channel, Party, Route
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card
from fedaudit.fl.recording.recorder import MANIFEST, Recorder, lines, read_message
from fedaudit.fl.runtime import durable
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Message
from fedaudit.fl.wire.wire import Wire

TAKEN = "inbox.json"  # what was noted of the inbox; of a copy, also what it was made with
Group = tuple[int, str, str, str]  # round, channel, kind, role of the sender


def copy_with_protections(
    source: Path, copy: Path, card: Card, seed: int, protections: Sequence[PluginSpec]
) -> None:
    """Pass the messages of one run folder through protections into another; nothing where that is done.

    `card` says what the source holds. Raises UserError where a protection cannot act on these messages.
    """
    run = RunDir(copy)
    made_with = {
        "protections": catalog.plain([p.model_dump() for p in protections]),
        "manifest": sha256(source / "artifacts" / MANIFEST),
        "seed": seed,
    }
    note = copy / TAKEN
    if note.is_file() and run.read_json(note).get("copied") == made_with:
        return
    durable.remove(note)  # until all is there
    durable.remove(run.artifacts / MANIFEST)
    built = [build_plugin("protections", spec, f"protections[{i}]") for i, spec in enumerate(protections)]
    recorder = Recorder(run.artifacts)
    _pass_through(source / "artifacts", Wire(card, Streams(seed), built, recorder), recorder)
    given = [source / path.name for path in (run.truth, run.base, run.imported)]
    for path in given:
        if path.is_file():
            run.write(copy / path.name, path.read_bytes())
    run.write_json(note, RunDir(source).read_json(source / TAKEN) | {"copied": made_with})


def _pass_through(artifacts: Path, wire: Wire, recorder: Recorder) -> None:
    received: dict[tuple[int, str], Message] = defaultdict(dict)
    kept: Counter[Group] = Counter()
    counted: list[Mapping[str, Any]] = []
    ended = -1
    for line in sorted(lines(artifacts), key=lambda entry: entry.get("round", -1)):
        if "message" in line:
            if ended < line["round"] and ended >= 0:
                wire.end_round(ended)
            ended = line["round"]
            _carry(wire, recorder, artifacts, line, received)
            copies = _count_copies(line)
            for kind in line["kinds"]:
                kept[_group(line, kind)] += copies
        elif "traffic" in line:
            counted.append(line)
        else:
            if "unread" in line:  # nobody knows what the protections would have made of it
                name = f"{line['unread']}.safetensors"
                recorder.manifest.attach(recorder.folder / name, (artifacts / name).read_bytes())
            recorder.manifest.add(line)
    if ended >= 0:
        wire.end_round(ended)
    for told in counted:
        _count_rest(recorder, told, kept[_group(told, told["traffic"])], hidden=wire.chain.hides_single_uploads)
    durable.sync([recorder.manifest])
    recorder.manifest.close()


def _carry(
    wire: Wire,
    recorder: Recorder,
    folder: Path,
    line: Mapping[str, Any],
    received: dict[tuple[int, str], Message],
) -> None:
    """One recorded message: through the protections where a client sent it, else as it was."""
    t, channel, sender = line["round"], Channel(line["channel"]), Party.parse(line["sender"])
    receivers, seen = tuple(line.get("receivers", ())), tuple(line["seen_by"])
    message: Message = {
        a.kind: {name: torch.tensor(value) for name, value in a.payload.items()}
        for a in read_message(folder, line)
    }
    if channel is Channel.DOWNLINK:
        for party in {*receivers, *seen}:
            received[t, party] |= message
    if channel is Channel.UPLINK and sender.index is not None and "server" in seen:
        reference = received[t, "client"] | received[t, str(sender)]
        wire.uplink(t, message, sender.index, reference)
        return
    if channel is Channel.RELAY and sender.index is not None and receivers:
        to = Party.parse(receivers[0]).index
        mediator = next((Party.parse(p).index for p in seen if p.startswith("mediator/")), None)
        if to is not None:
            wire.relay(t, message, sender.index, to, mediator)
            return
    recorder.message(Route(t, channel, sender, receivers, seen), message, _count_copies(line))


def _count_copies(line: Mapping[str, Any]) -> int:
    return max(1, len(line.get("receivers", ()))) if line["channel"] == Channel.DOWNLINK else 1


def _group(line: Mapping[str, Any], kind: str) -> Group:
    return line["round"], line["channel"], str(Kind(kind)), Party.parse(line["sender"]).role.value


def _count_rest(recorder: Recorder, line: Mapping[str, Any], kept: int, *, hidden: bool) -> None:
    """Traffic of messages that nobody recorded: it was sent, and is still not known."""
    rest = line["messages"] - kept
    if rest <= 0:
        return
    share = rest / line["messages"]
    seen = [] if hidden and line["channel"] == Channel.UPLINK else line["seen_by"]
    recorder.manifest.add(dict(line) | {"messages": rest, "bytes": round(line["bytes"] * share), "seen_by": seen})
