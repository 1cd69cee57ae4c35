"""Every method trains on an accelerator, stacked where it can be, and agrees with the processor."""

import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.speed import counts as counting
from fedaudit.attacks.models.model_inversion import ModelInversion
from fedaudit.attacks.prototypes.grnn import GRNN
from fedaudit.attacks.updates.dlg import DLG
from fedaudit.attacks.updates.grnn_updates import GRNNUpdates
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.planning.load import make_config
from fedaudit.audit.settings import catalog
from fedaudit.fl.execution.batched import plan_width
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Method, is_stackable
from fedaudit.fl.runtime import plugin
from fedaudit.fl.runtime.workers import one_thread, start
from tests.accelerator import AMPLIFIED, DEVICE, OWN, REAL, TOLERANCE, accelerator, apart, run_apart
from tests.fl.test_all_methods import method
from tests.fl.worlds import CLASSES, TinyNet, World, close, data, parts, run

EVERY = plugin.names("fedaudit.fl.methods")
# The others train without a stack, or refuse such a network
STACKED = [
    n
    for n in plugin.names("fedaudit.fl.methods")
    if is_stackable(found := plugin.load("fedaudit.fl.methods", n, Method)) and n not in ("fjord", "heterofl")
    if getattr(found.card, "trained", None) is not Kind.ADAPTER
]
NORMALISED = [pytest.param(n, marks=() if n == "scaffold" else pytest.mark.nightly) for n in STACKED]


def world(
    name: str, workers: int | str, device: str = "cpu", make: Any = None, adversary: Any = None, **settings: Any
) -> World:
    """Clients of unequal size, one without data."""
    return run(
        method(name, rounds=2, **settings),  # type: ignore[arg-type]
        workers=workers,
        device=device,
        make=make,
        adversary=adversary,
        d=data(n=100),
        index=parts(data(n=80), sizes=(7, 20, 11, 0, 15), skew=False),
        script=[([0, 1, 2, 3, 4], [0, 1, 2, 4])],
    )


class Normalised(TinyNet):
    """With statistics of the batch, which training moves."""

    def __init__(self, shape: tuple[int, ...] = (1, 6, 6), classes: int = CLASSES) -> None:
        super().__init__(shape, classes)
        self.norm = nn.BatchNorm2d(4)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(nn.functional.leaky_relu(self.norm(self.conv(x))), 2)
        return nn.functional.leaky_relu(self.fc(x.flatten(1)))


@pytest.mark.gpu
@pytest.mark.sample(8)
@pytest.mark.parametrize("name", EVERY)
@apart
def test_a_method_agrees_with_the_processor(name: str) -> None:
    with accelerator():
        there = world(name, "batched", DEVICE)
    tolerance = AMPLIFIED if REAL and name == "feddc_condense" else TOLERANCE
    assert close(world(name, 0), there, tolerance=tolerance)


# Adversaries that read or forge what is sent of single examples, and on what
ON_EXAMPLES = [
    ("feature_hijack", "split_learning", {"pilot_steps": 5}),
    ("activation_poison", "splitfed_v2", {"clients": 2}),
    ("false_outputs", "fedgkt", {"clients": 2}),
    pytest.param("false_outputs", "fedmd", {"clients": 2}, marks=pytest.mark.nightly),
    ("false_outputs", "fedcurv", {"clients": 2}),
]


@pytest.mark.gpu
@pytest.mark.parametrize(("adversary", "name", "settings"), ON_EXAMPLES)
@apart
def test_an_adversary_agrees_with_the_processor(adversary: str, name: str, settings: dict[str, Any]) -> None:
    def poisoned(device: str) -> World:
        found = plugin.configure(catalog.load("adversaries", adversary), settings, "adversary")
        return world(name, 0, device, adversary=found)

    with accelerator():
        there = poisoned(DEVICE)
    here = poisoned("cpu")
    assert close(here, there, tolerance=TOLERANCE)
    assert not close(here, world(name, 0), tolerance=TOLERANCE)


@pytest.mark.parametrize("name", NORMALISED)
def test_a_stack_of_networks_that_normalise_by_the_batch_is_each_of_them(name: str) -> None:
    assert close(world(name, 0, make=Normalised), world(name, "batched", make=Normalised), tolerance=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"optimiser": "adam", "weight_decay": 0.01, "lr": 0.01},
        {"optimiser": "adamw", "weight_decay": 0.01, "lr": 0.01},
        {"momentum": 0.5, "weight_decay": 0.01, "grad_clip": 0.5},
    ],
    ids=lambda s: s.get("optimiser", "sgd"),
)
def test_a_stack_of_clients_of_unequal_size_is_each_of_them_whatever_the_optimiser(settings: Any) -> None:
    alone, stacked = (world("fedavg", w, local_epochs=2, **settings) for w in (0, "batched"))
    assert close(alone, stacked, tolerance=1e-5)
    for a, b in zip(alone.history, stacked.history, strict=True):
        assert a["train_loss"] == pytest.approx(b["train_loss"], abs=1e-5)


def test_a_stack_is_as_wide_as_free_memory_allows() -> None:
    assert plan_width(80_000, 2_000_000, 2**36) == 32
    assert plan_width(11_000_000, 250_000_000, 16 * 2**30) == 2  # a ResNet-18 with batches of 50
    assert plan_width(11_000_000, 250_000_000, 2**20) == 1
    # with a gradient for each of 50 examples
    assert plan_width(80_000, 2_000_000, 2**30, 50) == 7


@pytest.mark.gpu
@pytest.mark.skipif(REAL, reason="CUDA refuses by itself")
@apart
def test_the_pretended_device_refuses_what_cuda_refuses() -> None:
    with accelerator():
        there = torch.ones(3).to(DEVICE)
        with pytest.raises(RuntimeError, match="one device"):
            _ = there + torch.ones(3)
        with pytest.raises(TypeError, match=r"Tensor.cpu\(\)"):
            there.numpy()
        with pytest.raises(RuntimeError, match="generator"):
            there.uniform_(generator=torch.Generator())
        assert (2 * there).cpu().tolist() == [2, 2, 2]


BESIDE = {
    "federation": {"dataset": "digits", "limit": [100, 20], "clients": 3, "model": "logreg"},
    "method": {"name": "fedavg", "rounds": 1, "local_epochs": 1},
    "attacks": [{"name": "lira", "shadows": 4}, "label_counts_from_update"],
    "device": "cpu",
}


def audit_on_processor(folder: Path, workers: int) -> dict[str, bytes]:
    """What a run leaves of its messages and of its attacks, without the time that they took."""
    config = make_config(BESIDE | {"workers": workers})
    execute(RunDir.create(folder), config, ["simulate", "attack"], lambda *_: None, skip_finished=False)
    files = [p for kind in ("artifacts", "evidence") for p in (folder / kind).rglob("*.*")]
    return {p.name: re.sub(rb'"seconds": [0-9.e-]+', b"", p.read_bytes()) for p in files}


@pytest.mark.gpu
@apart
def test_a_run_on_the_processor_is_the_same_beside_a_device_that_it_does_not_use(tmp_path: Path) -> None:
    """Its engine has a thread for each device since it first computed a gradient, which no copy of it has."""
    assert torch.accelerator.is_available()
    torch.ones(1, requires_grad=True).sum().backward()
    with one_thread():
        alone = audit_on_processor(tmp_path / "alone", 0)
        assert len(alone) > 8 and audit_on_processor(tmp_path / "workers", 2) == alone


@pytest.mark.gpu
@apart
def test_a_site_that_no_other_process_can_make_works_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a network that a cell of a notebook defines."""
    site = type("Mine", (), {"pid": lambda self, _: os.getpid(), "__module__": "__main__"})
    monkeypatch.setattr(sys.modules["__main__"], "Mine", site, raising=False)
    with start(2, site) as there:
        assert [*there.map("pid", [1, 2])] == [os.getpid()] * 2


@pytest.mark.skipif(OWN, reason="this is the process of its own")
@pytest.mark.parametrize("nightly", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_on_an_accelerator(nightly: bool) -> None:
    run_apart(nightly)


@pytest.mark.gpu
@pytest.mark.skipif(REAL, reason="the pretended device counts")
@apart
def test_no_number_crosses_to_the_device_or_back_for_a_step_or_an_iteration() -> None:
    with accelerator():
        kernels = {
            what: counting.count_more(of, 2)
            for what, of in {
                "ten": lambda n: counting.count_round("small", 10, n, 10),
                "one": lambda n: counting.count_round("small", 1, n, 0),
                "start": lambda n: counting.count_inversion(counting.invert(n, 1)),
                "starts": lambda n: counting.count_inversion(counting.invert(n, 4)),
            }.items()
        }
    assert all(found.keys() == {"kernels"} for found in kernels.values()), kernels
    most = {what: found["kernels"] for what, found in kernels.items()}
    assert most["one"] < 40 and most["ten"] < 4 * most["one"]
    assert most["start"] < 300 and most["starts"] < 1.25 * most["start"]


@pytest.mark.gpu
@pytest.mark.skipif(REAL, reason="the pretended device counts")
@apart
def test_uploads_that_are_only_averaged_stay_on_the_device() -> None:
    """The host reads of each whether it is finite; of others it gets all arrays of a stack at once."""
    with accelerator():
        four, eight = (counting.count_round("small", clients, 2, 8) for clients in (4, 8))
        read = counting.count_round("small", 8, 2, 8, name="fedopt")
    assert (eight - four)["copies from it"] == 0
    assert (eight - four)["synchronisations"] == 4
    assert read["copies from it"] < 8 * 8  # clients, each with as many arrays


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["fedavg", "rebafl"])
@apart
def test_the_width_of_stacks_is_measured_and_changes_nothing(name: str) -> None:
    with accelerator():
        there = world(name, "measured", DEVICE)
    assert close(world(name, 0), there, tolerance=TOLERANCE)


def fit_by_adam(n: int) -> DLG:
    return DLG(DLG.Config(iterations=n, optimiser="adam"))


def fit_generators(n: int) -> GRNNUpdates:
    return GRNNUpdates(GRNNUpdates.Config(iterations=n))


@pytest.mark.gpu
@pytest.mark.skipif(REAL, reason="the pretended device counts")
@pytest.mark.parametrize(
    "of",
    [
        lambda n, targets: counting.count_inversion(fit_by_adam(n), targets),
        lambda n, targets: counting.count_inversion(fit_generators(n), targets),
        lambda n, targets: counting.count_prototypes(GRNN(GRNN.Config(steps=n)), targets),
        lambda n, targets: counting.count_models(ModelInversion(ModelInversion.Config(iterations=n)), targets),
        lambda n, targets: counting.count_activations(counting.unsplit(n), targets),
    ],
    ids=["dlg", "grnn_updates", "grnn", "model_inversion", "unsplit"],
)
@apart
def test_four_targets_are_asked_for_at_once(of: Callable[[int, int], Counter[str]]) -> None:
    with accelerator():
        alone, four = (counting.count_more(lambda n, t=targets: of(n, t), 2) for targets in (1, 4))
    assert alone.keys() == four.keys() == {"kernels"}
    assert four["kernels"] < 1.25 * alone["kernels"]
