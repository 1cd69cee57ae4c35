"""Inversion of updates: each finds the planted leak, controls stay silent, matching favours nobody."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.attacks.evaluation.gradients import updates
from fedaudit.attacks.evaluation.ranking import match_images, rank_sets
from fedaudit.attacks.evaluation.update_inversion import UpdateInversion
from fedaudit.attacks.evaluation.update_search import UpdateSearching
from fedaudit.attacks.evaluation.update_trials import make_buckets
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.updates.analytic import Analytic, find_start
from fedaudit.attacks.updates.dlg import DLG
from fedaudit.attacks.updates.grnn_updates import GRNNUpdates, transport
from fedaudit.attacks.updates.idlg import IDLG
from fedaudit.attacks.updates.inverting_gradients import InvertingGradients, roughness
from fedaudit.attacks.updates.label_counts_from_gradient import LabelCountsFromGradient
from fedaudit.attacks.updates.spear import Spear
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from tests.attacks.updates.gradients import Planted

SMALL = {"gallery": 20, "recorded": 2, "most_recorded": 2}


@cache
def world() -> Planted:
    return Planted(((1, 1), (1, 3), (2, 1)), groups=8, recorded=2)


@cache
def single() -> Planted:
    return Planted(groups=8)


def judged(attack: UpdateInversion, world: Planted) -> list[Evidence]:
    assert attack.not_applicable(world.artifacts, world.knowledge) == ""
    claim = attack.run(world.artifacts, world.knowledge, np.random.default_rng(0))
    return attack.measure(claim, world, np.random.default_rng(1))


def one(found: Sequence[Evidence], measure: str, n: float = 1, steps: float = 1) -> Evidence:
    here = {"n": n, "steps": steps, "origin": "replayed"}
    (e,) = [e for e in found if e.measure == measure and e.condition == here]
    return e


@cache
def inverted() -> list[Evidence]:
    settings = InvertingGradients.Config(iterations=50, per_size=6, **SMALL)  # type: ignore[arg-type]
    return judged(InvertingGradients(settings), world())


# a batch's labels are a guess, and an image of the wrong class is not found
@pytest.mark.nightly
@pytest.mark.parametrize(("n", "steps", "least"), [(1, 1, 1.0), (1, 3, 1.0), (2, 1, 0.6)])
def test_inverting_gradients_finds_the_planted_images(n: float, steps: float, least: float) -> None:
    rank, likeness = one(inverted(), "rank1", n, steps), one(inverted(), "ssim", n, steps)
    assert rank.control == "positive" and rank.value >= least
    assert likeness.value > 0.1 + max(b.value for b in likeness.baselines)
    wrong = next(b for b in rank.baselines if b.name == "update of other images")
    assert wrong.value < 0.4


@pytest.mark.nightly
def test_the_negative_control_stays_at_chance() -> None:
    (control,) = [e for e in inverted() if e.control == "negative"]
    chance = control.baselines[0].value
    assert control.interval is not None and control.interval[0] <= chance <= control.interval[1]


@pytest.mark.nightly
def test_uploads_of_whole_clients_are_attacked_and_say_their_batch_and_steps() -> None:
    (real,) = [e for e in inverted() if e.measure == "rank1" and e.control == "none"]
    assert real.condition["origin"] == "recorded" and real.trials == 2
    # of 20 examples a step; how many the client has was not sent
    assert (real.condition["n"], real.condition["steps"]) == (20, 3)
    assert real.interval is not None and real.interval[0] <= 1 / 20


def test_analytic_inputs_are_exact_for_one_image_and_one_step() -> None:
    gradients = Planted(groups=8, kind=Kind.GRADIENT)
    found = judged(Analytic(Analytic.Config(gallery=20, iterations=100)), gradients)
    error = one(found, "layer_input_relative_error")
    assert error.value < 1e-5 and error.control == "positive" and not error.higher_is_worse
    assert min(b.value for b in error.baselines) > 0.01
    assert one(found, "rank1").value == 1


def test_where_the_image_itself_enters_the_dense_layer_it_is_copied() -> None:
    shape, model = (1, 4, 4), torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))
    image = torch.rand((1, *shape), generator=torch.Generator().manual_seed(0))
    entered = image.flatten().double().numpy()
    found, is_solved = find_start(model, entered, shape)
    assert is_solved and np.allclose(found, image, atol=1e-6)


def test_idlg_reads_every_label_and_leaves_batches_alone() -> None:
    attack = IDLG(IDLG.Config(iterations=2, gallery=20))
    claim = attack.run(world().artifacts, world().knowledge, np.random.default_rng(0))
    assert set(claim["batch"]) == {1}
    found = attack.measure(claim, world(), np.random.default_rng(0))
    exact = one(found, "count_exact_match")
    assert exact.value == 1 and exact.control == "positive"
    assert all(b.value < 0.5 for b in exact.baselines)
    reason = attack.not_applicable(Planted(((2, 1),), groups=1).artifacts, world().knowledge)
    assert "more than one example" in reason


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "attack",
    [
        IDLG(IDLG.Config(iterations=20, gallery=20)),
        DLG(DLG.Config(iterations=40, gallery=20, optimiser="adam", lr=0.1)),
        GRNNUpdates(GRNNUpdates.Config(iterations=100, per_size=5, gallery=20, lr=1e-3, momentum=0.5)),
    ],
    ids=lambda a: type(a).__name__,
)
def test_fitting_the_gradient_finds_the_planted_image(attack: UpdateInversion) -> None:
    found = judged(attack, single())
    rank, likeness = one(found, "rank1"), one(found, "ssim")
    assert rank.interval is not None and rank.interval[0] > 1 / 20
    assert likeness.value > max(b.value for b in likeness.baselines)


@pytest.mark.parametrize("attack", [IDLG(), DLG(), InvertingGradients(), Analytic(), GRNNUpdates()], ids=type)
def test_searches_are_alike_for_updates_of_one_model(attack: UpdateSearching[Any]) -> None:
    one, two = updates(single().artifacts, single().knowledge)[:2]
    other, rng = replace(two, start={**two.start}), np.random.default_rng(0)
    kinds = [{s.kind for s in attack.draw(u, 1, single().knowledge, rng)} for u in (one, two, other)]
    assert len(kinds[0]) == 1 and kinds[0] == kinds[1] != kinds[2]


def test_images_beyond_those_that_entered_the_layer_are_grey() -> None:
    world, rng = Planted(groups=1, kind=Kind.GRADIENT), np.random.default_rng(0)
    [update] = updates(world.artifacts, world.knowledge)
    images, labels = Spear(Spear.Config(iterations=100)).invert(update, 3, world.knowledge, rng)
    assert images.shape == (3, 1, 8, 8) and labels.shape == (3,)
    assert (images[1:] == 0.5).all() and np.ptp(images[0]) > 0.3


def test_a_claim_depends_on_its_stream_alone() -> None:
    attack = InvertingGradients(InvertingGradients.Config(iterations=2, per_size=1, recorded=0))
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    a, b, c = (
        attack.run(world().artifacts, world().knowledge, np.random.default_rng(s))["images"] for s in (0, 0, 1)
    )
    assert np.array_equal(a, b) and not np.array_equal(a, c)
    assert torch.equal(before, torch.random.get_rng_state())


def test_batches_are_matched_before_they_are_judged() -> None:
    members = np.random.default_rng(0).random((3, 1, 8, 8))
    columns, errors = match_images(members[[2, 0, 1]], members)
    assert columns.tolist() == [1, 2, 0] and errors.tolist() == [0, 0, 0]


def test_guesses_are_right_as_often_as_chance_says_for_any_batch() -> None:
    rng = np.random.default_rng(0)
    hits = [rank_sets(*rng.random((2, 4, 1, 3, 3)), rng.random((9, 4, 1, 3, 3))).rank1.mean() for _ in range(600)]  # type: ignore[call-arg]
    assert np.mean(hits) == pytest.approx(1 / 10, abs=4 * np.std(hits) / 600**0.5)


def test_no_decoy_is_a_member_or_is_in_two_sets() -> None:
    attack = InvertingGradients(InvertingGradients.Config(iterations=1, recorded=0))
    claim = attack.run(world().artifacts, world().knowledge, np.random.default_rng(0))
    for bucket in make_buckets(claim, world(), 100, np.random.default_rng(0)):
        for t in bucket.trials:
            every = np.concatenate([t.targets, t.decoys.reshape(-1, *t.targets.shape[1:])])
            assert len(np.unique(every.reshape(len(every), -1), axis=0)) == len(every)


def test_without_models_in_the_uploads_it_does_not_apply() -> None:
    attack, known = InvertingGradients(), world().knowledge
    start = world().artifacts[:1]
    assert "no client sends its model" in attack.not_applicable(start, known)
    assert "as far as that was recorded" in attack.not_applicable(world().artifacts[1:], known)
    with pytest.raises(UserError, match="no upload was recorded"):
        attack.run(start, known, np.random.default_rng(0))


@pytest.mark.parametrize("setting", ["gallery", "per_size", "most", "iterations", "restarts"])
def test_settings_that_mean_nothing_are_refused(setting: str) -> None:
    with pytest.raises(UserError, match=f"{setting} must be >= "):
        configure(InvertingGradients, {setting: 0}, "attacks[0]")


def test_roughness_and_transport_by_hand() -> None:
    assert float(roughness(torch.tensor([[[[0.0, 1.0], [2.0, 4.0]]]]))) == 4  # (2+3)/2 + (1+2)/2
    assert float(transport([torch.tensor([1.0, 5.0])], [torch.tensor([4.0, 1.0])])) == 0.5


@pytest.mark.parametrize(
    ("steps", "batch", "says"), [(1, 1, "a single image"), (1, 20, "a single batch"), (10, 20, "")]
)
def test_a_remedy_names_a_batch_only_where_an_update_was_one_step(steps: int, batch: int, says: str) -> None:
    claim = {
        "origin": np.array(["recorded", "replayed"]),
        "sender": np.array([0, 0]),
        "steps": np.array([steps, 1]),
        "batch": np.array([batch, 1]),
    }
    said = DLG().choose_remedy(claim, world(), [])
    assert said.startswith(DLG.card.remedy)
    assert (says in said) if says else said == DLG.card.remedy
    labels = LabelCountsFromGradient().choose_remedy(claim, world(), [])
    assert ("single batch" in labels) == (steps == 1)
