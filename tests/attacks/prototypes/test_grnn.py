"""GRNN needs no data: it finds the planted leak, matches features, and changes no global stream."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from fedaudit.attacks.evaluation.sources import prototypes
from fedaudit.attacks.prototypes.grnn import (
    GRNN,
    Floats,
    Generators,
    build_generator,
    draw_generators,
    total_variation,
)
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from tests.attacks.world import Architecture, World


@cache
def world() -> World:
    return World(sizes=(1, 20), clients=2, groups=12)


def test_the_generator_has_the_blocks_of_the_authors() -> None:
    net = build_generator((3, 32, 32), torch.Generator().manual_seed(0))
    # 128 -> 128 at 4 x 4, then 64, 32 and 3 channels; each twice as many before its gate
    shapes = [tuple(p.shape) for n, p in net.named_parameters() if p.dim() == 4]
    assert shapes == [(128, 256, 4, 4), (128, 128, 3, 3), (64, 64, 3, 3), (6, 32, 3, 3)]
    assert net(torch.zeros(1, 128, 1, 1)).shape == (1, 3, 32, 32)


@pytest.mark.parametrize(("side", "made"), [(8, 8), (25, 32), (28, 32), (33, 64)])
def test_the_image_is_cropped_from_the_next_power_of_two(side: int, made: int) -> None:
    net = build_generator((1, side, side), torch.Generator().manual_seed(0))
    assert net(torch.zeros(1, 128, 1, 1)).shape[-1] == made


def test_total_variation_by_hand() -> None:
    x = torch.tensor([[[[0.0, 1.0], [2.0, 4.0]]]])
    # down 2 and 3, across 1 and 2: 2 x ((4 + 9) / 2 + (1 + 4) / 2)
    assert total_variation(x).tolist() == [18]


def test_a_few_steps_bring_the_features_nearer_without_any_data() -> None:
    w = world()
    blind = replace(w.knowledge, auxiliary=None)
    (source, *_) = prototypes(w.artifacts)
    assert GRNN().not_applicable(w.artifacts, blind) == ""
    gaps = []
    for steps in (1, 60):
        attack = GRNN(GRNN.Config(max_clients=1, per_size=2, steps=steps, lr=1e-3, momentum=0.5))
        claim = attack.run(w.artifacts, blind, np.random.default_rng(0))
        (chosen,) = attack.choose([source])
        found = Architecture()(source.weights.values).features(claim["images"])
        gaps.append(((found - chosen.features) ** 2).mean())
    assert gaps[1] < gaps[0] / 3


def test_stacked_generators_find_what_each_finds_alone() -> None:
    (source, *_) = prototypes(world().artifacts)
    model, features = Architecture()(source.weights.values), torch.from_numpy(source.features)

    def draw(rows: list[int]) -> Generators:
        by = torch.Generator().manual_seed(0)
        return draw_generators(model, features[rows], torch.ones(()), world().knowledge.shape, by)

    def find(*drawn: Generators) -> Floats:
        return np.concatenate(GRNN(GRNN.Config(steps=3)).search(drawn, "cpu"))

    three, again = find(draw([0, 1, 2])), find(draw([0, 3, 4]))
    np.testing.assert_allclose(three[0], again[0], atol=1e-6)
    assert not np.allclose(three[1], again[1])
    parts = draw([0, 1, 2]).split()
    assert [len(part.wanted) for part in parts] == [1, 2]
    np.testing.assert_allclose(find(*parts), three, atol=1e-6)


def test_each_number_of_samples_has_its_share() -> None:
    found = GRNN(GRNN.Config(per_size=3)).choose(prototypes(world().artifacts))
    kept = [(p.origin, p.samples) for s in found for p in s.prototypes]
    assert kept.count(("replayed", 1)) == kept.count(("replayed", 20)) == 3
    assert len({p.sender for s in found for p in s.prototypes}) == 2


def test_it_draws_from_its_own_stream() -> None:
    attack = GRNN(GRNN.Config(max_clients=1, per_size=1, steps=2))
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    a, b, c = (
        attack.run(world().artifacts, world().knowledge, np.random.default_rng(s))["images"] for s in (0, 0, 1)
    )
    assert np.array_equal(a, b) and not np.array_equal(a, c)
    assert torch.equal(before, torch.random.get_rng_state())


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(UserError, match="steps must be >= 1, got 0"):
        configure(GRNN, {"steps": 0}, "attacks[0]")


@pytest.mark.nightly
def test_the_planted_leak_is_found_and_twenty_samples_are_not() -> None:
    claim = GRNN(GRNN.Config(steps=500, per_size=8)).run(
        world().artifacts, world().knowledge, np.random.default_rng(0)
    )
    found = GRNN().measure(claim, world(), np.random.default_rng(1))
    rank1 = {
        e.condition["n"]: e for e in found if e.measure == "rank1" and e.condition.get("origin") == "replayed"
    }
    assert rank1[1].control == "positive" and rank1[1].interval is not None
    assert rank1[1].interval[0] > 1 / 38
    assert rank1[20].interval is not None and rank1[20].interval[0] <= 1 / 38
