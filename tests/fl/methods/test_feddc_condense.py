"""FedDC: FedAvg without fine-tuning, distances that are distances, and images made once."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from benchmarks.speed.condensation import loop, ours
from fedaudit.fl.families.condensation import ClassBatch, Condensing, Matcher, clip, condense
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.feddc_condense import FedDCCondense, condensing
from fedaudit.fl.runtime.errors import UserError
from tests.fl.worlds import EVERYONE, TinyNet, close, data, parts, run, same

SAME = {"rounds": 3, "local_epochs": 2, "batch_size": 8, "lr": 0.05, "momentum": 0.4}
LIGHT = {"iterations": 4, "real_batch": 6}


def feddc(**settings: object) -> FedDCCondense:
    return FedDCCondense(FedDCCondense.Config(**{**SAME, **LIGHT, **settings}))  # type: ignore[arg-type]


def cells(sizes: tuple[int, ...] = (1, 5, 40, 9)) -> list[ClassBatch]:
    rng = torch.Generator().manual_seed(1)
    x = [torch.randn(n, 1, 6, 6, generator=rng) + i for i, n in enumerate(sizes)]
    return [ClassBatch(each, i) for i, each in enumerate(x)]


def generator(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# T-DC-1 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("off", [{"ft_epochs": 0}, {"ft_lr": 0.0}])
def test_without_fine_tuning_it_is_fedavg_to_the_last_bit(off: dict[str, float]) -> None:
    avg = run(FedAvg(FedAvg.Config(**SAME, weight_decay=1e-3)), reply_loss=0.2)
    assert same(run(feddc(**off), reply_loss=0.2), avg)


def test_with_fine_tuning_it_is_not_fedavg() -> None:
    avg = run(FedAvg(FedAvg.Config(**SAME, weight_decay=1e-3)), reply_loss=0.2)
    assert not close(run(feddc(), reply_loss=0.2), avg, 1e-4)


def test_full_batch_fine_tuning_is_one_step_an_epoch() -> None:
    settings = {"rounds": 1, "ft_epochs": 1, "ft_lr": 0.3, "ft_weight_decay": 0.0}
    full = run(feddc(**settings, ft_full_batch=True))
    assert same(full, run(feddc(**settings, ft_batch=1000)))
    assert not close(full, run(feddc(**settings, ft_batch=2)), 1e-5)


def test_reweighting_lets_every_class_weigh_the_same() -> None:
    settings = {"rounds": 1, "ft_epochs": 3, "ft_lr": 0.3}
    assert not close(run(feddc(**settings)), run(feddc(**settings, balance="reweight")), 1e-5)


# T-DC-2 and the batched gradients --------------------------------------------------------------


@pytest.mark.parametrize("match", ["dc_rows", "layer"])
@pytest.mark.parametrize("sizes", [(1, 5, 40, 9), (1, 1, 1, 1)])
@pytest.mark.parametrize("per_class", [1, 2])
def test_distances_are_those_of_a_plain_loop_over_classes(
    match: str, sizes: tuple[int, ...], per_class: int
) -> None:
    matcher = Matcher(TinyNet(), Condensing(match=match, real_batch=100))  # type: ignore[arg-type]
    images = torch.randn(4, per_class, 1, 6, 6, generator=generator(8))
    found = matcher.distances(cells(sizes), images, generator())
    net, expected = matcher.net, []  # the network that was drawn
    for cell, made in zip(cells(sizes), images, strict=True):
        both = []
        for x in (made, cell.real):
            y = torch.full((len(x),), cell.label)
            both.append(torch.autograd.grad(cross_entropy(net(x), y), list(net.parameters())))
        total = torch.tensor(0.0)
        for (ws, bs), (wd, bd) in zip(_layers(both[0]), _layers(both[1]), strict=True):
            if match == "layer":
                a, b = torch.cat([ws.flatten(), bs])[None], torch.cat([wd.flatten(), bd])[None]
            else:
                a, b = ws.flatten(1), wd.flatten(1)
            cosine = (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1) + 1e-6)
            total = total + (1 - cosine).sum()
        expected.append(total)
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-4, atol=1e-4)


def _layers(gradients: tuple[torch.Tensor, ...]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(zip(gradients[::2], gradients[1::2], strict=True))


@pytest.mark.parametrize(("match", "cosines"), [("dc_rows", 4 + 8 + 4), ("layer", 3)])
def test_a_set_has_no_distance_to_itself_and_none_exceeds_two_a_cosine(match: str, cosines: int) -> None:
    matcher = Matcher(TinyNet(), Condensing(match=match))  # type: ignore[arg-type]
    same_set = [ClassBatch(c.real[:3], c.label) for c in cells((3, 3, 3, 3))]
    images = torch.stack([c.real for c in same_set])
    itself = matcher.distances(same_set, images, generator(), epsilon=0.0)
    assert itself.abs().max() < 1e-5 * cosines
    other = matcher.distances(same_set, -3 * images.flip(0), generator())
    assert (other >= 0).all() and (other <= 2 * cosines).all() and (other > 0.1).all()


def test_a_network_that_cannot_be_matched_is_refused() -> None:
    class Strange(TinyNet):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(1))

    with pytest.raises(UserError, match="scale"):
        Matcher(Strange(), Condensing())


def test_drawing_networks_moves_no_global_generator() -> None:
    net, before = TinyNet(), torch.get_rng_state()
    condense(net, cells(), Condensing(iterations=2), generator())
    assert torch.equal(torch.get_rng_state(), before)


# T-DC-3 ---------------------------------------------------------------------------------------


def test_clipping_bounds_every_class_by_itself() -> None:
    gradient = torch.randn(5, 2, 1, 6, 6, generator=generator()) * torch.logspace(-4, 2, 5).view(5, 1, 1, 1, 1)
    norms = clip(gradient, 0.25).flatten(1).norm(dim=1)
    assert (norms <= 0.25 + 1e-6).all()
    assert torch.equal(clip(gradient, 0.25)[0], gradient[0])  # below the bound nothing changes
    assert torch.equal(clip(gradient, 0.0), gradient)


def test_an_image_moves_by_no_more_than_rate_times_bound_in_an_iteration() -> None:
    def made(iterations: int, bound: float) -> torch.Tensor:
        settings = Condensing(iterations=iterations, image_clip=bound)
        return condense(net, cells(), settings, generator())

    net = TinyNet()
    steps = [(made(1, b) - made(0, b)).flatten(1).norm(dim=1) for b in (0.01, 0.0)]
    assert (steps[0] <= 3.0 * 0.01 + 1e-5).all() and (steps[1] > 3.0 * 0.01).any()


def test_the_bench_compares_two_ways_to_the_same_gradient() -> None:
    matcher = Matcher(TinyNet(), Condensing(real_batch=100))
    images = torch.randn(4, 1, 1, 6, 6, generator=generator(8))
    a, b = (way(matcher, cells(), images, generator()) for way in (ours, loop))
    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


# T-DC-4, 6, 7: what is sent ---------------------------------------------------------------------


@pytest.mark.parametrize("per_class", [1, 2])
def test_a_client_sends_its_own_classes_and_as_many_bytes_as_that_takes(tmp_path: Path, per_class: int) -> None:
    result = run(feddc(images_per_class=per_class), folder=tmp_path)
    d, index = data(), parts(data())
    heard = [a for a in result.artifacts if a.kind is Kind.CONDENSED_LABELS]
    assert heard
    for a in heard:
        labels, own = a.payload["labels"], set(d.train.y[index[a.sender.index or 0]].tolist())
        assert set(labels.tolist()) == own and len(labels) == per_class * len(own)
    weights = sum(v.numel() * 4 for v in result.model.values())
    for a in (a for a in result.artifacts if a.kind is Kind.CONDENSED_IMAGES):
        owned = len(set(d.train.y[index[a.sender.index or 0]].tolist()))
        model = next(
            m
            for m in result.artifacts
            if m.kind is Kind.LOCAL_MODEL and (m.round, m.sender) == (a.round, a.sender)
        )
        assert model.size_bytes + a.size_bytes == weights + per_class * owned * 36 * 4


@pytest.mark.parametrize(("recondense", "equal"), [("cache", True), ("every_round", False)])
def test_cached_images_are_the_same_bytes_in_every_round(tmp_path: Path, recondense: str, equal: bool) -> None:
    result = run(feddc(recondense=recondense), folder=tmp_path, script=EVERYONE, reply_loss=0.3)
    sent: dict[int, list[bytes]] = {}
    for a in result.artifacts:
        if a.kind is Kind.CONDENSED_IMAGES:
            sent.setdefault(a.sender.index or 0, []).append(a.payload["images"].tobytes())
    pairs = [x == y for rounds in sent.values() for x, y in pairwise(rounds)]
    assert len(pairs) >= 2 and all(p == equal for p in pairs)


# T-DC-5 ---------------------------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize("variant", ["feddc", "feddc_plus"])
def test_condensation_lowers_the_distance_under_networks_it_has_not_seen(variant: str) -> None:
    settings = condensing(FedDCCondense.Config(variant=variant, iterations=150))  # type: ignore[arg-type]
    net, group = TinyNet(), cells((1, 5, 12, 9))
    matcher = Matcher(net, settings)
    start = torch.randn(4, 1, 1, 6, 6, generator=generator(5))
    end = condense(net, group, settings, generator())

    def mean(images: torch.Tensor) -> torch.Tensor:
        rng = generator(99)
        return torch.stack([matcher.distances(group, images, rng).detach() for _ in range(15)]).mean(0)

    assert (mean(end) < 0.9 * mean(start)).all()


@pytest.mark.nightly
def test_one_image_of_a_class_is_what_its_condensed_image_shows() -> None:
    """The planted leak: with n = 1 the optimum of gradient matching is the image itself."""
    d = data()
    x = (torch.from_numpy(d.train.x[:4]) - 0.4) / 0.25
    group = [ClassBatch(x[i : i + 1], int(d.train.y[i])) for i in range(4)]
    made = condense(TinyNet(), group, Condensing(iterations=300), generator())[:, 0]
    own = torch.corrcoef(torch.cat([made.flatten(1), x.flatten(1)]))[:4, 4:]
    assert (own.argmax(1) == torch.arange(4)).all() and own.diagonal().min() > 0.6


# Refusals -------------------------------------------------------------------------------------


def test_real_initialisation_needs_the_unsafe_flag_and_then_sends_training_images() -> None:
    with pytest.raises(UserError, match="training images"):
        feddc(init="real")
    assert feddc(init="real", unsafe_allow_real_init=True)
    group = cells()
    sent = condense(TinyNet(), group, Condensing(iterations=0, init="real"), generator())
    assert all((x == c.real).flatten(1).all(1).any() for x, c in zip(sent, group, strict=True))


@pytest.mark.parametrize("wrong", [{"iterations": -1}, {"images_per_class": 0}, {"ft_lr": -1.0}])
def test_settings_without_a_meaning_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong))):
        feddc(**wrong)
