"""What a few numbers beside the uploads tell: classes, sizes, single clients behind sums, single images."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.attacks.attack import Attack, Knowledge
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.summaries.buffer_membership import BufferMembership
from fedaudit.attacks.summaries.class_list import ClassList
from fedaudit.attacks.summaries.example_numbers import ExampleNumbers
from fedaudit.attacks.summaries.majority_class import MajorityClass
from fedaudit.attacks.summaries.sum_difference import SumDifference, solve_sums
from fedaudit.attacks.updates.analytic import _alone
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Harm
from tests.attacks.summaries.worlds import Buffers, choices, loaded, losses, numbers, sums, world
from tests.attacks.updates.updates import artifact
from tests.attacks.world import CLASSES


def measured(attack: Attack, view: Sequence[Artifact], knowledge: Knowledge, truth: Any = None) -> list[Evidence]:
    claim = attack.run(view, knowledge, np.random.default_rng(0))
    return attack.measure(claim, truth or world(), np.random.default_rng(0))


def real(found: Sequence[Evidence], measure: str) -> Evidence:
    return next(e for e in found if e.measure == measure and e.control == "none")


# Lists of classes


def own(client: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.asarray(world().label_counts(client) > 0)


LISTS = {
    Kind.MEAN_LOGIT_TABLE: lambda k: {"table": np.outer(own(k), np.full(CLASSES, 0.1)), "present": own(k)},
    Kind.PROXIES: lambda k: {"classes": np.flatnonzero(own(k)), "rows": np.ones((own(k).sum(), 4))},
    Kind.CONDENSED_LABELS: lambda k: {"labels": np.flatnonzero(own(k))},
    Kind.FEATURES: lambda k: {"labels": world().clients[k].y, "features": np.ones((len(world().clients[k]), 4))},
}


@pytest.mark.parametrize("kind", LISTS)
def test_classes_that_a_message_names_are_those_of_its_sender(kind: Kind) -> None:
    view = [artifact(kind, LISTS[kind](k), k) for k in range(6)]
    found = real(measured(ClassList(), view, world().knowledge), "label_set_exact_match")
    assert found.value == 1 and found.condition == {"kind": kind}


def test_a_table_that_says_all_rows_are_filled_is_read_by_the_rows_themselves() -> None:
    view = [
        artifact(Kind.MEAN_LOGIT_TABLE, LISTS[Kind.MEAN_LOGIT_TABLE](k) | {"present": np.ones(CLASSES)}, k)
        for k in range(6)
    ]
    assert real(measured(ClassList(), view, world().knowledge), "label_set_exact_match").value == 1


def test_a_message_that_names_every_class_tells_nothing() -> None:
    view = [artifact(Kind.CONDENSED_LABELS, {"labels": np.arange(CLASSES)}, k) for k in range(6)]
    assert real(measured(ClassList(), view, world().knowledge), "label_set_exact_match").value == 0


# Numbers of examples


def test_sizes_are_read_and_no_change_is_claimed_where_there_is_none() -> None:
    found = real(measured(ExampleNumbers(), numbers(), world().knowledge), "size_known")
    assert found.value == 1 and found.note == "no number changed between rounds"


def test_a_client_that_lost_an_example_is_named() -> None:
    view = numbers()
    view[0] = replace(view[0], payload={"count": view[0].payload["count"] + 1})
    found = real(measured(ExampleNumbers(), view, world().knowledge), "size_known")
    assert found.note == "the number changed between rounds: client 0"


# Sums


def test_two_rounds_that_differ_in_one_client_give_its_counts() -> None:
    view, knowledge = sums([(0, 1, 2, 3), (0, 1, 2)])
    claim = SumDifference().run(view, knowledge, np.random.default_rng(0))
    assert claim["known"].tolist() == [False, False, False, True]
    assert claim["counts"][3].tolist() == world().label_counts(3).tolist()


@pytest.mark.parametrize("kind", [Kind.LABEL_COUNTS, Kind.PROTO_COUNTS, Kind.NUM_EXAMPLES])
def test_enough_different_rounds_give_everybody_away(kind: Kind) -> None:
    view, knowledge = sums([(0, 1, 2), (0, 1), (1, 2), (3, 4, 5), (3, 5), (4, 5)], kind)
    found = measured(SumDifference(), view, knowledge)
    assert real(found, "size_known" if kind == Kind.NUM_EXAMPLES else "count_exact_match").value == 1


@pytest.mark.parametrize("kind", [Kind.LABEL_COUNTS, Kind.NUM_EXAMPLES])
def test_every_client_is_hit_whose_numbers_sums_give_away(kind: Kind) -> None:
    view, knowledge = sums([(0, 1, 2), (0, 1), (1, 2), (3, 4, 5), (3, 5), (4, 5)], kind)
    attack, rng = SumDifference(), np.random.default_rng(0)
    _, clients = attack.count_people(attack.run(view, knowledge, rng), world(), rng)  # type: ignore[arg-type]
    assert clients.harm is Harm.CLIENT_FACT and clients.hit == {k: (k,) for k in range(6)}


def test_the_same_clients_in_every_round_hide_each_other() -> None:
    view, knowledge = sums([range(6)] * 4)
    assert real(measured(SumDifference(), view, knowledge), "count_exact_match").value == 0


def test_a_sum_of_sums_determines_only_those_who_stand_alone() -> None:
    took = np.array([[1.0, 1, 0], [1, 1, 1]])
    counts, known = solve_sums(took, took @ np.array([[2.0], [3], [7]]))
    assert known.tolist() == [False, False, True] and counts[2, 0] == 7


# Losses and choices


def test_a_loss_tells_the_class_of_clients_that_own_one() -> None:
    found = measured(MajorityClass(), losses(), world().knowledge)
    [planted] = [e for e in found if e.control == "positive"]
    assert planted.value > 0.7 and planted.trials == CLASSES
    assert real(found, "majority_class").trials == 6


def test_a_choice_of_model_is_read_as_the_class_it_knows_best() -> None:
    claim = MajorityClass().run(choices(), world().knowledge, np.random.default_rng(0))
    chosen = [int(a.payload["cluster"]) for a in choices() if a.kind == Kind.CLUSTER_ID]
    assert [int(g) % 2 for g in claim["guess"]] == chosen


def test_losses_of_generators_and_choices_among_one_model_are_not_read() -> None:
    start = losses()[0]
    gan = artifact(Kind.LOCAL_LOSS, {"loss": np.array([0.3, 0.7])}, 0)
    only = artifact(Kind.CLUSTER_ID, {"cluster": np.array(0)}, 0)
    assert MajorityClass().not_applicable([start, gan, only], world().knowledge)


# Running means


def test_single_people_are_flagged_by_statistics_and_planted_through_clients_code() -> None:
    made = Buffers(1, 20)
    sent = [a for a in Buffers(1).artifacts if a.kind == Kind.LOCAL_MODEL]
    planted = [
        replace(a, id=f"replay/{i}", origin="replayed", note={"batch": 1, "steps": 1}) for i, a in enumerate(sent)
    ]
    made.groups = {f"replay/{i}": made.clients[i].x[:1] for i in range(6)}
    attack = BufferMembership()
    claim = attack.run([*made.artifacts, *planted], made.knowledge, np.random.default_rng(0))
    people, _ = attack.count_people(claim, made, np.random.default_rng(0))
    assert {k: len(rows) for k, rows in people.tested.items()} == dict.fromkeys(range(6), 1) | {
        1: 20,
        3: 20,
        5: 20,
    }
    assert all(people.hit[k] == people.tested[k] for k in (0, 2, 4))
    assert {k: (s.hits, s.trials) for k, s in people.planted.items()} == dict.fromkeys(range(6), (1, 1))
    bare = attack.run(made.artifacts, made.knowledge, np.random.default_rng(0))
    rng = [np.random.default_rng(1) for _ in range(2)]
    assert attack.measure(claim, made, rng[0]) == attack.measure(bare, made, rng[1])


def test_the_statistics_of_a_client_with_one_image_give_it_away() -> None:
    made = Buffers(1)
    found = real(measured(BufferMembership(), made.artifacts, made.knowledge, made), "auc")
    assert found.value > 0.95 and found.condition == {"n": 1}


def test_one_image_of_a_client_is_not_hidden_by_clients_of_many() -> None:
    for made, share in ((Buffers(1, 20, 20), 2 / 6), (Buffers(20), 0)):
        found = measured(BufferMembership(), made.artifacts, made.knowledge, made)
        assert real(found, "image_present").value == pytest.approx(share)


def test_a_layer_that_normalises_by_the_batch_is_shown_each_image_alone() -> None:
    model, x = loaded(Buffers(1).artifacts[0].payload), torch.from_numpy(Buffers(1).clients[0].x)
    torch.nn.functional.cross_entropy(model.train()(x), torch.tensor([3])).backward()
    weight, bias = model.out.weight.grad, model.out.bias.grad
    entered = _alone(loaded(Buffers(1).artifacts[0].payload), x.numpy())
    assert entered is not None and np.allclose(entered[0], (weight.T @ bias / (bias @ bias)).numpy(), atol=1e-5)
    assert _alone(torch.nn.Linear(2, 2), x.numpy()) is None


def test_membership_fades_with_the_number_of_images() -> None:
    values = []
    for owned in (1, 4, 20):
        made = Buffers(owned)
        values.append(real(measured(BufferMembership(), made.artifacts, made.knowledge, made), "auc").value)
    assert values[0] > values[1] > values[2] > 0.5


def test_a_model_without_such_a_layer_is_a_sentence() -> None:
    assert "running means" in BufferMembership().not_applicable(
        [
            artifact(Kind.GLOBAL_MODEL, losses()[0].payload, None),  # type: ignore[arg-type]
            artifact(Kind.LOCAL_MODEL, losses()[0].payload, 0),  # type: ignore[arg-type]
        ],
        world().knowledge,
    )
