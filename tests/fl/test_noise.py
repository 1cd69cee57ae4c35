"""Noise of what ships: of the law in its line, on a public grid, from the cipher, and known to be."""

import dataclasses
import json
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from fedaudit.audit.accounting.lint import RunRecord, check
from fedaudit.audit.settings import catalog
from fedaudit.fl.families.visit_noise import NoiseConfig, line_of
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Mechanism, Release, from_fields
from fedaudit.fl.protections.dp_gaussian import DPGaussian
from fedaudit.fl.recording.noise import NoiseSource, add_noise, grid_spacing
from fedaudit.fl.runtime.cipher import CIPHER, NoiseGenerator
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Averaging, Message, Protection, Sending
from fedaudit.fl.wire.wire import Wire
from tests.fl.protections.sends import PROTOTYPES

DRAWS = 200_000
LAWS: dict[Mechanism, Any] = {"gaussian": stats.norm, "laplace": stats.laplace}
MODEL: Message = {Kind.LOCAL_MODEL: {"w": torch.linspace(-3, 3, 40).reshape(8, 5), "b": torch.ones(5)}}
ZEROS = {"w": torch.zeros(8, 5), "b": torch.zeros(5)}
GIVEN: dict[str, dict[str, Any]] = {"laplace": {"kinds": ["local_prototypes"]}}


def line(mechanism: Mechanism = "gaussian", std: float = 0.7, **changes: Any) -> Release:
    who: dict[str, Any] = {"round": 0, "kind": Kind.LOCAL_MODEL, "sender": "client/0", "observers": ("server",)}
    return Release(**(who | {"mechanism": mechanism, "noise_std": std, "sensitivity": 1.0} | changes))


def source(seed: int = 1) -> NoiseSource:
    return NoiseSource(Streams(seed).noise("test"))


@pytest.mark.parametrize("std", [1e-4, 0.7, 300.0])
@pytest.mark.parametrize("mechanism", LAWS)
def test_noise_has_the_law_of_its_line(mechanism: Mechanism, std: float) -> None:
    clean = {"a": torch.full((DRAWS // 2,), 3.0), "b": torch.zeros(DRAWS // 2)}
    noised = source().release(line(mechanism, std), clean)
    noise = torch.cat([(noised[k] - clean[k]).double() for k in clean]).numpy() / std
    blur = 4e-7 / std  # of single precision around 3
    assert stats.kstest(noise, LAWS[mechanism].cdf).statistic < 1.95 / math.sqrt(DRAWS) + blur


def test_a_share_of_noise_that_clients_make_together_is_its_part_of_the_variance() -> None:
    noised = source().release(line(std=2.0, aggregated=16), {"w": torch.zeros(DRAWS)})
    assert float(noised["w"].std()) == pytest.approx(0.5, rel=0.01)
    mean = source().release(line(std=2.0, aggregated=16, sender="client/*"), {"w": torch.zeros(DRAWS)})
    assert float(mean["w"].std()) == pytest.approx(2.0, rel=0.01)  # one party makes all of it


def test_whole_numbers_stay_whole_and_fractions_are_refused() -> None:
    counts = torch.tensor([3, 40, 0])
    noised = add_noise(counts, "discrete_laplace", 5.0, Streams(1).noise("counts"))
    assert noised.dtype == torch.int64 and not torch.equal(noised, counts)
    with pytest.raises(ValueError, match="fractions"):
        add_noise(torch.tensor([0.5]), "discrete_laplace", 1.0, NoiseGenerator.from_system())
    with pytest.raises(ValueError, match="adds no noise"):
        add_noise(torch.zeros(2), "randomized_response", 1.0, NoiseGenerator.from_system())


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (40_000,), (5, 70_001)])
def test_every_shape_stays_and_no_block_repeats(shape: tuple[int, ...]) -> None:
    noised = add_noise(torch.zeros(shape, dtype=torch.float64), "gaussian", 1.0, source().generator)
    assert noised.shape == shape and (noised.numel() < 2 or len(noised.unique()) > 0.9 * noised.numel())


def test_no_noise_leaves_the_very_same_numbers() -> None:
    clean = torch.rand(9)
    assert add_noise(clean, "gaussian", 0.0, NoiseGenerator.from_system()) is clean


@pytest.mark.parametrize("scale", [1e-300, 1e-3, 0.7, 1.0, 1e5, 1e300])
def test_the_grid_is_a_power_of_two_near_a_millionth_of_the_scale(scale: float) -> None:
    spacing = grid_spacing(scale)
    assert math.frexp(spacing)[0] == 0.5 and (scale < 1e-290 or 2**20 <= scale / spacing < 2**21)
    noised = add_noise(torch.zeros(100, dtype=torch.float64), "gaussian", scale, Streams(1).noise("grid"))
    assert torch.isfinite(noised).all() and bool((noised != 0).any())


def share_on_grid(noised: torch.Tensor) -> float:
    steps = noised.double() / grid_spacing(1.0)
    return float((steps == steps.round()).double().mean())


def test_low_order_bits_do_not_tell_what_was_noised() -> None:
    """Mironov's attack: around 0 single precision is finer than around 1, so a naive sum tells its value."""
    generator, values = torch.Generator().manual_seed(1), (0.0, 1 / 3, 1000.0)
    naive = [share_on_grid(torch.full((DRAWS,), v) + torch.randn(DRAWS, generator=generator)) for v in values]
    assert naive[0] < 0.5 < 0.9 < naive[2]
    ours = [
        share_on_grid(add_noise(torch.full((DRAWS,), v), "gaussian", 1.0, source().generator)) for v in values
    ]
    assert ours == [1.0, 1.0, 1.0]
    near = [
        add_noise(torch.full((DRAWS,), v), "gaussian", 1.0, source(s).generator) for s, v in enumerate(values[:2])
    ]
    odd = [float((v.double() / grid_spacing(1.0) % 2).mean()) for v in near]  # the last bit is a fair coin
    assert all(abs(share - 0.5) < 5 * 0.5 / math.sqrt(DRAWS) for share in odd)


# On the wire ---------------------------------------------------------------------------------


class Card:
    title = "a method"
    uplink: tuple[Kind, ...] = (*PROTOTYPES, Kind.LOCAL_MODEL)
    downlink = relay = release = (Kind.GLOBAL_MODEL,)


class SplitCard(Card):
    uplink = (Kind.SMASHED,)


BATCH = {Kind.SMASHED: {"activations": torch.ones(4, 3), "labels": torch.zeros(4, dtype=torch.int64)}}


@dataclass
class Books:
    lines: list[Release] = field(default_factory=list)

    def add(self, line: str) -> None:
        self.lines.append(from_fields(json.loads(line)))

    @property
    def noised(self) -> list[Release]:
        return [r for r in self.lines if r.mechanism != "none"]


def ledger(*protections: Protection, split: bool = False) -> list[Release]:
    """Noised lines of two clients' messages in two rounds."""
    books = Books()
    message = BATCH if split else {**PROTOTYPES, **MODEL}
    wire = Wire(SplitCard() if split else Card(), Streams(3), protections, None, books)  # type: ignore[arg-type]
    for t in (0, 1):
        for k in (0, 1):
            wire.uplink(t, message, k, {Kind.GLOBAL_MODEL: ZEROS})
        if wire.chain.central is not None:
            wire.average(t, ZEROS, MODEL[Kind.LOCAL_MODEL], 2, 2)
        wire.end_round(t)
    return books.noised


def flaws(*lines: Release) -> set[str]:
    return {f.id.removeprefix("lint-") for f in check(RunRecord(releases=lines, witnessed=True))} & {
        "L16",
        "L17",
        "L18",
    }


@pytest.mark.parametrize("name", catalog.names("protections"))
def test_all_noise_that_ships_is_of_the_cipher_and_rounded(name: str) -> None:
    protection = configure(catalog.load("protections", name), GIVEN.get(name, {}), "protections[0]")
    lines = ledger(protection, split=name == "noised_activations")
    assert {r.generator for r in lines} <= {CIPHER} and not flaws(*lines)
    for r in lines:
        whole = r.mechanism == "discrete_laplace"
        assert r.resolution == (0.0 if whole else grid_spacing(r.noise_std))


def test_a_relay_s_noise_is_of_the_cipher() -> None:
    visit = line_of(Kind.GAN_D, 0, 0, NoiseConfig(scale=0.1), ("server",))
    assert visit is not None and visit.generator == CIPHER and not flaws(visit)


class Own(DPGaussian):
    """Draws its noise itself, from torch's generator."""

    def _add_noise(self, payload: Any, base: Any, noise: NoiseSource, line: Release) -> Any:
        return {k: v + torch.randn(v.shape) * line.noise_std for k, v in payload.items()}


class Boasts(Own):
    """And says that it is the cipher's."""

    def _releases(self, kind: Kind, sending: Sending) -> list[Release]:
        said = super()._releases(kind, sending)
        return [dataclasses.replace(r, generator=CIPHER, resolution=1e-6) for r in said]


class OfItsOwnCipher(DPGaussian):
    """Uses the cipher with a key of its own, which nobody knows to be secret."""

    def apply(self, sending: Sending) -> None:
        sending.noise = NoiseSource(NoiseGenerator(bytes(32)))
        super().apply(sending)


class Doubles(DPGaussian):
    """States more noise than was drawn for it."""

    def apply(self, sending: Sending) -> None:
        super().apply(sending)
        sending.releases[:] = [dataclasses.replace(r, noise_std=2 * r.noise_std) for r in sending.releases]


@pytest.mark.parametrize("cls", [Own, Boasts, OfItsOwnCipher, Doubles])
def test_a_generator_of_ones_own_is_a_finding_whatever_it_says(cls: type[DPGaussian]) -> None:
    lines = ledger(cls(cls.Config()))
    assert len(lines) == 4 and {r.generator for r in lines} == {""}
    assert flaws(*lines) == {"L16", "L17"}


class OnTheServer(catalog.load("protections", "central_dp")):  # type: ignore[misc]
    """The server's noise is torch's."""

    def average(self, averaging: Averaging) -> None:
        averaging.noise = NoiseSource()
        super().average(averaging)


def test_so_is_the_server_s() -> None:
    assert flaws(*ledger(OnTheServer(OnTheServer.Config()))) == {"L16", "L17"}


class Uses(Protection):
    """A plugin that has its noise drawn for it."""

    title, source = "a plugin", "a test"

    def apply(self, sending: Sending) -> None:
        said = line(sender=str(sending.sender), round=sending.round)
        for kind in sending.message.keys() & {Kind.LOCAL_MODEL}:
            sending.message[kind] = sending.noise.release(said, sending.message[kind])
            sending.releases.append(said)
            sending.protected.add(kind)

    def describe(self) -> str:
        return "noise"


def test_a_plugin_that_has_its_noise_drawn_is_no_finding() -> None:
    lines = ledger(Uses())
    assert len(lines) == 4 and not flaws(*lines)


def test_messages_protections_and_rounds_have_noise_of_their_own() -> None:
    wire = Wire(Card(), Streams(3), [DPGaussian(DPGaussian.Config(noise_multiplier=5.0))])
    zeros: Message = {Kind.LOCAL_MODEL: {"w": torch.zeros(2000)}}
    sent = [wire.uplink(t, zeros, k, {}) for t in (0, 1) for k in (0, 1)]
    rows = np.stack([m[Kind.LOCAL_MODEL]["w"].numpy() for m in sent if m is not None])
    assert np.abs(np.corrcoef(rows) - np.eye(4)).max() < 5 / math.sqrt(2000)
    again = wire.uplink(1, zeros, 1, {})  # a second message in the round
    assert again is not None and not np.array_equal(again[Kind.LOCAL_MODEL]["w"].numpy(), rows[3])
