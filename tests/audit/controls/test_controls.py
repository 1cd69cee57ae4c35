"""The control that a card names exists, and plants what the attack reads: over all attacks."""

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.attacks.evidence import REPLAYED, UNPROTECTED
from fedaudit.audit.case.messages import messages
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.controls import condensed
from fedaudit.audit.controls.control import plant
from fedaudit.audit.controls.lab import Lab
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.rebafl import ReBaFL
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.training.local import Trained
from tests.audit.simulated import simulated

pytestmark = pytest.mark.usefixtures("few_epochs")

ATTACKS = {name: catalog.load("attacks", name).card for name in catalog.names("attacks")}
PLANTED = [name for name, card in ATTACKS.items() if card.control]
# methods that between them send every kind that a control imitates
METHODS = {
    "rebafl": {"name": "rebafl", "rounds": 1, "local_epochs": 1},
    "gandalf": {"name": "gandalf", "augmentation": "none", "rounds": 1, "local_epochs": 1},
    "feddc_condense": {"name": "feddc_condense", "rounds": 1, "iterations": 1},
    "freezefl": {"name": "freezefl", "rounds": 1, "local_epochs": 1},
    "fedmix": {"name": "fedmix", "rounds": 1, "local_epochs": 1},
    "splitfed_v1": {"name": "splitfed_v1", "rounds": 1, "local_epochs": 1},
}
KEPT_MODELS = {"fedproto"}  # prototypes of models that clients keep, which nobody can play
SENDERS = [
    name
    for name in catalog.names("methods")
    if name not in KEPT_MODELS
    and {Kind.LOCAL_PROTOTYPES, Kind.CONDENSED_IMAGES} & set(catalog.load("methods", name).card.uplink)
]
REPLAY = {"sizes": [1], "clients": 1, "groups": 2, "updates": [[1, 1, 1]]}


@cache
def planted(control: str, method: str) -> tuple[Artifact, ...]:
    run, config = ran(method)
    recorded = messages(run.artifacts, set(Kind), "all")
    return tuple(plant(control, Lab.from_case(open_case(run, config)), recorded, config.replay).artifacts)


@cache
def ran(method: str) -> tuple[RunDir, Config]:
    settings: dict[str, Any] = {
        "federation": {"dataset": "digits", "clients": 4, "model": {"name": "mlp", "hidden": [16]}},
        "method": METHODS.get(method, {"name": method, "rounds": 1}),
        "workers": 0,
        "record": "all",
        "replay": REPLAY,
    }
    return simulated(settings)


@pytest.mark.sample(10)
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
    with pytest.raises(UserError, match="no control 'wishes'"):
        plant("wishes", None, [], ran("rebafl")[1].replay)


class Normalised(ReBaFL):
    """Clients that send prototypes of length one, as official code of other methods does."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        sent = reply.message[Kind.LOCAL_PROTOTYPES]
        sent["features"] = torch.nn.functional.normalize(sent["features"])
        return reply


@pytest.mark.parametrize(
    ("control", "method", "kind"),
    [
        ("prototypes", "rebafl", Kind.LOCAL_PROTOTYPES),
        ("condensed", "feddc_condense", Kind.CONDENSED_IMAGES),
        ("updates", "rebafl", Kind.LOCAL_MODEL),
    ],
)
def test_six_people_are_planted_through_every_clients_code_with_protections_and_without(
    control: str, method: str, kind: Kind
) -> None:
    run, config = ran(method)
    recorded = messages(run.artifacts, set(Kind), "all")
    clipped = [{"name": "dp_gaussian", "clip_norm": 1e-3, "noise_multiplier": 0.0, "kinds": [kind.value]}]
    case = SimulatedCase(validate(Config, config.model_dump() | {"protections": clipped}, "test"))
    made = plant(control, Lab.from_case(case), recorded, config.replay)
    people = [a for a in made.artifacts if len(made.groups[a.id]) == 1 and a.kind == kind]
    people = [a for a in people if not a.note.get("whole") and a.note.get("init") != "real"]
    count = Counter((a.sender.index, a.origin) for a in people)
    sent = {a.sender.index for a in recorded if a.kind == kind}
    assert len(sent) >= 2
    assert set(count) == {(k, origin) for k in sent for origin in (REPLAYED, UNPROTECTED)}
    assert min(count.values()) >= 6
    assert {a.origin for a in planted(control, method)} == {REPLAYED}  # nothing protects: none is made twice


@pytest.mark.parametrize("control", ["prototypes", "pairs"])
def test_what_a_methods_client_does_to_its_prototypes_is_in_the_replays(control: str) -> None:
    run, config = ran("rebafl")
    settings: dict[str, Any] = {"rounds": 1, "local_epochs": 1}
    case = open_case(run, config)
    theirs = SimulatedCase(config)
    theirs.__dict__["method"] = Normalised(Normalised.Config(**settings, proto_min_classes=2))
    recorded = messages(run.artifacts, set(Kind), "all")
    plain, normalised = (
        plant(control, Lab.from_case(c), recorded, config.replay).artifacts for c in (case, theirs)
    )
    lengths = [np.linalg.norm(a.payload["features"]) for a in normalised]
    assert len(lengths) == len(plain) > 0 and np.allclose(lengths, 1, atol=1e-6)
    assert not np.allclose([np.linalg.norm(a.payload["features"]) for a in plain], 1, atol=1e-2)


@pytest.mark.parametrize("method", SENDERS)
def test_what_clients_sent_is_made_again_bit_for_bit(method: str) -> None:
    """For the client's own cells, whatever the method makes of them."""
    run, config = ran(method)
    case, recorded = open_case(run, config), messages(run.artifacts, set(Kind), "all")
    lab, compared = Lab.from_case(case), 0
    assert lab is not None
    if Kind.LOCAL_PROTOTYPES in case.card.uplink:
        sent = {a.sender: a.payload for a in recorded if a.kind == Kind.LOCAL_PROTOTYPES}
        again = [a for a in plant("prototypes", lab, recorded, config.replay).artifacts if "whole" in a.note]
        assert len(again) == sum(len(p["classes"]) for p in sent.values())
        for a in again:
            row = sent[a.sender]["classes"] == a.payload["classes"][0]
            assert np.array_equal(a.payload["features"], sent[a.sender]["features"][row])
            compared += 1
    for like in (a for a in recorded if a.kind == Kind.CONDENSED_IMAGES):
        assert like.sender.index is not None
        own = case.examples.parts[like.sender.index]
        found = condensed.sent_images(lab, like, {0: own}, recorded, case.streams)
        assert found is not None
        assert np.array_equal(found[Kind.CONDENSED_IMAGES]["images"].numpy(), like.payload["images"])
        compared += 1
    assert compared >= 3
