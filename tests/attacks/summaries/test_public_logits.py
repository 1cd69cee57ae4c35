"""Outputs on public data: class shares, and membership of candidates with non-members of the same classes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedaudit.attacks.attack import Attack, PublicExamples
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.summaries._public import ClientAnswers
from fedaudit.attacks.summaries.output_shares import OutputShares, mean_output
from fedaudit.attacks.summaries.public_membership import MOST, PublicMembership, list_others
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from tests.attacks.summaries.worlds import CANDIDATES, answers, asked, leaning, public, world


def measured(attack: Attack, view: list[Artifact]) -> list[Evidence]:
    claim = attack.run(view, asked(), np.random.default_rng(0))
    return attack.measure(claim, world(), np.random.default_rng(1))  # type: ignore[arg-type]


def real(found: list[Evidence], measure: str) -> Evidence:
    return next(e for e in found if e.measure == measure and e.control == "none")


def test_a_mean_output_counts_each_class_alike_by_hand() -> None:
    """Two images of class 0 with p = (1/2, 1/2) and one of class 1 with p = (1/4, 3/4): (3/8, 5/8)."""
    images = PublicExamples(
        x=np.zeros((3, 1, 1, 1), np.float32), y=np.array([0, 0, 1]), candidates=np.zeros(3, bool)
    )
    logits = np.log(np.array([[1.0, 1.0], [1.0, 1.0], [1.0, 3.0]]))
    assert mean_output(ClientAnswers(0, 0, "", np.arange(3), logits), images) == pytest.approx([3 / 8, 5 / 8])


def test_models_that_expect_their_clients_classes_give_these_away() -> None:
    found = measured(OutputShares(), leaning())
    shares = real(found, "label_share_l1")
    assert real(found, "majority_class").value > 0.8
    assert all(shares.value < b.value for b in shares.baselines)


def test_models_that_expect_nothing_give_nothing_away() -> None:
    still = [replace(a, payload={**a.payload, "logits": 0 * a.payload["logits"]}) for a in answers()]
    shares = real(measured(OutputShares(), still), "label_share_l1")
    assert shares.value == pytest.approx({b.name: b.value for b in shares.baselines}["uniform"])


def memorised(view: list[Artifact]) -> list[Artifact]:
    """Outputs that are surer of the client's own candidates."""
    out = []
    for a in view:
        logits, first = a.payload["logits"].copy(), 100 + CANDIDATES * (a.sender.index or 0)
        for i in range(first, first + CANDIDATES):
            logits[i, public().y[i]] += 5
        out.append(replace(a, payload={**a.payload, "logits": logits}))
    return out


def test_outputs_that_are_surer_of_a_clients_own_images_name_them() -> None:
    assert real(measured(PublicMembership(), memorised(answers())), "auc").value > 0.95
    untrained = real(measured(PublicMembership(), answers()), "auc")
    assert untrained.interval is not None and untrained.interval[0] <= 0.5 <= untrained.interval[1]


def test_a_client_is_compared_with_some_of_very_many_others_and_with_all_of_few() -> None:
    assert list_others(2, 5).tolist() == [0, 1, 3, 4]
    for row in (0, 700, 1999):
        others = list_others(row, 2000)
        assert len(set(others.tolist()) - {row}) == MOST and 0 <= min(others) <= max(others) < 2000


def test_knowing_a_clients_classes_is_no_membership() -> None:
    """Non-members of any class are told apart, and those of the same classes are not; the note has both."""
    auc = real(measured(PublicMembership(), leaning()), "auc")
    unmatched = float(auc.note.partition("would be ")[2].split(";")[0])
    assert unmatched > 0.85 and auc.interval is not None and auc.interval[0] <= 0.5 <= auc.interval[1]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"public": None}, "nobody knows which public examples"),
        ({"public": replace(public(), candidates=np.zeros(len(public()), bool))}, "put nobody's examples"),
    ],
)
def test_an_honest_server_has_nobody_to_ask_about(change: dict[str, Any], reason: str) -> None:
    assert reason in PublicMembership().not_applicable(answers(), replace(asked(), **change))


def test_two_clients_are_too_few_and_places_that_nobody_has_are_not_read() -> None:
    assert "fewer than three clients" in PublicMembership().not_applicable(answers()[:2], asked())
    beyond = [replace(a, payload={**a.payload, "index": a.payload["index"] + 1}) for a in answers()]
    assert "no client sends" in OutputShares().not_applicable(beyond, asked())
    assert {a.kind for a in answers()} == {Kind.PUBLIC_LOGITS}
