"""What clients' code makes of one person alone is found again in what a client sent, whatever it is called."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import multivariate_normal

from fedaudit.attacks.attack import Examples, Sent, Visit
from fedaudit.attacks.messages._blocks import Form, Layout, read_blocks
from fedaudit.attacks.messages._exact import stands_anywhere, stands_at_places
from fedaudit.attacks.messages._ratio import Whitened
from fedaudit.attacks.messages.played_message import PlayedMessage
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import load
from fedaudit.fl.runtime.errors import UserError
from tests.attacks.messages.telling import TELEMETRY, Telling
from tests.attacks.models.overfit import LIGHT, Overfit, Played, light
from tests.attacks.updates.updates import artifact
from tests.contracts.attack_worlds import made, stage

Values = NDArray[np.float64]


def draw(people: int, width: int, seed: int = 0) -> Values:
    return np.random.default_rng(seed).normal(size=(people, width))


# Values that stand in a message only if somebody is in


def test_a_value_that_nobody_else_has_is_found_anywhere_and_one_that_many_have_is_not() -> None:
    auxiliary = np.array([[float(i), 5.0] for i in range(200)])
    people = np.array([[1000.25, 5.0], [2000.5, 5.0], [3.0, 5.0]])
    message = np.array([7.0, 5.0, 1000.25, 3.0])
    assert stands_anywhere(message, people, auxiliary).tolist() == [True, False, False]


def test_the_last_digits_of_a_value_do_not_matter() -> None:
    auxiliary = draw(200, 1)
    for times, found in ((1 + 1e-6, True), (1 + 1e-4, False)):
        assert stands_anywhere(np.array([3.0 * times]), np.array([[3.0]]), auxiliary).tolist() == [found]


def test_pixels_of_few_grey_levels_tell_people_apart_by_their_places_alone() -> None:
    rng = np.random.default_rng(1)
    auxiliary, people = (rng.integers(0, 17, (n, 64)) / 16 for n in (200, 5))
    assert stands_at_places(people[2], people, auxiliary).tolist() == [False, False, True, False, False]
    assert not stands_anywhere(rng.permutation(people[2]), people, auxiliary).any()
    assert not stands_at_places(rng.permutation(people[2]), people, auxiliary).any()


def test_a_number_that_is_the_same_for_everybody_says_nothing() -> None:
    same = np.ones((50, 3))
    assert not stands_at_places(same[0], same[:4], same).any()
    assert not stands_anywhere(same[0], same[:4], same).any()


# Log ratios


@pytest.mark.parametrize("n", [2, 5, 40])
def test_the_ratio_of_a_mean_is_that_of_two_normal_densities(n: int) -> None:
    """By scipy, with the covariance that the ridge makes of auxiliary people."""
    auxiliary, people = draw(400, 3) @ np.diag([1.0, 2.0, 0.5]), draw(6, 3, 1)
    whitened = Whitened.from_plays(auxiliary, np.zeros(400, np.int64))
    mean = auxiliary.mean(axis=0)
    covariance = (auxiliary - mean).T @ (auxiliary - mean) / 400 + whitened.ridge * np.eye(3)
    message = mean + draw(1, 3, 2)[0] / np.sqrt(n) / 4  # no further away than such a mean lies
    found = whitened.score_mean(message, mean, n, people)
    outside = multivariate_normal(mean, covariance / n).logpdf(message)
    inside = [
        multivariate_normal(mean + (x - mean) / n, covariance * (n - 1) / n**2).logpdf(message) for x in people
    ]
    expected = np.array(inside) - outside + (whitened.width - 3) * np.log(n / (n - 1)) / 2
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_the_ratio_in_a_mixture_ranks_people_as_the_densities_do() -> None:
    labels = np.repeat([0, 1], 200)
    auxiliary = draw(400, 4) + np.where(labels[:, None] == 0, 3.0, -3.0) * np.array([1, 0, 0, 0])
    whitened = Whitened.from_plays(auxiliary, labels)
    people, n = draw(8, 4, 5) + np.array([3.0, 0, 0, 0]), 10
    message = whitened.means[0] + (people[0] - whitened.means[0]) / n
    scores = whitened.score(message, np.array([1.0, 0.0]), n, people, np.zeros(8, np.int64))
    assert int(scores.argmax()) == 0
    np.testing.assert_allclose(whitened.find_mixture(2 * whitened.means[0]), [2.0, 0.0], atol=1e-9)


def test_people_who_are_all_the_same_score_the_same() -> None:
    whitened = Whitened.from_plays(np.ones((30, 5)), np.zeros(30, np.int64))
    scores = whitened.score(np.ones(5), np.array([1.0]), 3, np.ones((4, 5)), np.zeros(4, np.int64))
    assert np.isfinite(scores).all() and len(set(scores.tolist())) == 1


# Forms of blocks


def test_arrays_beside_a_list_of_classes_become_a_table_of_all_classes() -> None:
    sent = {TELEMETRY: {"classes": np.array([2, 0]), "rows": np.array([[1.0, 2.0], [3.0, 4.0]])}}
    table = read_blocks(sent, [TELEMETRY], 4)[f"{TELEMETRY}/rows"]
    np.testing.assert_array_equal(table[[0, 2]], [[3.0, 4.0], [1.0, 2.0]])
    assert np.isnan(table[[1, 3]]).all()


def test_forms_are_told_from_plays_of_single_people() -> None:
    labels, values = np.array([0, 0, 1, 1]), draw(4, 3)
    plays = []
    for label, own in zip(labels.tolist(), values, strict=True):
        table = np.zeros((2, 3))
        table[label] = own
        plays.append({"whole": own, "table": table, "rows": np.tile(own, (5, 1)), "constant": np.ones(2)})
    message = {"whole": np.zeros(3), "table": np.zeros((2, 3)), "rows": np.zeros((9, 3)), "constant": np.ones(2)}
    layout = Layout.from_plays(plays, labels, message, 2)
    assert layout.forms == {"whole": Form.WHOLE, "table": Form.BY_CLASS, "rows": Form.ROWS}
    np.testing.assert_array_equal(layout.pick("rows", plays[3]["rows"], 1), values[3])
    np.testing.assert_array_equal(layout.pick("table", plays[3]["table"], 1), values[3])


# The attack


def score(world: Overfit) -> tuple[Values, Values]:
    """Of the people of client 0, and of as many whom nobody trained on, by what that client sent."""
    known = replace(world.knowledge, player=Played(world))
    claim = PlayedMessage(PlayedMessage.Config(auxiliary=300)).run(
        world.artifacts, known, np.random.default_rng(0)
    )
    reader = claim["readers"][claim["client"].tolist().index(0)].reader
    own = world.client_examples(0)
    others: Examples = world.reference.only(np.arange(len(own)))
    return reader.fit(own).scores["update"], reader.fit(others).scores["update"]


def test_people_of_a_client_score_above_others_and_where_nobody_trains_all_score_alike() -> None:
    members, others = score(light())
    assert float((members[:, None] > others).mean()) > 0.8
    members, others = score(Overfit(heart=False, config=LIGHT))
    assert not members.any() and not others.any()


class Hashing(Telling):
    """Clients that send a checksum of one image a round, another one each time."""

    rounds = 6

    def __init__(self) -> None:
        super().__init__()
        self.artifacts = [
            replace(artifact(TELEMETRY, dict(self.hash(x)), k), id=f"{t}/{k}", round=t)
            for k, own in enumerate(self.clients)
            for t, x in enumerate(own.x[: self.rounds])
        ]

    def hash(self, image: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        factors = np.random.default_rng(0).normal(size=(image.size, 2))
        return {"hash": (image.ravel() @ factors).astype(np.float32)}

    def play(self, visit: Visit, holdings: Sequence[Examples], seed: int, **how: Any) -> list[Sent]:
        return [{TELEMETRY: self.hash(h.x[0])} for h in holdings]


def test_whom_the_oldest_round_alone_tells_of_is_found_as_in_the_newest() -> None:
    world = Hashing()
    attack = PlayedMessage(PlayedMessage.Config(auxiliary=200, rounds=2))
    claim = attack.run(world.artifacts, world.knowledge, np.random.default_rng(0))
    readers, own = claim["readers"][claim["client"] == 0].tolist(), world.client_examples(0)
    found = np.any([r.reader.fit(own).is_exact for r in readers], axis=0)
    assert found.tolist() == [i < world.rounds for i in range(len(own))]


def test_what_cannot_be_played_is_not_read() -> None:
    where, attack = stage("played_message"), made("played_message")
    assert attack.not_applicable(where.view, where.knowledge) == ""
    reason = attack.not_applicable(where.view, replace(where.knowledge, player=None))
    assert "cannot be played" in reason and "nothing of its safety" in reason
    assert "auxiliary" in attack.not_applicable(where.view, replace(where.knowledge, auxiliary=None))


HEIRS = {
    **dict.fromkeys(("played_update", "gradient_cosine", "update_norm", "property_inference"), "played_message"),
    "rare_class": "label_counts_from_update",
}


@pytest.mark.parametrize("name", HEIRS)
def test_an_attack_that_is_no_more_is_one_sentence_that_names_its_heir(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{name} is gone: {HEIRS[name]} reads what it read"):
        catalog.load("attacks", name, "attacks[0]")
    (tmp_path / "c.yaml").write_text(f"federation: {{dataset: digits}}\nmethod: fedavg\nattacks: [{name}]\n")
    with pytest.raises(UserError, match=f"{name} is gone: {HEIRS[name]} reads what it read"):
        load(tmp_path / "c.yaml")
