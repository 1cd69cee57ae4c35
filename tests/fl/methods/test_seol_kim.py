"""Seol & Kim: FedAvg with everything off, the printed examples, and allocations that add up."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.fl.families.balanced_selection import allocate, divergence, oversample_counts
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.seol_kim import SeolKim, draw, learning_rate
from fedaudit.fl.runtime.errors import UserError
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD
from tests.fl.worlds import EVERYONE, close, data, parts, run, same

OFF = {"data_sampling": False, "client_selection": False, "dynamic_batch": False}
# Vector V3: five clients of three classes
V3 = {0: (8, 2, 0), 1: (0, 5, 1), 2: (1, 0, 6), 3: (3, 3, 3), 4: (0, 0, 2)}


def seol(**settings: Any) -> SeolKim:
    return SeolKim(SeolKim.Config(**(SETTINGS | settings)))


def counts(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def volumes(seed: int, clients: int = 12) -> dict[int, np.ndarray]:
    drawn = rng(seed).integers(0, 40, (clients, 4)) * (rng(seed + 1).random((clients, 4)) < 0.6)
    return {k: row.astype(np.int64) for k, row in enumerate(drawn)}


# T-SK-6, vectors V3 to V5 -----------------------------------------------------------------------


def test_the_worked_example_of_selection() -> None:
    given = allocate({k: counts(*n) for k, n in V3.items()}, 4, 0.01, rng())
    assert {k: s.tolist() for k, s in given.items()} == {0: [8, 2, 0], 3: [0, 3, 3], 2: [0, 0, 5], 1: [0, 3, 0]}
    assert list(given) == [0, 3, 2, 1]
    steps = np.cumsum(list(given.values()), 0)
    found = [divergence(v) for v in steps]
    assert found == pytest.approx([0.5982, 0.0747, 0.0216, 0.0], abs=1e-4)


def test_the_printed_order_of_assignments_leaves_the_later_clients_nothing() -> None:
    given = allocate({k: counts(*n) for k, n in V3.items()}, 4, 0.01, rng(), printed=True)
    assert given[2].tolist() == [0, 0, 0] and given[1].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("batch", "printed", "bounded"),
    [(1, 0.078540, 0.05), (2, 0.110715, 0.070483), (10, 0.147113, 0.093655), (83, 0.155875, 0.099233)],
)
def test_rates_of_the_vector(batch: int, printed: float, bounded: float) -> None:
    assert learning_rate(batch, 0.1, "printed") == pytest.approx(printed, abs=1e-6)
    assert learning_rate(batch, 0.1, "bounded") == pytest.approx(bounded, abs=1e-6)


def test_oversampling_of_the_vector() -> None:
    n = counts(10, 2, 0, 4)
    assert oversample_counts(n, 0.01, 0).tolist() == [10, 4, 0, 4]
    assert oversample_counts(n, 0.01, 100).tolist() == [10, 2, 0, 4]
    # the amount form keeps a share of the gap: (4 - 2) / e = 0.74, rounded up
    assert oversample_counts(n, 0.01, 100, "amount").tolist() == [10, 3, 0, 4]


# T-SK-1, 2, 5 ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_allocations_fit_their_clients_and_stop_for_a_reason(seed: int) -> None:
    have = volumes(seed)
    given = allocate(have, 6, 0.05, rng(seed))
    room = next(iter(given.values())).max()
    total = np.zeros(4, np.int64)
    for k, share in given.items():
        assert (share >= 0).all() and (share <= have[k]).all() and share.sum() > 0
        total += share
        assert (total <= room).all()
    rest = [k for k in have if k not in given]
    nothing_adds = all(np.minimum(room - total, have[k]).sum() == 0 for k in rest)
    assert len(given) == 6 or divergence(total) < 0.05 or nothing_adds


class Looked(dict[int, np.ndarray]):
    """Counts how often a client is looked up."""

    looks = 0

    def __getitem__(self, key: int) -> np.ndarray:
        self.looks += 1
        return super().__getitem__(key)


def test_ten_times_the_clients_are_looked_at_ten_times_as_often() -> None:
    """Everybody is chosen, and at the end hardly anybody who waits has something to add."""
    looks = []
    for clients in (100, 1000):
        have = Looked({k: counts(*(np.arange(4) == k % 4)) for k in range(1, clients)})
        have[0] = counts(clients // 8, 0, 0, 0)
        given = allocate(have, clients, 0.0, rng())
        looks.append(have.looks)
        assert len(given) > clients / 4
    assert looks[1] <= 11 * looks[0]


def test_clients_without_data_are_not_selected() -> None:
    assert allocate({0: counts(0, 0)}, 3, 0.1, rng()) == {}


# T-SK-3, 4, 7 ------------------------------------------------------------------------------------


def test_oversampling_leaves_a_client_of_one_class_as_it_is() -> None:
    assert oversample_counts(counts(0, 9, 0), 0.01, 0).tolist() == [0, 9, 0]


@pytest.mark.parametrize("rule", ["target", "amount"])
def test_oversampling_never_lowers_a_count(rule: Any) -> None:
    for n in volumes(5).values():
        for r in (0, 3, 50):
            more = oversample_counts(n, 0.05, r, rule)
            assert (more >= n).all() and ((more > 0) == (n > 0)).all()
            if rule == "target":
                assert (more[n > 0] >= n.mean() * np.exp(-0.05 * r)).all()


def test_the_bounded_rate_stays_below_its_bound_and_the_printed_one_does_not() -> None:
    for batch in (1, 2, 5, 10, 1000, 10**6):
        assert learning_rate(batch, 0.1, "bounded") < 0.1
        assert batch < 2 or learning_rate(batch, 0.1, "printed") > 0.1


def test_drawn_rows_have_the_allocated_classes_and_only_duplicates_where_needed() -> None:
    labels = np.array([0, 0, 0, 1, 2, 2])
    rows = draw(labels, counts(3, 4, 2), counts(2, 3, 2), rng())
    assert np.bincount(labels[rows]).tolist() == [2, 3, 2]
    assert len(set(rows[labels[rows] == 0])) == 2 and set(rows[labels[rows] == 1]) == {3}
    assert draw(labels, counts(3, 1, 2), counts(3, 1, 2), rng()).tolist() == list(range(6))


# T-SK-8, 9 ---------------------------------------------------------------------------------------


def test_with_everything_off_it_is_fedavg_to_the_last_bit() -> None:
    fedavg = FedAvg(FedAvg.Config(**SETTINGS))
    assert same(run(seol(**OFF), **WORLD), run(fedavg, **WORLD))


@pytest.mark.parametrize("part", list(OFF))
def test_each_part_alone_changes_something(part: str) -> None:
    fedavg = FedAvg(FedAvg.Config(**SETTINGS))
    on = {**OFF, part: True, "theta_kld": 0.0, "updates": 2}
    assert not close(run(seol(**on), **WORLD), run(fedavg, **WORLD), 1e-5)


def test_a_single_client_trains_on_all_its_data(tmp_path: Path) -> None:
    d = data()
    own = parts(d, skew=False)[4]
    only = [([0], [0])]
    result = run(seol(), folder=tmp_path, index=[own], d=d, script=only)
    volume = next(a for a in result.artifacts if a.kind is Kind.CLASS_VOLUME).payload["counts"]
    used = [a.payload["count"] for a in result.artifacts if a.kind is Kind.NUM_EXAMPLES]
    assert (volume >= np.bincount(d.train.y[own], minlength=4)).all()
    assert int(used[0]) == len(own) and int(used[1]) == int(volume.sum())


# What crosses the wire ---------------------------------------------------------------------------


def test_every_candidate_tells_its_counts_and_only_the_selected_get_the_model(tmp_path: Path) -> None:
    result = run(seol(chosen=2, theta_kld=0.0), folder=tmp_path, script=EVERYONE)
    told = {a.sender.index for a in result.artifacts if a.kind is Kind.CLASS_VOLUME}
    first = [a for a in result.artifacts if a.round == 0]
    got = [a for a in first if a.kind is Kind.GLOBAL_MODEL]
    assert told == {0, 1, 2, 4}  # client 3 has no data
    assert len(got) == 2 == sum(a.kind is Kind.ALLOCATION for a in first)
    sent = {str(a.sender) for a in first if a.kind is Kind.LOCAL_MODEL}
    assert {seen for a in got for seen in a.seen_by} == sent


def test_the_server_raises_the_decay_while_clients_add_much(tmp_path: Path) -> None:
    result = run(seol(theta_over=0.0, decay_start=0.2), folder=tmp_path, script=EVERYONE)
    sent = [float(a.payload["decay"]) for a in result.artifacts if a.kind is Kind.OVERSAMPLE_DECAY]
    assert sent[0] == 0.2 and sent[1] == pytest.approx(0.3)
    calm = run(seol(theta_over=1e9), folder=tmp_path / "calm", script=EVERYONE)
    same_decay = {float(a.payload["decay"]) for a in calm.artifacts if a.kind is Kind.OVERSAMPLE_DECAY}
    assert same_decay == {0.01}


def test_printed_weights_shrink_the_model() -> None:
    settings = {"rounds": 1, "local_epochs": 0, "chosen": 3, "theta_kld": 0.0, "lr": 0.0}
    used, printed = run(seol(**settings)), run(seol(**settings, weights="printed"))
    for name, value in used.model.items():
        share = printed[name].norm() / value.norm()
        assert 0 < share < 0.999 or torch.equal(value, torch.zeros_like(value))


def test_fewer_candidates_come_from_a_smaller_pool(tmp_path: Path) -> None:
    result = run(seol(pool_fraction=0.5), folder=tmp_path, script=EVERYONE)
    for t in {a.round for a in result.artifacts}:
        selected = [a for a in result.artifacts if a.kind is Kind.CLASS_VOLUME and a.round == t]
        assert len(selected) <= 2


@pytest.mark.parametrize("wrong", [{"chosen": 0}, {"pool_fraction": 0.0}, {"theta_kld": -1.0}])
def test_settings_without_a_meaning_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong))):
        seol(**wrong)
