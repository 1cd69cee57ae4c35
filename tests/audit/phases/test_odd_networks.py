"""Networks that a user may bring: one that can be trained is audited, any other is refused in a sentence."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedaudit
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.cli.load import make_config
from fedaudit.audit.cli.preflight import Forecast
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import SimulatedConfig
from fedaudit.fl.datasets.npz import NPZ
from fedaudit.fl.runtime import plugin, tree
from fedaudit.fl.runtime.errors import UserError
from tests.audit.tiny import HERE, SMALL

REFUSED = {
    "OneLogit": (
        "gives 1 logit an example, and labels are of 2 classes",
        "torch.cat([torch.zeros_like(z), z], 1)",
    ),
    "Squeezed": ("gives float32 [2] for 2 examples, expected logits [2, classes]", "of one logit z"),
    "Paired": ("gives a tuple for 2 examples, expected logits [2, classes]", "give the logits alone"),
    "Doubled": ("weights are float64, expected float32", "call .float() on it"),
    "Frozen": ("nothing to train: all its parameters are frozen", "requires_grad"),
}
RNG = np.random.default_rng(0)
IMAGES, LABELS = RNG.random((40, 1, 4, 4), dtype=np.float32), np.arange(40) % 2


def configure(model: str, method: str = "fedavg", **settings: Any) -> SimulatedConfig:
    made = {
        "federation": SMALL | {"model": f"{HERE}:{model}"},
        "method": {"name": method, "rounds": 2, "local_epochs": 1, **settings},
        "attacks": ["loss_threshold", "played_message"],
        "noise_audit": False,
        "report": ["json"],
        "workers": 0,
    }
    return make_config(made).require_simulated()


@pytest.mark.parametrize("model", REFUSED)
def test_a_network_that_cannot_be_trained_is_refused_by_plan_and_run(model: str, tmp_path: Path) -> None:
    sentence, hint = REFUSED[model]
    with pytest.raises(UserError) as planned:
        list(Forecast(configure(model)).describe())
    assert sentence in planned.value.sentence and hint in planned.value.hint
    with pytest.raises(UserError) as ran:
        fedaudit.run(configure(model), out=tmp_path / "run")
    assert sentence in ran.value.sentence and not (tmp_path / "run").exists()


@pytest.mark.parametrize("model", ["MoreLogits", "Unused", "FrozenBody", "FrozenHead"])
def test_a_network_with_more_logits_frozen_or_unused_layers_is_audited(model: str, tmp_path: Path) -> None:
    assert fedaudit.run(configure(model), out=tmp_path / "run").metrics[-1].accuracy is not None


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("fedavg", {"weight_decay": 0.1, "optimiser": "adamw"}),
        ("fedprox", {"mu": 1.0}),
        ("scaffold", {"option": "I"}),
        ("split_learning", {}),
    ],
)
def test_a_frozen_layer_stays_as_it_is(method: str, settings: dict[str, Any], tmp_path: Path) -> None:
    config = configure("FrozenBody", method, **settings).model_copy(update={"attacks": ()})
    execute(RunDir.create(tmp_path), config, ["simulate"], lambda *_: None, skip_finished=True, workers=0)
    after = tree.load(tmp_path / "checkpoint/state.safetensors")["state"]["model"]
    before = SimulatedCase(config).network.initial()
    assert torch.equal(after["body.weight"], before["body.weight"])
    assert not torch.equal(after["head.weight"], before["head.weight"])


def test_a_method_whose_part_of_the_network_is_frozen_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="all parameters of the network that this method trains are frozen"):
        fedaudit.run(configure("FrozenBody", "fedbabu"), out=tmp_path / "run")


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("moon", "PlainUnused does not use its last nn.Linear layer, 'unused'"),
        ("fedproto", "PlainUnused does not use its last nn.Linear layer, 'unused'"),
        ("feddc_condense", "cannot match the gradient of unused, which Adapted does not use"),
    ],
)
def test_a_method_that_needs_every_layer_names_one_that_is_not_used(
    method: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=said):
        fedaudit.run(configure("PlainUnused", method).model_copy(update={"attacks": ()}), out=tmp_path / "run")


@pytest.mark.parametrize("numbers", [(1, 2), (0, 3), (5, 9999), (False, True)])
def test_every_different_label_is_a_class_and_no_other(numbers: tuple[int, int], tmp_path: Path) -> None:
    y = np.array(numbers)[LABELS]
    held = {"x_test": IMAGES[::-1, ..., ::-1], "y_test": y}
    np.savez(tmp_path / "d.npz", x_train=IMAGES, y_train=y, **held)
    data = plugin.configure(NPZ, {"path": str(tmp_path / "d.npz")}, "dataset").load()
    assert data.classes == tuple(str(int(n)) for n in numbers)
    assert data.train.y.tolist() == data.test.y.tolist() == LABELS.tolist()


def small(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, outputs))


OTHERS = (RNG.random((40, 1, 4, 4), dtype=np.float32), LABELS)


@pytest.mark.parametrize(
    ("model", "labels", "said"),
    [
        (small(2), LABELS + 1, "gives 2 logits an example, and labels are of 3 classes"),
        (small(1), LABELS + 1, "gives 1 logit an example"),
        (nn.Sequential(small(2), nn.Flatten(0)), LABELS, r"gives float32 \[160\] for 80 examples"),
        (small(2), np.array(["a", "b"])[LABELS], "labels are names"),
        (small(2), LABELS - 1, "labels are int64"),
        (small(2), LABELS + 0.5, "expected floating-point numbers"),
    ],
)
def test_an_attack_on_a_model_that_does_not_fit_its_labels_says_so(
    model: nn.Module, labels: Any, said: str
) -> None:
    with pytest.raises(UserError, match=said):
        fedaudit.attack("loss_threshold", model=model, members=(IMAGES, labels), nonmembers=OTHERS)


@pytest.mark.parametrize("model", [small(5), small(2).requires_grad_(False)])
def test_an_attack_on_a_model_with_more_logits_or_frozen_layers_has_a_result(model: nn.Module) -> None:
    found = fedaudit.attack("loss_threshold", model=model, members=(IMAGES, LABELS), nonmembers=OTHERS)
    assert 0 <= found.evidence[0].value <= 1


@pytest.mark.parametrize(
    "blank", [np.zeros_like(IMAGES), np.ones_like(IMAGES), np.where(IMAGES < 2, IMAGES[:1], 0)]
)
def test_images_that_are_all_alike_have_a_result_or_a_sentence(blank: np.ndarray) -> None:
    found = fedaudit.attack("loss_threshold", model=small(2), members=(blank, LABELS), nonmembers=OTHERS)
    assert 0 <= found.evidence[0].value <= 1
    with pytest.raises(UserError, match="40 of 40 nonmembers are members too"):
        fedaudit.attack("loss_threshold", model=small(2), members=(blank, LABELS), nonmembers=(blank, LABELS))
