"""One attack on a model, prototypes or a gradient of one's own, beside known answers and other programs."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

import fedaudit as fa
from fedaudit.audit.case.custom import redraw
from tests.attacks import world

Pair = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


@pytest.fixture(scope="module")
def digits() -> Pair:
    order = np.random.default_rng(0).permutation(1797)
    x, y = world.digits()
    return x[order], y[order]


def take(digits: Pair, first: int, last: int) -> Pair:
    return digits[0][first:last], digits[1][first:last]


@pytest.fixture(scope="module")
def model(digits: Pair) -> nn.Module:
    """Trained on the first 60 images until it knows them by heart."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    x, y = map(torch.from_numpy, take(digits, 0, 60))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
    for _ in range(200):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    return net


def test_membership_is_the_area_that_another_program_finds(model: nn.Module, digits: Pair) -> None:
    members, others = take(digits, 0, 60), take(digits, 60, 460)
    result = fa.attack("loss_threshold", model=model, members=members, nonmembers=others)
    (auc,) = (e for e in result.evidence if e.measure == "auc" and e.control == "none")
    x, y = (torch.from_numpy(np.concatenate(pair)) for pair in zip(members, others, strict=True))
    with torch.no_grad():
        losses = nn.functional.cross_entropy(model(x), y, reduction="none").numpy()
    member = np.repeat([True, False], [60, 400])
    by_class = [roc_auc_score(member[y == c], -losses[y == c]) for c in range(10)]
    expected = np.average(by_class, weights=np.bincount(members[1], minlength=10))
    assert auc.trials == 60 and auc.interval is not None
    assert auc.interval[0] < expected < auc.interval[1]  # of a sample of the non-members, class by class
    assert auc.interval[0] > 0.5 and "<svg" in result.plot()._repr_html_()
    assert "<table>" in result._repr_html_() and len(result.evidence.to_dicts()) == len(result.evidence)


def test_a_model_that_saw_nobody_shows_nobody(digits: Pair) -> None:
    torch.manual_seed(1)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    result = fa.attack("loss_threshold", model=net, members=take(digits, 0, 60), nonmembers=take(digits, 60, 460))
    (auc,) = (e for e in result.evidence if e.measure == "auc" and e.control == "none")
    assert auc.interval is not None and auc.interval[0] < 0.5 < auc.interval[1]


def test_shadow_models_begin_anew_and_the_model_stays_as_it_is(model: nn.Module, digits: Pair) -> None:
    before = {name: v.clone() for name, v in model.state_dict().items()}
    result = fa.attack(
        "lira",
        model=model,
        members=take(digits, 0, 60),
        nonmembers=take(digits, 60, 260),
        auxiliary=take(digits, 500, 700),
        training={"local_epochs": 5, "batch_size": 20, "lr": 0.2},
        shadows=4,
    )
    assert any(e.measure == "auc" for e in result.evidence)
    assert all(torch.equal(v, before[name]) for name, v in model.state_dict().items())


def test_prototypes_of_own_clients_are_read(model: nn.Module, digits: Pair) -> None:
    held = {"client-0": take(digits, 700, 760), "client-1": take(digits, 760, 820)}
    body = nn.Sequential(*list(model)[:-1])

    def average(x: Any, y: Any) -> dict[int, Any]:
        with torch.no_grad():
            features = body(torch.from_numpy(x))
        return {int(c): features[y == c].mean(0) for c in np.unique(y)}

    result = fa.attack(
        "prototype_membership",
        model=model,
        messages={name: average(*pair) for name, pair in held.items()},
        members=held,
        nonmembers=take(digits, 820, 1100),
        auxiliary=take(digits, 1100, 1500),
    )
    areas = [e.value for e in result.evidence if e.measure == "auc" and e.control == "none"]
    assert len(areas) > 1 and np.mean(areas) > 0.7


def gradient(model: nn.Module, pair: Pair) -> Any:
    x, y = map(torch.from_numpy, pair)
    return torch.autograd.grad(nn.functional.cross_entropy(model(x), y), list(model.parameters()))


@pytest.mark.parametrize("named", [False, True])
def test_the_input_of_a_dense_layer_is_drawn_exactly(model: nn.Module, digits: Pair, named: bool) -> None:
    one = take(digits, 1500, 1501)
    sent = gradient(model, one)
    given = dict(zip(dict(model.named_parameters()), sent, strict=True)) if named else sent
    drawn = fa.invert(model, given, shape=(1, 8, 8), attack="analytic")
    assert drawn.labels.tolist() == one[1].tolist() and drawn.result is None and drawn.class_means is None
    assert np.abs(drawn.images - one[0]).max() < 1e-3
    assert "data:image/png" in drawn._repr_html_()


def test_an_inversion_is_measured_where_the_truth_is_given(model: nn.Module, digits: Pair) -> None:
    one = take(digits, 1500, 1501)
    drawn = fa.invert(
        model, gradient(model, one), shape=(1, 8, 8), images=one, auxiliary=take(digits, 500, 900), attack="idlg"
    )
    assert drawn.result is not None and drawn.class_means is not None
    measured = {e.measure for e in drawn.result.evidence}
    assert {"ssim", "named"} <= measured
    means = digits[0][500:900][digits[1][500:900] == drawn.labels[0]]
    assert np.abs(drawn.class_means[0] - means.mean(0)).max() < 0.2  # of half of them


def test_what_is_wrong_is_said(model: nn.Module, digits: Pair) -> None:
    members, others = take(digits, 0, 60), take(digits, 60, 160)

    def attack(name: str, net: nn.Module = model, **given: Any) -> Any:
        return fa.attack(name, model=net, **({"members": members, "nonmembers": others} | given))

    with pytest.raises(fa.UserError, match="100 of 200 nonmembers are members too"):
        attack("entropy", members=take(digits, 0, 100), nonmembers=take(digits, 0, 200))
    with pytest.raises(fa.UserError, match="images of its own"):
        attack("lira")
    with pytest.raises(fa.UserError, match="refuses a batch"):
        attack("entropy", nn.Linear(3, 2))
    with pytest.raises(fa.UserError, match="go from 0 to 16"):
        attack("entropy", members=(members[0] * 16, members[1]))
    with pytest.raises(fa.UserError, match="labels are"):
        attack("entropy", members=(members[0], members[1][:-1]))
    with pytest.raises(fa.UserError, match="no pair"):
        attack("entropy", members=3)
    with pytest.raises(fa.UserError, match="no examples to measure"):
        attack("entropy", members=None)
    with pytest.raises(fa.UserError, match="sent no message"):
        attack("ridge", messages={"client-1": {0: np.zeros(64)}}, members={"client-0": members})
    with pytest.raises(fa.UserError, match="could read"):
        attack("ridge", auxiliary=take(digits, 500, 600))
    with pytest.raises(fa.UserError, match="4 arrays, and the model 2 parameters"):
        fa.invert(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), gradient(model, others), shape=(1, 8, 8))


def test_true_images_are_measured_among_others_or_it_is_said_what_lacks(model: nn.Module, digits: Pair) -> None:
    gradient = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    with pytest.raises(fa.UserError, match="among images of others") as told:
        fa.invert(model, gradient, shape=(1, 8, 8), images=take(digits, 0, 1))
    assert "auxiliary" in str(told.value.hint)


def test_weights_are_drawn_anew_whether_or_not_a_layer_can_do_that_itself() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.MultiheadAttention(4, 2), nn.Linear(4, 2))
    net[0].requires_grad_(False)
    drawn = redraw(net)
    before, after = net.state_dict(), drawn.state_dict()
    assert torch.equal(before["0.weight"], after["0.weight"])  # frozen: everybody has it
    for name in ("1.in_proj_weight", "2.weight"):
        assert not torch.equal(before[name], after[name])
    assert torch.equal(
        before["1.in_proj_weight"].flatten().sort()[0], after["1.in_proj_weight"].flatten().sort()[0]
    )
