"""No attack searches all messages for each message: four times as many are looked at four times as often.

Counted, not timed: every look at a field of an artifact counts, whatever the artifact lies in. Each attack runs
on its own tiny world with twice the clients and twice the rounds, and on some more that lead it elsewhere.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from fedaudit.attacks.attack import Attack
from fedaudit.audit.settings import catalog
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from tests.contracts.attack_worlds import Stage, stage
from tests.contracts.growth import MOST, Looked, count, grown, length, looked, sent

CLIENTS, ROUNDS = 6, 3
QUICK = {  # settings of attacks: what they do with the messages that they chose is not looked at here
    "iterations": 1,
    "image_steps": 1,
    "clone_steps": 1,
    "steps": 4,
    "epochs": 1,
    "fine_tune_epochs": 1,
    "least_steps": 1,
    "latent_steps": 1,
    "planted_steps": 1,
    "plays": 4,
    "reference_steps": 1,
    "starts": 1,
    "restarts": 1,
    "images": 100,
    "condensed": 4,
    "simulated": 10,
    "width": 32,
    "shadows": 2,
    "references": 2,
    "per_size": 1,
    "recorded": 1,
    "most": 1,
    "most_recorded": 1,
    "replays": 1,
    "inverted": 1,
    "max_clients": 2,
    "max_generators": 1,
}


def renamed(name: str, kinds: dict[Kind, Kind], *more: Artifact) -> Stage:
    """The world of an attack, whose messages are of other kinds, and more."""
    view = [dataclasses.replace(a, kind=kinds.get(a.kind, a.kind)) for a in stage(name).view]
    return dataclasses.replace(stage(name), view=[*view, *more])


def controlled() -> Stage:
    """As SCAFFOLD: what clients send is read with a control variate that all have in common."""
    common = next(a.payload for a in stage("dlg").view if a.kind == Kind.GLOBAL_MODEL)
    variate = sent(Kind.CONTROL_GLOBAL, None, stage("dlg").view[0].round, common)
    return renamed("dlg", {Kind.LOCAL_MODEL: Kind.CONTROL_DELTA}, variate)


def grouped() -> Stage:
    pairs = {"client": np.arange(2 * CLIENTS), "group": np.arange(2 * CLIENTS) // 3}
    return renamed("generator_distance", {}, sent(Kind.GROUP_MAP, None, 0, pairs))


MORE: dict[str, tuple[str, Callable[[], Stage]]] = {
    "shares of classes": (
        "count_recovery",
        lambda: renamed("count_recovery", {Kind.PROTO_COUNTS: Kind.NOISED_LABEL_DIST}),
    ),
    "control variates": ("inverting_gradients", controlled),
    "groups of clients": ("generator_distance", grouped),
    "models": ("hidden_images", lambda: stage("label_counts_from_update")),
}


def test_a_look_is_counted_and_a_copy_counts_as_well() -> None:
    (a,) = looked([sent(Kind.NUM_EXAMPLES, 0)])
    assert count(lambda: (a.kind, a.round)) == 2
    assert isinstance(dataclasses.replace(a, round=1), Looked)


def looks(name: str, world: Stage, clients: int, rounds: int) -> tuple[int, int]:
    """How often an attack looks at artifacts, and how many there are."""
    cls = catalog.load("attacks", name)
    own = {f.name for f in dataclasses.fields(cls.Config)} if hasattr(cls, "Config") else set()
    settings = {**stage(name).settings, **{k: v for k, v in QUICK.items() if k in own}}
    attack: Attack = cls(cls.Config(**settings)) if settings else cls()
    view, heard = grown(world.view, attack.card, clients, rounds), world.knowledge.heard
    again = {r + t * length(world.view): who for t in range(rounds) for r, who in heard.items()}
    known = dataclasses.replace(world.knowledge, heard=again)

    def attacked() -> None:
        attack.not_applicable(view, known)
        attack.run(view, known, np.random.default_rng(0))

    return count(attacked), len(view)


def check_growth(name: str, world: Stage) -> None:
    few, small = looks(name, world, CLIENTS, ROUNDS)
    many, large = looks(name, world, 2 * CLIENTS, 2 * ROUNDS)
    # of what the server alone sends there are twice as many, however many clients there are
    assert few and 2 * small <= large <= 4 * small
    assert many <= MOST / 4 * few * large / small, f"{few:,} looks at {small:,} artifacts, {many:,} at {large:,}"


@pytest.mark.sample(14)
@pytest.mark.dear("condensed_class", "adapter_span", "span_check")
@pytest.mark.parametrize("name", catalog.names("attacks"))
def test_looks_of_an_attack_grow_as_messages_do(name: str) -> None:
    check_growth(name, stage(name))


@pytest.mark.parametrize("world", MORE)
def test_they_do_where_other_kinds_are_sent(world: str) -> None:
    name, make = MORE[world]
    check_growth(name, make())
