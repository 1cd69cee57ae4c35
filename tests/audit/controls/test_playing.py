"""Clients that are played say what their messages tell of single images, whatever they send as prototypes."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from fedaudit.attacks.attack import Examples, Knowledge, Visit
from fedaudit.attacks.evaluation.prototype_plays import Reading, ReadSource, _list_prototypes, read
from fedaudit.attacks.evaluation.sources import Source, prototypes
from fedaudit.attacks.prototypes.grnn import GRNN, draw_generators, list_weights
from fedaudit.attacks.prototypes.ridge import Ridge
from fedaudit.audit.case.messages import messages
from fedaudit.audit.case.open import open_case
from fedaudit.audit.observer.view import grant_knowledge, observer, select_visible
from fedaudit.audit.plays.client import ClientPlayer
from fedaudit.fl.runtime.errors import UserError
from tests.audit.simulated import simulated

NOISE = {"kinds": ["local_prototypes"], "clip_norm": 1.0, "noise_multiplier": 3.0, "clip": "row"}
PARTITIONS = {
    "iid": {"name": "iid"},
    "two classes": {"name": "n_class", "classes_per_client": 2, "examples_per_client": 120},
    "skewed": {"name": "dirichlet", "alpha": 0.3},
}


@cache
def federation(sender: str, partition: str = "iid", protections: str = "") -> tuple[list[Source], Knowledge]:
    settings = {
        "seed": 7,
        "federation": {
            "dataset": "digits",
            "clients": 4,
            "partition": PARTITIONS[partition],
            "availability": "full",
            "model": {"name": "mlp", "hidden": [32, 32]},
            "holdout": {"auxiliary": 0.4, "reference": 0.1},
        },
        "method": {"name": f"tests.audit.controls.senders:{sender}", "rounds": 1, "local_epochs": 3, "lr": 0.1},
        "workers": 0,
        "attacks": [],
        "protections": [{"name": protections, **NOISE}] if protections else [],
    }
    run, config = simulated(settings)
    case, card = open_case(run, config), Ridge.card
    assert case.artifacts is not None
    sent = messages(case.artifacts, {*card.reads, *case.card.downlink}, card.rounds)
    known = grant_knowledge(case, card)
    return prototypes(select_visible(sent, observer(case, sent, card), card)), known


@cache
def reading(sender: str, partition: str = "iid") -> tuple[list[ReadSource], Reading]:
    return read(*federation(sender, partition))


def play_singles(sender: str, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images alone, one a class, as they are played; their features; and phi."""
    sources, known = federation(sender)
    source, aux = sources[0], known.auxiliary
    assert known.architecture is not None and aux is not None
    images = aux.x[:count]
    return (
        images,
        known.architecture(source.weights.values).features(images),
        reading(sender)[0][0].extractor.features(images),
    )


@pytest.mark.parametrize("partition", PARTITIONS)
def test_means_are_taken_as_they_are(partition: str) -> None:
    result, how = reading("Sender", partition)
    assert how == Reading() and all(law is None for r in result for law in r.laws)
    assert [r.source for r in result] == federation("Sender", partition)[0]


def test_what_a_client_sends_of_one_image_alone_takes_the_place_of_its_features() -> None:
    _, features, phi = play_singles("Log", 7)
    np.testing.assert_allclose(phi, np.log1p(features), rtol=1e-5, atol=1e-6)


@pytest.mark.nightly
def test_a_layer_is_read_that_no_list_holds() -> None:
    _, features, phi = play_singles("Projected", 3)
    assert phi.shape[1] == features.shape[1] + 10


@pytest.mark.nightly
def test_images_that_share_a_visit_are_played_as_if_alone() -> None:
    images, _, phi = play_singles("Maximum", 30)
    extractor = reading("Maximum")[0][0].extractor
    extractor._known.clear()  # type: ignore[attr-defined]
    np.testing.assert_allclose(extractor.features(images[20:21])[0], phi[20], rtol=1e-6)


@pytest.mark.dear("Standardised", "Permuted", "Normalised")
@pytest.mark.parametrize("sender", ["Summed", "Permuted", "Log", "Normalised", "Standardised", "Projected"])
def test_phi_of_the_images_explains_most_of_what_a_message_tells(sender: str) -> None:
    result, how = reading(sender)
    assert how == Reading(played=True)
    law, p, aux = result[0].laws[0], federation(sender)[0][0].prototypes[0], federation(sender)[1].auxiliary
    assert law is not None and law.n == p.samples and aux is not None
    spread = np.cov(result[0].extractor.features(aux.of_class(p.label)).T)
    explained = np.trace(law.slope @ spread @ law.slope.T) / law.n
    assert np.trace(law.residual) < 0.5 * explained


def test_a_secret_constant_of_the_sender_is_taken_away() -> None:
    shifted, scaled = reading("Shifted")[0][0], reading("OwnScale")[0][0]
    for r in (shifted, scaled):
        near = [np.linalg.norm(law.message - law.expected) for law in r.laws if law]
        assert np.median(near) < 0.5 * np.median([np.linalg.norm(law.expected) for law in r.laws if law])


@pytest.mark.dear("Turned")
@pytest.mark.parametrize("sender", ["Turned", "Noise"])
def test_what_matches_no_play_is_not_read(sender: str) -> None:
    assert reading(sender)[1].unread
    assert "not read" in str(reading(sender)[1])


@pytest.mark.dear("Standardised")
@pytest.mark.parametrize("sender", ["Sender", "Summed", "Permuted", "Standardised", "Maximum"])
def test_what_matches_plays_is_read(sender: str) -> None:
    assert not reading(sender)[1].unread


def test_without_a_player_means_are_assumed_where_they_can_be() -> None:
    from dataclasses import replace

    sources, known = federation("Log")
    assert read(sources, replace(known, player=None))[1] == Reading()
    sources, known = federation("Projected")
    with pytest.raises(UserError, match="the features of the network"):
        read(sources, replace(known, player=None))


def test_a_visit_holds_no_image_but_the_given_ones() -> None:
    sources, known = federation("First")
    aux, player = known.auxiliary, known.player
    assert aux is not None and player is not None and known.architecture is not None
    first = sources[0].prototypes[0]
    visit = Visit(sender=first.sender, round=first.round, weights=sources[0].weights.values)
    own = Examples(x=aux.x[:5], y=np.full(5, 3))
    (sent,) = map(_list_prototypes, player.play(visit, [own], 1, steps=0))
    assert list(sent) == [3]
    features = known.architecture(sources[0].weights.values).features(aux.x[:1])
    np.testing.assert_allclose(sent[3], features[0], rtol=1e-5)


def test_noise_differs_between_visits_and_can_be_silent() -> None:
    sources, known = federation("Sender", "iid", "dp_gaussian")
    aux, player = known.auxiliary, known.player
    assert aux is not None and player is not None
    first = sources[0].prototypes[0]
    visit = Visit(sender=first.sender, round=first.round, weights=sources[0].weights.values)
    own = Examples(x=aux.x[:5], y=np.full(5, 3))
    noisy = [*map(_list_prototypes, player.play(visit, [own, own], 1, steps=0))]
    silent = [*map(_list_prototypes, player.play(visit, [own, own], 1, steps=0, noised=False))]
    bare = [*map(_list_prototypes, player.play(visit, [own], 1, steps=0, protected=False))]
    assert not np.allclose(noisy[0][3], noisy[1][3])
    np.testing.assert_array_equal(silent[0][3], silent[1][3])
    assert np.linalg.norm(silent[0][3]) <= 1 + 1e-5 < np.linalg.norm(bare[0][3])


@pytest.mark.nightly
def test_what_one_attack_has_played_is_not_played_again_for_another_and_gives_the_same() -> None:
    sources, first = federation("Log")
    assert isinstance(first.player, ClientPlayer)
    fresh = replace(first, player=ClientPlayer(first.player.lab, first.player.downlink))
    assert isinstance(fresh.player, ClientPlayer)
    once, _ = read(sources, fresh)
    played = fresh.player.count_plays()
    again, _ = read(sources, fresh)
    assert fresh.player.count_plays() == played > 0
    alone, _ = read(sources, replace(first, player=ClientPlayer(first.player.lab, first.player.downlink)))
    for a, b, c in zip(once, again, alone, strict=True):
        assert np.array_equal(a.source.features, b.source.features)
        assert np.array_equal(a.source.features, c.source.features)


def test_a_visit_in_another_round_or_with_other_images_is_another() -> None:
    sources, known = federation("Log")
    assert isinstance(known.player, ClientPlayer) and known.auxiliary is not None
    player = ClientPlayer(known.player.lab, known.player.downlink)
    first, own = sources[0].prototypes[0], known.auxiliary.only(np.arange(12))
    visit = Visit(sender=first.sender, round=first.round, weights=sources[0].weights.values)
    moved = {name: v + 1 if name.endswith("bias") else v for name, v in visit.weights.items()}
    asked = [
        (visit, [own], {}),
        (visit, [own.only(np.arange(11))], {}),
        (visit, [own], {"protected": False}),
        (visit, [own], {"noised": False}),
        (visit, [own], {"draws": 3}),
        (replace(visit, weights=moved), [own], {}),
    ]
    for number, (who, holdings, how) in enumerate(asked, 1):
        player.play(who, holdings, 1, steps=0, **how)
        assert player.count_plays() == number
    player.play(visit, [own], 1, steps=0)
    assert player.count_plays() == len(asked)


def test_a_search_runs_every_client_through_its_own_network() -> None:
    """GRNN's copies run all that are alike, each with the weights that it is given."""
    read_sources, known = reading("Log")[0][:2], federation("Log")[1]
    assert known.auxiliary is not None
    features, x = torch.from_numpy(read_sources[0].source.features), torch.from_numpy(known.auxiliary.x[:3])
    drawn = [
        draw_generators(r.extractor, features, torch.ones(()), known.shape, torch.Generator())
        for r in read_sources
    ]
    assert drawn[0].kind == drawn[1].kind
    run, expected = GRNN().imitate(drawn[0], False), [d.model.features(x) for d in drawn]  # type: ignore[operator]
    found = [run(x, *list_weights(d.model).values()) for d in drawn]
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(*expected)
