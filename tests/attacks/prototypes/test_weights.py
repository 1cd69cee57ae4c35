"""A prototype is paired with the model that made it, and with the count that was sent with it."""

from dataclasses import replace

import numpy as np

from fedaudit.attacks.evaluation.sources import global_model, made_with, prototypes, samples_behind
from fedaudit.fl.artifact import Party
from fedaudit.fl.kinds import Kind
from tests.attacks.world import World

WORLD = World(sizes=(1,), clients=2, groups=2)
PROTOTYPE = next(a for a in WORLD.artifacts if a.kind == Kind.LOCAL_PROTOTYPES)
LOCAL = next(a for a in WORLD.artifacts if a.kind == Kind.LOCAL_MODEL)
GLOBAL = next(a for a in WORLD.artifacts if a.kind == Kind.GLOBAL_MODEL)
DELTA = replace(
    LOCAL, kind=Kind.MODEL_DELTA, payload={k: v - GLOBAL.payload[k] for k, v in LOCAL.payload.items()}
)


def test_the_uploaded_model_of_the_same_client_and_round_is_used() -> None:
    found = made_with(PROTOTYPE, WORLD.artifacts)
    assert found is not None and found.source == "local model"
    assert all(np.array_equal(found.values[k], v) for k, v in LOCAL.payload.items())


def test_a_delta_is_added_to_the_global_model_of_the_round() -> None:
    found = made_with(PROTOTYPE, [GLOBAL, DELTA])
    assert found is not None and found.source == "global model + delta"
    for name, value in LOCAL.payload.items():
        np.testing.assert_allclose(found.values[name], value, atol=1e-6)


def test_another_rounds_delta_is_not_used() -> None:
    found = made_with(PROTOTYPE, [GLOBAL, replace(DELTA, round=2)])
    assert found is not None and found.source == "global model" and not found.own


def test_a_delta_is_not_added_to_an_older_global_model() -> None:
    found = made_with(PROTOTYPE, [replace(GLOBAL, round=2), DELTA])
    assert found is not None and found.source == "global model"


def test_another_clients_model_is_not_used() -> None:
    stranger = replace(LOCAL, sender=Party.client(5))
    assert made_with(PROTOTYPE, [stranger]) is None


def test_a_partial_upload_is_completed_by_the_global_model() -> None:
    part = replace(LOCAL, payload={"wide.bias": LOCAL.payload["wide.bias"]})
    found = made_with(PROTOTYPE, [GLOBAL, part])
    assert found is not None
    assert np.array_equal(found.values["wide.bias"], LOCAL.payload["wide.bias"])
    assert np.array_equal(found.values["conv.weight"], GLOBAL.payload["conv.weight"])


def test_samples_come_from_the_counts_or_the_replay_and_else_are_unknown() -> None:
    label = int(PROTOTYPE.payload["classes"][0])
    assert samples_behind(PROTOTYPE, label, WORLD.artifacts) == len(WORLD.members(PROTOTYPE.id, label))
    replayed = next(a for a in WORLD.artifacts if a.origin == "replayed")
    assert samples_behind(replayed, 0, []) == 1
    assert samples_behind(PROTOTYPE, label, [LOCAL]) is None


def test_prototypes_without_a_model_or_with_nan_are_left_out() -> None:
    assert prototypes([PROTOTYPE]) == []
    spoiled = replace(
        PROTOTYPE, payload={**PROTOTYPE.payload, "features": PROTOTYPE.payload["features"] * np.nan}
    )
    assert prototypes([LOCAL, spoiled]) == []
    assert [len(s.prototypes) for s in prototypes(WORLD.artifacts)] == [3, 3]


def test_of_several_models_in_a_broadcast_a_client_started_from_the_nearest() -> None:
    both = {f"{j}/{k}": v + 10 * j for j in (0, 1) for k, v in GLOBAL.payload.items()}
    view = [replace(GLOBAL, payload=both)]
    for j in (0, 1):
        sent = replace(LOCAL, payload={k: v + 10 * j + 0.1 for k, v in GLOBAL.payload.items()})
        found = global_model(view, GLOBAL.round, sent)
        assert found is not None
        for k, v in GLOBAL.payload.items():
            assert np.array_equal(found.payload[k], v + 10 * j)
