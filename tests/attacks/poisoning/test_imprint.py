"""A server that fishes: what it sends is recorded, images come out of updates, and clients could see it."""

from functools import cache

import numpy as np
import pytest
import torch

from fedaudit.attacks.evaluation.tampered import flags
from fedaudit.attacks.poisoning.imprint import imprint_model
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.evidence.files import EvidenceFolder
from fedaudit.audit.phases import attack
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.recorder import read
from fedaudit.fl.runtime.errors import UserError
from tests.attacks.updates.gradients import Planted
from tests.attacks.world import Net
from tests.audit.simulated import simulated


@cache
def ran(adversary: str = "imprint", method: str = "fedavg") -> tuple[RunDir, Config]:
    """Two rounds of one step each, of four clients with some ten images."""
    run, config = simulated(
        {
            "federation": {
                "dataset": "digits",
                "clients": 4,
                "partition": "iid",
                "availability": "full",
                "model": {"name": "mlp", "hidden": [128]},
                "holdout": {"auxiliary": 0.4, "reference": 0.57},
            },
            "method": {"name": method, "rounds": 2, "local_epochs": 1, "lr": 0.1, "batch_size": 10_000},
            "adversary": {"name": adversary} if adversary else None,
            "workers": 0,
            "replay": {"updates": [[1, 1, 4], [4, 1, 4]], "clients": 4},
            "attacks": [{"name": "imprint_recovery", "gallery": 30, "most_recorded": 16}],
        }
    )
    return run, config


def broadcasts(run: RunDir) -> list[Artifact]:
    return [a for a in read(run.artifacts) if a.kind == Kind.GLOBAL_MODEL and a.channel == "downlink"]


def test_what_the_server_sends_is_what_is_recorded_and_a_client_can_see_it() -> None:
    run, _ = ran()
    for a in broadcasts(run):
        assert any("point the same way, with a ramp of biases" in sentence for sentence in flags(a.payload))


def test_nobody_is_compromised_but_the_server() -> None:
    run, config = ran()
    compromise = open_case(run, config).compromise  # type: ignore[attr-defined]
    assert compromise.clients == frozenset() and compromise.server is not None


def test_images_come_out_of_updates_of_one_step_over_many() -> None:
    run, config = ran()
    attack.run(run, config, lambda *_: None)
    [file] = EvidenceFolder(run.path).attacks
    assert file["status"] == "ran" and file["card"]["threat"]["conduct"] == "malicious"
    found = {(e["control"], e["condition"].get("n")): e for e in file["evidence"] if e["measure"] == "rank1"}
    assert found["positive", 1]["value"] == 1
    assert any(e["value"] > 0.5 for (control, _), e in found.items() if control == "none")
    assert "a client that looks at the weights sees it" in file["evidence"][0]["note"]


def test_an_honest_server_leaves_nothing_to_recover() -> None:
    run, config = ran("")
    attack.run(run, config, lambda *_: None)
    [file] = EvidenceFolder(run.path).attacks
    assert file["status"] == "not_applicable" and "nothing was imprinted" in file["reason"]
    assert all(not flags(a.payload) for a in broadcasts(run))


def test_bins_hold_what_entered_the_layer_image_by_image() -> None:
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    model = {"a.weight": torch.randn(64, 20), "a.bias": torch.zeros(64)}
    model |= {"b.weight": torch.randn(5, 64), "b.bias": torch.zeros(5)}
    made = {k: v.requires_grad_() for k, v in imprint_model(model, 0.0, 0.3).items()}
    x = torch.from_numpy(rng.normal(size=(6, 20)).astype(np.float32))
    hidden = (x @ made["a.weight"].T + made["a.bias"]).relu()
    loss = torch.nn.functional.cross_entropy(hidden @ made["b.weight"].T + made["b.bias"], torch.arange(6) % 5)
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = made["a.weight"].grad, made["a.bias"].grad
    assert gradients[0] is not None and gradients[1] is not None
    order = made["a.bias"].detach().argsort()
    weight, bias = (g[order].diff(dim=0).double() for g in gradients)
    found = (weight / bias[:, None])[bias.abs() > 1e-6 * bias.abs().max()]
    near = torch.cdist(x.double(), found).min(dim=1).values
    assert int((near < 1e-3).sum()) >= 4  # the others share a bin


def test_a_model_without_two_dense_layers_is_refused() -> None:
    with pytest.raises(UserError, match="a dense layer with a bias and one behind it"):
        imprint_model({"a.weight": torch.zeros(4, 4)}, 0.0, 1.0)


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", catalog.names("models"))
def test_the_detector_is_silent_on_every_new_model(name: str) -> None:
    made = catalog.load("models", name)
    for shape in ((1, 28, 28), (3, 32, 32), (80,)):
        try:
            net = made(shape, 10)
        except (UserError, TypeError, ValueError, IndexError):
            continue
        assert flags({k: v.numpy() for k, v in net.state_dict().items()}) == []
        return


def test_the_detector_is_silent_on_trained_models_and_sees_negative_rows() -> None:
    world = Planted(((4, 3),), groups=1)
    assert flags(world.descend(world.clients[0], np.arange(20), 30)) == []
    torch.manual_seed(0)
    trap = {k: v.numpy().copy() for k, v in Net().state_dict().items()}
    assert flags(trap) == []
    trap["wide.weight"] = np.where(trap["wide.weight"] < 0, 4 * trap["wide.weight"], trap["wide.weight"])
    assert any("negative and positive" in sentence for sentence in flags(trap))
