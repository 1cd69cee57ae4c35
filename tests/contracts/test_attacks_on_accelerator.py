"""Every attack runs on an accelerator, with its controls, and agrees with the processor.

First on its own tiny world; then as the attack phase runs it, where controls play clients and adversaries train
models of their own.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedaudit.attacks.attack import Attack, Knowledge
from fedaudit.attacks.batches._running import run_first_layers
from fedaudit.attacks.batches.unsplit_labels import Heads
from fedaudit.attacks.evaluation.batch_readings import Batch
from fedaudit.attacks.evaluation.decoder import DecoderTraining, Fit, Lesson, fit, hold_out
from fedaudit.attacks.evaluation.gradients import Update, iterate_updates
from fedaudit.attacks.evaluation.prototype_inversion import InversionTask
from fedaudit.attacks.evaluation.searches import Searching
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.updates.tableak import Search, Tableak
from fedaudit.audit.observer.generators import KnownGenerators
from fedaudit.audit.observer.models import BoundExtractor
from fedaudit.audit.observer.shadows import ShadowTrainer
from fedaudit.audit.phases.attack import Bench, attack_once
from fedaudit.audit.settings import catalog
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.streams import seed_networks
from fedaudit.fl.runtime.workers import one_thread
from tests.accelerator import DEVICE, REAL, accelerator, apart, counts
from tests.attacks.batches.batch_world import Convolved, Known, SentBack, draw_weights
from tests.attacks.models.overfit import CONFIG, Mlp, overfit
from tests.attacks.models.released import Released
from tests.attacks.updates.gradients import Planted
from tests.attacks.updates.trained_rows import TrainedRows
from tests.attacks.world import World, weights
from tests.contracts.attack_worlds import stage
from tests.contracts.test_growth import QUICK
from tests.contracts.test_methods_and_attacks import ATTACKS, METHODS, federation, made

pytestmark = pytest.mark.usefixtures("few_epochs")

TOLERANCE = 0.05 if REAL else 1e-4  # of what is measured
# One of each way to use a device: the others at night
COVER = ("analytic", "dlg", "frozen_layers", "generator_extraction", "grnn", "imprint_recovery", "upcnn")
# Fitted for hundreds of steps to what the device made: last digits decide where a few of its images rank
FITTED = {"activation_decoder", "condensed_refinement", "upcnn", "vae"}
# From random starts L-BFGS goes where the last digits lead it
SEARCHES = {"dlg", "idlg"}
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
    quick |= {"optimiser": "adam", "lr": 0.1} if name in SEARCHES else {}
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


class Together(Searching[Any, Any]):
    """Whose searches are never made one after another."""

    def _search_each(self, searches: Any, device: str) -> Any:
        raise AssertionError("one after another")


class Narrow(Together):
    """Of whose searches memory holds no more than three."""

    widths: list[int]

    def _search_together(self, alike: Any, device: str) -> Any:
        if len(alike) > 3:
            raise torch.OutOfMemoryError
        self.widths.append(len(alike))
        return super()._search_together(alike, device)


class Each(Searching[Any, Any]):
    """Whose networks torch cannot stack."""

    def _search_together(self, alike: Any, device: str) -> Any:
        raise RuntimeError("vmap: this operator has no batching rule")


@cache
def sent() -> Planted:
    return Planted(((1, 1), (1, 3), (2, 1)), groups=2)


@cache
def unequal() -> World:
    """Of whose three clients one sends fewer prototypes."""
    return World(sizes=(1, 20), clients=3, groups=5)


@cache
def released() -> Released:
    """Four models that one person a class taught, and two rounds."""
    world = Released(models=4)
    other, last = (
        next(a for a in world.artifacts if a.round == t and a.sender.index == k) for t, k in ((0, 0), (1, None))
    )
    again = dataclasses.replace(last, id="r00002/server.downlink/global_model", round=2, payload=other.payload)
    world.artifacts.append(again)
    return world


@cache
def convolved() -> Convolved:
    """Four clients who send activations, and three who send features."""
    world = Convolved(clients=4, size=6)
    world.artifacts += Convolved(Kind.FEATURES, clients=3, size=6).artifacts
    return world


# Attacks on several targets, how many of their searches are alike where memory holds three, and how far images
# may lie apart on the pretended device: L-BFGS goes where the last digits lead it
SEARCHING = [
    ("inverting_gradients", {"iterations": 3, "restarts": 2}, sent, [2] * 6, 1e-4),
    ("dlg", {"iterations": 4, "optimiser": "adam", "lr": 0.1}, sent, [2] * 3, 1e-5),
    pytest.param("dlg", {"iterations": 1}, sent, [2] * 3, 1e-2, marks=pytest.mark.nightly),
    ("idlg", {"iterations": 1}, sent, [2] * 2, 1e-2),
    ("analytic", {"iterations": 4}, sent, [2] * 2, 1e-3),
    ("grnn_updates", {"iterations": 4}, sent, [2] * 3, 1e-5),
    ("grnn", {"steps": 4, "per_size": 5}, unequal, [2, 3], 1e-5),
    ("model_inversion", {"iterations": 4}, released, [1, 2, 2], 1e-4),
    ("unsplit", {"rounds": 2, "image_steps": 2, "clone_steps": 2}, convolved, [2, 2, 3] * 2, 1e-5),
]


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "settings", "make", "widths", "bound"), SEARCHING)
@apart
def test_searches_side_by_side_find_what_they_find_one_after_another(
    name: str, settings: dict[str, Any], make: Callable[[], Any], widths: list[int], bound: float
) -> None:
    world, cls = make(), catalog.load("attacks", name)

    def search(way: type, known: Knowledge) -> tuple[Any, NDArray[Any]]:
        attack = type(way.__name__, (way, cls), {"widths": []})(cls.Config(**settings))
        return attack, attack.run(world.artifacts, known, np.random.default_rng(0))["images"]

    with one_thread():
        _, here = search(Each, world.knowledge)
        with accelerator():
            (narrow, halved), (_, together), (_, each) = (
                search(w, move(world.knowledge)) for w in (Narrow, Together, Each)
            )
    assert narrow.widths == widths
    for found in (halved, together, each):
        assert np.abs(found - here).max() <= (TOLERANCE if REAL else bound)


@pytest.mark.gpu
@pytest.mark.skipif(REAL, reason="the pretended device counts")
@apart
def test_gradients_of_all_labels_of_a_batch_are_read_once() -> None:
    """Though the head steps in between."""
    asked, batch = list[Counter[str]](), (np.ones((4, 24), np.float32), np.zeros((4, 24), np.float32))
    with accelerator():
        for batches in (2, 3):
            counts.clear()
            Heads(move(SentBack(clients=1).knowledge)).measure([batch] * batches, None, 3, 0.1)
            asked.append(Counter(counts))
    more = asked[1] - asked[0]
    assert more["copies from it"] == more["synchronisations"] == 1


@pytest.mark.gpu
@apart
def test_rows_of_several_updates_are_searched_side_by_side() -> None:
    """Of clients that began with models of their own too."""
    world, settings = TrainedRows((2, 2, 2)), Tableak.Config(iterations=8)
    [one, two, three] = iterate_updates(world.artifacts, world.knowledge)
    two = dataclasses.replace(two, start={k: np.float32(1.1) * v for k, v in two.start.items()})

    def search(way: type, known: Knowledge, *asked: list[Update]) -> list[NDArray[Any]]:
        """Inputs of each, and how far they are from the update."""
        rng = np.random.default_rng(0)
        own = {"finish": lambda _, search, found: [part.numpy() for part in found]}
        made = type(way.__name__, (way, Search), own)(settings, known, one)
        return [part for some in asked for found in made.invert(some, rng) for part in found]

    with one_thread():
        here = search(Each, world.knowledge, [one], [two], [three])
        with accelerator():
            together, each = (search(way, move(world.knowledge), [one, two, three]) for way in (Together, Each))
    for found in (together, each):
        for part, wanted in zip(found, here, strict=True):
            np.testing.assert_allclose(part, wanted, atol=TOLERANCE if REAL else 1e-4)


@pytest.mark.gpu
@apart
def test_shadow_models_side_by_side_are_those_trained_one_after_another() -> None:
    """Whatever they start from, on unlike numbers of examples; of like numbers eight take few more kernels."""
    world, rows = overfit(), [np.arange(40), np.arange(20, 60), np.arange(50), np.arange(70, 100)] * 2
    known = {k: np.asarray(v) for k, v in world.artifacts[0].payload.items()}

    def train(device: str, start: Any, augment: str, rows: Any = rows) -> NDArray[Any]:
        data = dataclasses.replace(world.data, augment=augment)
        trainer = ShadowTrainer(make=Mlp, data=data, config=CONFIG, device=device)
        return trainer(world.auxiliary, rows, world.reference.x[:9], epochs=2, seed=3, start=start)

    for start, augment in ((None, "none"), (known, "none"), (None, "crop_flip")):
        with one_thread():
            here = train("cpu", start, augment)
            with accelerator():
                there = train(DEVICE, start, augment)
        assert np.abs(there - here).max() <= (TOLERANCE if REAL else 1e-5)
    asked = list[int]()
    for models in (2, 8):
        counts.clear()
        with accelerator():
            train(DEVICE, None, "none", [rows[0]] * models)
        asked.append(counts["kernels"])
    assert REAL or asked[1] < 1.25 * asked[0]


def decode(name: str, models: int, known: Knowledge) -> NDArray[Any]:
    """What decoders make of the features of three images, as so many models send them."""
    cls, rng, aux = catalog.load("attacks", name), np.random.default_rng(0), known.granted_auxiliary
    settings: dict[str, float] = {"epochs": 1, "fine_tune_epochs": 3, "least_steps": 4}
    attack = cls(cls.Config(**settings, batch=20, width=32, lr=5e-4))
    if name == "activation_decoder":
        drawn, artifact = [draw_weights(k) for k in range(1 + models)], stage(name).view[1]
        sent = [{"activations": run_first_layers(w, aux.x[:3], known)} for w in drawn]
        groups = [
            [Batch(artifact=dataclasses.replace(artifact, payload=p), weights=w, source="", rows=np.arange(3))]
            for p, w in zip(sent, drawn, strict=True)
        ]
        return np.concatenate([images for [images] in attack.invert(groups, known, rng)])
    first, *others = (known.granted_architecture(weights(k)) for k in range(1 + models))
    tasks = [InversionTask(extractor=e, features=e.features(aux.x[:3]), labels=aux.y[:3]) for e in others]
    return np.concatenate(attack.invert(tasks, first, known, rng))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["upcnn", "vae", "activation_decoder"])
@apart
def test_decoders_side_by_side_are_those_fitted_one_after_another(name: str) -> None:
    """And eight take few more kernels than two."""
    known, asked = stage(name).knowledge, list[int]()
    known = dataclasses.replace(known, auxiliary=known.granted_auxiliary.only(np.arange(60)))
    with one_thread():
        here = decode(name, 3, known)
        with accelerator():
            there = decode(name, 3, move(known))
            for models in (2, 8):
                counts.clear()
                decode(name, models, move(known))
                asked.append(counts["kernels"])
    assert np.abs(there - here).max() <= (TOLERANCE if REAL else 1e-5)
    assert REAL or asked[1] < 1.25 * asked[0]


def fit_lines(
    device: str, noises: Sequence[float], training: DecoderTraining, *errors: Exception
) -> tuple[NDArray[Any], list[int]]:
    """Weights of linear networks whose inputs are so much noise, and how often each loss was asked for.

    The first times it is asked, it fails with these errors.
    """
    drawn = torch.randn(len(noises) + 1, 200, 3, generator=torch.Generator().manual_seed(0))
    targets = (drawn[0] @ torch.tensor([[1.0], [2.0], [3.0]])).to(device)
    asked, left = Counter[int](), [*errors]

    def loss(net: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        asked[id(net)] += 1
        if left:
            raise left.pop(0)
        error: torch.Tensor = (net(x + 0.5 * z) - y).square().mean()
        return error

    with seed_networks(0):
        nets = [torch.nn.Linear(3, 1).to(device) for _ in noises]
    rows = hold_out(200, torch.Generator().manual_seed(1))
    fits = [
        Fit(networks=net, inputs=drawn[0] + noise * other, generator=torch.Generator().manual_seed(k))
        for k, (net, noise, other) in enumerate(zip(nets, noises, drawn[1:], strict=True))
    ]
    fit(fits, Lesson(targets=targets, rows=rows, loss=loss, noise=[3]), training)
    return np.stack([net.weight.detach().cpu().numpy() for net in nets]), [asked[id(net)] for net in nets]


@pytest.mark.gpu
@apart
def test_networks_that_stop_at_different_steps_are_fitted_side_by_side() -> None:
    """Which draws a network gets, and when it stops, its company does not change."""
    long = DecoderTraining(epochs=60, least_steps=0, batch=20, lr=0.05)
    with one_thread():
        here, alone = fit_lines("cpu", (0.0, 1.0, 2.0), long)
        with accelerator():
            there, together = fit_lines(DEVICE, (0.0, 1.0, 2.0), long)
    assert len({*alone}) == 3 and together[1:] == [0, 0] and together[0] <= max(alone) + 2
    assert np.abs(there - here).max() <= (TOLERANCE if REAL else 1e-5)


# Errors of the first losses, and how often losses are asked for in 27 steps and a look
FAILING = [
    ((), 28),
    ((torch.OutOfMemoryError(),), 1 + 2 * 28),
    ((torch.OutOfMemoryError(), torch.OutOfMemoryError()), 2 + 3 * 28),
    ((RuntimeError("vmap: this operator has no batching rule"),), 1 + 4 * 28),
]


@pytest.mark.gpu
@pytest.mark.parametrize(("errors", "asked"), FAILING)
@apart
def test_networks_that_memory_or_torch_does_not_stack_are_fitted_in_parts(
    errors: tuple[Exception, ...], asked: int
) -> None:
    """With the draws that they had begun with."""
    short, noises = DecoderTraining(epochs=3, least_steps=0, batch=20, lr=0.01), (0.0, 0.1, 0.2, 0.3)
    with one_thread():
        here, _ = fit_lines("cpu", noises, short)
        with accelerator():
            there, counted = fit_lines(DEVICE, noises, short, *errors)
    assert sum(counted) == asked
    assert np.abs(there - here).max() <= (TOLERANCE if REAL else 1e-6)
