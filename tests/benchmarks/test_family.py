"""The attacker who chooses beside its family: what counts as more harm, what is run, and four pairs in full."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.strength import family
from benchmarks.strength.family import CONTESTS, IDLE, MOST, SEEDS, compare, draw_pairs, name
from fedaudit.attacks.poisoning._updates import find_change, gather_updates, vector
from fedaudit.attacks.poisoning.adaptive import AdaptiveBackdoor, aggregate
from fedaudit.fl.threats.adversary import Colluded, Meeting
from fedaudit.fl.threats.rehearsal import Rehearsal
from fedaudit.fl.training import local

ACCURACY, BACKDOOR = CONTESTS["accuracy"], CONTESTS["backdoor"]


def test_pairs_stay_as_they_are_and_are_all_different() -> None:
    pairs = draw_pairs()
    assert pairs == draw_pairs() and len(pairs) >= ACCURACY.draws == 60
    assert len({repr(p) for p in pairs}) == len(pairs)


def test_more_harm_is_less_accuracy_or_more_success_at_a_bounded_loss() -> None:
    means = {name(IDLE): (0.9, 0.0), "adaptive": (0.5, 0.0), "ipm": (0.45, 0.0), "alie": (0.6, 0.0)}
    assert ACCURACY.compute_excess(means, "ipm") == pytest.approx(0.05)
    assert ACCURACY.compute_excess(means, "alie") == pytest.approx(-0.1)
    own = name(BACKDOOR.attacker)
    means = {name(IDLE): (0.9, 0.0), own: (0.89, 0.5), "hidden": (0.885, 0.6), "loud": (0.7, 1.0)}
    assert BACKDOOR.compute_excess(means, "hidden") == pytest.approx(0.1)
    assert BACKDOOR.compute_excess(means, "loud") == -1.0
    assert BACKDOOR.compute_excess(means | {own: (0.6, 0.5)}, "loud") == pytest.approx(0.5)
    rounds = {name(IDLE): (0.5, 0.9, 0.0), own: (0.5, 0.89, 0.5), "healed": (0.3, 0.9, 1.0)}
    assert BACKDOOR.compute_excess(rounds, "healed") == -1.0


def test_what_is_there_is_not_run_again_and_the_hopeless_meet_two_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, int]] = []

    def measure(pair: Any, seed: int, attack: Mapping[str, Any], images: int) -> tuple[float, float]:
        ran.append((name(attack), seed))
        exact = {name(IDLE): 0.9, "adaptive": 0.4, "ipm tau=6.0": 0.35, "ipm tau=2.0": 0.5}
        return exact.get(name(attack), 0.8), 0.0

    monkeypatch.setattr(family, "measure", measure)
    found = compare("accuracy", 0, tmp_path)
    assert (found.worst, found.error) == ("ipm tau=6.0", 0.0) and found.excess == pytest.approx(0.05)
    seeds = {a: [s for b, s in ran if b == a] for a, _ in ran}
    assert seeds["ipm tau=2.0"] == seeds["adaptive"] == list(SEEDS) and seeds["fang_krum"] == [1, 2]
    count = len(ran)
    assert compare("accuracy", 0, tmp_path) == found and len(ran) == count
    file = tmp_path / "accuracy" / "00-3-attacker.json"
    file.write_text(json.dumps({name(IDLE): [0.9, 0.0]}))
    compare("accuracy", 0, tmp_path)
    assert ran[count:] == [("adaptive", 3)]


def test_a_backdoor_that_costs_more_than_it_may_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = {1: 0.03, 2: 0.05, 3: 0.04, 4: 0.04, 5: 0.04}

    def measure(pair: Any, seed: int, attack: Mapping[str, Any], images: int) -> tuple[float, float]:
        return 0.9 - (losses[seed] if attack == BACKDOOR.attacker else 0.0), 0.5

    monkeypatch.setattr(family, "measure", measure)
    found = compare("backdoor", 0, tmp_path)
    assert found.verdict == "COSTLY" and found.beyond == pytest.approx(0.02 - 2 * 0.0071 / 5**0.5, abs=1e-4)
    losses[1] = -0.1
    assert not compare("backdoor", 0, tmp_path / "again").verdict


class Watching:
    """What an adaptive backdoor claims of each round, a loss and the most it may be; the loss on test images."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.claims, self.unseen = list[tuple[float, float]](), list[float]()
        send, test = AdaptiveBackdoor.collude, family.load_digits(family.ALL).test.y

        def collude(attacker: AdaptiveBackdoor, meeting: Meeting) -> Colluded:
            found, crowd = send(attacker, meeting), gather_updates(meeting)
            rehearsal = getattr(meeting.judge, "__self__")  # noqa: B009  (of a callable, which has none to mypy)
            assert isinstance(rehearsal, Rehearsal)
            forged = {
                k: find_change(m, meeting.received[k], meeting.parameters) for k, m in found.messages.items()
            }
            right = []
            for sent in (dict.fromkeys(meeting.own, crowd.mean), {k: vector(v) for k, v in forged.items()}):
                rehearsal.workers.everywhere("serve", rehearsal.apply_change(aggregate(crowd, sent, 0)))
                (score,) = rehearsal.workers.map("score", [np.arange(len(test))])
                right.append(float(score[0].sum()) / len(test))
            self.claims.append((found.claims["loss"], found.claims["loss_at_most"]))
            self.unseen.append(right[0] - right[1])
            return found

        monkeypatch.setattr(AdaptiveBackdoor, "collude", collude)


def test_the_loss_that_a_backdoor_claims_is_that_on_data_nobody_has_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients learn their twenty images by heart, so that what is judged on them says nothing of others."""
    watching, pair = Watching(monkeypatch), ({"name": "mean"}, {"name": "iid"})
    monkeypatch.setattr(local, "count_epochs", lambda config, examples: 30)
    for seed in (1, 2, 3):
        family.measure(pair, seed, BACKDOOR.attacker, 200)
    claims, unseen = np.array(watching.claims), np.array(watching.unseen)
    assert len(unseen) == 15 and (unseen <= claims[:, 1]).all()
    assert abs(float((unseen - claims[:, 0]).mean())) < 0.02


@pytest.mark.nightly
@pytest.mark.parametrize(
    "number", [0, 4, 7, pytest.param(14, marks=pytest.mark.xfail(reason="named in docs/robustness.md")), 21]
)
def test_no_member_of_its_family_takes_three_points_more_than_the_adaptive_attacker(
    number: int, tmp_path: Path
) -> None:
    found = compare("accuracy", number, tmp_path)
    assert found.means["adaptive"][0] <= found.means[name(IDLE)][0] + MOST
    assert found.excess <= MOST, (draw_pairs()[number], found.worst, found.means[found.worst])
