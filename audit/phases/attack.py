"""Phase 2: run every attack on what its adversary could see, and measure it against the truth.

One JSON file an attack under evidence/. An attack that cannot run leaves a file that says why.
"""

import base64
import dataclasses
import importlib
import io
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from PIL import Image

from attacks.attack import Attack, Card
from attacks.evidence import Gallery
from audit.controls.lab import Replays
from audit.observer.truth import KnownTruth
from audit.observer.view import absent, granted, observer, seen
from audit.settings.config import Config, Replay
from audit.subject.case import Case
from audit.subject.messages import messages
from audit.subject.open import open_case
from audit.subject.rundir import RunDir
from audit.subject.simulated import plugin
from fl import workers
from fl.artifact import Artifact
from fl.errors import UserError

Progress = Callable[[str, int, int], None]


@workers.one_thread()  # evidence is the same on any number of threads
def run(run: RunDir, config: Config, progress: Progress) -> None:
    """Runs the attacks that config.attacks names; those already in evidence/ are made anew."""
    workers.tune_allocator()  # decoders and shadow models train in this process
    attacks = [(plugin("attacks", spec, f"attacks[{i}]"), spec.label) for i, spec in enumerate(config.attacks)]
    for stale in run.evidence.glob("[0-9]*.json"):  # of a longer or differently ordered list
        stale.unlink()
    count = config.workers if isinstance(config.workers, int) else workers.auto_count("cpu")
    bench = Bench(open_case(run, config), [a.card for a, _ in attacks], config.replay, count)
    progress("attack", 0, len(attacks))
    for number, (attack, name) in enumerate(attacks):
        found = one(attack, name, bench)
        if config.attacks[number].id:  # findings of one attack are told apart by their headlines as well
            found["card"]["title"] += f" ({name})"
        run.write_json(run.evidence / f"{number:02d}-{name.replace(':', '.')}.json", found)
        progress("attack", number + 1, len(attacks))


class Bench:
    """What attacks on one case work with: its messages, the planted leaks that their cards name, the truth."""

    def __init__(self, case: Case, cards: Sequence[Card], settings: Replay, workers: int) -> None:
        self.case, self.workers = case, workers
        self._recorded = {r: _recorded(case, [c for c in cards if c.rounds == r]) for r in ("latest", "all")}
        wanted = dict.fromkeys((c.control, c.rounds) for c in cards if c.control)
        self._planted = {(name, r): plant(name, case, self._recorded[r], settings) for name, r in wanted}
        artifacts = {a.id: a for found in self._recorded.values() for a in found}
        groups = {id: rows for planted in self._planted.values() for id, rows in planted.groups.items()}
        self.truth = KnownTruth(case, artifacts, groups)

    def artifacts(self, card: Card) -> list[Artifact]:
        """Recorded in the rounds that the card wants, and planted for it."""
        planted = self._planted.get((card.control, card.rounds), Replays())
        return [*self._recorded[card.rounds], *planted.artifacts]


def _recorded(case: Case, cards: Sequence[Card]) -> list[Artifact]:
    """What these attacks read, and what clients received, from which controls train them once more."""
    if case.artifacts is None or not cards:
        return []
    kinds = {k for c in cards for k in c.reads}
    if any(c.control for c in cards):
        kinds |= set(case.card.downlink)
    return messages(case.artifacts, kinds, cards[0].rounds)


def plant(name: str, case: Case, recorded: Sequence[Artifact], settings: Replay) -> Replays:
    """The control that a card names: plant() of audit/controls/NAME.py."""
    try:
        module = importlib.import_module(f"audit.controls.{name}")
    except ModuleNotFoundError as error:
        raise UserError(f"there is no control {name!r}", hint="a card names a file of audit/controls/") from error
    made: Replays = module.plant(case, recorded, settings)
    return made


def one(attack: Attack, name: str, bench: Bench) -> dict[str, Any]:
    """One attack's file: what it is, whose view it had, and what it came to."""
    card, case, started = attack.card, bench.case, time.perf_counter()
    artifacts = bench.artifacts(card)
    who = observer(case, artifacts, card)
    view, knowledge = seen(artifacts, who, card), granted(case, card, bench.workers)
    result: dict[str, Any] = {"name": name, "card": card_fields(card), "observer": str(who)}
    result |= {"status": "ran", "reason": ""}
    try:
        if reason := absent(case, artifacts, view, card) or attack.not_applicable(view, knowledge):
            return result | {"status": "not_applicable", "reason": reason}
        claim = attack.run(view, knowledge, case.streams.numpy("attack", name))
        evidence = attack.measure(claim, bench.truth, case.streams.numpy("measure", name))
        result["evidence"] = [dataclasses.asdict(e) for e in evidence]
        result["galleries"] = [_encode(g) for g in attack.galleries(claim, bench.truth)]
        result["curves"] = [dataclasses.asdict(c) for c in attack.curves(claim, bench.truth)]
    except UserError as error:
        result |= {"status": "not_applicable", "reason": str(error.args[0])}
    except Exception as error:
        result |= {"status": "failed", "reason": f"{type(error).__name__}: {error}"}
    return result | {"seconds": time.perf_counter() - started}


def card_fields(card: Card) -> dict[str, Any]:
    """The card as JSON, and all that it may read."""
    fields = dataclasses.asdict(card)
    fields["threat"]["knows"] = sorted(card.threat.knows)
    return fields | {"reads": list(card.reads)}


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
