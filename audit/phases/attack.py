"""Phase 2: run every attack on what its adversary could see, and measure it against the truth.

One JSON file an attack under evidence/. An attack that cannot run leaves a file that says why.
"""

import base64
import dataclasses
import io
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from PIL import Image

from attacks.attack import Attack, Card, Images, Knowledge
from attacks.evidence import Gallery
from audit.controls.condensed import replay_condensed
from audit.controls.memorised import replay_models
from audit.controls.pairs import replay_pairs
from audit.controls.prototypes import Replays, replay_prototypes
from audit.controls.updates import UPDATES, replay_updates
from audit.observer.condenser import condenser
from audit.observer.generators import known_generators
from audit.observer.models import KnownArchitecture
from audit.observer.shadows import trainer
from audit.observer.truth import SimulatedTruth, images, shifted
from audit.settings.config import Config
from audit.subject.rundir import RunDir
from audit.subject.simulated import World, plugin
from fl.artifact import Artifact, Party, Role
from fl.errors import UserError
from fl.kinds import Kind
from fl.method import Card as MethodCard
from fl.protection import published_noise
from fl.recorder import manifest, read
from fl.threat import Goal, Position
from fl.workers import tune_allocator

Progress = Callable[[str, int, int], None]
REPLAYED_FROM = {Kind.GLOBAL_PROTOTYPES}  # a protection may mix with what the client had received


def run(run: RunDir, config: Config, progress: Progress) -> None:
    """Runs the attacks that config.attacks names; those already in evidence/ are made anew."""
    tune_allocator()  # decoders and shadow models train in this process
    world = World(config)
    attacks = [(plugin("attacks", spec, f"attacks[{i}]"), spec.name) for i, spec in enumerate(config.attacks)]
    kinds = _kinds(a for a, _ in attacks)
    inverting = any(_inverts_updates(a.card) for a, _ in attacks)
    asking = any(_asks_models(a.card) for a, _ in attacks)
    if inverting or asking:  # what clients received, to train them anew with
        kinds |= set(world.method.card.downlink)
    artifacts = _recorded(run, kinds, "latest")
    historians = [a for a, _ in attacks if a.card.rounds == "all"]
    history = _recorded(run, _kinds(historians), "all") if historians else []
    replays, pairs, updates = Replays([], {}), Replays([], {}), Replays([], {})
    if any(a.card.replays and a.card.rounds == "latest" for a, _ in attacks):
        replays = replay_prototypes(world, artifacts) + replay_condensed(world, artifacts)
    if any(a.card.replays for a in historians):
        pairs = replay_pairs(world, history)
    if inverting:
        updates = replay_updates(world, artifacts)
    models = replay_models(world, artifacts) if asking else Replays([], {})
    truth = SimulatedTruth(
        world.population,
        {a.id: a for a in (*artifacts, *history)},
        replays.groups | pairs.groups | updates.groups | models.groups,
    )
    for stale in run.evidence.glob("[0-9]*.json"):  # of a longer or differently ordered list
        stale.unlink()
    progress("attack", 0, len(attacks))
    for number, (attack, name) in enumerate(attacks):
        every = attack.card.rounds == "all"
        seen = [*history, *pairs.artifacts] if every else [*artifacts, *replays.artifacts]
        if _inverts_updates(attack.card):
            seen = [*artifacts, *updates.artifacts]
        if _asks_models(attack.card):
            seen = [*artifacts, *models.artifacts]
        found = _one(attack, name, seen, world, truth)
        run.write_json(run.evidence / f"{number:02d}-{name.replace(':', '.')}.json", found)
        progress("attack", number + 1, len(attacks))


def _kinds(attacks: Iterable[Attack]) -> set[str]:
    """Kinds that some attack reads, and what replays have to go by."""
    return {k for a in attacks for k in (*a.card.requires, *a.card.also_reads)} | REPLAYED_FROM


def _inverts_updates(card: Card) -> bool:
    """Whether its planted leaks are replayed updates: it reads uploads, and not for prototypes."""
    return card.goal != Goal.MEMBERSHIP and _reads_uploads(card)


def _asks_models(card: Card) -> bool:
    """Whether its planted leaks are models that memorised."""
    return card.goal == Goal.MEMBERSHIP and (
        _reads_uploads(card) or (card.replays and Kind.RELAY_MODEL in card.requires)
    )


def _reads_uploads(card: Card) -> bool:
    reads = {*card.requires, *card.also_reads}
    return (
        card.replays
        and card.rounds == "latest"
        and bool(reads & set(UPDATES))
        and Kind.LOCAL_PROTOTYPES not in reads
    )


def _recorded(run: RunDir, kinds: set[str], rounds: Literal["latest", "all"]) -> list[Artifact]:
    """Recorded artifacts of these kinds: all, or the latest ones.

    Latest: every sender's latest message of each channel, and the broadcasts of those rounds.
    """
    newest: dict[tuple[str, str], int] = {}
    for line in manifest(run.artifacts):
        if "message" in line:
            key = (line["sender"], line["channel"])
            newest[key] = max(newest.get(key, -1), line["round"])
    last = {r for (sender, _), r in newest.items() if sender != "server"}

    def wanted(line: Mapping[str, Any]) -> bool:
        if not kinds & set(line["kinds"]):
            return False
        own = newest[(line["sender"], line["channel"])] == line["round"]
        return rounds == "all" or own or (line["sender"] == "server" and line["round"] in last)

    return [a for a in read(run.artifacts, wanted) if a.kind in kinds]


def _one(
    attack: Attack, name: str, artifacts: Sequence[Artifact], world: World, truth: SimulatedTruth
) -> dict[str, Any]:
    card, started = attack.card, time.perf_counter()
    result: dict[str, Any] = {"name": name, "card": card_fields(card), "status": "ran", "reason": ""}
    view = visible(card, artifacts)
    knowledge = granted(card, world)
    missing = [k for k in card.requires if not any(a.kind == k for a in view)]
    reason = ""
    if missing:
        reason = _absent(missing, world.method.card, card, artifacts)
    reason = reason or attack.not_applicable(view, knowledge)
    if reason:
        return result | {"status": "not_applicable", "reason": reason}
    try:
        claim = attack.run(view, knowledge, world.streams.numpy("attack", name))
        evidence = attack.measure(claim, truth, world.streams.numpy("measure", name))
        result["evidence"] = [dataclasses.asdict(e) for e in evidence]
        result["galleries"] = [_encode(g) for g in attack.galleries(claim, truth)]
        result["curves"] = [dataclasses.asdict(c) for c in attack.curves(claim, truth)]
    except UserError as error:
        result |= {"status": "not_applicable", "reason": str(error.args[0])}
    except Exception as error:
        result |= {"status": "failed", "reason": f"{type(error).__name__}: {error}"}
    return result | {"seconds": time.perf_counter() - started}


def _absent(missing: Sequence[Kind], method: MethodCard, card: Card, artifacts: Sequence[Artifact]) -> str:
    """Why there is nothing of these kinds: never sent to that position, or not kept on disk."""
    declared = {*method.uplink, *method.downlink, *method.relay, *method.release}
    kept = {a.kind for a in artifacts}
    if lost := [k for k in missing if k in declared and k not in kept]:
        return (
            f"no {' or '.join(lost)} was recorded: {method.title} may send it in rounds that the "
            "setting record.rounds leaves out"
        )
    return f"{method.title} sends no {' or '.join(missing)} that the {card.threat.position} could read"


def visible(card: Card, artifacts: Sequence[Artifact]) -> list[Artifact]:
    """Artifacts both wanted by the card and readable from its position; the server knows its own.

    Colluding clients get every client's uploads, for any of them may collude."""
    wanted, position = {*card.requires, *card.also_reads}, card.threat.position.value
    colluding = card.threat.position == Position.COLLUDING_CLIENTS
    role = "client" if colluding or position == "next_client" else position
    return [
        a
        for a in artifacts
        if a.kind in wanted
        and (
            any(s.partition("/")[0] == role for s in (*a.seen_by, _single(a.sender)))
            or (colluding and a.sender.role == Role.CLIENT)  # each knows what it sent
        )
        and (card.replays or a.origin == "recorded")
    ]


def _single(sender: Party) -> str:
    """A sender of whom there is one: "server". Which client or mediator attacks is not said."""
    return "" if sender.index is not None else sender.role.value


def granted(card: Card, world: World) -> Knowledge:
    """The prior knowledge the threat model grants, and nothing else."""
    knows, auxiliary = card.threat.knows, None
    if "auxiliary_data" in knows:
        own: Images = images(world.population, world.population.auxiliary)
        kind = world.config.federation.holdout.auxiliary_kind
        auxiliary = shifted(own) if kind == "shifted" else own
    local = world.method.config
    training = {
        f.name: float(v)
        for f in dataclasses.fields(local)
        if isinstance(v := getattr(local, f.name), int | float) and not isinstance(v, bool)
    }
    for sent in (*card.requires, *card.also_reads):
        if std := published_noise(world.protections, sent):
            training[f"noise_std.{sent}"] = std
    return Knowledge(
        classes=len(world.data.classes),
        image_shape=tuple(world.data.shape),  # type: ignore[arg-type]
        architecture=KnownArchitecture(world.make_net, world.data) if "architecture" in knows else None,
        generators=known_generators(world) if "architecture" in knows else None,
        auxiliary=auxiliary,
        training=training,
        trainer=trainer(world) if {"architecture", "auxiliary_data"} <= card.threat.knows else None,
        condenser=condenser(world) if "architecture" in card.threat.knows else None,
    )


def card_fields(card: Card) -> dict[str, Any]:
    """The card as JSON."""
    fields = dataclasses.asdict(card)
    fields["threat"]["knows"] = sorted(card.threat.knows)
    return fields


def _encode(gallery: Gallery) -> dict[str, Any]:
    rows = {name: [png(p) for p in images] for name, images in gallery.rows.items()}
    return {"title": gallery.title, "caption": gallery.caption, "columns": list(gallery.columns), "rows": rows}


def png(pixels: np.ndarray[Any, Any]) -> str:
    """An image [C, H, W] in [0, 1] as base64 PNG."""
    values = (np.clip(pixels, 0, 1) * 255).round().astype(np.uint8)
    image = Image.fromarray(values[0] if len(values) == 1 else values.transpose(1, 2, 0))
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def load_evidence(run: RunDir) -> list[dict[str, Any]]:
    """What the attacks left, in the order they ran."""
    return [json.loads(p.read_text()) for p in sorted(run.evidence.glob("[0-9]*.json"))]
