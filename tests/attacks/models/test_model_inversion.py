"""Model inversion names people who are alone in a class, and of a class of many nobody."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from fedaudit.attacks.attack import Claim
from fedaudit.attacks.evaluation.sources import pair_models
from fedaudit.attacks.models.model_inversion import ModelInversion
from fedaudit.fl.kinds import Kind
from tests.attacks.models.released import Released


@cache
def world(each: int = 40) -> Released:
    return Released(each=each)


@cache
def claimed(each: int = 40) -> Claim:
    here = world(each)
    return ModelInversion().run(here.artifacts, here.knowledge, np.random.default_rng(0))


def test_one_image_a_class_is_claimed_of_each_model_that_has_one_before_it() -> None:
    claim = claimed()
    assert claim["label"].tolist() == [*range(10)] * 4  # three replayed, and one that was released
    assert claim["images"].shape == (40, 1, 8, 8) and 0 <= claim["images"].min() <= claim["images"].max() <= 1
    assert claim["artifact"][0] == "r00001/server.downlink/global_model" and claim["sender"][0] == -1


def test_whoever_is_alone_in_a_class_is_named_and_looks_like_it() -> None:
    claim = claimed()
    alone = np.flatnonzero(claim["origin"] == "replayed")
    near = []
    for row in alone:
        (own,) = world().members(str(claim["artifact"][row]), int(claim["label"][row]))
        like = world().reference.of_class(int(claim["label"][row]))
        apart = ((like - claim["images"][row]) ** 2).mean(axis=(1, 2, 3)).min()
        near.append(((own - claim["images"][row]) ** 2).mean() < apart)
    assert np.mean(near) > 0.8
    found = ModelInversion().count_people(claim, world(), np.random.default_rng(0))
    planted = sum(p.hits for p in found[0].planted.values()), sum(p.trials for p in found[0].planted.values())
    assert planted[1] == 30 and planted[0] > 20


def test_of_a_class_of_many_hardly_anybody_is_named() -> None:
    (people,) = ModelInversion().count_people(claimed(), world(), np.random.default_rng(0))
    tested = sum(map(len, people.tested.values()))
    assert tested == sum(len(c) for c in world().clients) > 300
    assert sum(map(len, people.hit.values())) <= 10 and people.luck.trials > 100
    assert not any(people.unclaimed.values())


def test_of_a_federation_in_which_everybody_is_alone_in_a_class_most_are_named() -> None:
    """Its released model is the leak, whatever was planted."""
    here = Released(models=1, each=1)
    lone = [replace(c, x=c.x[:0], y=c.y[:0]) for c in here.clients]
    for label in range(10):  # one holder a class
        k = label // 2
        lone[k] = here.clients[k]
    here.clients = lone
    claim = ModelInversion().run(here.artifacts, here.knowledge, np.random.default_rng(0))
    (people,) = ModelInversion().count_people(claim, here, np.random.default_rng(0))
    assert sum(map(len, people.hit.values())) >= 7 and sum(map(len, people.tested.values())) == 10


def test_images_are_those_that_explain_every_round() -> None:
    here = Released(models=1, each=4)
    first, taught, after = here.artifacts
    same, other = (
        replace(after, id="r00002/server.downlink/global_model", round=2, payload=p)
        for p in (after.payload, taught.payload)
    )
    one, both, changed = (
        ModelInversion().run([first, after, *more], here.knowledge, np.random.default_rng(0))["images"]
        for more in ([], [same], [other])
    )
    np.testing.assert_array_equal(one, both)  # a model that did not change tells nothing
    assert np.abs(one - changed).max() > 0.1


def test_a_model_is_held_against_the_one_before_it_whoever_reads_either() -> None:
    first, after = [a for a in world().artifacts if a.kind == Kind.GLOBAL_MODEL]
    public = replace(after, seen_by=("public",))
    own = [replace(a, seen_by=("client/3",), id=f"{a.id}/3") for a in (first, after)]
    assert [(b.id, a.id) for b, a in pair_models([first, public])] == [(first.id, public.id)]
    pairs = pair_models([first, own[0], after, own[1]])
    assert {(b.id, a.id) for b, a in pairs} == {(first.id, after.id), (own[0].id, own[1].id)}
    assert pair_models([first]) == [] == pair_models([first, replace(first, round=1)])


@pytest.mark.parametrize(
    ("lacks", "says"),
    [("model", "together with one before it"), ("auxiliary", "auxiliary examples"), ("images", "no images")],
)
def test_what_it_cannot_work_with_is_said(lacks: str, says: str) -> None:
    view, known = world().artifacts, world().knowledge
    if lacks == "model":
        view = [a for a in view if a.round == 0]
    elif lacks == "auxiliary":
        known = replace(known, auxiliary=None)
    else:
        known = replace(known, shape=(64,))  # type: ignore[arg-type]
    assert says in ModelInversion().not_applicable(view, known)
    assert not ModelInversion().not_applicable(world().artifacts, world().knowledge)
