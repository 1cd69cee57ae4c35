"""The control that a card names exists, and plants what the attack reads: over all attacks."""

from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
import torch

from audit.phases import simulate
from audit.phases.attack import plant
from audit.settings import catalog
from audit.settings.config import Config
from audit.settings.errors import validate
from audit.subject.messages import messages
from audit.subject.open import open_case
from audit.subject.rundir import RunDir
from audit.subject.simulated import SimulatedCase
from fl.artifact import Artifact
from fl.client import Client, Reply
from fl.errors import UserError
from fl.kinds import Kind
from fl.methods.rebafl import ReBaFL
from fl.training.local import Trained

ATTACKS = {name: catalog.load("attacks", name).card for name in catalog.names("attacks")}
PLANTED = [name for name, card in ATTACKS.items() if card.control]
# methods that between them send every kind that a control imitates
METHODS = {
    "rebafl": {"name": "rebafl", "rounds": 1, "local_epochs": 1},
    "gandalf": {"name": "gandalf", "augmentation": "none", "rounds": 1, "local_epochs": 1},
    "feddc_condense": {"name": "feddc_condense", "rounds": 1, "iterations": 1},
}
REPLAY = {"sizes": [1], "clients": 1, "groups": 2, "updates": [1], "update_steps": [1], "update_groups": 1}


@cache
def planted(control: str, method: str) -> tuple[Artifact, ...]:
    run, config = ran(method)
    recorded = messages(run.artifacts, set(Kind), "all")
    return tuple(plant(control, open_case(run, config), recorded, config.replay).artifacts)


@cache
def ran(method: str) -> tuple[RunDir, Config]:
    settings: dict[str, Any] = {
        "federation": {"dataset": "digits", "clients": 4, "model": {"name": "mlp", "hidden": [16]}},
        "method": METHODS[method],
        "workers": 0,
        "record": {"rounds": "all"},
        "replay": REPLAY,
    }
    config = validate(Config, settings, "test")
    run = RunDir.create(Path(mkdtemp()) / "run")
    simulate.run(run, config, lambda *_: None)
    return run, config


@pytest.mark.parametrize("name", PLANTED)
def test_the_named_control_plants_what_the_attack_reads(name: str) -> None:
    card = ATTACKS[name]
    made = [a for method in METHODS for a in planted(card.control, method)]
    assert {a.kind for a in made} & set(card.reads)
    assert all(a.origin == "replayed" and a.note for a in made)


def test_controls_that_have_nothing_to_imitate_plant_nothing() -> None:
    assert planted("condensed", "rebafl") == () == planted("prototypes", "gandalf")
    assert planted("pairs", "feddc_condense") == ()


def test_an_unknown_control_is_refused_by_name() -> None:
    run, config = ran("rebafl")
    with pytest.raises(UserError, match="no control 'wishes'"):
        plant("wishes", open_case(run, config), [], config.replay)


def test_prototypes_are_what_the_methods_own_client_sends() -> None:
    """A replay over all images of a class is the recorded prototype itself."""
    run, config = ran("rebafl")
    case = open_case(run, config)
    recorded = messages(run.artifacts, set(Kind), "all")
    labels = case.data.train.y
    sizes = sorted({int((labels[case.parts[k]] == c).sum()) for k in range(4) for c in range(10)} - {0})
    settings = config.replay.model_copy(update={"sizes": tuple(sizes), "clients": 4, "groups": 40})
    sent = {a.sender: a.payload for a in recorded if a.kind == Kind.LOCAL_PROTOTYPES}
    whole = 0
    for a in plant("prototypes", case, recorded, settings).artifacts:
        [label] = a.payload["classes"]
        assert a.sender.index is not None
        if a.note["n"] == (labels[case.parts[a.sender.index]] == label).sum():
            [row] = sent[a.sender]["features"][sent[a.sender]["classes"] == label]
            assert abs(a.payload["features"][0] - row).max() < 1e-6
            whole += 1
    assert whole >= 10


class Normalised(ReBaFL):
    """Clients that send prototypes of length one, as official code of other methods does."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        sent = reply.message[Kind.LOCAL_PROTOTYPES]
        sent["features"] = torch.nn.functional.normalize(sent["features"])
        return reply


@pytest.mark.parametrize("control", ["prototypes", "pairs"])
def test_what_a_methods_client_does_to_its_prototypes_is_in_the_replays(control: str) -> None:
    run, config = ran("rebafl")
    settings: dict[str, Any] = {"rounds": 1, "local_epochs": 1}
    case = open_case(run, config)
    theirs = SimulatedCase(config)
    theirs.__dict__["method"] = Normalised(Normalised.Config(**settings, proto_min_classes=2))
    recorded = messages(run.artifacts, set(Kind), "all")
    plain, normalised = (plant(control, c, recorded, config.replay).artifacts for c in (case, theirs))
    lengths = [np.linalg.norm(a.payload["features"]) for a in normalised]
    assert len(lengths) == len(plain) > 0 and np.allclose(lengths, 1, atol=1e-6)
    assert not np.allclose([np.linalg.norm(a.payload["features"]) for a in plain], 1, atol=1e-2)
