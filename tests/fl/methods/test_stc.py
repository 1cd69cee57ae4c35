"""STC: what is left out is sent later, by clients and by the server, and bytes are those of what was missed."""

from math import ceil
from pathlib import Path
from typing import Any

import pytest
import torch

from fedaudit.fl.artifact import SERVER, Artifact
from fedaudit.fl.clients.delivery import Delivery
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.stc import STC
from fedaudit.fl.recording.coded import largest
from tests.fl.methods.worlds_of_methods import continues
from tests.fl.worlds import EVERYONE, TinyNet, World, as_delivered, close, run, same

COMMON: dict[str, Any] = {"rounds": 3, "local_epochs": 2, "batch_size": 8, "lr": 0.05, "momentum": 0.9}
NUMBERS = sum(v.numel() for v in TinyNet().state_dict().values())


def stc(**settings: Any) -> STC:
    return STC(STC.Config(**(COMMON | settings)))


def deltas(world: World) -> list[Artifact]:
    return [a for a in world.artifacts if a.kind == Kind.MODEL_DELTA]


def test_where_everything_is_sent_as_it_is_it_is_fedavg() -> None:
    ours = run(stc(share_up=1.0, share_down=1.0, values="exact"))
    assert close(ours, run(FedAvg(FedAvg.Config(**COMMON))), tolerance=1e-5)
    assert not close(ours, run(stc(share_up=0.1)), tolerance=1e-5)


def test_a_client_sends_signs_and_one_magnitude(tmp_path: Path) -> None:
    for a in deltas(run(stc(share_up=0.1, rounds=1), script=EVERYONE, folder=tmp_path)):
        flat = torch.cat([torch.from_numpy(v).flatten() for v in a.payload.values()])
        assert 0 < int((flat != 0).sum()) <= ceil(0.1 * NUMBERS) and len(set(flat.abs().tolist()) - {0.0}) == 1


def test_what_a_client_left_out_is_sent_next(tmp_path: Path) -> None:
    """With a rate of 0 after round 0 nothing is new: two rounds send what one of twice the share does."""
    slow: dict[str, Any] = {"rounds": 2, "lr_decay": 0.0, "values": "exact"}
    twice = run(stc(share_up=0.05, **slow), script=EVERYONE, folder=tmp_path / "a")
    once = run(stc(share_up=0.1, **slow), script=EVERYONE, folder=tmp_path / "b")
    sent = {(a.sender.index, a.round): a.payload for a in deltas(twice)}
    whole = {a.sender.index: a.payload for a in deltas(once) if a.round == 0}
    for k, payload in whole.items():
        for name, value in payload.items():
            torch.testing.assert_close(sent[k, 0][name] + sent[k, 1][name], value)


def test_a_server_keeps_what_it_leaves_out() -> None:
    """Mean change (3, 1, -2, 0) and half of the numbers: (2.5, 0, -2.5, 0) is sent, (.5, 1, .5, 0) is left."""
    method = stc(share_down=0.5)
    zero = torch.zeros(4)
    state = {
        "model": {"w": zero, "count": torch.tensor(7)},
        "residual": {"w": zero},
        "sizes": torch.tensor([9]),
        "known": torch.tensor([-1, 0, 1]),
    }
    delta = {"w": torch.tensor([3.0, 1.0, -2.0, 0.0])}
    heard = [Delivery(client=2, message={Kind.MODEL_DELTA: delta}, examples=5)]
    after = method.combine(state, as_delivered(heard), 0)
    assert after["model"]["w"].tolist() == [2.5, 0.0, -2.5, 0.0] and int(after["model"]["count"]) == 7
    assert after["residual"]["w"].tolist() == [0.5, 1.0, 0.5, 0.0]
    assert after["known"].tolist() == [-1, 0, 1]
    assert after["sizes"].tolist() == [9, largest(delta, 0.5, True).size]


def test_a_client_downloads_what_it_missed_and_never_more_than_the_model() -> None:
    state = {
        "model": {"w": torch.zeros(50)},
        "sizes": torch.tensor([30, 40, 150]),
        "known": torch.tensor([-1, 3, 2, 0]),
    }
    sizes = [stc().send_to(state, k)[Kind.GLOBAL_MODEL].size for k in range(4)]  # type: ignore[attr-defined]
    assert sizes == [200, 0, 150, 200]


def test_bytes_of_later_rounds_are_small_both_ways(tmp_path: Path) -> None:
    world = run(stc(share_up=0.05, share_down=0.05), script=EVERYONE, folder=tmp_path)
    first, *later = world.history
    assert first["bytes_down"] == 5 * 4 * NUMBERS  # of five selected clients one has no data
    assert all(h["bytes_up"] < 4 * NUMBERS for h in world.history)
    assert all(
        h["bytes_down"] - 4 * NUMBERS < 0.2 * 4 * NUMBERS for h in later
    )  # who never answers gets all of it
    sent = [a for a in world.artifacts if a.kind == Kind.GLOBAL_MODEL and a.sender == SERVER and a.round < 3]
    assert len(sent) == 15 and {len(a.seen_by) for a in sent} == {1}


def test_an_upload_that_is_lost_leaves_its_residual_as_it_was(tmp_path: Path) -> None:
    assert continues(lambda: stc(share_up=0.1, share_down=0.2), tmp_path, reply_loss=0.4)
    lossy = run(stc(share_up=0.1), reply_loss=0.4)
    assert same(lossy, run(stc(share_up=0.1), reply_loss=0.4)) and not same(lossy, run(stc(share_up=0.1)))


@pytest.mark.parametrize("values", ["ternary", "exact"])
def test_it_learns_with_a_tenth_of_the_numbers(values: Any) -> None:
    longer = {"rounds": 12, "share_up": 0.1, "share_down": 0.1, "values": values}
    world = run(stc(**longer), script=EVERYONE)
    assert world.history[-1]["accuracy"] > 0.8
