"""A client's style is no membership: members are compared with examples of its own that it did not train on."""

from dataclasses import replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import pytest

from fedaudit.attacks.models.output_scores import LossThreshold
from fedaudit.audit.case.case import Split
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.observer.truth import KnownTruth
from fedaudit.audit.phases.attack import Bench, attack_once
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.data.dataset import Arrays, Data, Dataset
from fedaudit.fl.data.partition import Index
from fedaudit.fl.data.population import populate
from fedaudit.fl.partitions.iid import IID
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.streams import Streams
from tests.audit.simulated import simulated
from tests.fl.worlds import data

OWNERS, EACH = 30, 80


class Handwriting(Dataset):
    """Each owner has a style of its own, and a model learns which class who writes like that belongs to."""

    title = "Handwriting"

    @settings
    class Config:
        pass

    def load(self) -> Data:
        rng = np.random.default_rng(0)
        owner = np.repeat(np.arange(OWNERS), EACH)
        style, classes = rng.random((OWNERS, 5, 5)), rng.integers(0, 2, OWNERS)
        x = 0.7 * style[owner] + 0.3 * rng.random((len(owner), 5, 5))
        train = Arrays(x=x[:, None].astype(np.float32), y=classes[owner], owner=owner)
        return Data(train=train, test=Arrays(x=train.x[:20] / 2, y=train.y[:20]), classes=("a", "b"))


@cache
def ran(own: float | None = None) -> SimulatedCase:
    run, config = simulated(
        {
            "federation": {
                "dataset": f"{__name__}:Handwriting",
                "clients": 10,
                "partition": "natural",
                "availability": "full",
                "model": {"name": "mlp", "hidden": [64]},
                "holdout": {"auxiliary": 0.1, "reference": 0.4, "own": own},
            },
            "method": {"name": "fedavg", "rounds": 8, "lr": 0.3, "batch_size": 20},
            "workers": 0,
        }
    )
    return SimulatedCase(config, run.artifacts)


class Memberless(SimulatedCase):
    """Nobody trained on what the truth takes for the clients' examples."""

    @cached_property
    def examples(self) -> Split:
        own = dict(enumerate(self.population.own))
        parts, unseen = {k: rows[::2] for k, rows in own.items()}, {k: rows[1::2] for k, rows in own.items()}
        return replace(super().examples, parts=parts, unseen=unseen)


class Stylish(Memberless):
    """And nobody held anything out: what the audit did before."""

    @cached_property
    def examples(self) -> Split:
        return replace(super().examples, unseen={})


def attacked(case: SimulatedCase) -> dict[str, Any]:
    attack = LossThreshold()
    found = attack_once(attack, "loss_threshold", Bench(case, [attack.card], case.config.replay))["evidence"]
    wanted = (e for e in found if e["measure"] == "auc" and e["condition"].get("model") == "global model")
    return next(wanted)


@pytest.mark.nightly
def test_without_a_member_a_style_is_no_finding() -> None:
    case = ran(0.3)
    honest = attacked(Memberless(case.config, case.artifacts))
    fooled = attacked(Stylish(case.config, case.artifacts))
    assert honest["interval"][0] <= 0.5 <= honest["interval"][1] and honest["value"] < 0.57
    assert fooled["value"] > 0.65 and fooled["interval"][0] > 0.55
    assert "non-members of the same classes, held out of the same clients' data" in honest["note"]
    assert "of other people, so their style is not controlled" in fooled["note"]


def test_examples_with_owners_are_held_out_by_default_and_others_are_not() -> None:
    case = ran()
    sizes = {k: len(rows) for k, rows in case.examples.unseen.items()}
    assert (
        sizes == {k: (len(case.examples.parts[k]) + sizes[k]) // 10 for k in range(10)}
        and min(sizes.values()) > 0
    )
    plain = SimulatedCase(validate(Config, {"federation": {"dataset": "digits"}, "method": "fedavg"}, "test"))
    assert plain.examples.unseen == {}
    truth = KnownTruth(plain, {}, {})
    assert (
        truth.unseen([0]).images is truth.reference
        and truth.unseen([0]).words == "non-members of the same classes"
    )


def test_nothing_held_out_leaves_the_population_as_it_was() -> None:
    def parts(**own: float) -> list[Index]:
        found = populate(data(), IID(), 4, Streams(1), reference=0.2, **own)
        return [*found.parts, found.reference, *found.own]

    for before, after in zip(parts(), parts(own=0.0), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_what_a_client_leaves_out_is_its_own_evenly_of_its_classes_and_not_trained_on(share: float) -> None:
    whole, d = populate(data(), IID(), 2, Streams(1)), data()
    held = populate(d, IID(), 2, Streams(1), own=share)
    for before, trained, left in zip(whole.parts, held.parts, held.own, strict=True):
        np.testing.assert_array_equal(np.sort(np.r_[trained, left]), np.sort(before))
        assert len(left) == int(share * len(before) + 1e-9)
        for label in range(4):
            assert abs((d.train.y[left] == label).sum() - share * (d.train.y[before] == label).sum()) <= 1
