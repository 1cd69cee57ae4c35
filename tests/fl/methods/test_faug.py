"""FAug is FedAvg without seeds, sends the images it says, and fills classes up to the largest."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.fl.artifact import Artifact, Channel
from fedaudit.fl.execution.site import build_site
from fedaudit.fl.families import gan
from fedaudit.fl.federation import Holdings
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.faug import FAug, enlarge_classes, scarce
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from tests.fl.methods.test_gandalf import GAN
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues
from tests.fl.worlds import EVERYONE, TinyNet, World, data, parts, run, same

LIGHT: dict[str, Any] = {"gan": GAN, "enlarged": 8, "seeds": 3}
# Labels are sorted by class first: one client of one class, others of several
COUNTS = {k: np.bincount(data().train.y[i], minlength=4) for k, i in enumerate(parts(data()))}


def faug(**settings: Any) -> FAug:
    return FAug(FAug.Config(**(SETTINGS | LIGHT | settings)))


def of(world: World, kind: Kind, channel: Channel) -> list[Artifact]:
    return [a for a in world.artifacts if a.kind == kind and a.channel == channel]


@pytest.mark.sample(1)
@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_no_seeds_is_fedavg_to_the_last_bit(weighting: Any) -> None:
    fedavg = run(FedAvg(FedAvg.Config(**SETTINGS, weighting=weighting)), **WORLD)
    assert same(run(faug(seeds=0, weighting=weighting), **WORLD), fedavg)
    assert not same(run(faug(weighting=weighting), **WORLD), fedavg)


# Seeds ----------------------------------------------------------------------------------------


def test_a_class_is_scarce_below_a_share_of_the_largest() -> None:
    assert scarce([10, 4, 5, 0, 1], 0.5) == [1, 4]
    assert scarce([10, 4, 5, 0, 1], 1.0) == [1, 2, 4] and scarce([10, 4, 5, 0, 1], 0.0) == []


@pytest.mark.sample(1)
@pytest.mark.parametrize("decoys", [0, 1])
def test_clients_send_own_images_of_scarce_classes_and_of_decoys(decoys: int, tmp_path: Path) -> None:
    world, d = run(faug(decoys=decoys), script=EVERYONE, folder=tmp_path), data()
    sent = {a.sender.index: a for a in of(world, Kind.SEED_SAMPLES, Channel.UPLINK)}
    assert sent and {a.seen_by for a in sent.values()} == {("server",)}
    for k in (0, 1, 2, 4):
        rare = {c for c in range(4) if 0 < COUNTS[k][c] < 0.5 * COUNTS[k].max()}
        if not rare and not decoys:
            assert k not in sent
            continue
        images, labels = sent[k].payload["images"], sent[k].payload["labels"]
        others = set(labels.tolist()) - rare
        assert rare <= set(labels.tolist()) and len(others) == decoys
        assert not others & {c for c in range(4) if COUNTS[k][c] == 0}
        assert all((labels == c).sum() == min(3, COUNTS[k][c]) for c in rare | others)
        gaps = np.abs(images[:, None] - d.train.x[parts(d)[k]][None]).max((2, 3, 4))
        which = gaps.argmin(1)
        assert gaps.min(1).max() < 1e-5 and len(set(which.tolist())) == len(which)
        assert np.array_equal(d.train.y[parts(d)[k]][which], labels)


def test_nothing_scarce_and_no_decoys_is_a_federation_without_a_generator(tmp_path: Path) -> None:
    world = run(faug(scarce=0.0, decoys=0), script=EVERYONE, folder=tmp_path)
    assert not of(world, Kind.SEED_SAMPLES, Channel.UPLINK)
    assert not of(world, Kind.GAN_G, Channel.DOWNLINK)
    assert world.history[0]["images_added"] == 0


def test_the_server_adds_copies_up_to_a_number_and_keeps_what_it_got() -> None:
    x = torch.rand(5, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    y = torch.tensor([2, 0, 2, 2, 2])
    more, labels = enlarge_classes(x, y, 3, torch.Generator().manual_seed(2))
    assert torch.equal(more[:5], x) and labels.tolist() == [2, 0, 2, 2, 2, 0, 0]
    assert not torch.equal(more[5], x[1]) and not torch.equal(more[5], more[6])
    assert 0 < (more[5] - x[1]).abs().mean() < (more[5] - x[0]).abs().mean()


# Filling up -----------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_clients_fill_the_classes_that_can_be_made_up_to_their_largest(share: float, tmp_path: Path) -> None:
    world = run(faug(share=share, rounds=1), script=EVERYONE, folder=tmp_path)
    [told] = of(world, Kind.ALLOCATION, Channel.DOWNLINK)
    seeds = of(world, Kind.SEED_SAMPLES, Channel.UPLINK)
    known = {c for a in seeds for c in a.payload["labels"].tolist()}
    assert np.flatnonzero(told.payload["present"]).tolist() == sorted(known)
    [_, *rest] = [a for a in of(world, Kind.NUM_EXAMPLES, Channel.UPLINK) if a.sender.index == 4]
    own = COUNTS[4]
    made = sum(int(share * (own.max() - own[c])) for c in known)
    assert [int(a.payload["count"]) for a in rest] == [own.sum() + made]
    everybody = sum(
        int(n.sum()) + sum(int(share * (n.max() - n[c])) for c in known) for n in COUNTS.values() if n.sum()
    )
    assert world.history[-1]["samples_used"] == everybody
    assert not of(world, Kind.RELAY_MODEL, Channel.RELAY)


@pytest.mark.nightly
def test_the_generator_makes_the_class_it_is_asked_for(tmp_path: Path) -> None:
    """The class of these images is their bright quadrant."""
    settings = gan.GanConfig(
        cycles=100, local=1, width=8, latent=4, batch_size=32, lr_generator=2e-3, lr_critic=2e-3
    )
    method = faug(gan=settings, seeds=10, decoys=3, scarce=1.0, enlarged=40, rounds=1)
    world = run(method, script=EVERYONE, folder=tmp_path)
    [sent] = of(world, Kind.GAN_G, Channel.DOWNLINK)
    weights = {k: torch.from_numpy(np.array(v)) for k, v in sent.payload.items()}
    y = torch.arange(4).repeat_interleave(25)
    rng = torch.Generator().manual_seed(0)
    x = gan.sample(weights, (1, 6, 6), len(y), settings, rng, y, 4)
    assert float((_bright(x) == y).float().mean()) > 0.8
    site = build_site(method, Holdings(data(), parts(data()), Streams(5)), TinyNet, "cpu")
    present = torch.tensor([0, 1, 1, 1])
    told = {Kind.GAN_G: weights, Kind.ALLOCATION: {"present": present}}
    made = site.work(("fill", (4, {}, told))).memory
    assert made is not None and made["x"].dtype == torch.uint8
    assert np.bincount(made["y"], minlength=4).tolist() == [0, 3, 0, 12]  # to 0, 12, 15, 3
    assert float((_bright(made["x"].float()) == made["y"]).float().mean()) > 0.8


def _bright(x: torch.Tensor) -> torch.Tensor:
    """The brightest quadrant of each image."""
    return torch.nn.functional.avg_pool2d(x, 3).flatten(1).argmax(1)


# Running and refusing -------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_run_that_was_stopped_continues_with_the_images_made(tmp_path: Path) -> None:
    assert continues(faug, tmp_path, **WORLD)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"seeds": -1}, "seeds must be >= 0, got -1"), ({"scarce": 2.0}, "scarce must be <= 1, got 2")],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        faug(**settings)
