"""Models and data as people have them: tables, datasets, loaders, other types of numbers, other outputs."""

import csv
import json
import re
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, one_hot
from torch.utils.data import DataLoader, Subset, TensorDataset

import fedaudit as fa
from tests.attacks import world

Pair = tuple[Tensor, Tensor]


@pytest.fixture(scope="module")
def digits() -> Pair:
    order = np.random.default_rng(0).permutation(1797)
    x, y = world.digits()
    return torch.from_numpy(x[order]), torch.from_numpy(y[order])


@pytest.fixture(scope="module")
def patients() -> Pair:
    """Columns from 0 to 4,254, as they are."""
    given = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(given.target))
    return torch.from_numpy(given.data[order]).float(), torch.from_numpy(given.target[order])


def train(net: Any, x: Tensor, y: Tensor, loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy) -> Any:
    torch.manual_seed(0)
    for layer in net.modules():
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for _ in range(150):
        optimiser.zero_grad()
        torch.autograd.backward(loss(net(x), y))
        optimiser.step()
    return net.eval()


def dense(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, outputs))


@pytest.fixture(scope="module")
def model(digits: Pair) -> nn.Module:
    """Trained on the first 60 images until it knows them by heart."""
    made: nn.Module = train(dense(64, 10), digits[0][:60], digits[1][:60])
    return made


def area(result: fa.AttackResult) -> float:
    return next(e.value for e in result.evidence if e.measure == "auc" and e.control == "none")


def attack(net: nn.Module, members: Any, others: Any, **given: Any) -> float:
    return area(fa.attack("loss_threshold", model=net, members=members, nonmembers=others, **given))


@pytest.fixture(scope="module")
def plain(model: nn.Module, digits: Pair) -> float:
    x, y = digits
    found = attack(model, (x[:60], y[:60]), (x[60:460], y[60:460]))
    assert found > 0.6
    return found


def batches(data: Any) -> Any:
    return DataLoader(data, batch_size=16)


@pytest.mark.parametrize("as_given", [lambda d: d, batches, list], ids=["Dataset", "DataLoader", "list"])
def test_a_dataset_is_what_its_examples_are(
    model: nn.Module, digits: Pair, plain: float, as_given: Callable[[Any], Any]
) -> None:
    whole = TensorDataset(*digits)
    members, others = as_given(Subset(whole, range(60))), as_given(Subset(whole, range(60, 460)))
    assert attack(model, members, others) == plain


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16, torch.float16])
def test_a_model_of_other_numbers_is_one_of_float32(
    model: nn.Module, digits: Pair, plain: float, kind: torch.dtype
) -> None:
    x, y = digits
    other = dense(64, 10).to(kind)
    other.load_state_dict({k: v.to(kind) for k, v in model.state_dict().items()})
    found = attack(other, (x[:60], y[:60]), (x[60:460], y[60:460]))
    assert abs(found - plain) < 0.02 and next(other.parameters()).dtype == kind  # which stays as it was


@dataclass
class Answer:
    hidden: Tensor
    logits: Tensor


Named = namedtuple("Named", "scores hidden")


class Wrapped(nn.Module):
    def __init__(self, inner: nn.Module, shape: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.inner, self.shape = inner, shape

    def forward(self, x: Tensor) -> Any:
        return self.shape(self.inner(x), x.flatten(1))


SHAPES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "tuple": lambda z, h: (z, h),
    "hidden first": lambda z, h: (h, z),
    "tuple of one": lambda z, _: (z,),
    "namedtuple": lambda z, h: Named(z, h),
    "dataclass": lambda z, h: Answer(h, z),
    "mapping": lambda z, h: {"hidden": h, "logits": z},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_logits_are_found_in_what_a_model_gives(
    model: nn.Module, digits: Pair, plain: float, shape: str
) -> None:
    x, y = digits
    net = Wrapped(model, SHAPES[shape])
    assert attack(net, (x[:60], y[:60]), (x[60:460], y[60:460])) == plain


def remembered(patients: Pair) -> Pair:
    """With labels in which there is nothing but to remember."""
    return patients[0], torch.from_numpy(np.random.default_rng(1).integers(0, 2, len(patients[0])))


def compare_by_hand(scores: Tensor) -> float:
    """Area under the curve, the first 100 scores being those of members."""
    members, others = scores[:100].detach().numpy(), scores[100:].detach().numpy()
    return float(np.mean(members[:, None] > others) + np.mean(members[:, None] == others) / 2)


def test_a_model_of_one_logit_tells_two_classes_apart(patients: Pair) -> None:
    x, y = remembered(patients)
    x, net = (x - x.mean(0)) / x.std(0), dense(30, 1)

    def loss(z: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
        return binary_cross_entropy_with_logits(z[:, 0], y.float(), reduction=reduction)

    train(net, x[:100], y[:100], loss)
    expected = compare_by_hand(-loss(net(x[:400]), y[:400], "none"))
    members, others = (x[:100], y[:100].float()), (x[100:400], y[100:400, None])
    assert expected > 0.7 and abs(attack(net, members, others) - expected) < 0.05  # class by class
    assert attack(nn.Sequential(*net, nn.Flatten(0)), members, others) > 0.7


def test_rows_of_a_table_are_taken_as_they_are(patients: Pair) -> None:
    x, y = remembered(patients)
    net = nn.Sequential(nn.BatchNorm1d(30), nn.Linear(30, 256), nn.ReLU(), nn.Linear(256, 2))
    train(net, x[:100], y[:100])
    expected = compare_by_hand(-cross_entropy(net(x[:400]), y[:400], reduction="none"))
    found = attack(net.train(), (x[:100].double(), y[:100]), (x[100:400], y[100:400]))  # as it is in training
    assert expected > 0.7 and abs(found - expected) < 0.05  # class by class


def test_shadow_models_of_a_table_are_trained(patients: Pair) -> None:
    x, y = patients
    net = nn.Sequential(nn.BatchNorm1d(30), nn.Linear(30, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
    result = fa.attack(
        "lira",
        model=train(net, x[:60], y[:60]).train(),
        members=(x[:60], y[:60]),
        nonmembers=(x[60:160], y[60:160]),
        auxiliary=(x[160:321], y[160:321]),  # the last batch of 20 is of one
        training={"local_epochs": 2, "batch_size": 20, "lr": 0.1},
        shadows=4,
    )
    assert 0 <= area(result) <= 1


def test_clients_classes_and_prototypes_have_names_of_their_own(model: Any, digits: Pair) -> None:
    x, y = digits
    body, names = nn.Sequential(*list(model)[:-1]), [f"digit {c}" for c in range(10)]
    held = {"Alice": slice(700, 760), "north hospital": slice(760, 820)}

    def average(rows: slice, name: Callable[[int], Any]) -> dict[Any, Tensor]:
        return {name(int(c)): body(x[rows][y[rows] == c]).mean(0) for c in np.unique(y[rows])}

    given: dict[str, Any] = {"nonmembers": (x[820:1100], y[820:1100]), "auxiliary": (x[1100:1500], y[1100:1500])}
    numbered = fa.attack(
        "prototype_membership",
        model=model,
        messages={f"client-{i}": average(rows, int) for i, rows in enumerate(held.values())},
        members={f"client-{i}": (x[rows], y[rows]) for i, rows in enumerate(held.values())},
        **given,
    )
    named = fa.attack(
        "prototype_membership",
        model=model,
        messages={who: average(rows, lambda c: names[c]) for who, rows in held.items()},
        members={who: (x[rows], [names[c] for c in y[rows]]) for who, rows in held.items()},
        classes=names,
        **given,
    )
    assert [e.value for e in named.evidence] == [e.value for e in numbered.evidence]
    with pytest.raises(fa.UserError, match="'digit 10' is none of the classes"):
        fa.attack("loss_threshold", model=model, members=(x[:1], ["digit 10"]), classes=names)


REFUSED: dict[str, tuple[Callable[[Tensor, Tensor], Any], str, str]] = {
    "no channels": (lambda x, y: (x[:, 0], y), r"and members \[8, 8\]", r"x\[:, None\]"),
    "bytes as floats": (lambda x, y: (x * 255, y), "go from 0 to 255", "x / 255"),
    "one-hot labels": (lambda x, y: (x, one_hot(y, 10)), r"labels are int64 \[60, 10\]", r"y\.argmax\(1\)"),
    "names": (lambda x, y: (x, [str(int(c)) for c in y]), "labels are names", "classes="),
    "half labels": (lambda x, y: (x, y + 0.5), r"labels are int64 \[100\], expected floating", "regression"),
    "channels last": (lambda x, y: (x.permute(0, 2, 3, 1), y), r"\[60, 8, 8, 1\]", r"permute\(0, 3, 1, 2\)"),
    "no labels": (lambda x, _: x, "no pair", r"\(x, y\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_taken_says_what_to_pass(model: nn.Module, digits: Pair, case: str) -> None:
    make, sentence, hint = REFUSED[case]
    x, y = digits[0][:60], digits[1][:60]
    with pytest.raises(fa.UserError, match=sentence) as told:
        attack(model, make(x, y), (digits[0][60:160], digits[1][60:160]))
    assert re.search(hint, told.value.hint), told.value.hint


def test_outputs_that_are_no_logits_say_what_to_pass(model: nn.Module, digits: Pair) -> None:
    x, y = digits
    members, others = (x[:60], y[:60]), (x[60:160], y[60:160])
    with pytest.raises(fa.UserError, match="probabilities") as told:
        attack(nn.Sequential(model, nn.Softmax(1)), members, others)
    assert "softmax" in told.value.hint
    with pytest.raises(fa.UserError, match="probabilities") as told:
        attack(nn.Sequential(dense(64, 1), nn.Sigmoid()), (x[:60], y[:60] % 2), (x[60:160], y[60:160] % 2))
    with pytest.raises(fa.UserError, match="which of them are the logits") as told:
        attack(Wrapped(model, lambda z, _: (z, -z)), members, others)
    assert "logits" in told.value.hint


def conv(seed: int = 3) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = nn.Conv2d(1, 12, 3, padding=1), nn.Sigmoid(), nn.Conv2d(12, 12, 3, padding=1, stride=2), nn.Sigmoid()
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(192, 10))


def gradient(net: nn.Module, x: Tensor, y: Tensor, factor: float = 1.0) -> list[Tensor]:
    return list(torch.autograd.grad(factor * cross_entropy(net(x), y), list(net.parameters())))


@pytest.mark.parametrize("factor", [1.0, 10.0])
def test_the_first_gradient_that_one_tries_is_drawn_whatever_its_factor(digits: Pair, factor: float) -> None:
    x, y = digits[0][:1], digits[1][:1]
    net, own = conv(), (digits[0][600:1000], digits[1][600:1000])
    drawn = fa.invert(net, gradient(net, x, y, factor), shape=(1, 8, 8), auxiliary=own)
    assert drawn.found and drawn.matched > 0.999 and drawn.labels.tolist() == y.tolist()
    assert drawn.class_means is not None
    errors = [float(np.mean((found - x.numpy()) ** 2)) for found in (drawn.images, drawn.class_means)]
    assert errors[0] < 1e-4 < errors[1] and "two tries agree" in repr(drawn)


@pytest.mark.parametrize("name", ["dlg", "idlg"])
def test_the_factor_of_the_loss_is_fitted(digits: Pair, name: str) -> None:
    x, y, net = digits[0][:1], digits[1][:1], conv()
    drawn = fa.invert(net, gradient(net, x, y, 0.5), shape=(1, 8, 8), attack=name)
    assert drawn.found and np.mean((drawn.images - x.numpy()) ** 2) < 1e-4


def test_a_gradient_that_no_image_explains_gives_no_image(digits: Pair) -> None:
    x, y, net = digits[0][:1], digits[1][:1], conv()
    noised = [g + 10 * g.std() * torch.randn_like(g) for g in gradient(net, x, y)]
    drawn = fa.invert(net, noised, shape=(1, 8, 8), attack="idlg", iterations=5, auxiliary=digits)
    assert drawn.images.shape == (0, 1, 8, 8) and not drawn.found and drawn.matched < 0.5
    assert repr(drawn).startswith("<no match") and "no match" in drawn._repr_html_()


def test_images_that_any_other_explains_as_well_are_no_match(digits: Pair) -> None:
    """Smooth grey ones agree with each other where the gradient hardly depends on the image."""
    x, y, net = digits[0][:1], digits[1][:1], conv()
    with torch.no_grad():
        net.get_parameter("0.weight").mul_(1e-4)
        net.get_parameter("2.weight").mul_(1e-4)
    given: dict[str, Any] = {"shape": (1, 8, 8), "attack": "inverting_gradients", "iterations": 60, "restarts": 1}
    assert not fa.invert(net, gradient(net, x, y), **given).found


def test_the_label_of_one_logit_is_read_from_its_sign(digits: Pair) -> None:
    x, net = digits[0][:1], nn.Sequential(nn.Flatten(), nn.Linear(64, 1))
    for label in (0.0, 1.0):
        loss = binary_cross_entropy_with_logits(net(x)[:, 0], torch.tensor([label]))
        sent = list(torch.autograd.grad(loss, list(net.parameters())))
        drawn = fa.invert(net, sent, shape=(1, 8, 8), attack="analytic")
        assert drawn.labels.tolist() == [label] and drawn.found


def test_a_setting_belongs_to_an_attack_that_is_named(digits: Pair) -> None:
    net = conv()
    sent = gradient(net, digits[0][:1], digits[1][:1])
    with pytest.raises(fa.UserError, match="iterations is a setting of an attack, and none is named"):
        fa.invert(net, sent, shape=(1, 8, 8), iterations=3)
    with pytest.raises(fa.UserError, match="ridge draws no images of a gradient"):
        fa.invert(net, sent, shape=(1, 8, 8), attack="ridge")


def test_results_are_saved_in_the_form_that_the_name_of_the_file_says(
    model: nn.Module, digits: Pair, tmp_path: Path
) -> None:
    x, y = digits
    result = fa.attack("loss_threshold", model=model, members=(x[:60], y[:60]), nonmembers=(x[60:460], y[60:460]))
    for name in ("found.json", "found.html", "rows.csv"):
        (result.evidence if name == "rows.csv" else result).save(tmp_path / name)
    told = json.loads((tmp_path / "found.json").read_text())
    assert told["attack"] == "loss_threshold" and told["evidence"] == result.evidence.to_dicts()
    assert "<svg" in (tmp_path / "found.html").read_text()
    first = next(csv.DictReader((tmp_path / "rows.csv").open()))
    assert float(first["value"]) == result.evidence[0].value
    drawn = fa.invert(model, gradient(model, x[70:71], y[70:71]), shape=(1, 8, 8), attack="analytic")
    for name in ("one.npz", "one.png", "one.html"):
        drawn.save(tmp_path / name)
    assert np.array_equal(np.load(tmp_path / "one.npz")["images"], drawn.images)
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(fa.UserError, match=r"saved as \.png or \.npz or \.html, got one\.gif"):
        drawn.save(tmp_path / "one.gif")
