"""Two classes of a client are read off its update; a masked loss needs another rule, a frozen head hides them."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from fedaudit.attacks.evaluation.label_sets import f1
from fedaudit.attacks.evaluation.last_layer import head_updates
from fedaudit.attacks.evaluation.sums import SEVERAL
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.updates.label_counts_from_update import LabelCountsFromUpdate
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from tests.attacks.updates.updates import OWNED, Updates


@cache
def world(masked: bool = False, frozen: bool = False) -> Updates:
    return Updates(masked=masked, frozen=frozen)


@cache
def judged(masked: bool = False) -> dict[tuple[str, str, str], Evidence]:
    attack, rng = LabelCountsFromUpdate(), np.random.default_rng(0)
    claim = attack.run(world(masked).artifacts, world(masked).knowledge, rng)
    found = attack.measure(claim, world(masked), rng)
    return {(e.measure, str(e.condition.get("rule", "")), e.control): e for e in found}


def test_both_classes_of_a_client_are_read_off_three_epochs() -> None:
    exact = judged()["label_set_exact_match", "row sums", "none"]
    assert exact.value >= 0.9 and exact.trials == 10
    assert exact.interval is not None and exact.interval[0] > 0.3
    blind = {b.name: b.value for b in exact.baselines}
    assert blind["random set of the same size"] == pytest.approx(1 / 45)
    assert judged()["label_set_f1", "bias", "none"].value > 0.8
    assert {b.name: b.value for b in judged()["label_set_f1", "bias", "none"].baselines}[
        "all classes"
    ] == pytest.approx(1 / 3)


def test_a_masked_softmax_moves_its_own_rows_alone_and_shows_them_exactly() -> None:
    for rule in ("bias", "row sums", "row norms"):
        assert judged(masked=True)["label_set_exact_match", rule, "none"].value == 1


def test_proportions_are_nearer_than_the_blind_guesses() -> None:
    share = judged()["label_share_l1", "", "none"]
    assert share.value < 0.3 * min(b.value for b in share.baselines)
    assert not share.higher_is_worse
    masked = judged(masked=True)["label_share_l1", "", "none"]
    assert masked.value < 0.5 * min(b.value for b in masked.baselines)


def test_the_planted_image_is_found_and_another_clients_classes_are_not() -> None:
    assert judged()["label_set_exact_match", "row sums", "positive"].value == 1
    control = judged()["label_set_exact_match", "row sums", "negative"]
    assert control.interval is not None and control.value == 0
    assert control.interval[0] <= control.baselines[0].value <= control.interval[1]


def test_a_delta_says_what_the_model_says() -> None:
    start = next(a for a in world().artifacts if a.kind == Kind.GLOBAL_MODEL)
    deltas = [
        replace(a, kind=Kind.MODEL_DELTA, payload={k: v - start.payload[k] for k, v in a.payload.items()})
        if a.kind == Kind.LOCAL_MODEL
        else a
        for a in world().artifacts
    ]
    attack, rng = LabelCountsFromUpdate(), np.random.default_rng(0)
    a, b = (attack.run(v, world().knowledge, rng) for v in (deltas, world().artifacts))
    assert np.array_equal(a["present"], b["present"])
    np.testing.assert_allclose(a["share"], b["share"], atol=1e-3)


@pytest.mark.nightly
def test_a_normalised_delta_says_what_the_model_says() -> None:
    start = next(a for a in world().artifacts if a.kind == Kind.GLOBAL_MODEL)
    view = [start]
    for a in world().artifacts:
        if a.kind == Kind.LOCAL_MODEL:  # FedNova: before minus after, over rate times 18 steps
            change = {k: (start.payload[k] - v) / (0.05 * 18) for k, v in a.payload.items()}
            steps = {"steps": np.array(18), "norm": np.array(18.0)}
            view += [
                replace(a, kind=Kind.NORMALIZED_DELTA, payload=change),
                replace(a, kind=Kind.NUM_STEPS, payload=steps),
            ]
        elif a.kind == Kind.NUM_EXAMPLES:
            view.append(a)
    attack, rng = LabelCountsFromUpdate(), np.random.default_rng(0)
    a, b = (attack.run(v, world().knowledge, rng) for v in (view, world().artifacts))
    assert np.array_equal(a["present"], b["present"])
    np.testing.assert_allclose(a["share"], b["share"], atol=1e-3)


def test_weight_decay_is_taken_off() -> None:
    # a head that only decayed, by lr 0.05 and decay 0.1 over 18 steps, did not move
    knowledge = replace(world().knowledge, training={**world().knowledge.training, "weight_decay": 0.1})
    start = next(a for a in world().artifacts if a.kind == Kind.GLOBAL_MODEL)
    view = [
        replace(a, payload={k: v * (1 - 0.005) ** 18 for k, v in start.payload.items()})
        if a.kind == Kind.LOCAL_MODEL
        else a
        for a in world().artifacts
    ]
    assert np.abs(head_updates(view, knowledge)[0].rows).max() < 1e-5
    assert np.abs(head_updates(view, world().knowledge)[0].rows).max() > 1e-3


def test_a_frozen_or_private_head_says_nothing() -> None:
    attack = LabelCountsFromUpdate()
    frozen = world(frozen=True)
    assert "frozen" in attack.not_applicable(frozen.artifacts, frozen.knowledge)
    private = [
        replace(a, payload={k: v for k, v in a.payload.items() if "head" not in k})
        if a.kind == Kind.LOCAL_MODEL
        else a
        for a in world().artifacts
    ]
    assert "keep the last layer" in attack.not_applicable(private, world().knowledge)
    silent = [a for a in world().artifacts if a.kind != Kind.LOCAL_MODEL]
    assert "no client sends its model" in attack.not_applicable(silent, world().knowledge)
    assert attack.not_applicable(world().artifacts, world().knowledge) == ""


def test_a_known_number_of_classes_is_used() -> None:
    attack = LabelCountsFromUpdate(LabelCountsFromUpdate.Config(classes_per_client=2))
    claim = attack.run(world().artifacts, world().knowledge, np.random.default_rng(0))
    assert (claim["present"].sum(axis=2) == 2).all()
    assert [tuple(np.flatnonzero(row)) for row in claim["present"][:, 1]] == OWNED
    with pytest.raises(UserError, match="points must be >= 2, got 1"):
        configure(LabelCountsFromUpdate, {"points": 1}, "attacks[0]")


def test_f1_by_hand() -> None:
    claimed = np.array([[True, True, False], [False, False, False]])
    true = np.array([[True, False, False], [True, False, False]])
    assert f1(claimed, true).tolist() == [pytest.approx(2 / 3), 0]


def test_what_the_global_model_changed_tells_which_classes_anybody_holds_to_whoever_reads_both() -> None:
    """The next model is the mean of what clients of two classes each sent; the last class is of nobody."""
    attack, known = LabelCountsFromUpdate(), world().knowledge
    models = [a for a in world().artifacts if a.kind == Kind.GLOBAL_MODEL]
    sent = [a for a in world().artifacts if a.kind == Kind.LOCAL_MODEL]
    some = [a for a in sent if 9 not in np.flatnonzero(world().label_counts(a.sender.number))]
    mean = {k: np.mean([a.payload[k] for a in some], axis=0) for k in some[0].payload}
    after = replace(models[0], id="r00009/server.downlink/global_model", round=9, payload=mean)
    claim = attack.run([models[0], after], known, np.random.default_rng(0))
    assert claim["client"].tolist() == [SEVERAL] and claim["kind"].tolist() == ["global_model"]
    held = {int(c) for a in some for c in np.flatnonzero(world().label_counts(a.sender.number))}
    assert set(np.flatnonzero(claim["present"][0, 1]).tolist()) <= held
    assert not attack.not_applicable([models[0], after], known)


def test_uploads_keep_the_model_they_started_from_where_the_next_model_is_read_as_well() -> None:
    """Their planted steps are made with it."""
    first = next(a for a in world().artifacts if a.kind == Kind.GLOBAL_MODEL)
    moved = {k: v + np.float32(0.5) for k, v in first.payload.items()}
    before = replace(first, id="r00000/server.downlink/global_model", round=first.round - 1, payload=moved)
    claim = LabelCountsFromUpdate().run([before, *world().artifacts], world().knowledge, np.random.default_rng(0))
    sent = np.flatnonzero(claim["kind"] == Kind.LOCAL_MODEL.value)
    (start,) = {int(m) for m in claim["model"][sent]}
    own = claim["extractors"][start].module().state_dict()
    np.testing.assert_array_equal(own["head.weight"].numpy(), first.payload["head.weight"])
