"""Held-out people in whole audits: of other owners they leave questions open, and `plan` says so beforehand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from fedaudit.attacks.models.output_scores import LossThreshold
from fedaudit.attacks.people import PeopleCount
from fedaudit.audit.case.case import Split
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.cli.preflight import describe_held_out
from fedaudit.audit.phases.attack import Bench, attack_once
from fedaudit.audit.verdict.people import bound_people
from fedaudit.fl.data.dataset import Arrays
from fedaudit.fl.data.partition import Index, OwnedLabels, Partition
from fedaudit.fl.threats.threat import Harm
from fedaudit.reports.decision import Word
from tests.audit.simulated import simulated
from tests.audit.test_ready import audit


class AllAtOne(Partition):
    title, source = "All at one", ""

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        return [np.arange(len(labels.y)), *(np.zeros(0, np.int64) for _ in range(clients - 1))]

    def describe(self) -> str:
        return "client 0 holds everything"


@pytest.mark.parametrize("own", [0.0, 0.3])
def test_people_of_other_owners_leave_membership_open(own: float) -> None:
    run, config = simulated(
        {
            "federation": {
                "dataset": "tests.audit.observer.test_unseen:Handwriting",
                "clients": 5,
                "partition": "natural",
                "availability": "full",
                "model": {"name": "mlp", "hidden": [8]},
                "holdout": {"auxiliary": 0.1, "reference": 0.4, "own": own},
            },
            "method": {"name": "fedavg", "rounds": 1, "batch_size": 20},
            "workers": 0,
        }
    )
    case = SimulatedCase(config, run.artifacts)
    found: Any = attack_once(LossThreshold(), "loss_threshold", Bench(case, [LossThreshold.card], config.replay))
    counts = TypeAdapter(list[PeopleCount]).validate_python(found["people"])
    assert counts and {p.harm for p in counts} == {Harm.MEMBERSHIP, Harm.DIFFUSE}
    for people in counts:
        bound = bound_people(people, alpha=0.01)
        assert people.is_alike is (own > 0) and (bound.at_most is None) is (own == 0)


def test_of_one_client_with_examples_among_empty_ones_nothing_is_ready(tmp_path: Path) -> None:
    federation = {
        "dataset": "digits",
        "clients": 3,
        "partition": f"{__name__}:AllAtOne",
        "availability": "full",
        "model": {"name": "mlp", "hidden": [16]},
        "holdout": {"auxiliary": 0.2, "reference": 0.4},
    }
    result = audit(tmp_path, federation=federation, attacks=["label_counts_from_update"], protections=[])
    assert result.decision is not None and result.decision.word in (Word.CANNOT_TELL, Word.NOT_READY)
    fact = next(q for q in result.questions if q.id == "attribute.server")
    assert fact.required and fact.is_open and "tested nobody beside people who were held out" in fact.why


def make_train(*, owned: bool, number: int = 700) -> Arrays:
    """Half of each of two classes, of 70 owners."""
    y = np.arange(number) % 2
    return Arrays(x=np.zeros((number, 1)), y=y, owner=np.arange(number) // 10 if owned else None)


PARTS = {0: np.arange(300, 340), 1: np.arange(340, 380), 2: np.arange(380, 380)}


@pytest.mark.parametrize(
    ("owned", "examples", "said"),
    [
        (False, Split(parts=PARTS, reference=np.arange(300)), []),
        (
            True,
            Split(parts=PARTS, reference=np.arange(300)),
            [
                "held-out people are of other owners, so that membership stays open (setting "
                "federation.holdout.own)"
            ],
        ),
        (
            True,
            Split(parts=PARTS, unseen={0: np.arange(400, 695), 1: np.arange(695, 700)}),
            [
                "at 1 client fewer than 10 own people are held out, so that nobody is tested there (setting "
                "federation.holdout.own)"
            ],
        ),
        (
            False,
            Split(parts=PARTS, reference=np.r_[0:300:2][:150]),
            [
                "ready needs 300 held-out people, of whom luck is learned; you have 150 (setting "
                "federation.holdout.reference)",
                "at 2 clients some class has fewer than 10 held-out people (setting "
                "federation.holdout.reference)",
            ],
        ),
    ],
    ids=["pooled", "other owners", "few of one client", "few of one class"],
)
def test_plan_says_what_is_wrong_with_held_out_people(owned: bool, examples: Split, said: list[str]) -> None:
    train = make_train(owned=owned)
    assert list(describe_held_out(examples, train, train.y)) == said
