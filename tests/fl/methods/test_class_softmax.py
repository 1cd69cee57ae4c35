"""Losses corrected for class counts: the plain softmax where they are equal, masks where classes are missing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fedaudit.fl.clients.client import Client
from fedaudit.fl.method import RoundMethod
from fedaudit.fl.methods.class_softmax import BSMFedAvg, FedLC, FedRS, ScaffoldRS
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.scaffold import Scaffold
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues, direct, logit_gradient
from tests.fl.worlds import EVERYONE, TinyNet, close, data, parts, run, same

PLAIN = SETTINGS | {"momentum": 0.0}
V1 = [2.0, 1.0, 0.5, -0.5]  # logits; class counts (30, 10, 0, 0), label 0
ONLY = {"script": [([0], [0])]}  # client 0 has examples of class 0 alone


def fedrs(**settings: Any) -> FedRS:
    return FedRS(FedRS.Config(**(SETTINGS | settings)))


def scaffold_rs(**settings: Any) -> ScaffoldRS:
    return ScaffoldRS(ScaffoldRS.Config(**(PLAIN | settings)))


def bsm(**settings: Any) -> BSMFedAvg:
    return BSMFedAvg(BSMFedAvg.Config(**(SETTINGS | settings)))


def lc(**settings: Any) -> FedLC:
    return FedLC(FedLC.Config(**(SETTINGS | settings)))


def fedavg(**settings: Any) -> FedAvg:
    return FedAvg(FedAvg.Config(**(SETTINGS | settings)))


def loss(method: RoundMethod, counts: tuple[int, ...] = (30, 10, 0, 0)) -> tuple[float, list[float]]:
    """The loss at V1 of a client with these class counts, and its gradient."""
    y = torch.repeat_interleave(torch.arange(4), torch.tensor(counts))
    client = Client(
        index=0,
        round=0,
        x=torch.zeros(len(y), 1),
        y=y,
        classes=4,
        message={},
        memory={},
        net=TinyNet(),
        streams=Streams(5),
    )
    const = method.compute_constants(client)
    return logit_gradient(lambda z: method.loss(direct(), z, torch.tensor([0]), const), V1)


def balanced(classes: int = 4) -> dict[str, Any]:
    """Clients that hold every class equally often, and different numbers of examples."""
    d = data(n=120)
    by_class = [list(np.flatnonzero(d.train.y == c)) for c in range(classes)]
    index = [
        np.array([by_class[c].pop() for c in range(classes) for _ in range(3 + 2 * (k % 2))]) for k in range(5)
    ]
    return {"d": d, "index": index, **WORLD}


# Shifted: BSM-FedAvg and FedLC -------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "value", "probabilities"),
    [(bsm(), 0.115671, [0.890768, 0.109232, 0.0, 0.0]), (lc(), 0.278695, [0.756770, 0.243230, 0.0, 0.0])],
)
def test_a_shifted_loss_and_its_gradient_are_the_ones_on_paper(
    method: RoundMethod, value: float, probabilities: list[float]
) -> None:
    found, gradient = loss(method)
    assert found == pytest.approx(value, abs=1e-5)
    assert gradient == pytest.approx([probabilities[0] - 1, *probabilities[1:]], abs=1e-5)
    assert gradient[2:] == [0.0, 0.0]  # exactly: classes the client lacks


def test_tau_scales_the_margins() -> None:
    """Offsets 2 n^(-1/4): the logits differ by 1 - 2 (30^-1/4 - 10^-1/4)."""
    gap = 1 - 2 * (30**-0.25 - 10**-0.25)
    assert loss(lc(tau=2.0))[0] == pytest.approx(np.log1p(np.exp(-gap)), abs=1e-5)


def test_leaving_out_the_true_class_is_the_printed_form() -> None:
    found, gradient = loss(lc(exclude_true_class=True))
    assert found == pytest.approx((1.0 - 10**-0.25) - (2.0 - 30**-0.25), abs=1e-5)
    assert gradient == pytest.approx([-1.0, 1.0, 0.0, 0.0], abs=1e-6)
    found, gradient = loss(lc(exclude_true_class=True), counts=(16, 16, 16, 0))
    assert found == pytest.approx(np.log(np.e + np.e**0.5) - 2.0, abs=1e-5)
    assert gradient == pytest.approx([-1.0, 0.622459, 0.377541, 0.0], abs=1e-5)


def test_the_printed_form_is_a_mean_over_the_batch() -> None:
    method, const = lc(exclude_true_class=True), {"shift": torch.zeros(4)}
    z, y = torch.tensor([V1, V1[::-1]]), torch.tensor([0, 1])
    one, other = (method.loss(direct(), z[i : i + 1], y[i : i + 1], const) for i in (0, 1))
    assert float(method.loss(direct(), z, y, const)) == pytest.approx(float(one + other) / 2)


@pytest.mark.parametrize("make", [bsm, lc, lambda: lc(tau=0.0)])
def test_equal_counts_over_all_classes_are_fedavg_to_the_last_bit(make: Any) -> None:
    world = balanced()
    assert same(run(make(), **world), run(fedavg(), **world))


@pytest.mark.parametrize("make", [bsm, lc, lambda: lc(tau=0.0)])
def test_with_missing_classes_they_are_not_fedavg(make: Any) -> None:
    assert not close(run(make(), **WORLD), run(fedavg(), **WORLD), tolerance=1e-4)


def test_tau_zero_without_missing_classes_is_fedavg_whatever_the_counts() -> None:
    assert loss(lc(tau=0.0), (30, 10, 2, 1)) == loss(fedavg())
    assert loss(lc(tau=1.0), (30, 10, 2, 1))[0] != pytest.approx(loss(fedavg())[0], abs=0.05)


def test_tau_zero_with_missing_classes_is_the_softmax_over_the_clients_own() -> None:
    own = cross_entropy(torch.tensor([V1[:2]]), torch.tensor([0]))
    assert loss(lc(tau=0.0))[0] == pytest.approx(float(own), abs=1e-6)


@pytest.mark.parametrize("make", [bsm, lc, lambda **s: lc(exclude_true_class=True, **s)])
def test_a_client_of_one_class_moves_by_weight_decay_alone(make: Any) -> None:
    still = run(make(rounds=1, weight_decay=0.0), **ONLY)
    assert still.history[0]["rejected"] == 0 and same(still, still.initial)
    decayed = run(make(rounds=1, local_epochs=1, lr=0.1, weight_decay=0.5), **ONLY)
    for name, value in decayed.initial.items():  # seven examples in one step
        torch.testing.assert_close(decayed[name], value * (1 - 0.1 * 0.5), rtol=0, atol=1e-7)


def test_the_head_rows_of_missing_classes_get_no_gradient() -> None:
    for method in (bsm(weight_decay=0.0), lc(weight_decay=0.0)):
        world = run(method, script=[([1], [1])])  # client 1 lacks class 3
        moved = (world["head.weight"] != world.initial["head.weight"]).any(1)
        assert moved.tolist() == [True, True, True, False]


# Scaled: FedRS and Scaffold/RS --------------------------------------------------------------


def loss_of(scale: list[float]) -> tuple[float, list[float]]:
    const = {"scale": torch.tensor(scale)}
    return logit_gradient(lambda z: fedrs().loss(direct(), z, torch.tensor([0]), const), V1)


def test_alpha_one_is_fedavg_to_the_last_bit() -> None:
    assert same(run(fedrs(alpha=1.0), **WORLD), run(fedavg(), **WORLD))


def test_alpha_below_one_is_not_fedavg() -> None:
    assert not same(run(fedrs(alpha=0.5), **WORLD), run(fedavg(), **WORLD))


def test_without_missing_classes_every_alpha_is_fedavg() -> None:
    d = data()
    world = {"d": d, "index": parts(d, skew=False), "script": [([0, 1, 2, 4], [1, 2, 4])]}
    for index in (1, 2, 4):
        assert len(set(d.train.y[world["index"][index]].tolist())) == 4  # type: ignore[index]
    assert same(run(fedrs(alpha=0.1), **world), run(fedavg(), **world))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scale", "value", "gradient"),
    [
        ([1, 1, 1, 1], 0.514675, [-0.402305, 0.219880, 0.133364, 0.049062]),
        ([1, 1, 0.5, 0.5], 0.498987, [-0.392855, 0.223356, 0.052753, 0.031996]),
        ([1, 1, 0, 0], 0.493812, [-0.389704, 0.224515, 0, 0]),
        ([1, 2 / 3, 0.5, 0.5], 0.433580, [0.648185 - 1, 0.113907, 0.056319, 0.034159]),
    ],
)
def test_a_scaled_loss_and_its_gradient_are_the_ones_on_paper(
    scale: list[float], value: float, gradient: list[float]
) -> None:
    found, slope = loss_of(scale)
    assert found == pytest.approx(value, abs=1e-5)
    assert slope == pytest.approx(gradient, abs=1e-5)


@pytest.mark.parametrize(
    ("settings", "scale"),
    [
        ({}, [1.0, 1.0, 0.5, 0.5]),
        ({"soft": True}, [1.0, 2 / 3, 0.5, 0.5]),
        ({"missing_below": 11}, [1.0, 0.5, 0.5, 0.5]),
    ],
)
def test_the_scale_follows_the_class_counts(settings: dict[str, Any], scale: list[float]) -> None:
    class Holder:
        counts = torch.tensor([30, 10, 0, 0])

    found = fedrs(**settings).compute_constants(Holder())["scale"]  # type: ignore[arg-type]
    assert found.tolist() == pytest.approx(scale)


def test_soft_is_hard_where_owned_classes_are_equally_large() -> None:
    class Holder:
        counts = torch.tensor([0, 7, 7, 0])

    hard, soft = (fedrs(soft=s).compute_constants(Holder())["scale"] for s in (False, True))  # type: ignore[arg-type]
    assert hard.tolist() == soft.tolist()


def test_alpha_zero_freezes_the_rows_of_missing_classes() -> None:
    """Client 0 owns class 0 only; with decay off, or kept off those rows, the others stay exactly."""
    script = [([0], [0])]
    for settings in ({"weight_decay": 0.0}, {"freeze_missing_wd": True}):
        world = run(fedrs(alpha=0.0, **settings), script=script)
        moved = (world["head.weight"] != world.initial["head.weight"]).any(1)
        assert moved.tolist() == [True, False, False, False]
    decayed = run(fedrs(alpha=0.0), script=script)
    assert (decayed["head.weight"] != decayed.initial["head.weight"]).all()


def test_a_small_client_makes_whole_passes_until_it_has_its_least_steps() -> None:
    """Batches of 8: clients of 7 and 20 have 1 and 3 a pass, and take 5 and 6 steps for a floor of 5."""
    once = {"local_epochs": 1, "rounds": 1}
    for client, passes in ((0, 5), (1, 2)):
        script = [([client], [client])]
        floor = run(fedrs(**once, least_steps=5), script=script)
        assert same(floor, run(fedrs(**once | {"local_epochs": passes}), script=script))
        assert floor.history[-1]["steps"] == {0: 5, 1: 6}[client]
    assert same(run(fedrs(least_steps=2), script=[([4], [4])]), run(fedrs(), script=[([4], [4])]))


def test_the_floor_of_steps_is_the_same_for_clients_stacked_as_one() -> None:
    index = [np.arange(k, 60, 6)[:5] for k in range(5)]
    alone, stacked = (
        run(fedrs(local_epochs=1, least_steps=5), index=index, script=EVERYONE, workers=w) for w in (0, "batched")
    )
    assert close(alone, stacked, 1e-5) and stacked.history[-1]["steps"] == 5


@pytest.mark.parametrize("option", ["I", "II"])
def test_alpha_one_is_scaffold_to_the_last_bit(option: Any) -> None:
    scaffold = Scaffold(Scaffold.Config(**PLAIN, option=option))
    assert same(run(scaffold_rs(alpha=1.0, option=option), **WORLD), run(scaffold, **WORLD))


@pytest.mark.parametrize("option", ["I", "II"])
def test_alpha_below_one_is_not_scaffold(option: Any) -> None:
    scaffold = Scaffold(Scaffold.Config(**PLAIN, option=option))
    assert not close(run(scaffold_rs(option=option), **WORLD), run(scaffold, **WORLD))


@pytest.mark.parametrize("settings", [{}, {"soft": True}, {"least_steps": 12}])
def test_the_first_round_is_fedrs_and_later_ones_are_not(settings: dict[str, Any]) -> None:
    for rounds, equal in ((1, True), (3, False)):
        fedrs = FedRS.Config(**(PLAIN | {"rounds": rounds} | settings), weighting="uniform")
        assert close(run(scaffold_rs(rounds=rounds, **settings)), run(FedRS(fedrs))) is equal


# All four ---------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("make", [fedrs, scaffold_rs, bsm, lc])
def test_a_run_that_was_stopped_continues_to_the_same_bits(make: Any, tmp_path: Path) -> None:
    assert continues(make, tmp_path, **WORLD)


@pytest.mark.nightly
@pytest.mark.parametrize("make", [fedrs, scaffold_rs, lc])
def test_two_processes_agree_with_one(make: Any) -> None:
    assert same(run(make(), script=EVERYONE), run(make(), script=EVERYONE, workers=2))


@pytest.mark.parametrize(
    ("make", "key", "value", "bound"),
    [
        (fedrs, "alpha", 1.5, "<= 1, got 1.5"),
        (fedrs, "alpha", -0.1, ">= 0, got -0.1"),
        (fedrs, "missing_below", 0, ">= 1, got 0"),
        (scaffold_rs, "alpha", 2.0, "<= 1, got 2"),
        (scaffold_rs, "missing_below", 0, ">= 1, got 0"),
        (scaffold_rs, "freeze_missing_wd", True, ""),
        (lc, "tau", -1.0, ">= 0, got -1"),
    ],
)
def test_settings_out_of_range_are_refused(make: Any, key: str, value: Any, bound: str) -> None:
    with pytest.raises(UserError, match=f"{key} must be {bound}"):
        make(**{key: value})
