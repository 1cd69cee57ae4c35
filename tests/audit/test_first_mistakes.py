"""Typical mistakes of a first user: each ends in one sentence that names it and a hint that solves it."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fedaudit.audit.cli.main import app
from fedaudit.fl.datasets.npz import NPZ
from fedaudit.fl.method import Method
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime import plugin

RNG = np.random.default_rng(0)
N = 24
GREY, LABELS = RNG.random((N, 1, 8, 8), dtype=np.float32), np.arange(N) % 3
CONFIG = """
federation: {dataset: {name: npz, path: DATA}, clients: 3, model: MODEL}
method: {name: fedavg, rounds: 1, local_epochs: 1}
attacks: ATTACKS
"""


def saved(path: Path, x: Any = GREY, y: Any = LABELS, **more: Any) -> Path:
    held = x[::-1, ..., ::-1] if x.ndim > 1 else x  # other images, of the same kind
    np.savez(path, **({"x_train": x, "y_train": y, "x_test": held, "y_test": y} | more))
    return path


def said(*arguments: str) -> str:
    """What a refused command prints: one sentence and a hint, exit code 2, no traceback."""
    found = CliRunner().invoke(app, list(arguments))
    assert found.exit_code == 2, found.output
    lines = found.output.strip().splitlines()
    assert lines[0].startswith("error: ") and lines[1].startswith("  hint: ") and len(lines) == 2, found.output
    assert "unexpected" not in found.output
    return found.output


DATA = {  # what is brought: (arrays, a phrase of the sentence, a phrase of the hint)
    "channels that stand last": (
        {"x": RNG.random((N, 32, 32, 3), dtype=np.float32)},
        "32 channels",
        "layout: hwc",
    ),
    "a hyperspectral image": ({"x": RNG.random((N, 12, 8, 8), dtype=np.float32)}, "12 channels", "layout: chw"),
    "bytes as floats": ({"x": GREY * 255}, "values from", "divide x_train by 255"),
    "not a number": ({"x": GREY * np.nan}, "NaN", ""),
    "a table with holes": ({"x": np.full((N, 20), np.nan)}, "NaN", "fill in what is missing"),
    "raw text": ({"x": np.array(["a word"] * N)}, "raw text is not supported", "number"),
    "times and events": ({"y": RNG.random((N, 2))}, "times and events, or two numbers", "task: survival"),
    "one-hot labels": ({"y": np.eye(3)[LABELS]}, "a column a class", "y_train.argmax(1)"),
    "labels from 1 beyond the names": (
        {"y": LABELS + 1, "classes": np.array(["a", "b", "c"])},
        "labels from 1 to 3",
        "",
    ),
    "a label without a name": ({"y": np.array(["x"] * N), "classes": np.array(["a", "b"])}, "the label 'x'", ""),
    "one class": ({"y": np.zeros(N, int)}, "one class", ""),
    "fewer labels than images": ({"y": LABELS[:20]}, "24 examples, expected 20", ""),
    "test images in colour": ({"x_test": RNG.random((N, 3, 8, 8), dtype=np.float32)}, "[3, 8, 8]", "both parts"),
    "test images of another size": (
        {"x_test": RNG.random((N, 1, 9, 9), dtype=np.float32)},
        "[1, 9, 9]",
        "both parts",
    ),
    "names in one part, numbers in the other": (
        {"y_test": np.array(["a", "b", "c"])[LABELS]},
        "y_train has numbers, expected names",
        "both parts alike",
    ),
    "test labels from 1": ({"y_test": LABELS + 1}, "y_test has the class 3", "number the classes"),
    "a class in the test alone": (
        {"y": np.array(["a", "b", "c"])[LABELS], "y_test": np.array(["a", "b", "d"])[LABELS]},
        "y_test has the class 'd'",
        "leave out",
    ),
    "labels as a column": ({"y": LABELS[:, None]}, "[24, 1]", "y_train.ravel()"),
    "no test example": ({"x_test": GREY[:0], "y_test": LABELS[:0]}, "y_test has int64 [0]", "keep some examples"),
    "images of unequal size": (
        {"x_test": np.array([None, GREY[0]], dtype=object)},
        "of unequal length",
        "numpy.stack",
    ),
    "bytes as wide whole numbers": ({"x": (GREY * 255).astype(np.int64)}, "int64", "x_train.astype('uint8')"),
    "images normalised around 0": ({"x": GREY - 0.5}, "values from -0", "before they are normalised"),
    "channels first declared as last": (
        {"x": RNG.random((N, 3, 32, 32), dtype=np.float32), "layout": "hwc"},
        "with layout: hwc would be images of 32 channels",
        "leave layout out",
    ),
    "a table of whole numbers": ({"x": np.arange(N * 20).reshape(N, 20)}, "[20]", "choose a model"),
}


@pytest.mark.parametrize("mistake", DATA)
def test_data_of_ones_own_that_cannot_be_read_say_why(mistake: str, tmp_path: Path) -> None:
    arrays: Any
    arrays, sentence, hint = DATA[mistake]
    held = {k: v for k, v in arrays.items() if k != "layout"}
    data = str(saved(tmp_path / "mine.npz", **held))  # type: ignore[arg-type]
    data += f", layout: {arrays['layout']}" if "layout" in arrays else ""
    config = tmp_path / "c.yaml"
    config.write_text(CONFIG.replace("DATA", data).replace("MODEL", "mlp").replace("ATTACKS", "[]"))
    first, second = said("plan", str(config)).strip().splitlines()
    assert sentence in first and hint in second


def config_with(tmp_path: Path, **changes: str) -> Path:
    path = tmp_path / "c.yaml"
    words = {"DATA": str(saved(tmp_path / "mine.npz")), "MODEL": "mlp", "ATTACKS": "[]"} | changes
    text = CONFIG
    for key, value in words.items():
        text = text.replace(key, value)
    path.write_text(text)
    return path


def text_model(tmp_path: Path) -> list[str]:
    return ["plan", str(config_with(tmp_path, MODEL="char_lstm"))]


def other_names(tmp_path: Path) -> list[str]:
    np.savez(tmp_path / "mine2.npz", images=GREY, labels=LABELS)
    return ["plan", str(config_with(tmp_path, DATA=str(tmp_path / "mine2.npz")))]


def one_array(tmp_path: Path) -> list[str]:
    np.save(tmp_path / "mine.npy", GREY)
    return ["plan", str(config_with(tmp_path, DATA=str(tmp_path / "mine.npy")))]


def training_images_as_test_images(tmp_path: Path) -> list[str]:
    return ["plan", str(config_with(tmp_path, DATA=str(saved(tmp_path / "same.npz", x_test=GREY))))]


def impossible_attack(tmp_path: Path) -> list[str]:
    return ["plan", str(config_with(tmp_path, ATTACKS="[upcnn]"))]


def no_such_attack(tmp_path: Path) -> list[str]:
    return ["plan", str(config_with(tmp_path, ATTACKS="[upcn]"))]


def no_config(tmp_path: Path) -> list[str]:
    return ["run", str(tmp_path / "nothing.yaml")]


def a_config_for_a_run(tmp_path: Path) -> list[str]:
    return ["check", str(config_with(tmp_path))]


def nothing_to_explain(tmp_path: Path) -> list[str]:
    return ["explain", "upcnn", "--run", str(tmp_path)]


def a_file_of_data_as_config(tmp_path: Path) -> list[str]:
    return ["run", str(saved(tmp_path / "mine.npz"))]


def a_table_as_archive(tmp_path: Path) -> list[str]:
    (tmp_path / "mine.csv").write_text("a,b\n1,2\n")
    return ["plan", str(config_with(tmp_path, DATA=str(tmp_path / "mine.csv")))]


def a_kind_misspelled(tmp_path: Path) -> list[str]:
    return ["tools", "list", "atacks"]


OTHERS: dict[Callable[[Path], list[str]], tuple[str, str]] = {
    text_model: ("char_lstm", ""),
    other_names: ("has no x_train; it has images, labels", "it needs x_train"),
    one_array: ("use numpy.savez, not numpy.save", ""),
    training_images_as_test_images: ("has an example left", "test examples that are no training examples"),
    impossible_attack: ("upcnn", ""),
    no_such_attack: ("no 'upcn'", "did you mean 'upcnn'?"),
    no_config: ("no file", ""),
    a_file_of_data_as_config: ("is not text", "`fedaudit init` writes one"),
    a_table_as_archive: ("no archive of arrays", "numpy.savez"),
    a_kind_misspelled: ("'atacks' is neither", "did you mean 'attacks'?"),
    a_config_for_a_run: ("no run folder", "`fedaudit run CONFIG` makes one"),
    nothing_to_explain: ("", ""),
}


@pytest.mark.parametrize("mistake", OTHERS, ids=lambda m: m.__name__)
def test_other_mistakes_of_a_first_user_end_in_a_sentence(
    mistake: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    sentence, hint = OTHERS[mistake]
    first, second = said(*mistake(tmp_path)).strip().splitlines()
    assert sentence in first and hint in second


WORDS = {  # of other tools, and slips: (what a config says, in place of what), a phrase of each line
    "learning rate 0": (("epochs: 1", "epochs: 1, lr: 0"), "method.lr is 0: nobody would learn", "such as 0.01"),
    "an attack on texts": (("ATTACKS", "[token_set]"), "it needs texts of tokens", "attacks: auto"),
    "secagg as a protection": (("ATTACKS", "[]\nprotections: [secagg]"), "no 'secagg'", "[secure_aggregation]"),
    "secagg as a key": (("clients: 3", "clients: 3, secagg: true"), "federation.secagg", "[secure_aggregation]"),
    "fraction of a method": (("rounds: 1", "rounds: 1, fraction: 0.1"), "method.fraction", "availability"),
    "epsilon of a protection": (
        ("ATTACKS", "[]\nprotections: [{name: dp_gaussian, epsilon: 3}]"),
        "unknown key protections[0].epsilon",
        "noise_multiplier sets the noise; `fedaudit dp calibrate --epsilon 3",
    ),
    "learning_rate": (("rounds: 1", "rounds: 1, learning_rate: 0.1"), "method.learning_rate", "write lr"),
    "an attack by its harm": (("ATTACKS", "[membership]"), "no 'membership' in attacks/", "write loss_threshold"),
    "an attack that is none": (("ATTACKS", "[xyzzy]"), "no 'xyzzy' in attacks/", "`fedaudit tools list attacks`"),
    "no super().start()": (
        ("name: fedavg", 'name: "slips:NoSuper"'),
        "NoSuper.start() returns no state",
        "super()",
    ),
    "no model in the state": (("name: fedavg", 'name: "slips:Bare"'), "a state without a model", "super()"),
    "a constant misspelt": (("name: fedavg", 'name: "slips:Misspelt"'), "sets crad, which nothing", "'card'"),
}
SLIPS = """
from fedaudit.fl.methods.fedavg import FedAvg
class NoSuper(FedAvg):
    def start(self, federation):
        self.mine = 1
class Bare(FedAvg):
    def start(self, federation):
        return {"mine": 1}
class Misspelt(FedAvg):
    crad = FedAvg.card
"""


@pytest.mark.parametrize("mistake", WORDS)
def test_a_word_of_another_tool_and_a_slip_in_a_plugin_end_in_a_sentence(mistake: str, tmp_path: Path) -> None:
    (old, new), sentence, hint = WORDS[mistake]
    (tmp_path / "slips.py").write_text(SLIPS)
    config = config_with(tmp_path, **({} if old == "ATTACKS" else {"ATTACKS": "[]"}))
    text = CONFIG.replace(old, new) if old == "ATTACKS" else config.read_text().replace(old, new)
    config.write_text(text.replace("DATA", str(tmp_path / "mine.npz")).replace("MODEL", "mlp"))
    out = ("--out", str(tmp_path / "out"))
    first, second = said("run", str(config), *out, "--trust-plugins").strip().splitlines()
    assert sentence in first and hint in second


def test_a_constant_of_ones_own_is_no_misspelt_one(tmp_path: Path) -> None:
    class Mine(FedAvg):
        card = replace(FedAvg.card, title="Mine")
        wards = 3  # like card, which is there
        anything = ("of", "its", "own")

    assert Mine().card.title == "Mine"
    plugin._refuse_misspelt(Mine, Method, "")


def test_at_least_twenty_mistakes_are_tried() -> None:
    assert len(DATA) + len(OTHERS) >= 35


def test_an_error_names_its_file_once_and_offers_no_unsafe_way(tmp_path: Path) -> None:
    config = config_with(tmp_path, MODEL="{name: mlp, widht: 3}")
    assert said("plan", str(config)).count(str(config)) == 1
    assert "allow_pickle" not in said(*a_table_as_archive(tmp_path))


def test_a_plan_says_that_clients_hold_no_example(tmp_path: Path) -> None:
    config = config_with(tmp_path)
    config.write_text(config.read_text().replace("clients: 3", "clients: 40"))
    found = CliRunner().invoke(app, ["plan", str(config)]).output
    assert re.search(r"[0-9]+ clients hold no example: take fewer", found), found


def test_a_declared_layout_gives_the_same_images_as_channels_first(tmp_path: Path) -> None:
    colour = RNG.random((N, 3, 6, 5), dtype=np.float32)
    first = NPZ(NPZ.Config(path=str(saved(tmp_path / "a.npz", x=colour)))).load()
    last = saved(tmp_path / "b.npz", x=colour.transpose(0, 2, 3, 1))
    declared = NPZ(NPZ.Config(path=str(last), layout="hwc")).load()
    assert np.array_equal(first.train.x, declared.train.x) and declared.shape == (3, 6, 5)


def test_labels_as_text_are_the_classes_in_order(tmp_path: Path) -> None:
    names = np.array(["eel", "cat", "dog"])[LABELS]
    data = NPZ(NPZ.Config(path=str(saved(tmp_path / "a.npz", y=names)))).load()
    assert data.classes == ("cat", "dog", "eel")
    assert [data.classes[i] for i in data.train.y] == names.tolist()
    own = saved(tmp_path / "b.npz", y=names, classes=np.array(["eel", "dog", "cat", "ant"]))
    assert NPZ(NPZ.Config(path=str(own))).load().classes == ("eel", "dog", "cat", "ant")


OWN = """
import numpy as np, torch
from fedaudit.fl.data.dataset import Arrays, Data, Dataset

class Mine(Dataset):
    title = "Mine"
    def load(self):
        x, y = np.zeros(SHAPE, np.DTYPE) + VALUE, np.arange(12) % 2
        a = Arrays(x=x, y=y.astype(np.LABEL))
        b = Arrays(x=x[..., ::-1].copy(), y=a.y)
        return Data(train=a, test=b, classes=("a", "b"))

class Odd(torch.nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        first, last = torch.nn.Linear(64, 7), torch.nn.Linear(7, classes)
        self.module = torch.nn.ModuleDict({"weight": first, "état/1": last})
        self.register_parameter("head-0", torch.nn.Parameter(torch.zeros(1)))
    def forward(self, x):
        return self.module["état/1"](self.module["weight"](x.flatten(1)).relu()) + getattr(self, "head-0")
"""


@pytest.mark.parametrize(
    ("shape", "dtype", "value", "label", "sentence"),
    [
        ("(12, 32, 32, 3)", "float32", "0.5", "int64", "images of 32 channels"),
        ("(12, 1, 8, 8)", "float32", "200", "int64", "from 200 to 200"),
        ("(12, 1, 8, 8)", "float64", "0.5", "int64", "float64"),
        ("(12, 20)", "float32", "np.nan", "int64", "NaN or infinite in places"),
        ("(12, 1, 8, 8)", "float32", "0.5", "float64", "train.y is float64"),
    ],
)
def test_a_data_set_class_of_ones_own_is_held_to_the_contract(
    shape: str, dtype: str, value: str, label: str, sentence: str, tmp_path: Path
) -> None:
    text = OWN.replace("SHAPE", shape).replace("DTYPE", dtype).replace("VALUE", value).replace("LABEL", label)
    name = "own_" + re.sub("[^a-z0-9]", "", f"{shape}{dtype}{value}{label}")
    (tmp_path / f"{name}.py").write_text(text)
    config = tmp_path / "c.yaml"
    config.write_text(
        f"federation: {{dataset: '{name}:Mine', clients: 2, model: mlp}}\nmethod: fedavg\nattacks: []\n"
    )
    assert sentence in said("plan", str(config), "--trust-plugins")


def test_a_model_of_ones_own_may_name_its_parameters_as_it_likes(tmp_path: Path) -> None:
    text = OWN.replace("SHAPE", "(12, 1, 8, 8)").replace("DTYPE", "float32")
    text = text.replace("VALUE", "np.random.default_rng(1).random((12, 1, 8, 8), np.float32)")
    (tmp_path / "own_names.py").write_text(text.replace("LABEL", "int64"))
    config = tmp_path / "c.yaml"
    config.write_text(
        "federation: {dataset: 'own_names:Mine', clients: 2, model: 'own_names:Odd'}\n"
        "method: {name: fedavg, rounds: 1, local_epochs: 1}\nattacks: [loss_threshold]\nreport: [json]\n"
        "workers: 0\n"
    )
    found = CliRunner().invoke(app, ["run", str(config), "--out", str(tmp_path / "out"), "--trust-plugins"])
    assert found.exit_code in (0, 3), found.output
    assert "error" not in found.output


def test_a_plan_states_how_long_training_takes(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["plan", str(config_with(tmp_path))])
    assert re.search(r"training: about .+ of one core", found.output), found.output
