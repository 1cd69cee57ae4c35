"""A plant that a protection withholds counts as one that was not found: its reader saw nothing of it."""

import pytest

from fedaudit.attacks.people import Arrivals, PeopleCount, Share, count_withheld
from fedaudit.audit.case.messages import messages
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.controls.lab import Lab
from fedaudit.audit.phases.attack_bench import plant
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.verdict.people import bound_left
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.wire.protection import Protection, Sending
from tests.audit.controls.test_controls import ran

pytestmark = pytest.mark.usefixtures("few_epochs")

CONTROLS = [
    ("prototypes", "rebafl", Kind.LOCAL_PROTOTYPES),
    ("updates", "rebafl", Kind.LOCAL_MODEL),
    ("memorised", "rebafl", Kind.LOCAL_MODEL),
    ("condensed", "feddc_condense", Kind.CONDENSED_IMAGES),
]


class Silent(Protection):
    """Lets no message of every n-th client arrive."""

    title, source = "Silence", ""

    @settings
    class Config:
        every: int = 1

    def describe(self) -> str:
        return "messages are withheld"

    def apply(self, sending: Sending) -> None:
        if (sending.sender.index or 0) % self.config.every == 0:
            sending.message.clear()


def arrivals(control: str, method: str, kind: Kind, every: int) -> dict[int, Arrivals]:
    run, config = ran(method)
    recorded = messages(run.artifacts, set(Kind), "all")
    silence = [{"name": f"{__name__}:Silent", "settings": {"every": every}}]
    case = SimulatedCase(validate(Config, config.model_dump() | {"protections": silence}, "test"))
    return plant(control, Lab.from_case(case), recorded, config.replay).count_arrivals((kind,))


@pytest.mark.parametrize(("control", "method", "kind"), CONTROLS)
def test_every_control_counts_what_was_withheld_of_each_client(control: str, method: str, kind: Kind) -> None:
    none = arrivals(control, method, kind, 1)
    assert len(none) >= 2
    assert all(arrived == 0 and withheld >= 6 for arrived, withheld in none.values())
    some = arrivals(control, method, kind, 2)
    assert {k: sum(n) for k, n in some.items()} == {k: sum(n) for k, n in none.items()}
    assert all((n.arrived if k % 2 else n.withheld) == sum(n) for k, n in some.items())


def people(left: dict[int, Share]) -> PeopleCount:
    return PeopleCount(hit_means="", tested={}, hit={}, held={}, luck=Share(), left=left)


def test_withheld_plants_are_trials_that_hit_nobody_in_proportion_to_those_that_were_tried() -> None:
    found = count_withheld(
        people({0: Share(hits=4, trials=4), 1: Share(hits=3, trials=3)}),
        {0: Arrivals(4, 2), 1: Arrivals(6, 3), 2: Arrivals(0, 6), 3: Arrivals(6, 0)},
    )
    assert found.left == {0: Share(hits=4, trials=6), 1: Share(hits=3, trials=4), 2: Share(trials=6)}


def test_a_protection_that_withholds_every_plant_leaves_as_little_as_their_number_can_show() -> None:
    nothing = people({})
    assert bound_left(nothing.left) == 1.0
    assert bound_left(count_withheld(nothing, {0: Arrivals(0, 100), 1: Arrivals(0, 100)}).left) == pytest.approx(
        0.0149, abs=1e-4
    )
