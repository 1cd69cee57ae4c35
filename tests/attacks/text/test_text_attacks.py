"""Attacks on what clients send that train on text: what is read exactly, what silences it, and whom it names."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedaudit.attacks.attack import Attack, Claim
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.modality.text import strip
from fedaudit.attacks.text.adapter_span import AdapterSpan
from fedaudit.attacks.text.span_check import SpanCheck
from fedaudit.attacks.text.token_set import TokenSet, select_before_gap
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from tests.attacks.text.text_world import END, TextWorld

ADAPTED = ("q.weight", "v.weight")


def play(attack: Attack, world: TextWorld, view: list[Artifact] | None = None) -> Claim:
    seen = world.artifacts if view is None else view
    assert attack.not_applicable(seen, world.knowledge) == ""
    return attack.run(seen, world.knowledge, np.random.default_rng(0))


def tell(attack: Attack, world: TextWorld, claim: Claim, origin: str = "recorded") -> dict[str, Evidence]:
    found = attack.measure(claim, world, np.random.default_rng(1))
    return {e.measure: e for e in found if e.condition.get("origin") == origin}


def change(world: TextWorld, by: Any) -> list[Artifact]:
    """The uploads with something done to what they changed in each array."""
    (start,) = [a.payload for a in world.artifacts if a.kind == Kind.GLOBAL_MODEL]
    return [
        a
        if a.kind == Kind.GLOBAL_MODEL
        else replace(
            a, payload={n: (start[n] + by(v - start[n])).astype(np.float32) for n, v in a.payload.items()}
        )
        for a in world.artifacts
    ]


@pytest.mark.sample(1)
@pytest.mark.parametrize(("steps", "optimiser"), [(1, "sgd"), (20, "sgd"), (5, "adamw")])
def test_every_word_is_read_off_the_rows_of_an_embedding(steps: int, optimiser: str) -> None:
    world = TextWorld(steps=steps, optimiser=optimiser, rate=0.01, planted=0)
    found = tell(TokenSet(), world, play(TokenSet(), world))
    assert found["token_precision"].value == found["token_recall"].value == 1
    assert found["token_recall"].strongest is not None and 0.3 < found["token_recall"].strongest.value < 0.7


def test_clipping_alone_hides_no_word() -> None:
    world = TextWorld(planted=0)
    view = change(world, lambda v: v * 0.1)
    assert tell(TokenSet(), world, play(TokenSet(), world, view))["rare_token_recall"].value == 1
    assert tell(SpanCheck(), world, play(SpanCheck(), world, view))["exact_text"].value == 1


def test_noise_on_all_rows_silences_the_claim_and_noise_on_moved_rows_does_not() -> None:
    world, rng = TextWorld(planted=0), np.random.default_rng(3)
    dense = change(world, lambda v: v + 0.3 * np.abs(v).max() * rng.normal(size=v.shape))
    sparse = change(world, lambda v: v + (v != 0) * 0.3 * np.abs(v).max() * rng.normal(size=v.shape))
    assert not play(TokenSet(), world, dense)["tokens"].any()
    found = tell(TokenSet(), world, play(TokenSet(), world, sparse))
    assert found["token_precision"].value == found["token_recall"].value == 1


def test_a_tied_embedding_moves_in_every_row_and_what_was_read_moves_most() -> None:
    world = TextWorld(task="lm", tied=True, planted=0)
    found = tell(TokenSet(), world, play(TokenSet(), world))
    assert found["ranked_token_precision"].value > 0.9
    assert np.flatnonzero(select_before_gap(np.array([0, 5.0, 0.1, 4.0, 0.09]))).tolist() == [1, 3]


def test_an_embedding_that_stands_still_tells_nothing() -> None:
    world = TextWorld(trained=ADAPTED, planted=0)
    assert "embedding" in TokenSet().not_applicable(world.artifacts, world.knowledge)


@pytest.mark.parametrize("task", ["classify", "lm"])
def test_texts_are_read_word_for_word(task: str) -> None:
    world = TextWorld(task=task, planted=0)
    claim = play(SpanCheck(), world)
    true = sorted(strip(x, END) for own in world.clients for x in own.x)
    assert sorted(strip(s, END) for s in claim["sentences"]) == true
    assert tell(SpanCheck(), world, claim)["exact_text"].value == 1


def test_no_text_of_one_client_is_claimed_of_another() -> None:
    world = TextWorld(clients=12, planted=0)
    claim = play(SpanCheck(), world)
    wrong = 0
    for row, client in enumerate(claim["sender"]):
        said = {strip(s, END) for s in claim["sentences"][claim["sentence_of"] == row]}
        others = [strip(x, END) for k, own in enumerate(world.clients) if k != client for x in own.x]
        wrong += len(others)
        assert said and not said & set(others)
    assert wrong > 200


def test_an_adaptive_optimiser_silences_the_exact_test_and_the_order_is_judged_beside_a_blind_one() -> None:
    world = TextWorld(optimiser="adamw", rate=1e-3, planted=0)
    claim = play(SpanCheck(), world)
    assert not claim["tokens"].any() and not len(claim["sentences"])
    blind = tell(SpanCheck(), world, claim)["ranked_token_precision"].strongest
    assert blind is not None and blind.name == "commonest tokens of auxiliary text"


def test_rounds_of_adapters_share_a_span_where_embeddings_stand_still() -> None:
    world = TextWorld(rounds=2, trained=ADAPTED, planted=0)
    claim = play(AdapterSpan(), world)
    assert claim["messages"].tolist() == [2] * 6
    assert tell(AdapterSpan(), world, claim)["rare_token_recall"].value == 1


def test_adapters_of_low_rank_tell_no_word_in_one_round_and_every_word_over_several() -> None:
    """A text has six to nine tokens at as many places: a law of 9 at most; two maps of rank 2 add 4 a round."""
    world = TextWorld(clients=5, texts=1, rounds=4, planted=0, rank=2, rate=2.0, kind=Kind.ADAPTER)
    last = [a for a in world.artifacts if a.round == 3]
    assert not play(AdapterSpan(), world, last)["tokens"].any()
    claim = play(AdapterSpan(), world)
    assert claim["messages"].tolist() == [4] * 5
    found = tell(AdapterSpan(), world, claim)
    assert found["token_recall"].value > 0.9 and found["token_precision"].value == 1


def test_frozen_a_tells_as_much_as_its_rank_however_many_rounds() -> None:
    """Rows of B's changes are A z: 24 numbers tell nine tokens, six do not."""
    for rank, is_told in ((24, True), (6, False)):
        frozen = ("lora_B.weight",)
        world = TextWorld(
            clients=2, texts=1, rounds=3, planted=0, rank=rank, rate=2.0, trained=frozen, kind=Kind.ADAPTER
        )
        assert play(AdapterSpan(), world)["tokens"].any() == is_told


def test_where_embeddings_are_trained_rounds_have_no_span_in_common() -> None:
    world = TextWorld(rounds=2, planted=0, rate=0.5)
    assert "changes from round to round" in AdapterSpan().not_applicable(world.artifacts, world.knowledge)


def test_images_are_no_texts() -> None:
    world = TextWorld(clients=1, planted=0)
    shape: Any = (1, 8, 8)
    known = replace(world.knowledge, shape=shape)
    for attack in (TokenSet(), SpanCheck(), AdapterSpan()):
        assert "another shape" in attack.not_applicable(world.artifacts, known)
