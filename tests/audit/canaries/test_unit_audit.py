"""Every protection that claims noise is put to the test, on every kind it acts on; none is refuted."""

from collections.abc import Iterator
from typing import Any

import pytest

from fedaudit.audit.canaries import central
from fedaudit.audit.canaries.carrier import Carrier, declared
from fedaudit.audit.canaries.game import play
from fedaudit.audit.canaries.neighbours import replay
from fedaudit.audit.canaries.panel import judge
from fedaudit.audit.canaries.run import acts_on, dp_audits, hidden_noise
from fedaudit.audit.settings.controls import DPAuditSettings
from fedaudit.fl.kinds import Kind
from fedaudit.fl.protections.noised_prototypes import NoisedPrototypes
from fedaudit.fl.runtime import plugin
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Protection

DELTA, CANARIES, ROUNDS = 1e-5, 80, 4
# Settings that a protection asks for, or that make another mechanism of it
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "dp_gaussian": [
        {"adjacency": "add_or_remove_one"},
        {"adjacency": "replace_one", "clip_norm": 0.3},
        {"kinds": (Kind.LOCAL_PROTOTYPES,), "clip": "row"},
    ],
    "laplace": [{"kinds": (Kind.MODEL_DELTA,)}],
    "discrete_laplace": [{"scale": 2.0}, {"adjacency": "replace_one"}],
}


def registered() -> Iterator[Any]:
    for name in plugin.names("fedaudit.fl.protections"):
        cls = plugin.load("fedaudit.fl.protections", name, Protection)
        for number, settings in enumerate(SETTINGS.get(name, [{}])):
            try:
                made = plugin.configure(cls, settings, name)
            except Exception as error:
                raise AssertionError(f"give {name} settings in SETTINGS: {error}") from error
            if made.training() is None and not hidden_noise(made):
                yield from (pytest.param(made, kind, id=f"{name}-{number}-{kind}") for kind in acts_on(made))


@pytest.mark.sample(8)
@pytest.mark.parametrize(("protection", "kind"), registered())
def test_a_registered_protection_is_not_refuted(protection: Protection, kind: Kind) -> None:
    streams = Streams(5)
    carrier = Carrier.of(kind, CANARIES)
    said = declared(carrier, [protection], streams)
    if said is None:
        return  # claims no noise, so there is nothing to refute
    how = {"canaries": CANARIES, "rounds": ROUNDS, "honest": 2}
    if protection.central:
        played = central.play([protection], streams, **how)
    else:
        played = play(kind, [protection], streams, **how)
    assert played is not None
    measured, check = replay(carrier, [protection], streams, said)
    found = judge(played, measured, DELTA, streams.numpy("panel"), certain=[check])
    assert not found.failed, [c.text for c in found.failed]
    assert not found.refuting
    assert measured > 0.2 * (said.sensitivity or 0)  # the probes do reach the clip


def test_noise_that_canaries_cannot_read_is_not_audited_and_the_report_says_why() -> None:
    made = NoisedPrototypes()
    found = dp_audits([made], made.kinds, [], DPAuditSettings(canaries=80), streams=Streams(5), delta=DELTA)
    assert [a.kind for a in found] == [k.value for k in made.kinds]
    assert all("divided by noised counts" in a.not_audited and not a.refuted for a in found)


def test_nobody_else_is_excused_from_the_audit() -> None:
    class Mine(NoisedPrototypes):
        pass

    assert hidden_noise(NoisedPrototypes()) and not hidden_noise(Mine())


def test_gaussian_noise_is_among_them() -> None:
    assert any(p.values[1] == Kind.LOCAL_MODEL for p in registered())
