"""Nothing that can be checked is believed: wrong statements of training, examples and protections, each named."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.audit.case.plugins import build_plugin
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.evidence.files import read_result
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.phases.import_ import ImportSources, bring
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.origin import Origin
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.audit.verdict.answers import answer_signer
from fedaudit.fl.artifact import Party
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release, to_line
from fedaudit.fl.recording.recorder import MANIFEST, read
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.wire.protection import Sending
from fedaudit.reports.decision import Word
from fedaudit.reports.imported import ImportRecord
from fedaudit.reports.sections.exposure import Exposure
from tests.audit.importing.theirs import EXAMPLE, FLOWER, METHOD, TRUTH, brought, changed, check, config
from tests.reports import sample

NOISE = {"name": "dp_gaussian", "clip_norm": 2.5, "noise_multiplier": 0.1}


def truth(folder: Path, change: Callable[[np.ndarray, np.ndarray, Any], tuple[np.ndarray, np.ndarray]]) -> Path:
    """The clients' truth, each changed as `change(x, y, own)` does."""
    made = folder / "truth"
    shutil.copytree(TRUTH, made)
    own = dict(np.load(made / "own.npz"))
    for path in sorted(made.glob("*.npz")):
        if path.stem != "own":
            with np.load(path) as file:
                x, y = change(file["x"], file["y"], own)
            np.savez(path, x=x, y=y)
    return made


def others(x: np.ndarray, y: np.ndarray, own: Any) -> tuple[np.ndarray, np.ndarray]:
    """As many examples of the same classes, of which no client trained on one."""
    found = x.copy()
    for c in np.unique(y):
        rows, pool = np.flatnonzero(y == c), own["x"][own["y"] == c]
        found[rows[: len(pool)]] = pool[: len(rows)]
    return found, y


def shifted(x: np.ndarray, y: np.ndarray, own: Any) -> tuple[np.ndarray, np.ndarray]:
    return x, (y + 1) % 10


@pytest.mark.nightly
def test_training_that_is_stated_as_it_was_is_borne_out(tmp_path: Path) -> None:
    found = brought(tmp_path, method=METHOD)[2]
    assert [c.id for c in found.checks if c.status not in ("holds", "declared")] == []
    assert check(found, "training").status == "holds" and check(found, "fit").status == "holds"


EXAMPLES = config().require_recorded().subject.examples.model_dump(mode="json")  # type: ignore[union-attr]
MORE_WRONG: dict[str, tuple[dict[str, Any], str]] = {  # that shapes, sums and counts cannot tell
    "fewer epochs": ({"method": METHOD | {"local_epochs": 1}}, "training"),
    "another batch size": ({"method": METHOD | {"batch_size": 100}}, "training"),
    "fewer rounds": ({"method": METHOD | {"rounds": 1}, "truth": None}, "rounds"),
    "noise on uploads": ({"protections": [NOISE], "truth": None}, "protection-0"),
    "noise on counts": ({"protections": ["discrete_laplace"]}, "protection-0"),
}


SLOWLY: dict[str, dict[str, Any]] = {
    "another learning rate": {"method": METHOD | {"lr": 0.01}},
    "another method": {"method": METHOD | {"name": "fedprox", "mu": 10.0}},
    "another normalisation": {"method": METHOD, "examples": EXAMPLES | {"mean": [0.5], "std": [0.01]}},
    "private training": {"method": METHOD, "protections": [{"name": "dp_sgd", "steps": 75}]},
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", SLOWLY)
def test_training_that_was_another_is_contradicted(name: str, tmp_path: Path) -> None:
    found = check(brought(tmp_path, **SLOWLY[name])[2], "training")
    assert found.status == "contradicted", found.text


@pytest.mark.dear("fewer epochs", "another batch size")
@pytest.mark.parametrize("name", MORE_WRONG)
def test_a_wrong_statement_that_only_a_test_can_tell_is_contradicted(name: str, tmp_path: Path) -> None:
    changes, id = MORE_WRONG[name]
    found = check(brought(tmp_path, **changes)[2], id)
    assert found.status == "contradicted", found.text


@pytest.mark.nightly
def test_another_network_of_the_same_shapes_is_contradicted(tmp_path: Path) -> None:
    code = (EXAMPLE / "net.py").read_text().replace("functional.relu", "functional.tanh")
    (tmp_path / "tanh_net.py").write_text(
        code.replace("nn.functional.tanh(", "torch.tanh(").replace(
            "from torch import", "import torch\nfrom torch import"
        )
    )
    run, stated = RunDir.create(tmp_path / "run"), config(model="tanh_net:Net", method=METHOD)
    sources = ImportSources(inbox=FLOWER / "inbox", subject=tmp_path / "x", truth=TRUTH)
    found = bring(run.path, stated.set_origin(Origin(trust=True)), sources, lambda *_: None)
    assert check(found, "training").status == "contradicted"


def test_labels_of_another_order_are_named_with_and_without_a_stated_training(tmp_path: Path) -> None:
    found = check(brought(tmp_path, truth(tmp_path, shifted))[2], "fit")
    assert found.status == "contradicted" and "labels or their order are not as stated" in found.text


def test_the_auditors_own_examples_are_held_against_the_servers_model(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    with np.load(TRUTH / "own.npz") as file:
        np.savez(own / "own.npz", x=file["x"], y=file["y"])
        right = check(brought(tmp_path / "a", own)[2], "fit")
        np.savez(own / "own.npz", x=file["x"], y=np.roll(file["y"], 1))
    wrong = check(brought(tmp_path / "b", own)[2], "fit")
    assert right.status == wrong.status == "open"
    assert "an exchange would not have been noticed" in right.text and "a bad model" in wrong.text


@pytest.mark.nightly
def test_members_that_nobody_trained_on_are_contradicted_and_limit_nothing(tmp_path: Path) -> None:
    run, stated, found = brought(tmp_path, truth(tmp_path, others), method=METHOD)
    assert check(found, "training").status == "contradicted"
    settings = stated.model_dump(mode="json", exclude_defaults=True) | {"attacks": ["loss_threshold"]}
    stated = validate(Config, settings, "test")
    execute(run, stated, ["attack", "account", "score"], lambda *_: None, skip_finished=False)
    asked = [q for q in read_result(run.path).questions if "loss_threshold" in q.findings]
    assert asked and all(q.is_open and q.at_most is None for q in asked)


CLAIMS = {"laplace": {"kinds": ["local_model"], "clip_norm": 1.0, "scale": 0.1}}


def unscored(line: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Without the loss, of which there is no sum."""
    if "local_loss" in line["kinds"]:
        line["kinds"].remove("local_loss")
        del arrays["local_loss/loss"]


OF_OTHERS = {"noised_activations"}  # of messages that this federation does not send


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", sorted({*catalog.names("protections")} - OF_OTHERS))
def test_a_protection_that_is_claimed_and_did_nothing_is_contradicted_or_declared(
    name: str, tmp_path: Path
) -> None:
    claim = {"name": name, **CLAIMS.get(name, {})}
    found = brought(tmp_path, None, changed(tmp_path, unscored), protections=[claim], aggregation="other")[2]
    one = check(found, "protection-0")
    silent = {"discrete_laplace": "whether it acted", "dp_sgd": "acts in training"}  # nothing in a message tells
    assert one.status == ("declared" if name in silent else "contradicted"), one.text
    assert silent.get(name, "") in one.text


APPLIED = {
    "central_dp": {"clip_norm": 1.0, "noise_multiplier": 0.0},
    "dp_gaussian": {"clip_norm": 1.0, "noise_multiplier": 0.1},
    "laplace": {"kinds": ["local_model"], "clip_norm": 1.0, "scale": 0.1},
    "quantise": {"bits": 8},
    "top_k": {"share": 0.1},
    "discrete_laplace": {"scale": 1.0},
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", APPLIED)
def test_a_protection_that_acted_as_claimed_is_never_contradicted(name: str, tmp_path: Path) -> None:
    spec = PluginSpec(name=name, **APPLIED[name])
    protection = build_plugin("protections", spec, "test")
    models = {a.round: a.payload for a in read(FLOWER / "inbox") if a.kind == Kind.GLOBAL_MODEL}

    def protect(line: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        if line["channel"] != "uplink":
            return
        message: dict[Kind, Any] = {}
        for key, value in arrays.items():
            kind, _, part = key.partition("/")
            message.setdefault(Kind(kind), {})[part] = torch.from_numpy(np.array(value))
        model = {n: torch.from_numpy(np.array(v)) for n, v in models[line["round"]].items()}
        sender = Party.parse(line["sender"])
        rng = torch.Generator().manual_seed(1000 * line["round"] + int(str(sender.index)))
        protection.apply(Sending(line["round"], sender, (), message, {Kind.GLOBAL_MODEL: model}, rng))
        for kind, payload in message.items():
            arrays.update({f"{kind}/{n}": v.numpy() for n, v in payload.items()})

    inbox = changed(tmp_path, protect)
    claim = {"name": name, **APPLIED[name]}
    found = brought(tmp_path, inbox=inbox, protections=[claim], aggregation="other")[2]
    assert check(found, "protection-0").status in ("holds", "declared"), check(found, "protection-0").text
    assert check(found, "who").status == "holds"  # also where counts are noised


def test_noise_that_an_operators_ledger_states_and_that_is_not_there_is_named(tmp_path: Path) -> None:
    lines = [
        Release(
            round=t,
            kind="local_model",
            sender=f"client/{k}",
            observers=("server", "client", "public"),
            mechanism="gaussian",
            noise_std=0.5,
            sensitivity=1.0,
            clip_norm=1.0,
            clip_of="update",
        )
        for t in range(3)
        for k in range(8)
    ]
    path = tmp_path / "ledger.jsonl"
    path.write_text("".join(f"{to_line(r)}\n" for r in lines))
    run, stated = RunDir.create(tmp_path / "run"), config()
    sources = ImportSources(inbox=FLOWER / "inbox", subject=EXAMPLE / "subject.yaml", ledger=path)
    found = bring(run.path, stated.set_origin(Origin(trust=True)), sources, lambda *_: None)
    assert check(found, "ledger").status == "contradicted" and "it is not there" in check(found, "ledger").text


def test_a_reader_that_was_recorded_reading_cannot_be_stated_away(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="takes server from who reads the uplink") as error:
        brought(tmp_path, sees={"uplink": []})
    assert error.value.hint


@pytest.mark.parametrize("sees", [{}, {"uplink": []}, {"uplink": ["mediator"], "downlink": ["client"]}])
def test_where_it_is_said_who_saw_what_it_is_said_that_the_operator_states_it(
    sees: dict[str, list[str]], tmp_path: Path
) -> None:
    inbox = shutil.copytree(FLOWER / "inbox", tmp_path / "inbox")
    header, rest = (inbox / MANIFEST).read_text().split("\n", 1)
    (inbox / MANIFEST).write_text(f"{json.dumps(json.loads(header) | {'recorder': 'flower-client'})}\n{rest}")
    found = brought(tmp_path, None, inbox, sees=sees)[2]
    result = sample.result().model_copy(update={"imported": found})
    text = str(Exposure().build(result))
    assert ("is stated by its operator" in text, "uplink: " in text) == (bool(sees),) * 2
    (who, *_) = answer_signer(result, Word.CANNOT_TELL, ())
    assert who.answer.startswith("As its operator states") == bool(sees)


@pytest.mark.parametrize(
    ("examples", "phrase"),
    [({"shape": [1, 28, 28]}, "does not take examples"), ({"mean": [0.5, 0.5, 0.5]}, "mean has 3 numbers")],
)
def test_a_shape_or_normalisation_that_cannot_be_is_refused_without_truth_as_well(
    examples: dict[str, Any], phrase: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=phrase):
        brought(tmp_path, None, examples=EXAMPLES | examples)


def test_what_nobody_can_check_is_listed_as_declared(tmp_path: Path) -> None:
    found: ImportRecord = brought(tmp_path, None, clients=50)[2]
    said = check(found, "declared")
    assert said.status == "declared" and "that there are 50 clients, of which 8 were heard" in said.text
    assert "names of the 10 classes" in said.text
