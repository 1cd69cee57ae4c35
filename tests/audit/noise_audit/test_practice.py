"""Mechanisms of practice: right ones are declared or verified, and what is wrong with the others is named."""

from typing import Any

import pytest

from fedaudit.fl.runtime.errors import UserError
from tests.audit.noise_audit.systems import CENTRAL, GAUSSIAN, judge

OTHERS = "another client"
OWN = "tests.audit.noise_audit.practice:"
UNEVEN = {"federation": {"partition": {"name": "quantity", "law": "lognormal", "sigma": 1.2}}}
SUMMED = {"name": "secure_aggregation"}
COUNTS = {"name": "discrete_laplace", "kinds": ["num_examples"], "scale": 2.0}
FULL = {"federation": {"availability": "full"}}
COINS = {"federation": {"clients": 8, "availability": {"name": "bernoulli", "p": 0.5}}}
CLOCK = {"federation": {"time_model": {"name": "counted", "bandwidth": 2, "compute": 0.001}}}


def own(name: str, **changes: Any) -> dict[str, Any]:
    return {"protections": [{"name": OWN + name, "clip_norm": 1.0, "noise_multiplier": 2.0}], **changes}


def by_itself(method: str, lines: str) -> dict[str, Any]:
    return {"method": {"name": OWN + method}, "protections": [{"name": OWN + lines}]}


RIGHT: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "correlated noise, some taken back before more is drawn": (
        OTHERS,
        "client",
        "verified",
        own("Correlated", **FULL),
    ),
    "correlated noise, drawn on nothing": (OTHERS, "client", "declared", own("CorrelatedAfterwards", **FULL)),
    "correlated noise of its own": (OTHERS, "client", "declared", own("CorrelatedByItself", **FULL)),
    "an adaptive clip that is paid for": (OTHERS, "client", "verified", own("AdaptiveClip", **COINS)),
    "a modulus after the noise": ("server", "client", "verified", own("Modulus")),
    "numbers cut after the noise": ("server", "client", "verified", own("Clamped")),
    "numbers rounded after the noise": ("server", "client", "verified", own("Coarse")),
    "noise on a grid": ("server", "client", "declared", own("OnAGrid")),
    "error feedback of the clip": ("server", "client", "verified", own("FeedsBackItsClip")),
    "a client's own DP-SGD": ("server", "record", "declared", by_itself("OwnSteps", "StatedSteps")),
    "noise that training adds": ("server", "client", "declared", by_itself("NoisesItself", "StatedNoise")),
    "shares of a protection of its own": (
        "server",
        "client",
        "verified",
        {"protections": [*own("OwnShares")["protections"], SUMMED]},
    ),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_mechanism_of_practice_stands(name: str) -> None:
    observer, unit, status, system = RIGHT[name]
    bound = judge(observer, unit, **system)
    assert bound.status == status, [r.sentence for r in bound.reasons]


WRONG: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "correlated noise counted as independent": (OTHERS, "client", "replay", own("CountedAsIndependent", **FULL)),
    "clean momentum beside noise of the run's source": (
        OTHERS,
        "client",
        "replay",
        own("MomentumAfterTheSource", **FULL),
    ),
    "an adaptive clip that nobody pays for": (OTHERS, "client", "replay", own("AdaptiveClipUnpaid", **COINS)),
    "too little noise on a grid": ("server", "client", "noise test", own("OnAGridTooLittle")),
    "training adds half of the noise": (
        "server",
        "client",
        "noise test",
        by_itself("NoisesItselfTooLittle", "StatedNoise"),
    ),
    "training adds no noise": ("server", "client", "noise test", by_itself("NoisesNothing", "StatedNoise")),
    "half of the noise taken back": (
        "server",
        "client",
        "noise test",
        {"protections": [{"name": "tests.audit.noise_audit.wrong_systems:TakesHalfBack"}]},
    ),
    "the first noise once more": (
        "server",
        "client",
        "noise test",
        {"protections": [{"name": "tests.audit.noise_audit.wrong_systems:KeepsTheFirstNoise"}]},
    ),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", WRONG)
def test_a_mechanism_of_practice_with_one_mistake_is_named(name: str) -> None:
    observer, unit, by, system = WRONG[name]
    bound = judge(observer, unit, **system)
    assert bound.status == "refuted" and by in {r.source for r in bound.reasons}, bound.reasons


UNSUMMED: dict[str, dict[str, Any]] = {
    "a sum weighted by counts": {
        "protections": [{**GAUSSIAN, "contributors": 6}, COUNTS, SUMMED],
        "method": {"name": "fedavg", "weighting": "samples"},
        **UNEVEN,
    },
    "a plugin's shares in a weighted sum": {
        "protections": [*own("OwnShares")["protections"], SUMMED],
        "method": {"name": "fedavg", "weighting": "samples"},
    },
    "rows that only some clients have": {
        "protections": [{**GAUSSIAN, "kinds": ["local_prototypes"], "contributors": 6}, SUMMED],
        "method": {"name": "fedproto"},
        "federation": {"model": "mlp"},
    },
    "shares of which a tenth is sent": {
        "protections": [{**GAUSSIAN, "contributors": 6}, {"name": "top_k", "share": 0.1}, SUMMED]
    },
    "shares that are rounded": {"protections": [{**GAUSSIAN, "contributors": 6}, {"name": "quantise"}, SUMMED]},
}


@pytest.mark.parametrize("name", UNSUMMED)
def test_shares_of_noise_are_refused_where_their_sum_is_not_what_is_read(name: str) -> None:
    with pytest.raises(UserError, match="shares of noise"):
        judge("server", "client", **UNSUMMED[name])


def test_shares_that_a_protection_thins_out_itself_are_refuted() -> None:
    thinned = {"name": f"{OWN}KeepsAFew", "contributors": 6, "clip_norm": 1.0, "noise_multiplier": 2.0}
    assert judge("server", "client", protections=[thinned, SUMMED]).status == "refuted"


@pytest.mark.parametrize("protection", [GAUSSIAN, CENTRAL], ids=lambda p: p["name"])
def test_towards_a_server_that_times_its_clients_there_is_no_bound(protection: dict[str, Any]) -> None:
    bound = judge(
        "server", "client", protections=[protection, *([SUMMED] if protection == CENTRAL else [])], **CLOCK
    )
    assert bound.status == "none" and any(
        "task time" in r.sentence or "aggregate" in r.sentence for r in bound.reasons
    )


def test_towards_others_a_server_s_clock_tells_nothing() -> None:
    assert judge(OTHERS, "client", protections=[GAUSSIAN], **CLOCK).status == "verified"
