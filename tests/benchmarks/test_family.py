"""The attacker who chooses beside its family: what counts as more harm, what is run, and four pairs in full."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.strength import family
from benchmarks.strength.family import CONTESTS, MOST, NOBODY, SEEDS, compare, draw_pairs, name

ACCURACY, BACKDOOR = CONTESTS["accuracy"], CONTESTS["backdoor"]


def test_pairs_stay_as_they_are_and_are_all_different() -> None:
    pairs = draw_pairs()
    assert pairs == draw_pairs() and len(pairs) >= ACCURACY.draws == 60
    assert len({repr(p) for p in pairs}) == len(pairs)


def test_more_harm_is_less_accuracy_or_more_success_at_a_bounded_loss() -> None:
    means = {"nobody": (0.9, 0.0), "adaptive": (0.5, 0.0), "ipm": (0.45, 0.0), "alie": (0.6, 0.0)}
    assert ACCURACY.compute_excess(means, "ipm") == pytest.approx(0.05)
    assert ACCURACY.compute_excess(means, "alie") == pytest.approx(-0.1)
    own = name(BACKDOOR.attacker)
    means = {"nobody": (0.9, 0.0), own: (0.89, 0.5), "hidden": (0.88, 0.6), "loud": (0.7, 1.0)}
    assert BACKDOOR.compute_excess(means, "hidden") == pytest.approx(0.1)
    assert BACKDOOR.compute_excess(means, "loud") == -1.0
    assert BACKDOOR.compute_excess(means | {own: (0.6, 0.5)}, "loud") == pytest.approx(0.5)


def test_what_is_there_is_not_run_again_and_the_hopeless_meet_two_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, int]] = []

    def measure(pair: Any, seed: int, attack: Mapping[str, Any]) -> tuple[float, float]:
        ran.append((name(attack), seed))
        exact = {"nobody": 0.9, "adaptive": 0.4, "ipm tau=6.0": 0.35, "ipm tau=2.0": 0.5}
        return exact.get(name(attack), 0.8), 0.0

    monkeypatch.setattr(family, "measure", measure)
    found = compare("accuracy", 0, tmp_path)
    assert (found.worst, found.error) == ("ipm tau=6.0", 0.0) and found.excess == pytest.approx(0.05)
    seeds = {a: [s for b, s in ran if b == a] for a, _ in ran}
    assert seeds["ipm tau=2.0"] == seeds["adaptive"] == list(SEEDS) and seeds["fang_krum"] == [1, 2]
    count = len(ran)
    assert compare("accuracy", 0, tmp_path) == found and len(ran) == count
    file = tmp_path / "accuracy" / "00-3-attacker.json"
    file.write_text(json.dumps({name(NOBODY): [0.9, 0.0]}))
    compare("accuracy", 0, tmp_path)
    assert ran[count:] == [("adaptive", 3)]


@pytest.mark.nightly
@pytest.mark.parametrize("number", [0, 7, 14, 21])
def test_no_member_of_its_family_takes_three_points_more_than_the_adaptive_attacker(
    number: int, tmp_path: Path
) -> None:
    found = compare("accuracy", number, tmp_path)
    assert found.means["adaptive"][0] <= found.means["nobody"][0] + MOST
    assert found.excess <= MOST, (draw_pairs()[number], found.worst, found.means[found.worst])
