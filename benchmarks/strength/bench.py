"""One attack at a time on one federation, as an audit carries it out, with changes to what it reads or knows."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from fedaudit.attacks.attack import Attack, Card, Claim, Examples, Truth
from fedaudit.attacks.evidence import REPLAYED, Evidence
from fedaudit.audit.case.case import Case
from fedaudit.audit.case.messages import messages
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.plugins import build_plugin
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.controls.control import plant
from fedaudit.audit.controls.lab import Lab, Replays
from fedaudit.audit.experiments.cells import combine_failures, list_cells, run_cells
from fedaudit.audit.observer.truth import KnownTruth
from fedaudit.audit.observer.view import grant_knowledge, observer, select_visible
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.controls import Replay
from fedaudit.audit.settings.merge import merge
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.artifact import Artifact, Party, Role
from fedaudit.fl.runtime.streams import Streams

FRAME: Mapping[str, Any] = {  # of every federation here
    "seed": 7,
    "device": "cpu",
    "workers": 0,
    "attacks": [],
    "noise_audit": False,
    "federation": {"dataset": "fashion_mnist", "availability": "full"},
    "record": "last",
    "evaluate_every": 100,
}
More = Callable[[Case, Sequence[Artifact]], Replays]


def simulated(
    out: Path, runs: Mapping[str, Mapping[str, Any]], phases: Sequence[str] = ("simulate",)
) -> dict[str, RunDir]:
    """Federations with these settings beside FRAME's, in out/NAME; what is finished is not run again."""
    todo = list_cells({}, {name: merge(FRAME, own) for name, own in runs.items()}, out, tuple(phases))
    if failures := run_cells(todo, lambda *_: None):
        raise combine_failures(failures, len(todo))
    return {cell.name: RunDir(cell.folder) for cell in todo}


def case(out: Path, name: str, settings: Mapping[str, Any]) -> Case:
    """One of them, to be attacked."""
    run = simulated(out, {name: settings})[name]
    return open_case(run, list_cells({}, {name: merge(FRAME, settings)}, out)[0].config)


def attack(name: str, **settings: Any) -> Attack:
    """An attack of the shelf with its settings."""
    found: Attack = build_plugin("attacks", PluginSpec.model_validate({"name": name, **settings}), "attacks[0]")
    return found


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What an attack claims, and how a claim is measured."""

    claim: Claim
    seconds: float  # of the processor, without planting and measuring
    attack: Attack
    truth: Truth
    streams: Streams

    @property
    def evidence(self) -> list[Evidence]:
        return self.measured(self.attack)

    def measured(self, by: Attack, **changed: Any) -> list[Evidence]:
        """The claim, with some of its arrays changed, as another attack of its kind would have it."""
        rng = self.streams.numpy("measure", type(self.attack).__name__)
        return by.measure({**self.claim, **changed}, self.truth, rng)


def tried(
    case: Case,
    attack: Attack,
    replay: Mapping[str, Any],
    *,
    auxiliary: Callable[[Examples, Sequence[Artifact]], Examples] | None = None,
    more: More | None = None,
    card: Card | None = None,
    clients: int | None = None,
) -> Tried:
    """The attack's claim on what its observer reads and on what `more` adds.

    `auxiliary` changes the images that the adversary has; `card` stands in the place of the attack's own.
    Messages of the first `clients` alone are attacked and replayed.
    """
    card = card or attack.card
    assert case.artifacts is not None, "the federation was recorded"
    recorded = messages(case.artifacts, {*card.reads, *case.card.downlink}, card.rounds)
    if clients is not None:
        first = {Party.client(k) for k in range(clients)}
        recorded = [a for a in recorded if a.sender in first or a.sender.role != Role.CLIENT]
    settings = Replay.model_validate(replay)
    made = [plant(card.control, Lab.from_case(case), recorded, settings)] if card.control else []
    made += [more(case, recorded)] if more else []
    artifacts = [*recorded, *(a for m in made for a in m.artifacts)]
    groups = {id: rows for m in made for id, rows in m.groups.items()}
    truth = KnownTruth(case, {a.id: a for a in artifacts}, groups)
    view = select_visible(artifacts, observer(case, artifacts, card), card)
    known = grant_knowledge(case, card)
    if auxiliary is not None and known.auxiliary is not None:
        known = replace(known, auxiliary=auxiliary(known.auxiliary, view))
    name, started = type(attack).__name__, time.process_time()
    claim = attack.run(view, known, case.streams.numpy("attack", name))
    seconds = time.process_time() - started
    return Tried(claim=claim, seconds=seconds, attack=attack, truth=truth, streams=case.streams)


def unplanted(attack: Attack) -> Card:
    """Its card, but nothing is planted for it."""
    return replace(attack.card, control="")


def pick(found: Sequence[Evidence], measure: str, /, **condition: Any) -> Evidence:
    """The only evidence of that measure under that condition, of replayed messages unless it says another origin.

    No origin (None): that of attacks on recorded messages alone. Raises LookupError where there is none, or more.
    """
    if condition.setdefault("origin", REPLAYED) is None:
        del condition["origin"]
        found = [e for e in found if e.control == "none"]
    fits = [e for e in found if e.measure == measure and condition.items() <= dict(e.condition).items()]
    if len(fits) != 1:
        raise LookupError(f"{len(fits)} results of {measure} under {condition}: {[e.place for e in fits]}")
    return fits[0]


def blind(e: Evidence, name: str) -> float:
    """What the baseline of that name gets."""
    return next(b.value for b in e.baselines if b.name == name)


def load_images(name: str = "digits") -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """1797 images [n, C, H, W] in [0, 1] of a data set, as many as there are digits, and their labels [n]."""
    if name == "digits":  # in scikit-learn's order
        digits = load_digits()
        return (digits.images[:, None] / 16).astype(np.float32), digits.target.astype(np.int64)
    data = catalog.load("datasets", name)().load()
    every = [np.concatenate([getattr(part, field) for part in (data.train, data.test)]) for field in ("x", "y")]
    return every[0][:1797].astype(np.float32), every[1][:1797].astype(np.int64)
