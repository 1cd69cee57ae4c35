"""Every attack runs on an accelerator, with its controls, and agrees with the processor.

First on its own tiny world; then as the attack phase runs it, where controls play clients and adversaries train
models of their own.
"""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.attacks.attack import Attack, Knowledge
from fedaudit.attacks.evaluation.gradients import updates
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.updates.inverting_gradients import InvertingGradients
from fedaudit.audit.observer.generators import KnownGenerators
from fedaudit.audit.observer.models import BoundExtractor
from fedaudit.audit.phases.attack import Bench, attack_once
from fedaudit.audit.settings import catalog
from fedaudit.fl.runtime.workers import one_thread
from tests.accelerator import DEVICE, REAL, accelerator, apart
from tests.attacks.batches.batch_world import Known
from tests.attacks.updates.gradients import Planted
from tests.contracts.attack_worlds import stage
from tests.contracts.test_growth import QUICK
from tests.contracts.test_methods_and_attacks import ATTACKS, METHODS, federation, made

pytestmark = pytest.mark.usefixtures("few_epochs")

TOLERANCE = 0.05 if REAL else 1e-4  # of what is measured
# One of each way to use a device: the others at night
COVER = ("analytic", "dlg", "frozen_layers", "generator_extraction", "grnn", "imprint_recovery", "upcnn")
# Fitted for hundreds of steps to what the device made: last digits decide where a few of its images rank
FITTED = {"activation_decoder", "condensed_refinement", "upcnn", "vae"}
ALONE = [pytest.param(n, marks=() if n in COVER else pytest.mark.nightly) for n in ATTACKS]


@dataclasses.dataclass(frozen=True)
class Moved:
    """An architecture whose models lie on the accelerator."""

    architecture: Any

    def __call__(self, weights: Any) -> Any:
        made = self.architecture(weights)
        module = made.module().to(DEVICE)
        return made if isinstance(made, Known) else BoundExtractor(module)


def move(known: Knowledge) -> Knowledge:
    """What an adversary knows whose networks run on the accelerator."""
    changes: dict[str, Any] = {"device": DEVICE}
    if known.architecture is not None:
        changes["architecture"] = Moved(known.architecture)
    if known.trainer is not None:
        changes["trainer"] = dataclasses.replace(known.trainer, device=DEVICE)  # type: ignore[type-var]
    if isinstance(known.generators, KnownGenerators):
        own = known.generators
        changes["generators"] = KnownGenerators(own._shape, own._config, own._classes, DEVICE)
    return dataclasses.replace(known, **changes)


def light(name: str) -> Attack:
    cls = catalog.load("attacks", name)
    own = {f.name for f in dataclasses.fields(cls.Config)} if hasattr(cls, "Config") else set()
    quick = QUICK | ({"lr": 5e-4} if name in FITTED else {})  # rounding grows with the step
    settings = {**stage(name).settings, **{k: v for k, v in quick.items() if k in own}}
    attack: Attack = cls(cls.Config(**settings)) if settings else cls()
    return attack


def measure(name: str, known: Knowledge) -> list[Evidence]:
    attack, here = light(name), stage(name)
    claim = attack.run(here.view, known, np.random.default_rng(0))
    return attack.measure(claim, here.truth, np.random.default_rng(1))


def find_differences(one: Any, other: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    """Where two trees of numbers are apart. On CUDA, whose rounding grows in what is fitted, a measurement whose
    interval overlaps the other's is the same."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        if REAL and one.get("interval") and other["interval"]:
            (low, high), (lower, higher) = one["interval"], other["interval"]
            if low <= higher and lower <= high:
                return {}
        pairs = [(f"{path}/{k}", one[k], other[k]) for k in one]
    elif isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)) and len(one) == len(other):
        pairs = [(f"{path}/{i}", a, b) for i, (a, b) in enumerate(zip(one, other, strict=True))]
    elif isinstance(one, float) and isinstance(other, float):
        same = np.isnan([one, other]).all() or abs(one - other) <= TOLERANCE
        return {} if same else {path: (one, other)}
    else:
        return {} if one == other else {path: (one, other)}
    return {p: apart for where, a, b in pairs for p, apart in find_differences(a, b, where).items()}


@pytest.mark.gpu
@pytest.mark.parametrize("name", ALONE)
@apart
def test_an_attack_agrees_with_the_processor(name: str) -> None:
    known = stage(name).knowledge
    with one_thread():
        here = [dataclasses.asdict(e) for e in measure(name, known)]
        with accelerator():
            there = [dataclasses.asdict(e) for e in measure(name, move(known))]
    assert find_differences(here, there) == {}


# From random starts L-BFGS goes where the last digits lead it, so that on CUDA it ends elsewhere
SEARCHES = {"dlg", "idlg"} if REAL else set()
# Controls, shadow models and clients that adversaries play: one of them here, all at night
PHASES = [
    ("fednova", ("inverting_gradients",)),
    *(
        pytest.param(m, tuple(a for a in ATTACKS if a not in SEARCHES), marks=pytest.mark.nightly)
        for m in METHODS
    ),
]


@pytest.mark.gpu
@pytest.mark.parametrize(("method", "attacks"), PHASES)
@apart
def test_the_attack_phase_agrees_with_the_processor(method: str, attacks: tuple[str, ...]) -> None:
    case, config = federation(method)
    cards = [made(a).card for a in attacks]

    def run(device: str) -> dict[str, Any]:
        on = dataclasses.replace(case)  # type: ignore[type-var]
        on.__dict__.update(device=device)
        again = Bench(on, cards, config.replay)
        files = {a: attack_once(made(a), a, again) for a in attacks}
        files = {a: f if a not in FITTED else {"status": f["status"]} for a, f in files.items()}
        return {a: {k: v for k, v in f.items() if k not in ("seconds", "galleries")} for a, f in files.items()}

    with one_thread():
        here = run("cpu")
        with accelerator():
            there = run(DEVICE)
    assert find_differences(*(json.loads(json.dumps(files)) for files in (here, there))) == {}


class Narrow(InvertingGradients):
    """Of whose searches memory holds no more than three side by side."""

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self.widths: list[int] = []

    def _search_together(self, rows: Any, copy: Any) -> Any:
        if len(rows) > 3:
            raise torch.OutOfMemoryError
        self.widths.append(len(rows))
        return super()._search_together(rows, copy)


class Unstackable(InvertingGradients):
    def _search_together(self, rows: Any, copy: Any) -> Any:
        raise RuntimeError("vmap: this operator has no batching rule")


@pytest.mark.gpu
@apart
def test_searches_side_by_side_find_what_they_find_one_after_another() -> None:
    planted = Planted(((1, 1), (1, 3), (2, 1)), groups=2)
    settings, known = InvertingGradients.Config(iterations=8, restarts=2), planted.knowledge
    chosen = [u for u in updates(planted.artifacts, known) if u.batch * u.steps <= 3]

    def search(attack: InvertingGradients, known: Knowledge) -> np.ndarray[Any, Any]:
        numbers, rng = [u.examples for u in chosen], np.random.default_rng(0)
        return np.concatenate([x for x, _ in attack.invert_all(chosen, numbers, known, rng)])

    narrow = Narrow(settings)
    with one_thread():
        here = search(InvertingGradients(settings), known)
        with accelerator():
            there = [
                search(attack, move(known))
                for attack in (narrow, InvertingGradients(settings), Unstackable(settings))
            ]
    assert narrow.widths == [2] * 6  # of the four searches of each size, twice two
    for found in there:
        assert np.abs(found - here).max() <= TOLERANCE
