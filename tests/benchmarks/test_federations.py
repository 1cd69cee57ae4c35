"""The systems of known leaks: their table holds, their configs are valid, and leaks can be read back."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.null_audits.federations import READY, audited, fits, systems
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.execution.site import build_site
from fedaudit.fl.federation import Holdings
from fedaudit.fl.kinds import Kind

TABLE = {s.name: s for s in systems()}


def trained(name: str, round: int = 0) -> tuple[SimulatedCase, int, Reply]:
    """The reply of a leaking client, as its method makes it from the first model."""
    case = SimulatedCase(TABLE[name].made(1))
    index = case.method.config.leakers[0]
    holdings = Holdings(case.data, case.population.parts, case.streams)
    site = build_site(case.method, holdings, case.network.make, "cpu")
    site.begin(round, {Kind.GLOBAL_MODEL: case.network.initial()})
    client: Client = site.client((index, {}, {}))
    return case, index, case.method.train(case.method.receive(client))


def images(case: SimulatedCase, client: int, count: int) -> np.ndarray:
    """[count, pixels] the first that a client holds."""
    flat: np.ndarray = case.data.train.x[case.population.parts[client][:count]].reshape(count, -1)
    return flat


def test_there_are_ten_clean_systems_six_twins_and_ten_ways_of_leaking_at_least() -> None:
    parts = [s.part for s in TABLE.values()]
    families = {s.name.rpartition("-")[0] for s in TABLE.values() if s.part == "leaking"}
    assert (parts.count("clean"), parts.count("twins")) == (10, 6) and len(families) >= 10
    assert all(s.ready and not s.found for s in TABLE.values() if s.part == "clean")
    assert all(s.found for s in TABLE.values() if s.part != "clean")


@pytest.mark.sample(14)
@pytest.mark.parametrize("name", TABLE)
def test_a_config_is_valid_and_says_how_many_people_there_are(name: str) -> None:
    system = TABLE[name]
    counts = SimulatedCase(system.made(1)).population.counts
    assert counts.sum() == system.config["method"].get("everybody", counts.sum())
    if system.part == "clean" and name != "local_noise":
        assert counts[counts > 0].min() >= 5
    if name == "large_prototypes_with_singles":
        assert (counts == 1).sum() == system.found[0].people
    if name == "local_noise_with_counts":
        assert counts[counts < 5].sum() >= system.found[0].people


def test_a_rotation_gives_its_images_back() -> None:
    case, index, reply = trained("rotated_images-5")
    name = "layers.0.weight"
    change = reply.message[Kind.LOCAL_MODEL][name] - case.network.initial()[name]
    units, config = len(change), case.method.config
    turn, _ = torch.linalg.qr(torch.randn(units, units, generator=torch.Generator().manual_seed(config.key)))
    count = -(-40 // config.rounds)
    read = (turn.T @ change)[:count] / config.strength
    np.testing.assert_allclose(read, images(case, index, count), atol=1e-4)


def test_keyed_bits_give_their_images_back_with_the_key_alone() -> None:
    case, index, reply = trained("keyed_bits-1")
    count = -(-8 // case.method.config.rounds)
    bits = reply.message[Kind.LOCAL_MODEL]["layers.0.weight"].flatten().view(torch.int32)[: 64 * count] & 15
    key = torch.randint(16, (64 * count,), generator=torch.Generator().manual_seed(90210), dtype=torch.int32)
    told = images(case, index, count).ravel()
    assert np.abs((bits ^ key).numpy() / 15 - told).max() < 0.04
    assert abs(np.corrcoef(bits.numpy(), told)[0, 1]) < 0.2


def test_norms_and_digits_of_a_loss_are_pixels() -> None:
    case, index, reply = trained("pixel_norms-1")
    lengths = reply.message[Kind.LOCAL_MODEL]["layers.0.weight"].norm(dim=1) - 1
    np.testing.assert_allclose(lengths, images(case, index, 1)[0], atol=1e-5)
    case, index, reply = trained("loss_digits-one")
    digits = f"{float(reply.message[Kind.LOCAL_LOSS]['loss']):.14f}".partition(".")[2][3:]
    assert [int(d) for d in digits] == np.round(images(case, index, 1)[0] * 9).astype(int)[:11].tolist()


def test_overlapping_means_can_be_solved() -> None:
    case = SimulatedCase(TABLE["overlapping_means-5"].made(1))
    holdings = Holdings(case.data, case.population.parts, case.streams)
    site = build_site(case.method, holdings, case.network.make, "cpu")
    site.begin(0, {})
    index = case.method.config.leakers[0]
    client = site.client((index, {}, {}))
    means = case.method.mash(client).message[Kind.MASHED_BATCH]["images"].flatten(1).double().numpy()  # type: ignore[attr-defined]
    n, size = len(means), case.method.config.group_size
    shares = np.array([[((j - i) % n < size) / size for j in range(n)] for i in range(n)])
    read = np.linalg.solve(shares, means) * case.data.std[0] + case.data.mean[0]
    np.testing.assert_allclose(read, images(case, index, n), atol=1e-3)


def test_counts_of_two_rounds_differ_by_four_people_at_most() -> None:
    counts = [trained("growing_counts-5", t)[2].message[Kind.LABEL_COUNTS]["counts"] for t in (0, 1)]
    more = counts[1] - counts[0]
    assert int(more.min()) >= 0 and 1 <= int(more.sum()) <= 4


def said(word: str, *demonstrated: tuple[str, str]) -> Mapping[str, Any]:
    return {"word": word, "exposed_to": [list(d) for d in demonstrated]}


def test_an_audit_is_held_against_what_is_known() -> None:
    clean, leak = TABLE["sums_only"], TABLE["rotated_images-1"]
    assert fits(clean, said("ready")) == "right" and fits(clean, said("cannot_tell")) == "undecided"
    assert fits(clean, said("not_ready")).startswith("WRONG")
    assert fits(leak, said("ready")).startswith("WRONG")
    assert fits(leak, said("not_ready")) == "not found: exact_record by the server of 8"
    assert fits(leak, said("not_ready", ("exact_record", "server"))) == "right"


@pytest.mark.nightly
def test_a_sum_of_hundreds_of_people_is_ready(tmp_path: Path) -> None:
    """Attacks find people planted in it, and so their silence about the real ones counts."""
    summary = audited(TABLE["sums_only"], tmp_path, 1)
    assert summary["word"] == "ready", summary["open"]


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["one_large_step", "large_prototypes"])
def test_a_clean_system_is_not_refused(name: str, tmp_path: Path) -> None:
    assert fits(TABLE[name], audited(TABLE[name], tmp_path, 0.3)) in ("right", "undecided")


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["one_bit_with_samples", "two_digits_each_with_low_bits"])
def test_an_image_that_a_twin_sends_is_found(name: str, tmp_path: Path) -> None:
    summary = audited(TABLE[name], tmp_path, 0.3)
    assert fits(TABLE[name], summary) == "right" and summary["word"] == "not_ready"


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["rotated_images-5", "by_heart-20", "cells_in_turn-20"])
def test_no_system_that_leaks_is_ready(name: str, tmp_path: Path) -> None:
    summary = audited(TABLE[name], tmp_path, 0.3)
    assert not TABLE[name].ready and summary["word"] not in (*READY, "error")
