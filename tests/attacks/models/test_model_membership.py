"""Models that memorised give members away; untrained ones, wrong uploads and non-members do not."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples
from fedaudit.attacks.evaluation.example_gradients import Gradients
from fedaudit.attacks.evaluation.model_membership import ModelMembership, Scorer
from fedaudit.attacks.evaluation.model_trials import ANOTHER, SHUFFLED, draw_wrong
from fedaudit.attacks.evaluation.scores import log_probability
from fedaudit.attacks.evaluation.targets import GLOBAL, UPDATE, targets
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.modality.images import fingerprints
from fedaudit.attacks.models.lira import Lira
from fedaudit.attacks.models.output_scores import Confidence, Entropy, LossThreshold
from fedaudit.attacks.models.rmia import Rmia
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.tasks.classify import Classify
from tests.attacks.models.overfit import Overfit, mislabelled, overfit, untrained, view

SMALL = {"members": 100, "others": 400}
ATTACKS: dict[str, ModelMembership] = {
    "loss": LossThreshold(),
    "entropy": Entropy(),
    "confidence": Confidence(),
    "lira": Lira(Lira.Config(shadows=8, epochs=40, **SMALL)),
    "rmia": Rmia(Rmia.Config(references=4, epochs=40, **SMALL)),
}


@cache
def judged(name: str, heart: bool = True) -> list[Evidence]:
    world = overfit() if heart else untrained()
    rng = np.random.default_rng(0)
    claim = ATTACKS[name].run(world.artifacts, world.knowledge, rng)
    return ATTACKS[name].measure(claim, world, rng)


def one(found: list[Evidence], model: str, measure: str = "auc") -> Evidence:
    return next(e for e in found if e.measure == measure and e.condition.get("model") == model)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("name", "model", "least"),
    [
        ("loss", GLOBAL, 0.85),
        ("loss", UPDATE, 0.85),
        ("entropy", GLOBAL, 0.85),
        ("entropy", UPDATE, 0.8),
        ("confidence", GLOBAL, 0.7),
        ("confidence", UPDATE, 0.7),
        ("lira", GLOBAL, 0.75),
        ("rmia", GLOBAL, 0.75),
    ],
)
def test_members_of_an_overfitted_model_are_found(name: str, model: str, least: float) -> None:
    e = one(judged(name), model)
    assert e.value > least and e.interval is not None and e.interval[0] > 0.55
    blind = {b.name: b for b in e.baselines}[SHUFFLED if model == GLOBAL else ANOTHER]
    assert blind.interval is not None and blind.interval[0] < 0.52 and blind.value < 0.6


def test_what_was_memorised_under_other_labels_is_found_by_its_confidence_and_not_by_its_loss() -> None:
    world, found = mislabelled(), {}
    for name in ("confidence", "loss", "entropy"):
        claim = ATTACKS[name].run(world.artifacts, world.knowledge, np.random.default_rng(0))
        found[name] = one(ATTACKS[name].measure(claim, world, np.random.default_rng(0)), UPDATE).value
    assert found["confidence"] > 0.7 and max(found["loss"], found["entropy"]) < 0.5


@pytest.mark.nightly
def test_likelihood_ratios_find_more_members_at_few_false_alarms_than_the_loss() -> None:
    lira, loss = (one(judged(n), GLOBAL, "tpr_at_fpr_0.01").value for n in ("lira", "loss"))
    assert lira > 1.5 * loss


@pytest.mark.dear("rmia", "lira")
@pytest.mark.parametrize("name", list(ATTACKS))
def test_unseen_images_in_the_place_of_members_are_not_found(name: str) -> None:
    (control,) = [e for e in judged(name) if e.control == "negative"]
    assert control.interval is not None and control.interval[0] <= 0.5 <= control.interval[1]


@pytest.mark.parametrize("name", ["loss", "entropy", "confidence"])
def test_an_untrained_model_tells_nothing(name: str) -> None:
    e = one(judged(name, heart=False), GLOBAL)
    assert e.interval is not None and e.interval[0] <= 0.5 <= e.interval[1] + 0.02


@pytest.mark.nightly
def test_the_control_keeps_within_its_interval_over_many_draws() -> None:
    fired = 0
    for seed in range(30):
        rng, attack = np.random.default_rng(seed), LossThreshold()
        claim = attack.run(overfit().artifacts, overfit().knowledge, rng)
        (control,) = [e for e in attack.measure(claim, overfit(), rng) if e.control == "negative"]
        assert control.interval is not None
        fired += not control.interval[0] <= 0.5 <= control.interval[1]
    assert fired <= 2


@pytest.mark.nightly
def test_candidates_in_the_shadow_models_are_told_better_than_without() -> None:
    world, rng = overfit(), np.random.default_rng(0)
    few = view(world, Kind.GLOBAL_MODEL)
    areas = []
    for mode in ("offline", "online"):
        attack = Lira(Lira.Config(mode=mode, shadows=8, epochs=20, members=60, others=200))  # type: ignore[arg-type]
        claim = attack.run(few, world.knowledge, np.random.default_rng(0))
        areas.append(one(attack.measure(claim, world, rng), GLOBAL).value)
    assert areas[1] > areas[0] > 0.6


def test_a_client_with_two_classes_does_not_give_its_labels_away_as_members() -> None:
    world = Overfit(heart=False)  # uploads that know classes 0 and 1, and no image
    y, parts = world.data.train.y, np.concatenate(world.parts)
    world.parts = [parts[y[parts] < 2]] + [parts[y[parts] >= 2]] * 2
    for a in world.artifacts:
        if a.kind == Kind.LOCAL_MODEL:
            a.payload["head.bias"][:2] += 5  # type: ignore[index]
    claim = LossThreshold().run(world.artifacts, world.knowledge, np.random.default_rng(0))
    found = one(LossThreshold().measure(claim, world, np.random.default_rng(0)), UPDATE)
    assert found.interval is not None and found.interval[0] <= 0.5
    reference = Examples(x=world.reference.x, y=world.reference.y)
    table = claim["scorer"][0](reference, np.ones((len(claim["artifact"]), len(reference)), bool))
    row = claim["model"].tolist().index(UPDATE)
    assert np.median(table[row][world.reference.y < 2]) > np.median(table[row]) + 1  # it could have


def test_gradients_of_single_images_are_those_of_autograd() -> None:
    import torch

    world = overfit()
    queried = [t for t in targets(world.artifacts, np.random.default_rng(0), 9, {}) if t.start]
    some = Examples(x=world.reference.x[:3], y=world.reference.y[:3])
    assert world.knowledge.architecture is not None
    module = world.knowledge.architecture(queried[0].start).module()
    mine = Gradients(module)(some.x, some.y)
    module.requires_grad_(True)
    for i in range(3):
        loss = torch.nn.functional.cross_entropy(
            module(torch.from_numpy(some.x[i : i + 1])), torch.from_numpy(some.y[i : i + 1])
        )
        grads = torch.autograd.grad(loss, list(module.net.parameters()))
        np.testing.assert_allclose(
            mine[i], np.concatenate([g.numpy().ravel() for g in grads]), rtol=1e-4, atol=1e-7
        )


@pytest.mark.parametrize(("kind", "scale"), [(Kind.MODEL_DELTA, 1.0), (Kind.NORMALIZED_DELTA, -1 / (0.1 * 7))])
def test_deltas_are_added_to_the_model_they_started_from(kind: Kind, scale: float) -> None:
    world = overfit()
    start = world.artifacts[0].payload
    deltas = [
        replace(
            a, kind=kind, payload={k: scale * (v - start[k]) for k, v in a.payload.items()}, note={"norm": 7.0}
        )  # type: ignore[operator]
        if a.kind == Kind.LOCAL_MODEL
        else a
        for a in world.artifacts
    ]
    rng, known = np.random.default_rng, {"lr": 0.1}
    for a, b in zip(targets(deltas, rng(0), 9, known), targets(world.artifacts, rng(0), 9, {}), strict=True):
        for k in a.weights:
            np.testing.assert_allclose(a.weights[k], b.weights[k], atol=1e-6)


def test_as_many_members_of_a_model_are_scored_as_the_setting_allows() -> None:
    world = overfit()  # three clients of 60 images
    for most in (20, 100):
        attack = LossThreshold(LossThreshold.Config(members=most, others=400))
        claim = attack.run(world.artifacts, world.knowledge, np.random.default_rng(0))
        found = attack.measure(claim, world, np.random.default_rng(0))
        for model, many, each in ((GLOBAL, 1, 180), (UPDATE, 3, 60)):
            wanted = many * min(most, each)  # class by class, each rounded
            assert one(found, model).trials == pytest.approx(wanted, abs=5 * many)


@dataclass
class Partly:
    """Answers what it is asked, and the same for all else."""

    score: Scorer
    filler: float
    asked: NDArray[np.bool_] = field(default_factory=lambda: np.zeros((0, 0), bool))

    def __call__(self, candidates: Examples, asked: NDArray[np.bool_]) -> NDArray[np.floating]:
        self.asked = asked
        return np.where(asked, self.score(candidates, asked), self.filler)


@pytest.mark.parametrize("name", ["loss", "entropy", "confidence"])
def test_what_a_model_is_not_asked_decides_nothing(name: str) -> None:
    """Each is asked about its own members and non-members, and those of a model that it is compared with."""
    world, found = overfit(), []
    for filler in (0.0, 1e9):
        claim = ATTACKS[name].run(world.artifacts, world.knowledge, np.random.default_rng(0))
        answers = claim["scorer"][0] = Partly(claim["scorer"][0], filler)
        rng = np.random.default_rng
        found.append(
            (ATTACKS[name].measure(claim, world, rng(0)), ATTACKS[name].count_people(claim, world, rng(0)))
        )
        assert answers.asked[claim["model"] == UPDATE].mean(axis=1).max() < 0.9
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["loss", "entropy", "confidence"])
def test_all_that_is_judged_was_asked(name: str) -> None:
    """What was not asked is NaN, which compares as nothing and would go unnoticed."""
    world = overfit()
    claim = ATTACKS[name].run(world.artifacts, world.knowledge, np.random.default_rng(0))
    trials = ATTACKS[name]._trials(claim, world)
    judged = [s for b in trials.buckets for s in (b.scores, b.silent, *b.blind.values())]
    assert len(judged) > 4 and all(np.isfinite([*s.members, *s.others]).all() for s in judged)
    assert trials._tested
    for client, query, others in chain.from_iterable(trials._tested.values()):
        people = query.people[client][1]
        assert len(people) and np.isfinite(trials._table[query.row][[*people, *others]]).all()


def sure_of_theirs(
    images: Examples, subsets: Sequence[NDArray[np.int64]], queries: NDArray[np.floating], **_: object
) -> NDArray[np.float64]:
    """Reference models that are sure of what they were trained on, and guess all else: [subsets, Q, classes]."""
    found = np.zeros((len(subsets), len(queries), 10))
    for model, rows in zip(found, subsets, strict=True):
        known = {mark: int(y) for mark, y in zip(fingerprints(images.x[rows]), images.y[rows], strict=True)}
        for i, mark in enumerate(fingerprints(queries)):
            if mark in known:
                model[i, known[mark]] = 50.0
    return found


def test_rmia_compares_with_references_that_were_not_trained_on_z() -> None:
    world, rng = overfit(), np.random.default_rng(0)
    knowledge = replace(world.knowledge, trainer=sure_of_theirs)
    attack = Rmia(Rmia.Config(references=4))
    queried = targets(view(world, Kind.GLOBAL_MODEL), rng, 1, {})[:1]
    some = Examples(x=world.reference.x[:40], y=world.reference.y[:40])
    (scores,) = attack.scorer(queried, knowledge, rng)(some, np.ones((1, 40), bool))
    # without those, all references guess alike: what is left is p(x) against p(z) of the model itself
    answers = knowledge.granted_architecture(queried[0].weights)
    own = np.exp(log_probability(answers.logits(some.x), some.y))
    aux = world.auxiliary
    theirs = np.exp(log_probability(answers.logits(aux.x), aux.y))
    expected = [np.mean(theirs[aux.y == label] < p) for p, label in zip(own, some.y, strict=True)]
    np.testing.assert_allclose(scores, expected, atol=1 / np.bincount(aux.y).min())


def test_wrong_labels_are_wrong_and_spread_over_the_other_classes() -> None:
    marks = fingerprints(overfit().reference.x)
    draws = [draw_wrong(m) for m in marks]
    found = Classify().mislabel(np.full(len(marks), 3), draws, 10)
    assert sorted(set(found.tolist())) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert Classify().mislabel(np.array([0]), draws[:1], 2).tolist() == [1]


def test_without_uploads_or_auxiliary_images_it_says_so() -> None:
    world = overfit()
    assert LossThreshold().not_applicable(view(world, Kind.GLOBAL_MODEL), world.knowledge) == ""
    alone = replace(world.knowledge, trainer=None, auxiliary=None)
    for attack in (Lira(), Rmia()):
        assert "auxiliary examples" in attack.not_applicable(world.artifacts, alone)
        assert attack.not_applicable(world.artifacts, world.knowledge) == ""


@pytest.mark.parametrize(
    "settings", [{"shadows": 3}, {"shadows": 0}, {"epochs": 0}, {"mode": "both"}, {"members": 0}]
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(UserError, match=f"{next(iter(settings))} must be"):
        configure(Lira, settings, "attacks[0]")


@pytest.mark.nightly
@pytest.mark.parametrize("attack", [Rmia(Rmia.Config(references=2, epochs=5)), LossThreshold()])
def test_whoever_leaks_in_an_earlier_round_is_flagged_though_evidence_is_of_the_latest(attack: Any) -> None:
    world, rng = overfit(), np.random.default_rng(3)
    start, *uploads = (a for a in world.artifacts if a.round == 0)
    quiet = [replace(start, id="r00090/server.downlink/global_model", round=90)]
    for a in uploads:
        barely = {k: (v + 1e-3 * rng.standard_normal(v.shape)).astype(v.dtype) for k, v in start.payload.items()}
        quiet.append(replace(a, id=a.id.replace("r00000", "r00090"), round=90, payload=barely))
    assert attack.card.rounds == "all"
    claims = [
        attack.run(view, world.knowledge, np.random.default_rng(0))
        for view in (quiet, [*world.artifacts, *quiet])
    ]
    hits = []
    for claim in claims:
        counted = attack.count_people(claim, world, np.random.default_rng(0))
        people, _ = [p for p in counted if p.kind == Kind.LOCAL_MODEL]
        hits.append(sum(map(len, people.hit.values())))
    assert hits[0] <= 9 and hits[1] >= hits[0] + 8  # of 180; how many more depends on the processor
    judged = attack.measure(claims[1], world, np.random.default_rng(0))
    (area,) = [e for e in judged if e.measure == "auc" and e.condition.get("model") == UPDATE]
    assert area.value < 0.65
