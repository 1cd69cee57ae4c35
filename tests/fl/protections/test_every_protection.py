"""Every protection: off it is nothing, on it is something, and every method that it accepts runs with it."""

from pathlib import Path
from typing import Any

import pytest

from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime import plugin
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.wire.protection import Protection
from tests.fl.test_all_methods import method
from tests.fl.worlds import data, parts, run, same

OFF: dict[str, dict[str, Any]] = {
    "dp_gaussian": {"clip_norm": float("inf"), "noise_multiplier": 0.0},
    "laplace": {"kinds": ["local_model", "local_prototypes"], "clip_norm": float("inf"), "scale": 0},
    "discrete_laplace": {"scale": 0},
    "prototype_threshold": {"least": 1},
    "prototype_mixing": {"most": 0},
    "quantise": {"bits": 32},
    "secure_aggregation": {},
    "top_k": {"share": 1.0},
    "withhold": {"kinds": []},
}
ON: dict[str, dict[str, Any]] = {
    "dp_gaussian": {"clip_norm": 0.5, "noise_multiplier": 0.1},
    "laplace": {"kinds": ["local_model", "local_prototypes"], "clip_norm": 5, "scale": 0.001},
    "discrete_laplace": {"scale": 3},
    "prototype_threshold": {"least": 9},
    "prototype_mixing": {"most": 0.9},
    "quantise": {"bits": 3},
    "top_k": {"share": 0.1},
}
METHODS = ("fedavg", "fedprox", "scaffold", "fednova", "feddyn", "rebafl")


def world(name: str, protections: dict[str, dict[str, Any]], folder: Path | None = None) -> Any:
    active = [
        plugin.configure(plugin.load("fedaudit.fl.protections", p, Protection), settings, "protections")
        for p, settings in protections.items()
    ]
    return run(
        method(name),
        folder=folder,
        protections=active,
        d=data(n=100),
        index=parts(data(n=80)),
        script=[([0, 1, 2, 4], [0, 1, 2, 4])],
    )


def test_every_protection_on_messages_is_listed_here() -> None:
    # these have files of their own: in training, on the mean, only with noise, on batches, on outputs
    assert {*OFF, "dp_sgd", "central_dp", "noised_prototypes", "noised_activations", "top_class"} == set(
        plugin.names("fedaudit.fl.protections")
    )


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", OFF)
def test_off_changes_nothing_to_the_last_bit(name: str) -> None:
    assert same(world("rebafl", {}), world("rebafl", {name: OFF[name]}))


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ON)
def test_on_changes_the_run_and_the_same_seed_gives_the_same_bits(name: str) -> None:
    first = world("rebafl", {name: ON[name]})
    assert not same(world("rebafl", {}), first)
    assert same(first, world("rebafl", {name: ON[name]}))


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", METHODS)
def test_methods_run_with_all_protections_at_once(name: str, tmp_path: Path) -> None:
    result = world(name, {**ON, "secure_aggregation": {}}, tmp_path)
    uploads = [a for a in result.artifacts if a.channel == "uplink" and a.kind != Kind.AGGREGATE]
    assert uploads and not any(a.seen_by for a in uploads)
    assert len({a.round for a in result.artifacts if a.kind == Kind.AGGREGATE}) == 3


@pytest.mark.parametrize("name", ["fedasync", "ifca", "qffl", "power_of_choice"])
def test_methods_that_look_at_one_client_cannot_aggregate_securely(name: str) -> None:
    with pytest.raises(UserError, match="of which there is no useful sum") as error:
        world(name, {"secure_aggregation": {}})
    assert error.value.hint


@pytest.mark.parametrize("name", OFF)
def test_the_description_is_a_phrase_of_its_own(name: str) -> None:
    found = plugin.configure(plugin.load("fedaudit.fl.protections", name, Protection), OFF[name], "x")
    assert len(found.describe()) > 30 and found.title and found.source
