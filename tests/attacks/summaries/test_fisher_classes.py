"""Classes from Fisher diagonals: vectors by hand, shares of real clients, identities, controls."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.summaries._fisher import solve_uniform, unmix
from fedaudit.attacks.summaries.fisher_classes import FisherClasses
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from tests.attacks.summaries.worlds import diagonals, world
from tests.attacks.world import CLASSES


def measured(view: list[Artifact]) -> list[Evidence]:
    attack, known = FisherClasses(), world().knowledge
    claim = attack.run(view, known, np.random.default_rng(0))
    return attack.measure(claim, world(), np.random.default_rng(1))  # type: ignore[arg-type]


def value(found: list[Evidence], measure: str, control: str = "none", **condition: Any) -> float:
    [one] = [
        e
        for e in found
        if (e.measure, e.control) == (measure, control) and condition.items() <= e.condition.items()
    ]
    return one.value


def test_the_closed_form_by_hand() -> None:
    """Counts 2, 1, 1, 0 at equal outputs: F = 5/16, 3/16, 3/16, 1/16."""
    fisher = np.array([0.3125, 0.1875, 0.1875, 0.0625])
    p, counts = np.full(4, 0.25), np.array([2, 1, 1, 0])
    expected = np.mean([(p - row) ** 2 for row in np.repeat(np.eye(4), counts, axis=0)], axis=0)
    assert np.allclose(fisher, expected)
    assert np.allclose(solve_uniform(fisher), counts / 4)
    assert np.isnan(solve_uniform(np.array([0.3, 0.7]))).all()


def test_unmixing_by_hand() -> None:
    means = np.array([[0.9, 0.1, 0.2], [0.2, 0.5, 0.1], [0.1, 0.3, 0.8]])
    assert np.allclose(unmix(means.T @ [0.5, 0.5, 0.0], means), [0.5, 0.5, 0.0])
    missing = means.copy()
    missing[2] = np.nan  # no auxiliary image of that class
    assert np.allclose(unmix(means.T @ [0.25, 0.75, 0.0], missing), [0.25, 0.75, 0.0])


def test_clients_of_two_classes_are_read_off_their_diagonals() -> None:
    found = measured(diagonals())
    assert value(found, "label_set_exact_match") == 1
    assert value(found, "label_set_exact_match", "positive") == 1
    assert value(found, "label_set_exact_match", "negative") == 0
    assert value(found, "label_share_l1", rule="unmixing") < 0.1
    assert value(found, "label_share_l1", rule="unmixing") < value(found, "label_share_l1", rule="closed form")


def test_diagonals_of_labels_that_the_model_draws_name_no_classes() -> None:
    """The bias of the head then has the mean of p (1 - p)."""
    view = []
    for a in diagonals():
        if a.kind == Kind.FISHER:
            own = world().clients[a.sender.index or 0]
            model = next(m for m in diagonals() if m.kind == Kind.LOCAL_MODEL and m.sender == a.sender)
            known = world().knowledge.architecture
            assert known is not None
            p = torch.from_numpy(known(model.payload).logits(own.x)).softmax(1).numpy()
            a = replace(a, payload={**a.payload, "u/head.bias": (p * (1 - p)).mean(axis=0)})
        view.append(a)
    assert value(measured(view), "label_set_exact_match") <= 1 / 6


def test_no_diagonal_or_no_model_is_said_in_a_sentence() -> None:
    attack, known = FisherClasses(), world().knowledge
    assert attack.not_applicable(diagonals(), known) == ""
    for kind in (Kind.FISHER, Kind.LOCAL_MODEL):
        left = [a for a in diagonals() if a.kind != kind]
        assert "together with the model" in attack.not_applicable(left, known)
    assert "auxiliary" in attack.not_applicable(diagonals(), replace(known, auxiliary=None))


def test_everybody_is_tested_and_whoever_stands_in_a_small_class_can_be_hit() -> None:
    attack = FisherClasses()
    claim = attack.run(diagonals(), world().knowledge, np.random.default_rng(0))
    people, clients = attack.count_people(claim, world(), np.random.default_rng(1))  # type: ignore[arg-type]
    assert set(clients.tested) == set(range(6))
    assert set(people.tested) == set(range(6)) and claim["present"].shape == (6, CLASSES)
