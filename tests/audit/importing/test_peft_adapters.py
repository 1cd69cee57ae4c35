"""Adapters of a language model under the names of peft: rank and layers are recognised, the base is named."""

import json
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.torch import save_file

from fedaudit.audit.case.recorded import RecordedCase
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.importing.first_subject import write_first_subject
from fedaudit.audit.importing.recorders.plain import Inbox
from fedaudit.audit.phases.import_ import ImportSources, bring
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.origin import Origin
from fedaudit.fl.artifact import Artifact, Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.recorder import read
from fedaudit.fl.runtime.errors import UserError
from tests.audit.importing.theirs import check
from tests.audit.simulated import simulated

ADAPTERS = {"rank": 3, "alpha": 12.0, "targets": ["q", "v"]}
MODEL = {"name": "tiny_gpt", "dim": 16, "heads": 2, "task": "lm", "vocabulary": 700}


@cache
def recorded() -> tuple[Config, Path]:
    """Two rounds of ours, as a source of real messages."""
    settings = {
        "federation": {
            "dataset": {"name": "notes", "patients": 30, "vocabulary": 700, "length": 40},
            "clients": 3,
            "partition": "people",
            "availability": "full",
            "model": MODEL,
            "adapters": ADAPTERS,
            "holdout": {"auxiliary": 0.2, "reference": 0.2},
        },
        "method": {"name": "fedlora", "rounds": 2, "local_epochs": 1, "batch_size": 8, "lr": 0.5},
        "record": "all",
        "attacks": [],
        "workers": 0,
    }
    run, config = simulated(settings)
    return config, run.artifacts


def rename(a: Artifact) -> dict[str, Any]:
    """As get_peft_model_state_dict names them."""
    return {f"base_model.model.{name}": value for name, value in a.payload.items()}


def write(folder: Path, alpha: float | None = 12.0) -> Path:
    """An inbox of the same messages under peft's names."""
    config, artifacts = recorded()
    inbox = Inbox(folder / "inbox")
    everything = read(artifacts)
    for a in everything:
        if a.kind is Kind.GLOBAL_MODEL and a.channel is Channel.DOWNLINK:
            clients = [inbox.client(str(k)) for k in range(3)]
            inbox.message(a.round, "downlink", "server", clients, {"global_model": rename(a)})
        if a.kind is Kind.ADAPTER:
            n = next(
                b for b in everything if b.kind is Kind.NUM_EXAMPLES and b.id.startswith(a.id.rpartition("/")[0])
            )
            sent = {"adapter": rename(a), "num_examples": {"count": np.asarray(n.payload["count"])}}
            inbox.message(a.round, "uplink", inbox.client(str(a.sender.index)), ["server"], sent)
    if alpha is not None:
        known = {"lora_alpha": alpha, "r": 3, "base_model_name_or_path": "tiny/gpt", "target_modules": ["q", "v"]}
        (folder / "adapter_config.json").write_text(json.dumps(known))
    save_file(SimulatedCase(config).network._whole, folder / "base.safetensors")
    return folder / "inbox"


def take(folder: Path, base: bool = True, truth: Path | None = None, **changed: Any) -> tuple[RecordedCase, Any]:
    inbox = write(folder)
    subject = yaml.safe_load(write_first_subject(inbox, model=json.dumps(MODEL)))
    subject |= {"examples": {"classes": ["a", "b"], "shape": [40]}} | changed
    settings = {"subject": subject, "attacks": [], "report": ["json"], "workers": 0}
    config, run = validate(Config, settings, "test"), RunDir.create(folder / "run")
    given = folder / "base.safetensors" if base else None
    sources = ImportSources(inbox=inbox, subject=folder / "x", truth=truth, base=given)
    found = bring(run.path, config.set_origin(Origin(trust=True)), sources, lambda *_: None)
    known = run.truth if truth else None
    return RecordedCase(config, run.artifacts, known, run.base if base else None), found


def test_rank_alpha_and_layers_are_recognised_and_the_base_is_named(tmp_path: Path) -> None:
    text = write_first_subject(write(tmp_path), model=json.dumps(MODEL))
    assert yaml.safe_load(text)["adapters"] == ADAPTERS and yaml.safe_load(text)["base"] == "tiny/gpt"
    assert "4 adapters of rank 3" in text and "seen in adapter_config.json" in text
    (tmp_path / "adapter_config.json").write_text("{")
    guessed = write_first_subject(tmp_path / "inbox", model=json.dumps(MODEL))
    assert yaml.safe_load(guessed)["adapters"]["alpha"] == 6 and "guessed: twice the rank" in guessed


def test_what_was_imported_is_what_was_sent_and_the_network_computes_on_the_base(tmp_path: Path) -> None:
    case, found = take(tmp_path)
    assert "next tokens" in case.data.gives
    _, artifacts = recorded()
    ours = {(a.round, a.sender): a.payload for a in read(artifacts) if a.kind is Kind.ADAPTER}
    theirs = {(a.round, a.sender): a.payload for a in read(case.artifacts) if a.kind is Kind.ADAPTER}
    assert len(ours) == 6 and ours.keys() == theirs.keys()
    assert all(np.array_equal(theirs[key][n], v) for key in ours for n, v in ours[key].items())
    assert "of which the weights were given" in check(found, "base").text
    assert case.network.make is not None and case.card.uplink == (Kind.ADAPTER, Kind.NUM_EXAMPLES)
    own, theirs_net = SimulatedCase(recorded()[0]).network.make(), case.network.make()
    for name, value in own.named_buffers():
        assert np.array_equal(value, dict(theirs_net.named_buffers())[name])


@cache
def trained_elsewhere() -> Path:
    """Notes of the clients, and others of the auditor, as files of examples."""
    case, folder = SimulatedCase(recorded()[0]), Path(mkdtemp())
    x, y = case.data.train.x, case.data.train.y
    for k, rows in enumerate(case.population.parts):
        np.savez(folder / f"{k}.npz", x=x[rows], y=y[rows])
    rows = case.population.reference
    np.savez(folder / "own.npz", x=x[rows], y=y[rows])
    return folder


def test_texts_that_were_given_are_compared_token_by_token(tmp_path: Path) -> None:
    diagnoses = ["a", "b", "c", "d", "e", "f", "g", "h"]
    examples = {"classes": diagnoses, "shape": [40]}
    case, found = take(tmp_path, truth=trained_elsewhere(), examples=examples)
    assert sorted(case.examples.parts) == [0, 1, 2]
    tokens = sum(int((case.data.train.x[rows][:, 1:] != 0).sum()) for rows in case.examples.parts.values())
    assert f"of {tokens:,} next tokens right" in check(found, "fit").text
    assert check(found, "who").status in ("holds", "open")


def test_no_weight_of_the_base_was_ever_sent(tmp_path: Path) -> None:
    case, _ = take(tmp_path)
    names = {n for a in read(case.artifacts) if a.kind in (Kind.ADAPTER, Kind.GLOBAL_MODEL) for n in a.payload}
    assert names and all(".lora_" in n for n in names)


def test_of_a_base_that_is_only_named_no_network_is_run(tmp_path: Path) -> None:
    case, found = take(tmp_path, base=False)
    assert case.network.make is None and "no weights were given" in check(found, "base").text


def test_another_rank_than_the_one_sent_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="lora_A"):
        take(tmp_path, adapters=ADAPTERS | {"rank": 4})


def test_adapters_without_a_base_or_a_network_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="state model and base"):
        take(tmp_path, base=False, model=None)
