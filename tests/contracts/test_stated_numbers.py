"""What a client states of itself decides neither how long an attack works nor whether it ends.

Each attack runs on its own tiny world, in which every client states numbers of examples that nobody has.
"""

import dataclasses
import math
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import numpy as np
import pytest

from fedaudit.attacks.attack import Attack
from fedaudit.attacks.evaluation.gradients import sum_velocities
from fedaudit.attacks.evaluation.label_rules import FEW_PICKS, llg
from fedaudit.audit.settings import catalog
from fedaudit.fl.artifact import Artifact, Role
from fedaudit.fl.kinds import Kind
from tests.contracts.attack_worlds import stage
from tests.contracts.test_growth import QUICK

STATED = (2.0**40, 2.0**62, 1e300, -5.0, math.nan, math.inf)
SECONDS = 30  # of processor: an attack that works as long as a number says never ends


@contextmanager
def limited() -> Iterator[None]:
    """Stops what takes far more work than any world here asks for."""

    def stop(signal: int, frame: FrameType | None) -> None:
        raise AssertionError("the attack works as long as a client says")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def overstate(view: Sequence[Artifact], count: float) -> list[Artifact]:
    """The messages as if clients had sent them, each with a number of examples that nobody has."""
    sent = [dataclasses.replace(a, origin="recorded", note={}) for a in view]
    left = [a for a in sent if a.kind != Kind.NUM_EXAMPLES]
    stated = {(a.round, a.sender): a for a in sent if a.sender.role == Role.CLIENT}
    payload = {"count": np.array(count)}
    return [
        *left,
        *(
            dataclasses.replace(a, id=f"{a.id.rpartition('/')[0]}/count", kind=Kind.NUM_EXAMPLES, payload=payload)
            for a in stated.values()
        ),
    ]


@pytest.mark.sample(32)
@pytest.mark.dear("played_message")
@pytest.mark.parametrize("name", catalog.names("attacks"))
def test_an_attack_ends_whatever_clients_state(name: str) -> None:
    cls, world = catalog.load("attacks", name), stage(name)
    own = {f.name for f in dataclasses.fields(cls.Config)} if hasattr(cls, "Config") else set()
    settings = {**world.settings, **{k: v for k, v in QUICK.items() if k in own}}
    for count in STATED if Kind.NUM_EXAMPLES in cls.card.reads else ():
        attack: Attack = cls(cls.Config(**settings)) if settings else cls()
        view = overstate(world.view, count)
        with limited():
            if not attack.not_applicable(view, world.knowledge):
                attack.run(view, world.knowledge, np.random.default_rng(0))


def test_many_steps_carry_as_far_as_one_after_the_other() -> None:
    for momentum in (0.0, 0.5, 0.9, 0.99):
        for steps in (1, 2, 7, 300):
            each = sum((1 - momentum ** (i + 1)) / (1 - momentum) for i in range(steps))
            assert sum_velocities(steps, momentum) == pytest.approx(each, rel=1e-12)
    assert sum_velocities(7, 0.0) == 7


def test_large_batches_have_the_labels_that_the_greedy_rule_gives() -> None:
    rng = np.random.default_rng(5)
    for classes in (2, 10, 100):
        sums, examples = rng.normal(size=classes), FEW_PICKS + 3 * classes

        def choose(examples: int, sums: np.ndarray = sums) -> np.ndarray:  # the rule as the paper has it
            left, counts = sums.copy(), np.zeros(len(sums), np.int64)
            negative = left < 0
            impact = left[negative].sum() / examples * (1 + 1 / len(left))
            for c in np.flatnonzero(negative)[np.argsort(left[negative], kind="stable")][:examples]:
                counts[c] += 1
                left[c] -= impact
            while counts.sum() < examples:
                c = int(left.argmin())
                counts[c] += 1
                left[c] -= impact
            return counts

        found = llg(sums, examples)
        assert found.sum() == examples and np.abs(found - choose(examples)).sum() <= 2  # ties by rounding
    assert llg(rng.normal(size=10), 10**12).sum() == 10**12
