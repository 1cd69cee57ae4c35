"""Methods compared with GANDALF: as its special cases, as FedAvg's, and by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.astraea import Astraea, ratios, resize_counts
from fedaudit.fl.methods.data_sharing import DataSharing, quotas
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.feddpgan import FedDPGAN
from fedaudit.fl.methods.gandalf import SDAFL, Gandalf, PrivateFLGAN
from fedaudit.fl.methods.static_augmentation import StaticAugmentation
from fedaudit.fl.recording.recorder import read
from fedaudit.fl.runtime import tree
from tests.fl.methods.test_gandalf import LIGHT, PLAIN, QUIET, gandalf, relays
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues
from tests.fl.worlds import EVERYONE, data, parts, run, same

PLAIN_REAL = {"noise": QUIET, "mediators": 2}


@pytest.mark.dear("SDAFL-4")
@pytest.mark.parametrize(("other", "groups"), [(PrivateFLGAN, 1), (SDAFL, 4)])
def test_one_group_and_single_clients_are_methods_of_their_own(
    other: type[Gandalf], groups: int, tmp_path: Path
) -> None:  # T-GA-1
    ours = run(gandalf(groups=groups, **LIGHT), folder=tmp_path / "ours", **WORLD)
    theirs = run(gandalf(other, **LIGHT), folder=tmp_path / "theirs", **WORLD)
    assert same(ours, theirs) and len(ours.artifacts) == len(theirs.artifacts)
    for a, b in zip(ours.artifacts, theirs.artifacts, strict=True):
        assert a.id == b.id and a.seen_by == b.seen_by
        assert all(np.array_equal(a.payload[k], b.payload[k]) for k in a.payload)
    assert not same(ours, run(gandalf(groups=2, **LIGHT), **WORLD))


@pytest.mark.nightly
def test_averaging_the_generators_of_one_client_is_handing_them_to_itself(tmp_path: Path) -> None:
    only = [([4], [4])]
    for cls in (FedDPGAN, PrivateFLGAN):
        run(gandalf(cls, **LIGHT), script=only, folder=tmp_path / cls.__name__)
    averaged, handed = (
        [a for a in read(tmp_path / n) if a.kind == Kind.GAN_G and a.channel == Channel.UPLINK]
        for n in ("FedDPGAN/artifacts", "PrivateFLGAN/artifacts")
    )
    assert [a.round for a in averaged] == [0, 1, 2] and len(handed) == 1
    assert all(np.array_equal(averaged[-1].payload[k], v) for k, v in handed[0].payload.items())
    everybody = run(gandalf(FedDPGAN, **LIGHT), script=EVERYONE, folder=tmp_path / "all")
    assert not relays(everybody, Kind.GAN_G) and not relays(everybody, Kind.GAN_D)
    two = run(gandalf(FedDPGAN, **LIGHT), script=[([2, 4], [2, 4])], folder=tmp_path / "two")
    up = {
        (a.round, a.sender.index): a.payload
        for a in two.artifacts
        if a.kind == Kind.GAN_D and a.channel == Channel.UPLINK
    }
    down = next(
        a for a in two.artifacts if a.kind == Kind.GAN_D and a.round == 1 and a.channel == Channel.DOWNLINK
    )
    expected = (11 * up[0, 2]["fc.weight"] + 30 * up[0, 4]["fc.weight"]) / 41
    assert np.allclose(down.payload["fc.weight"], expected, atol=1e-6)


def test_static_augmentation_is_balancing_without_generators(tmp_path: Path) -> None:
    static = StaticAugmentation(StaticAugmentation.Config(**SETTINGS, share=0.5))
    ours = run(static, **WORLD)
    assert same(ours, run(gandalf(augmentation="static", share=0.5, noise=QUIET), **WORLD))
    assert not same(ours, run(gandalf(**PLAIN), **WORLD))


def test_real_images_are_others_own_and_fill_every_class(tmp_path: Path) -> None:
    """At share 1, where others have enough, every client ends with all classes as large as its largest."""
    d, held = data(), parts(data())
    world = run(gandalf(augmentation="real", share=1.0, **PLAIN_REAL), script=EVERYONE, folder=tmp_path)
    assert [h["phase"] for h in world.history] == ["augment"] + ["train"] * 3
    memory = tree.load(tmp_path / "checkpoint" / "state.safetensors")["memory"]
    everybody = np.concatenate(held)
    for k in (0, 1, 2, 4):
        x, y = memory[str(k)]["x"].numpy(), memory[str(k)]["y"].numpy()
        own, others = np.bincount(d.train.y[held[k]], minlength=4), np.setdiff1d(everybody, held[k])
        stock = np.bincount(d.train.y[others], minlength=4)
        assert np.bincount(y, minlength=4).tolist() == np.minimum(own.max() - own, stock).tolist()
        gaps = np.abs(x[:, None] / 255 - d.train.x[others][None]).max((2, 3, 4))
        assert gaps.min(1).max() < 0.003 and len(set(gaps.argmin(1))) == len(y)
        assert (d.train.y[others][gaps.argmin(1)] == y).all()
    again = run(gandalf(augmentation="real", share=1.0, **PLAIN_REAL), **WORLD)
    assert not same(again, run(gandalf(**PLAIN), **WORLD))
    assert continues(lambda: gandalf(augmentation="real", **PLAIN_REAL), tmp_path / "again", **WORLD)


# Data sharing ---------------------------------------------------------------------------------


def sharing(**settings: Any) -> DataSharing:
    return DataSharing(DataSharing.Config(**(SETTINGS | settings)))


def test_nothing_shared_is_fedavg_to_the_last_bit() -> None:
    fedavg = run(FedAvg(FedAvg.Config(**SETTINGS)), **WORLD)
    assert same(run(sharing(volume=0.0), **WORLD), fedavg)
    assert not same(run(sharing(), **WORLD), fedavg)


def test_classes_share_equally_and_clients_in_proportion() -> None:
    found = quotas(np.array([[30, 0, 1], [10, 40, 1], [20, 0, 0]]), 0.3)
    assert found.tolist() == [[5, 0, 1], [2, 10, 1], [3, 0, 0]]  # 102 * 0.3 / 3 = 10 of each class


def test_shared_images_are_clients_own_and_everybody_trains_on_some(tmp_path: Path) -> None:
    world = run(sharing(volume=0.5, given=0.5), script=EVERYONE, folder=tmp_path)
    d, held = data(), parts(data())
    for a in world.artifacts:
        if a.kind == Kind.SEED_SAMPLES and a.channel == Channel.UPLINK:
            own = d.train.x[held[a.sender.index or 0]]
            gaps = np.abs(a.payload["images"][:, None] - own[None]).max((2, 3, 4))
            assert gaps.min(1).max() < 1e-5 and len(set(gaps.argmin(1))) == len(gaps)
    back = [a for a in world.artifacts if a.kind == Kind.SEED_SAMPLES and a.channel == Channel.DOWNLINK]
    assert len(back) == 4 and all(len(set(a.payload["labels"].tolist())) == 4 for a in back)
    assert continues(lambda: sharing(volume=0.5), tmp_path / "again", **WORLD)


# Astraea --------------------------------------------------------------------------------------


def astraea(**settings: Any) -> Astraea:
    return Astraea(Astraea.Config(**(SETTINGS | settings)))


def test_classes_left_as_they_are_and_a_mediator_each_is_fedavg_to_the_last_bit() -> None:
    fedavg = run(FedAvg(FedAvg.Config(**SETTINGS)), **WORLD)
    still = {"theta_add": float("inf"), "theta_drop": float("inf"), "mediators": 4}
    assert same(run(astraea(**still), **WORLD), fedavg)
    assert not same(run(astraea(mediators=4), **WORLD), fedavg)
    assert not same(run(astraea(**still | {"mediators": 2}), **WORLD), fedavg)


def test_scarce_classes_are_filled_and_plentiful_ones_thinned_to_the_threshold() -> None:
    totals = np.array([100, 100, 100, 20, 180])  # mean 100, deviation sqrt(2560) = 50.596
    found = ratios(totals, 1.0, 1.0)
    assert found.tolist() == pytest.approx([1, 1, 1, 49.404 / 20, 150.596 / 180], abs=1e-4)
    assert ratios(totals, 9.0, 9.0).tolist() == [1] * 5 and ratios(totals[:3], 1, 1).tolist() == [1] * 3
    assert resize_counts(np.array([4, 0, 7, 2, 9]), found).tolist() == [4, 0, 7, 5, 8]


def test_no_claim_has_a_client_make_or_give_more_than_it_could() -> None:
    honest, lie = np.array([[30, 1, 1], [10, 40, 1]]), np.array([[1 << 53, 1 << 53, 1]])
    counts = np.vstack([honest, np.repeat(lie, 1500, 0)])  # together beyond what 64 bits count
    asked = resize_counts(honest[0], ratios(counts.sum(0, dtype=np.float64), 1.0, 1.0))
    assert asked.sum() <= 11 * honest[0].sum() and asked[2] > 1
    given = quotas(counts, 0.3)
    assert (given >= 0).all() and (given <= counts).all()


def test_clients_hold_what_the_ratios_ask_for(tmp_path: Path) -> None:
    world = run(astraea(rounds=1, theta_add=0.0, theta_drop=0.0), script=EVERYONE, folder=tmp_path)
    y, held = data().train.y, parts(data())
    counts = np.stack([np.bincount(y[i], minlength=4) for i in held if len(i)])
    expected = sum(int(resize_counts(row, ratios(counts.sum(0), 0, 0)).sum()) for row in counts)
    assert world.history[-1]["samples_used"] == expected
    assert continues(lambda: astraea(theta_add=0.0, theta_drop=0.0), tmp_path / "again", **WORLD)
