"""Named streams: the same draws wherever they are drawn, unrelated otherwise, nothing global."""

import random

import numpy as np
import torch

from fedaudit.fl.runtime.streams import Streams, seed_networks, watching_draws


def test_the_key_is_half_of_a_sha256_word() -> None:
    # printf '7/batches/0/3' | sha256sum; first 8 bytes, little endian, shifted right by one
    assert Streams(7).key("batches", 0, 3) == 6842148710966022819


def test_a_stream_is_the_same_wherever_it_is_asked_for() -> None:
    a, b = Streams(7), Streams(7)
    b.numpy("other").random(100)  # other streams do not move this one
    assert a.numpy("batches", 2).random() == b.numpy("batches", 2).random()
    assert torch.equal(
        torch.rand(5, generator=a.torch("noise", 1, "client/3")),
        torch.rand(5, generator=b.torch("noise", 1, "client/3")),
    )


def test_seed_name_and_every_key_make_another_stream() -> None:
    keys = {
        Streams(7).key("batches", 1, 2),
        Streams(8).key("batches", 1, 2),
        Streams(7).key("noise", 1, 2),
        Streams(7).key("batches", 2, 1),
        Streams(7).key("batches", 12),
        Streams(7).key("batches"),
    }
    assert len(keys) == 6


def test_neighbouring_keys_give_unrelated_numbers() -> None:
    streams = Streams(0)
    first = np.array([streams.numpy("x", i).random() for i in range(400)])
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 0.2  # four standard errors
    assert abs(first.mean() - 0.5) < 0.06


def test_keys_fit_every_generator() -> None:
    assert all(0 <= Streams(s).key("x", i) < 2**63 for s in (0, -1, 2**70) for i in range(50))


def test_no_global_generator_is_touched() -> None:
    before = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    Streams(1).numpy("x").random(3)
    torch.rand(3, generator=Streams(1).torch("x"))
    assert random.getstate() == before[0]
    assert np.array_equal(np.random.get_state()[1], before[1])
    assert torch.equal(torch.get_rng_state(), before[2])


def test_networks_get_the_weights_of_their_seed_and_the_global_generator_stays_where_it_was() -> None:
    def draw(seed: int) -> torch.Tensor:
        with seed_networks(seed):
            return torch.nn.Linear(3, 2).weight

    before = torch.get_rng_state()
    assert torch.equal(draw(5), draw(5)) and not torch.equal(draw(5), draw(6))
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng(devices=[]):  # what torch itself draws from that seed
        torch.manual_seed(5)
        assert torch.equal(torch.nn.Linear(3, 2).weight, draw(5))


def test_watched_streams_draw_what_others_do_and_end_alike_where_as_much_was_drawn() -> None:
    def draw(count: int, *salt: str) -> tuple[torch.Tensor, tuple[tuple[str, str], ...]]:
        with watching_draws(*salt) as draws:
            drawn = torch.rand(count, generator=Streams(1).torch("x", 2))
            Streams(1).numpy("y").random(count)
        return drawn, draws.read_ends()

    three, ends = draw(3)
    assert torch.equal(three, torch.rand(3, generator=Streams(1).torch("x", 2)))
    assert ends == draw(3)[1] and [name for name, _ in ends] == ["x/2", "y"]
    assert not {end for _, end in ends} & {end for _, end in draw(4)[1]}
    assert not torch.equal(three, draw(3, "otherwise")[0])
