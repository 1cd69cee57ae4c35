"""FedMix is FedAvg without blending, shares what its group size says, and its losses are those by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax

from fedaudit.fl.artifact import Channel
from fedaudit.fl.data.scale import normalise
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import is_bounded_by_training, is_only_averaging
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.fedmix import FedMix, compute_input_mixup_loss, compute_taylor_mixup_loss
from fedaudit.fl.protections.secure_aggregation import SecureAggregation
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.training.local import Handle
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues, direct
from tests.fl.worlds import EVERYONE, TinyNet, World, data, parts, run, same

BOTH = pytest.mark.parametrize("variant", ["fedmix", "naivemix"])


def fedmix(**settings: Any) -> FedMix:
    return FedMix(FedMix.Config(**(SETTINGS | settings)))


def mashed(world: World, channel: Channel) -> list[Any]:
    return [a for a in world.artifacts if a.kind == Kind.MASHED_BATCH and a.channel == channel]


@BOTH
def test_no_blending_is_fedavg_to_the_last_bit_and_shares_nothing(variant: str, tmp_path: Path) -> None:
    fedavg = run(FedAvg(FedAvg.Config(**SETTINGS)), **WORLD)
    without = run(fedmix(mix=0.0, variant=variant), folder=tmp_path, **WORLD)
    assert same(without, fedavg) and not mashed(without, Channel.UPLINK)
    assert not same(run(fedmix(variant=variant), **WORLD), fedavg)


def test_the_two_losses_train_different_models() -> None:
    assert not same(run(fedmix(), **WORLD), run(fedmix(variant="naivemix"), **WORLD))


# What is shared -------------------------------------------------------------------------------


def test_groups_of_one_share_the_examples_themselves(tmp_path: Path) -> None:
    world, d = run(fedmix(group_size=1), folder=tmp_path), data()
    sent = mashed(world, Channel.UPLINK)
    assert [a.sender.index for a in sent] == [0, 1, 2, 4] and {a.round for a in sent} == {0}
    for a in sent:
        rows = parts(d)[a.sender.index]
        x, y = normalise(torch.from_numpy(d.train.x[rows]), d).numpy(), d.train.y[rows]
        which = [int(np.flatnonzero((x == image).all((1, 2, 3)))[0]) for image in a.payload["images"]]
        assert sorted(which) == list(range(len(rows)))  # bit for bit, each once
        assert np.array_equal(a.payload["labels"], np.eye(4, dtype=np.float32)[y[which]])


def test_no_mean_is_of_fewer_than_a_group_and_all_examples_are_in_one(tmp_path: Path) -> None:
    world, d = run(fedmix(group_size=10), folder=tmp_path), data()
    sent = {a.sender.index: a.payload for a in mashed(world, Channel.UPLINK)}
    # 7 examples: one mean of 7; 20: two of 10; 11: one of 11, none of 1; 30: three of 10
    assert {k: len(p["labels"]) for k, p in sent.items()} == {0: 1, 1: 2, 2: 1, 4: 3}
    for k, p in sent.items():
        rows = parts(d)[k]
        own = normalise(torch.from_numpy(d.train.x[rows]), d).numpy().mean(0)
        assert np.allclose(p["images"].mean(0), own, atol=1e-5)
        shares = np.bincount(d.train.y[rows], minlength=4) / len(rows)
        assert np.allclose(p["labels"].mean(0), shares, atol=1e-6)


def test_everybody_gets_the_pool_once_and_the_server_alone_reads_single_uploads(tmp_path: Path) -> None:
    world = run(fedmix(), folder=tmp_path, script=EVERYONE)
    [pool] = mashed(world, Channel.DOWNLINK)
    sent = mashed(world, Channel.UPLINK)
    together = np.concatenate([a.payload["images"] for a in sent])
    assert pool.seen_by == ("client",) and {a.seen_by for a in sent} == {("server",)}
    assert sorted(map(bytes, pool.payload["images"])) == sorted(map(bytes, together))
    assert not np.array_equal(pool.payload["images"], together)  # shuffled


# The losses -----------------------------------------------------------------------------------

X, Y = np.array([[1.0, -2.0, 0.5], [-0.3, 0.7, 2.0]]), np.array([1, 2])
MEAN, LABEL = np.array([0.4, -1.5, 0.8]), np.array([0.2, 0.5, 0.3])


def by_hand(variant: str, mix: float) -> float:
    """Where logits are the inputs, the slope of the cross-entropy is softmax minus one-hot."""
    v = (1 - mix) * X + (mix * MEAN if variant == "naivemix" else 0.0)
    logs = log_softmax(v, axis=1)
    value = -(1 - mix) * logs[[0, 1], Y].mean() - mix * (logs @ LABEL).mean()
    slope = softmax(v, axis=1) - np.eye(3)[Y]
    return float(value + (mix * (slope @ MEAN).mean() if variant == "fedmix" else 0.0))


def ours(variant: str, mix: float) -> torch.Tensor:
    blend = compute_taylor_mixup_loss if variant == "fedmix" else compute_input_mixup_loss
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    loss = blend(direct(), x, y, torch.from_numpy(MEAN)[None], torch.from_numpy(LABEL)[None], mix)
    return loss.detach()


@BOTH
@pytest.mark.parametrize("mix", [0.1, 0.7])
def test_the_loss_by_hand(variant: str, mix: float) -> None:
    assert float(ours(variant, mix)) == pytest.approx(by_hand(variant, mix), rel=1e-12)


def test_fedmix_is_naivemix_to_first_order() -> None:
    gaps = [float(ours("fedmix", m) - ours("naivemix", m)) for m in (2e-3, 1e-3)]
    assert gaps[1] != 0 and gaps[0] / gaps[1] == pytest.approx(4, rel=0.02)


def test_the_gradient_goes_through_the_slope() -> None:
    """Against central differences in a weight: a slope taken as a constant would be missed."""
    torch.manual_seed(0)
    net = TinyNet().double()
    x, y = torch.rand(3, 1, 6, 6).double(), torch.tensor([0, 2, 3])
    mean, label = torch.rand(1, 1, 6, 6).double(), torch.tensor([[0.5, 0.5, 0.0, 0.0]]).double()
    weight = net.fc.weight
    [gradient] = torch.autograd.grad(compute_taylor_mixup_loss(Handle(net), x, y, mean, label, 0.3), [weight])
    for place in [(0, 0), (3, 20), (7, 35)]:
        values = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                weight[place] += step
            values.append(float(compute_taylor_mixup_loss(Handle(net), x, y, mean, label, 0.3).detach()))
            with torch.no_grad():
                weight[place] -= step
        assert float(gradient[place]) == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-4, abs=1e-8)


# Running and refusing -------------------------------------------------------------------------


def test_a_run_that_was_stopped_continues_with_the_pool_it_had(tmp_path: Path) -> None:
    assert continues(fedmix, tmp_path, **WORLD)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"mix": 1.5}, "mix must be <= 1, got 1.5"), ({"group_size": 0}, "group_size must be >= 1, got 0")],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        fedmix(**settings)


def test_protections_that_means_go_round_are_refused() -> None:
    with pytest.raises(UserError, match="mashed_batch"):
        run(fedmix(), protections=[SecureAggregation(SecureAggregation.Config())])


def test_a_bound_on_training_alone_would_miss_the_means() -> None:
    assert not is_bounded_by_training(fedmix()) and not is_only_averaging(fedmix(weighting="uniform"))
