"""FedMD: logits by hand, training alone without alignment, public examples that all draw alike, no model sent."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.fl.aggregators.median import Median
from fedaudit.fl.families.public_data import list_public_rows
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fd import FD
from fedaudit.fl.methods.fedmd import FedMD, alignment_loss
from fedaudit.fl.runtime import tree
from fedaudit.fl.runtime.errors import UserError
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues
from tests.fl.worlds import EVERYONE, World, data, parts, run, same

QUICK = SETTINGS | {"first_epochs": 0}


def make(**settings: Any) -> FedMD:
    return FedMD(FedMD.Config(**(QUICK | settings)))


def own_models(folder: Path) -> dict[str, Any]:
    memory = tree.load(folder / "checkpoint" / "state.safetensors")["memory"]
    return {k: m["own"] for k, m in memory.items()}


def sent(world: World, round: int) -> dict[str, dict[str, Any]]:
    """Sender -> payload of a round's logits."""
    found = [a for a in world.artifacts if a.kind == Kind.PUBLIC_LOGITS and a.round == round]
    return {str(a.sender): dict(a.payload) for a in found}


def test_the_mean_and_the_loss_by_hand() -> None:
    """Logits (1, 3) and (3, -1): their mean is (2, 1), and the first client's loss 1.5."""
    logits = torch.tensor([[1.0, 3.0], [3.0, -1.0]])
    mean = logits.mean(0)
    assert mean.tolist() == [2.0, 1.0]
    assert float(alignment_loss(logits[:1], mean[None])) == 1.5


def test_without_alignment_it_is_training_alone(tmp_path: Path) -> None:
    """Federated distillation without its term trains the very same models."""
    run(make(align_epochs=0), folder=tmp_path / "fedmd", **WORLD)
    run(FD(FD.Config(**SETTINGS, gamma=0.0)), folder=tmp_path / "alone", **WORLD)
    ours, alone = own_models(tmp_path / "fedmd"), own_models(tmp_path / "alone")
    assert ours.keys() == alone.keys() and all(same(ours[k], alone[k]) for k in ours)


def test_with_alignment_it_is_not(tmp_path: Path) -> None:
    run(make(), folder=tmp_path / "fedmd", **WORLD)
    run(make(align_epochs=0), folder=tmp_path / "alone", **WORLD)
    ours, alone = own_models(tmp_path / "fedmd"), own_models(tmp_path / "alone")
    assert not all(same(ours[k], alone[k]) for k in ours)  # one is heard in the first round alone


def test_the_server_sends_the_mean_of_what_it_received_on_the_same_examples(tmp_path: Path) -> None:
    world = run(make(public_size=5), folder=tmp_path, script=EVERYONE)
    assert {a.kind for a in world.artifacts} == {Kind.PUBLIC_LOGITS} and world.model == {}
    for t in (0, 1):
        uploads = {k: v for k, v in sent(world, t).items() if k != "server"}
        mean = sent(world, t + 1)["server"]
        assert len(uploads) == 4 and len(mean["index"]) == 5
        for payload in uploads.values():
            assert payload["index"].tolist() == mean["index"].tolist()
        each = np.mean([p["logits"].astype(np.float64) for p in uploads.values()], axis=0)
        np.testing.assert_allclose(mean["logits"], each, atol=1e-6)
    assert sent(world, 0)["client/0"]["index"].tolist() != sent(world, 1)["client/0"]["index"].tolist()


def test_a_robust_mean_of_logits_is_the_aggregators(tmp_path: Path) -> None:
    world = run(make(), folder=tmp_path, script=EVERYONE, aggregator=Median())
    uploads = [v["logits"] for k, v in sent(world, 0).items() if k != "server"]
    np.testing.assert_allclose(sent(world, 1)["server"]["logits"], np.median(uploads, axis=0), atol=1e-6)


def test_candidates_stand_behind_the_servers_examples_in_the_public_ones(tmp_path: Path) -> None:
    spare, index = np.array([70, 71]), [np.array([3, 4, 5]), np.array([], np.int64), np.array([9])]
    assert list_public_rows(spare, index, 2).tolist() == [70, 71, 3, 4, 9]
    assert list_public_rows(spare, index, 0).tolist() == [70, 71]
    honest, asking = (run(make(candidates=n), folder=tmp_path / str(n), script=EVERYONE) for n in (0, 2))
    sizes = [len(sent(w, 0)["client/0"]["index"]) for w in (honest, asking)]
    assert sizes == [12, 12 + 4 * 2]


def test_the_first_round_has_epochs_of_its_own(tmp_path: Path) -> None:
    world = run(make(first_epochs=5), folder=tmp_path, script=EVERYONE)
    plain = run(make(), folder=tmp_path / "plain", script=EVERYONE)
    assert world.history[0]["steps"] == 2.5 * plain.history[0]["steps"]
    assert world.history[1]["steps"] == plain.history[1]["steps"]


def test_without_public_examples_it_is_refused() -> None:
    d = data()
    everything = parts(d, sizes=(17, 20, 13, 0, 30))
    with pytest.raises(UserError, match="FedMD needs public examples"):
        run(make(), d=d, index=everything)


@pytest.mark.nightly
def test_a_run_that_was_stopped_continues_to_the_same_bits(tmp_path: Path) -> None:
    assert continues(make, tmp_path, **WORLD)
