"""Every method, on every kind of worker, over a federation with everything that can go wrong.

Unequal clients, one without data, lost replies, an empty round, a client that never answers. A new method is
tested by being there.
"""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from fedaudit.fl.artifact import SERVER, Channel
from fedaudit.fl.data.dataset import Arrays
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig, Method
from fedaudit.fl.recording.recorder import manifest
from fedaudit.fl.runtime import plugin
from tests.fl.test_kinds import mismatch
from tests.fl.worlds import Stopped, Watched, World, close, data, parts, run, same

NAMES = plugin.names("fedaudit.fl.methods")
COMMON = {
    "rounds": 3,
    "local_epochs": 1,
    "batch_size": 8,
    "lr": 0.05,
    "gan": {"cycles": 3, "least_cycles": 2, "local": 2, "width": 4, "latent": 6, "batch_size": 4},
    "labeler_rounds": 2,
    "iterations": 5,
    "enlarged": 8,
    "tiers": 2,
    "interval": 1,
}

# Client 4 never answers, round 1 is empty, and client 0 comes in every third round only
UNEQUAL = [([0, 1, 2, 3, 4], [1, 2]), ([0, 2], []), ([0, 1], [0, 1])]
SHARED = (Kind.GAN_G, Kind.GAN_D, Kind.SEED_SAMPLES, Kind.MASHED_BATCH)  # what is made of these others train on


def light(name: str, **settings: Any) -> dict[str, Any]:
    """The common settings, and these, that a method has."""
    known = {f.name for f in dataclasses.fields(plugin.load("fedaudit.fl.methods", name, Method).Config)}
    return {k: v for k, v in (COMMON | settings).items() if k in known}


def adapters(name: str, layer: str) -> dict[str, Any]:
    """The key of a config's federation that a method for adapters wants: on this layer, with the head trained."""
    found: Any = plugin.load("fedaudit.fl.methods", name, Method)
    wanted = getattr(found.card, "trained", None) is Kind.ADAPTER
    return {"adapters": {"rank": 8, "targets": [layer], "in_full": ["head"]}} if wanted else {}


def perceptron(name: str) -> dict[str, Any]:
    """The smallest model that a method can train: of two layers, a U would leave the server none."""
    return {"name": "mlp", "hidden": [8, 8] if name == "split_u_shape" else [8]}


def method(name: str, **settings: Any) -> Method:
    """A fresh instance with common settings; everything else at its default."""
    found = plugin.load("fedaudit.fl.methods", name, Method)
    instance: Method = plugin.configure(found, light(name, **settings), "method")
    return instance


def world(name: str, folder: Path | None = None, workers: int | str = 0) -> World:
    """Clients 0..4 of unequal size; the last examples belong to nobody (some servers need them)."""
    return over(method(name), folder, workers)


def over(
    found: Method,
    folder: Path | None = None,
    workers: int | str = 0,
    changed: int | None = None,
    stop_after: int | None = None,
) -> World:
    """Where a client is `changed`, its images are others by a hair."""
    d, index = data(n=100), parts(data(n=80), skew=False)
    if changed is not None:
        x = d.train.x.copy()
        x[index[changed]] *= 0.999
        d = dataclasses.replace(d, train=Arrays(x=x, y=d.train.y))
    return run(
        found,  # type: ignore[arg-type]
        folder=folder,
        workers=workers,
        script=UNEQUAL,
        reply_loss=0.2,
        empty_round="skip",
        d=d,
        index=index,
        stop_after=stop_after,
    )


class Ran(NamedTuple):
    watched: Watched
    result: World
    folder: Path
    name: str


@pytest.fixture(scope="module", params=NAMES)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Each method once."""
    watched = Watched(plugin.load("fedaudit.fl.methods", request.param, Method), method(request.param).config)
    folder = tmp_path_factory.mktemp(request.param)
    return Ran(watched, over(watched.method, folder), folder, request.param)


def test_rounds_leave_the_method_object_as_it_was_opened(ran: Ran) -> None:
    assert not ran.watched.changed()


@pytest.mark.sample(16)
@pytest.mark.parametrize("after", [0, 1])
def test_a_run_that_was_stopped_leaves_every_file_as_one_that_was_not(
    ran: Ran, after: int, tmp_path: Path
) -> None:
    with pytest.raises(Stopped):
        over(method(ran.name), tmp_path, stop_after=after)
    over(method(ran.name), tmp_path)
    whole, continued = (
        {p.relative_to(f).as_posix(): p.read_bytes() for p in f.rglob("*") if p.is_file()}
        for f in (ran.folder, tmp_path)
    )
    assert "checkpoint/state.safetensors" in whole
    assert [name for name in whole.keys() | continued.keys() if whole.get(name) != continued.get(name)] == []


def test_only_declared_kinds_cross_the_wire_and_all_are_finite(ran: Ran) -> None:
    result, card = ran.result, ran.watched.method.card
    for artifact in result.artifacts:
        assert artifact.kind in getattr(card, artifact.channel.value) and not mismatch(artifact)
        for array in artifact.payload.values():
            assert array.dtype.kind != "f" or np.isfinite(array).all()
    sent = {a.kind for a in result.artifacts if a.channel is Channel.UPLINK}
    assert sent or not card.uplink
    assert all(np.isfinite(v.numpy()).all() for v in result.model.values())


@pytest.mark.sample(63)
@pytest.mark.parametrize("client", [0, pytest.param(4, marks=pytest.mark.nightly)])
def test_what_the_server_sends_is_made_of_the_clients_that_it_heard(
    ran: Ran, client: int, tmp_path: Path
) -> None:
    """Known by a second run, in which this client's images are others by a hair and everything else is equal."""
    second = {a.id: a for a in over(method(ran.name), tmp_path, changed=client).artifacts}
    lines = [line for line in manifest(ran.folder / "artifacts") if "message" in line]
    behind = {f"{line['message']}/{kind}": of for line in lines for kind, of in line["behind"].items()}
    assert len(second) == len(ran.result.artifacts)
    shared = False  # generators or samples made of this client's: what others train on them differs as well
    for a in ran.result.artifacts:
        if a.sender == SERVER and not a.kind.about:
            payload, named = second[a.id].payload, client in behind[a.id]
            differs = any(v.tobytes() != payload[name].tobytes() for name, v in a.payload.items())
            # each client gets others of the samples; IFCA releases one of its models: heard is who was for any
            part = a.kind == Kind.SEED_SAMPLES or (ran.name, a.channel) == ("ifca", Channel.RELEASE)
            assert named <= differs or part, f"{a.id}: client {client} is not in it"
            shared = shared or (differs and a.kind in SHARED)
            assert differs <= (named or shared), f"{a.id}: client {client} is in it"


@pytest.mark.parametrize("name", NAMES)
def test_the_card_says_what_the_method_is(name: str) -> None:
    found = method(name)
    assert found.card.title and found.card.source and len(found.card.text) > 40
    assert (plugin.load("fedaudit.fl.methods", name, Method).__doc__ or _module_doc(name)).strip()


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_two_processes_give_the_bits_of_one(name: str) -> None:
    assert same(world(name), world(name, workers=2))


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_stacked_clients_agree_with_one_by_one(name: str) -> None:
    unequal = parts(data(n=80), sizes=(7, 7, 20, 0, 30))
    alone = run(method(name), d=data(n=100), index=unequal, reply_loss=0.2)
    together = run(method(name), d=data(n=100), index=unequal, reply_loss=0.2, workers="batched")
    assert close(alone, together, tolerance=1e-5)


def test_settings_of_local_training_have_the_common_names() -> None:
    for name in NAMES:
        config = plugin.load("fedaudit.fl.methods", name, Method).Config
        assert issubclass(config, LocalConfig) or not hasattr(config, "local_epochs")


def _module_doc(name: str) -> str:
    import importlib

    return importlib.import_module(f"fedaudit.fl.methods.{name}").__doc__ or ""
