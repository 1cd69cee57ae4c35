"""One image's gradient is found whatever it is called, in any round, and as a difference of what rounds hold."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedaudit.attacks.evaluation.disguised import lone, loneliest
from fedaudit.attacks.updates.analytic import Analytic
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from tests.attacks.updates.gradients import RATE, Planted, gradient
from tests.attacks.updates.updates import artifact
from tests.attacks.world import weights

Arrays = dict[str, NDArray[Any]]
WORLD = Planted(groups=2)
ROUNDS, LEAKING = 3, 2  # of five clients one tells one image's gradient


def mixed(k: int, round: int) -> Arrays:
    """The gradient of all images of a client."""
    return gradient(weights(round), WORLD.clients[k].x, WORLD.clients[k].y)


def alone(round: int) -> Arrays:
    return gradient(weights(round), WORLD.clients[LEAKING].x[3:4], WORLD.clients[LEAKING].y[3:4])


def plus(a: Arrays, b: Arrays, times: float) -> Arrays:
    return {k: v + np.float32(times) * b[k] for k, v in a.items()}


def in_one_round(k: int) -> list[Arrays]:
    """The first of three."""
    return [alone(t) if k == LEAKING and t == 0 else mixed(k, t) for t in range(ROUNDS)]


def as_what_a_sum_grows_by(k: int) -> list[Arrays]:
    """Messages are m_t = h_t - h_(t-1), where the last h is one image's gradient."""
    held = [mixed(k, t) for t in range(ROUNDS)]
    if k == LEAKING:
        held[-1] = alone(ROUNDS - 1)
    return [held[0], *(plus(held[t], held[t - 1], -1) for t in range(1, ROUNDS))]


def as_momentum(k: int) -> list[Arrays]:
    """m_t = 0.9 m_(t-1) + g_t."""
    held = [mixed(k, 0)]
    for t in range(1, ROUNDS):
        held.append(plus(alone(t) if k == LEAKING else mixed(k, t), held[-1], 0.9))
    return held


def written(kind: Kind, round: int, g: Arrays) -> Arrays:
    """A gradient in the form of a kind, at learning rate RATE and one step."""
    if kind == Kind.LOCAL_MODEL:
        return {k: v - np.float32(RATE) * g[k] for k, v in weights(round).items()}
    return {k: np.float32(-RATE) * v for k, v in g.items()} if kind == Kind.MODEL_DELTA else g


def sent(hide: Callable[[int], list[Arrays]], kind: Kind, beside: Kind | None = None) -> list[Artifact]:
    def at(kind: Kind, round: int, payload: Mapping[str, Any], k: int | None) -> Artifact:
        found = artifact(kind, dict(payload), k)
        return replace(found, round=round, id=found.id.replace("r00000", f"r0000{round}"))

    view = [at(Kind.GLOBAL_MODEL, t, weights(t), None) for t in range(ROUNDS)]
    for k in range(5):
        for t, g in enumerate(hide(k)):
            view.append(at(kind, t, written(kind, t, g), k))
            if beside is not None:
                view.append(at(beside, t, written(beside, t, mixed(k, t)), k))
    return view


def present(view: list[Artifact]) -> float:
    attack = Analytic(Analytic.Config(iterations=1, gallery=5))
    claim = attack.run(view, WORLD.knowledge, np.random.default_rng(0))
    assert len(set(claim["sender"].tolist())) == len(claim["sender"]) == 5  # one trial a client
    found = attack.measure(claim, WORLD, np.random.default_rng(1))
    (e,) = [e for e in found if e.measure == "image_present" and e.control == "none"]
    return e.value


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("hide", "kind", "beside"),
    [
        (in_one_round, Kind.LOCAL_MODEL, None),
        (in_one_round, Kind.MODEL_DELTA, None),
        (in_one_round, Kind.CONTROL_DELTA, Kind.MODEL_DELTA),
        (in_one_round, Kind.NORMALIZED_DELTA, Kind.LOCAL_MODEL),
        (in_one_round, Kind.GRADIENT, None),
        (as_what_a_sum_grows_by, Kind.CONTROL_DELTA, Kind.MODEL_DELTA),
        (as_what_a_sum_grows_by, Kind.GRADIENT, None),
        (as_momentum, Kind.NORMALIZED_DELTA, Kind.MODEL_DELTA),
        (as_momentum, Kind.GRADIENT, None),
    ],
)
def test_the_client_that_tells_one_image_is_found_and_no_other(
    hide: Callable[[int], list[Arrays]], kind: Kind, beside: Kind | None
) -> None:
    view = sent(hide, kind, beside)
    assert loneliest(view, WORLD.knowledge, lambda _: True)[0].client == LEAKING
    assert present(view) == 1 / 5


def test_where_all_send_gradients_of_many_images_nobody_is_found() -> None:
    honest = sent(lambda k: [mixed(k, t) for t in range(ROUNDS)], Kind.CONTROL_DELTA, Kind.MODEL_DELTA)
    assert present(honest) == 0
    assert max(lone(u.gradient) for u in loneliest(honest, WORLD.knowledge, lambda _: True)) < 0.99


def test_only_what_an_attack_applies_to_is_chosen_from() -> None:
    assert loneliest(sent(in_one_round, Kind.GRADIENT), WORLD.knowledge, lambda _: False) == []


def test_rank_one_is_one_and_two_equal_directions_are_half() -> None:
    assert lone({"w": np.outer([1.0, 2.0, -1.0], [3.0, 0.5])}) == pytest.approx(1)
    assert lone({"w": np.diag([2.0, 2.0]), "b": np.ones(9)}) == pytest.approx(0.5)
    assert lone({"b": np.ones(3)}) == lone({"w": np.zeros((2, 2))}) == 0
