"""A client whom the auditor adds to a round is a client of that round: it is sent what the others are."""

import pytest

from fedaudit.audit.plays.run import Messages
from fedaudit.audit.plays.world import Listener
from fedaudit.fl.method import Method, RoundMethod
from fedaudit.fl.recording.tap import listening
from fedaudit.fl.runtime import plugin
from tests.fl.test_all_methods import method
from tests.fl.worlds import data, parts, run

CLIENTS = 5
DRAWN = [([0, 1], [0, 1]), ([2, 3], [2, 3])]  # (selected, answering) of each round
EVERYBODY = Messages({}, {}, cohorts=lambda _: range(CLIENTS))
PERSONAL = [
    n
    for n in plugin.names("fedaudit.fl.methods")
    if getattr(plugin.load("fedaudit.fl.methods", n, Method), "send_to", None) is not RoundMethod.send_to
]


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", PERSONAL)
def test_it_is_sent_what_is_for_it_alone(name: str) -> None:
    with listening(Listener("server", EVERYBODY)):
        world = run(
            method(name, rounds=2),  # type: ignore[arg-type]
            d=data(n=100),
            index=parts(data(n=80), sizes=(16,) * CLIENTS, skew=False),
            script=DRAWN,
        )
    assert all(r["selected"] == CLIENTS for r in world.history)
