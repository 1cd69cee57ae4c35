"""Membership in rows: exact where layers are known, and by outputs alone where a client has few images."""

from dataclasses import replace
from functools import cache

import numpy as np
import torch

from fedaudit.attacks.batches.row_membership import RowMembership
from fedaudit.attacks.evidence import Evidence
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from tests.attacks.batches.batch_world import Batches, Described


def measure(world: Batches, view: list[Artifact] | None = None) -> dict[str, Evidence]:
    attack = RowMembership()
    claim = attack.run(view or world.artifacts, world.knowledge, np.random.default_rng(0))
    found = attack.measure(claim, world, np.random.default_rng(1))  # type: ignore[arg-type]
    return {e.control: e for e in reversed(found) if e.measure == "auc"}


def everybody(noise: float = 0.0) -> Batches:
    """Every image of every client is in its batch."""
    return Batches(size=10_000, noise=noise)


@cache
def described() -> Described:
    return Described(4)


def test_rows_of_layers_that_are_known_tell_every_member() -> None:
    found = measure(everybody())
    assert found["none"].value == found["positive"].value == 1.0
    assert found["none"].baselines[1].value < 0.7, "another client's rows"


def test_noise_on_rows_hides_members() -> None:
    assert measure(everybody(noise=20.0))["none"].value < 0.7


def test_the_score_is_the_distance_to_the_nearest_row_of_the_label_by_hand() -> None:
    world = everybody()
    claim = RowMembership().run(world.artifacts, world.knowledge, np.random.default_rng(0))
    image = world.reference.only(np.flatnonzero(world.reference.y == 1)[:1])
    layers = world.knowledge.granted_architecture({}).first_layers(1)  # type: ignore[attr-defined]
    start = next(a.payload for a in world.artifacts if a.kind == Kind.GLOBAL_MODEL)
    layers.load_state_dict({k: torch.from_numpy(v) for k, v in start.items()})
    own = world.clients[0].of_class(1)
    rows, z = (layers(torch.from_numpy(x)).numpy().astype(np.float64) for x in (own, image.x))
    assert abs(float(claim["scorers"][0](image)[0]) + np.square(rows - z).sum(axis=1).min()) < 1e-4


def test_outputs_name_images_of_a_client_of_few_to_networks_of_the_servers_own() -> None:
    found = measure(described())
    interval = found["none"].interval
    assert interval is not None and interval[0] > 0.5
    assert found["positive"].value > 0.7


def test_outputs_of_another_client_tell_nothing() -> None:
    world = described()
    sent = [a.payload for a in world.artifacts]
    view = [replace(a, payload=p) for a, p in zip(world.artifacts, sent[1:] + sent[:1], strict=True)]
    assert abs(measure(world, view)["none"].value - 0.5) < 0.25


def test_features_without_outputs_are_a_sentence() -> None:
    world = described()
    bare = [replace(a, payload={"features": a.payload["features"]}) for a in world.artifacts]
    assert "no outputs" in RowMembership().not_applicable(bare, world.knowledge)
