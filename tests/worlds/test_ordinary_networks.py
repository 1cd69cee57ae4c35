"""Ordinary networks and data come through plan, run and fa.attack, or are refused in one sentence."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import nn

from fedaudit.audit.cli.main import app
from tests.worlds.ordinary_networks import DATA, GIVEN, HERE, MODELS, NAMED, NETWORKS, Brought, Network, pair
from tests.worlds.world import OUT, RUNNER, Truth, attacks_of, carry_out, check_attack, check_folder

pytestmark = pytest.mark.usefixtures("few_epochs")
TRAINING = {"local_epochs": 1, "batch_size": 20, "lr": 0.05}


def write_config(folder: Path, data: Any, model: Any, attacks: Any, **more: Any) -> Path:
    """A config of four clients who all answer, in batches of 20, with the examples in a file beside it."""
    x, y = map(np.asarray, data)
    np.savez(folder / "mine.npz", x_train=x[:320], y_train=y[:320], x_test=x[320:], y_test=y[320:])
    config = {
        "federation": {
            "dataset": {"name": "npz", "path": str(folder / "mine.npz"), **more.get("dataset", {})},
            "clients": 4,
            "partition": more.get("partition", "iid"),
            "availability": {"name": "bernoulli", "p": 1.0},
            "model": model,
        },
        "method": {"name": "fedavg", "rounds": 1, **TRAINING} | more.get("method", {}),
        "attacks": attacks if isinstance(attacks, str) else list(attacks),
        "budget": 0.2,
        "report": ["json"],
        "workers": 0,
    }
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def config_of(world: Network, folder: Path, attacks: Any = None) -> Path:
    model = {"name": f"{HERE}:{world.network}", **world.setting}
    more: dict[str, Any] = {"method": world.method}
    if world.first is not None:
        more["partition"] = {"name": f"{HERE}:FirstHolds", "examples": world.first}
    return write_config(folder, world.data(), model, world.attacks if attacks is None else attacks, **more)


def check_run(config: Path, truth: Truth, attacks: Any) -> None:
    """Plan and run a config; what the folder says of each attack that was asked for."""
    out = config.parent / OUT
    if carry_out([["plan", str(config)], ["run", str(config), "--out", str(out)]], truth):
        return
    check_folder(out, truth)
    tried = {name: (status, reason) for name, status, reason in attacks_of(out)}
    for name in () if isinstance(attacks, str) else attacks:
        status, reason = tried[name]
        assert status == "ran" or any(w in reason for w in truth.naming), f"{name} {status}: {reason}"


def split(data: Any) -> dict[str, Any]:
    x, y = data
    return {"members": (x[:60], y[:60]), "nonmembers": (x[60:160], y[60:160])}


def copy_of(net: nn.Module) -> dict[str, Any]:
    """Its arrays and whether it is in training mode; layers that were not made yet have none."""
    made = {k: v for k, v in net.state_dict().items() if not nn.parameter.is_lazy(v)}
    return {k: v.clone() for k, v in made.items()} | {"training": torch.tensor(net.training)}


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", NETWORKS)
def test_an_ordinary_network_is_planned_and_trained_or_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    world = NETWORKS[name]
    check_run(config_of(world, tmp_path), world.run, world.attacks)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [n for n, world in NETWORKS.items() if world.auto])
def test_every_attack_that_applies_bears_an_ordinary_network(name: str, tmp_path: Path) -> None:
    world = NETWORKS[name]
    check_run(config_of(world, tmp_path, "auto"), world.run, "auto")


@pytest.mark.nightly
@pytest.mark.parametrize("network", ["BatchNorm1d", "BatchNorm2d"])
def test_the_config_that_init_writes_bears_batch_normalisation(network: str, tmp_path: Path) -> None:
    path = tmp_path / "audit.yaml"
    assert RUNNER.invoke(app, ["init", str(path)]).exit_code == 0
    config = yaml.safe_load(path.read_text())
    config["federation"]["model"] = f"{HERE}:{network}"
    path.write_text(yaml.safe_dump(config | {"workers": 0, "report": ["json"], "budget": 0.5}))
    check_run(path, NETWORKS[network].run, "auto")


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", NAMED)
def test_what_a_config_names_in_place_of_a_class_is_built_or_refused_in_a_sentence(
    name: str, tmp_path: Path
) -> None:
    world = NAMED[name]
    check_run(config_of(world, tmp_path), world.run, world.attacks)


@pytest.mark.sample(20)
@pytest.mark.parametrize("name", NETWORKS)
def test_an_ordinary_network_is_attacked_and_left_as_it_was(name: str) -> None:
    world = NETWORKS[name]
    net = world.build()
    before = copy_of(net)
    check_attack(net, world.attacked, **split(world.data()))
    after = copy_of(net)
    assert all(torch.equal(before[k], after[k]) for k in before)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", NETWORKS)
def test_shadow_models_of_an_ordinary_network_are_trained_or_refused_in_a_sentence(name: str) -> None:
    """A network whose weights cannot be drawn anew has no shadow models; the sentence says which layer."""
    world = NETWORKS[name]
    runs, naming, *_ = world.attacked
    x, y = world.data()
    check_attack(
        world.build(),
        Truth(runs, (*naming, "reset_parameters")),
        "lira",
        **split((x, y)),
        auxiliary=(x[160:260], y[160:260]),
        training=TRAINING,
        shadows=2,
    )


def needs_a_file(name: str) -> bool:
    return DATA[name].file is not None


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", filter(needs_a_file, DATA))
def test_examples_in_a_file_are_read_or_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    brought = DATA[name]
    assert brought.file
    config = write_config(tmp_path, brought.data(), brought.model, brought.attacks, dataset=brought.more)
    check_run(config, brought.file, brought.attacks)


@pytest.mark.sample(20)
@pytest.mark.parametrize("name", DATA)
def test_examples_given_to_an_attack_are_read_or_refused_in_a_sentence(name: str) -> None:
    brought: Brought = DATA[name]
    if brought.attack:
        check_attack(brought.network(), brought.attack, **split(brought.data()))


@pytest.mark.parametrize("name", MODELS)
def test_what_is_given_as_a_model_is_attacked_or_refused_in_a_sentence(name: str) -> None:
    make: Callable[[], Any]
    make, truth = MODELS[name]
    check_attack(make(), truth, **split(pair(0, 160)))


@pytest.mark.parametrize("name", GIVEN)
def test_what_is_given_as_members_is_read_or_refused_in_a_sentence(name: str) -> None:
    give, truth = GIVEN[name]
    members, nonmembers = give()
    net = MODELS["Sequential"][0]()
    check_attack(net, truth, members=members, nonmembers=nonmembers)


def test_the_corpus_is_large_enough_and_says_of_each_world_what_must_come_of_it() -> None:
    worlds: list[Mapping[str, Any]] = [NETWORKS, NAMED, MODELS, DATA, GIVEN]
    assert len(NETWORKS) >= 40 and sum(map(len, worlds)) >= 100
    truths = [w.run for w in (*NETWORKS.values(), *NAMED.values())]
    assert all(t.runs or t.naming for t in truths)
