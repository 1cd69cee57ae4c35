"""Noise of the cipher: NIST's vectors, the laws at a million draws, the same numbers wherever they are drawn."""

import math
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray
from scipy import stats

from fedaudit.fl.runtime.cipher import NoiseGenerator, RecordCoins
from fedaudit.fl.runtime.streams import Streams

MILLION = 10**6
# NIST SP 800-38A, F.1.5 and F.5.5: AES-256
KEY = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
PLAIN = bytes.fromhex("6bc1bee22e409f96e93d7e117393172a")
ECB = bytes.fromhex("f3eed1bdb5d2a03c064b5a7e3db181f8")
COUNTER = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")
OUTPUT = bytes.fromhex("0bdf7df1591716335e9a8b15c860c502")  # the cipher's block of that counter

Draw = Callable[[NoiseGenerator, int], torch.Tensor]
LAWS: dict[str, tuple[Draw, stats.rv_continuous]] = {
    "uniform": (NoiseGenerator.draw_uniform, stats.uniform),
    "gaussian": (NoiseGenerator.draw_gaussian, stats.norm),
    "laplace": (NoiseGenerator.draw_laplace, stats.laplace),
}


def test_a_record_s_block_is_that_of_nist() -> None:
    words = np.frombuffer(COUNTER, "<i8")
    block = RecordCoins(KEY).draw_words(words[:1], int(words[1]))
    assert block.tobytes() == OUTPUT
    plain = np.frombuffer(PLAIN, "<i8")
    assert RecordCoins(KEY).draw_words(plain[:1], int(plain[1])).tobytes() == ECB


def test_the_keystream_is_aes_of_a_counter_from_0_on() -> None:
    counters = b"".join(i.to_bytes(16, "big") for i in range(5))
    blocks = Cipher(algorithms.AES256(KEY), modes.ECB()).encryptor().update(counters)
    generator = NoiseGenerator(KEY)
    assert generator.read(7) + generator.read(73) == blocks
    # AES of zeros with a key of zeros: NIST's KAT, AESAVS B.1 and after
    assert NoiseGenerator(bytes(32)).read(16).hex() == "dc95c078a2408989ad48a21492842087"


@pytest.mark.parametrize("law", LAWS)
def test_a_million_draws_have_the_law(law: str) -> None:
    draw, named = LAWS[law]
    x = draw(Streams(1).noise(law), MILLION).numpy()
    assert stats.kstest(x, named.cdf).statistic < 1.95 / math.sqrt(MILLION)  # p = 0.001
    for q in (1e-5, 1e-4, 1e-3):  # tails, each within five standard errors
        beyond = int((x < named.ppf(q)).sum()), int((x > named.isf(q)).sum())
        assert all(abs(n - q * MILLION) < 5 * math.sqrt(q * MILLION) for n in beyond)
    mean, variance, _, excess = (float(m) for m in named.stats(moments="mvsk"))
    assert abs(x.mean() - mean) < 5 * math.sqrt(variance / MILLION)
    assert abs(x.var() / variance - 1) < 5 * math.sqrt((excess + 2) / MILLION)


@pytest.mark.parametrize("scale", [0.3, 4.0, 1000.0])
def test_a_million_whole_draws_have_the_law_of_scipy(scale: float) -> None:
    x = Streams(2).noise("counts").draw_discrete_laplace(MILLION, scale).numpy()
    law = stats.dlaplace(1 / scale)
    edges = np.unique(np.round(law.ppf(np.linspace(0.001, 0.999, 40))))
    gap = np.abs(np.searchsorted(np.sort(x), edges, side="right") / MILLION - law.cdf(edges)).max()
    assert gap < 1.95 / math.sqrt(MILLION)
    assert abs(x.var() / law.var() - 1) < 5 * math.sqrt((law.stats(moments="k") + 2) / MILLION)


def test_neighbours_in_the_stream_are_unrelated() -> None:
    x = Streams(3).noise("a").draw_gaussian(MILLION).numpy()
    for lag in (1, 2, MILLION // 2):  # half is where the second of each pair lies
        for f in (np.asarray, np.abs):
            a, b = f(x[:-lag]), f(x[lag:])
            assert abs(np.corrcoef(a, b)[0, 1]) < 5 / math.sqrt(len(a))
    assert len(np.unique(x)) == MILLION


def test_extreme_words_give_finite_numbers_and_no_uniform_is_0() -> None:
    class Fixed(NoiseGenerator):
        byte = 0

        def read(self, count: int) -> bytes:
            return bytes([self.byte]) * count

    for byte in (0, 255):
        generator = Fixed(KEY)
        generator.byte = byte
        assert 0 < float(generator.draw_uniform(1)) <= 1
        for draw, _ in LAWS.values():
            assert torch.isfinite(draw(generator, 5)).all()
        assert abs(int(generator.draw_discrete_laplace(3, 1e300).abs().max())) <= 2**62


@pytest.mark.parametrize("size", [0, 1, 2, 7, 4097])
def test_every_size_comes_out(size: int) -> None:
    generator = Streams(4).noise("sizes")
    assert [len(draw(generator, size)) for draw, _ in LAWS.values()] == [size] * 3
    assert generator.draw_discrete_laplace(size, 2.0).shape == (size,)


def test_the_numbers_do_not_depend_on_threads() -> None:
    before, size = torch.get_num_threads(), 10**6 + 1
    try:
        torch.set_num_threads(1)
        alone = Streams(5).noise("threads").draw_gaussian(size)
        torch.set_num_threads(3)
        assert torch.equal(alone, Streams(5).noise("threads").draw_gaussian(size))
    finally:
        torch.set_num_threads(before)


def test_seed_name_and_keys_make_another_stream_and_no_ordinary_seed_tells_it() -> None:
    drawn = {
        Streams(seed).noise(*name).read(16)
        for seed, name in [
            (7, ("a", 1)),
            (8, ("a", 1)),
            (7, ("b", 1)),
            (7, ("a", 2)),
            (7, ("a",)),
            (7, ("a", 1, 2)),
        ]
    }
    assert len(drawn) == 6
    assert Streams(7).noise("a", 1).read(16) == Streams(7).noise("a", 1).read(16)
    key = Streams(7)._derive_cipher_key("noise", "a", 1)
    assert len(key) == 32 and Streams(7).key("noise", "a", 1) != int.from_bytes(key[:8], "little") >> 1


def test_the_system_s_keys_differ() -> None:
    assert NoiseGenerator.from_system().read(16) != NoiseGenerator.from_system().read(16)


def test_a_record_s_words_are_its_own() -> None:
    coins = Streams(6).coins("batches", 0, 3)
    records: NDArray[np.int64] = np.array([4, 9, -1, 70_000])
    together = coins.draw_words(records, 2)
    for i, record in enumerate(records):
        assert np.array_equal(coins.draw_words(np.array([record]), 2)[0], together[i])
    assert len(np.unique(np.concatenate([together, coins.draw_words(records, 3)]))) == 16


def test_noise_costs_about_what_an_ordinary_generator_s_does() -> None:
    def seconds(draw: Callable[[], object]) -> float:
        times = []
        for _ in range(7):
            start = time.process_time()
            draw()
            times.append(time.process_time() - start)
        return min(times)

    generator, ordinary = Streams(8).noise("speed"), torch.Generator()
    ratio = seconds(lambda: generator.draw_gaussian(MILLION)) / seconds(
        lambda: torch.randn(MILLION, generator=ordinary)
    )
    assert ratio < 6, f"{ratio:.1f} times"  # 1.9 on an idle core
