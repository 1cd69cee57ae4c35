"""Membership from Fisher diagonals: one of few images stands out, and another client's diagonal tells nothing."""

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.summaries.fisher_membership import FisherMembership
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from tests.attacks.summaries.worlds import FlatArchitecture, Steep, diagonals, steep, world


def measure(made: Steep, view: list[Artifact] | None = None) -> dict[str, Evidence]:
    attack = FisherMembership()
    claim = attack.run(view or made.artifacts, made.knowledge, np.random.default_rng(0))
    found = attack.measure(claim, made, np.random.default_rng(1))  # type: ignore[arg-type]
    return {e.control: e for e in reversed(found) if e.measure == "auc"}


def test_images_of_a_client_of_few_are_told_from_others_of_their_classes() -> None:
    found = measure(steep(4))
    interval = found["none"].interval
    assert interval is not None and interval[0] > 0.5
    assert found["positive"].value > 0.7
    assert 0.3 < found["negative"].value < 0.7


def test_the_diagonal_of_another_client_tells_nothing() -> None:
    made = steep(4)
    fishers = [a for a in made.artifacts if a.kind == Kind.FISHER]
    swapped = {a.id: b.payload for a, b in zip(fishers, [*fishers[1:], fishers[0]], strict=True)}
    view = [replace(a, payload=swapped[a.id]) if a.id in swapped else a for a in made.artifacts]
    assert abs(measure(made, view)["none"].value - 0.5) < 0.25


def test_the_score_of_a_clients_only_image_is_one() -> None:
    made = steep(1)
    attack = FisherMembership()
    claim = attack.run(made.artifacts, made.knowledge, np.random.default_rng(0))
    for scorer, own in zip(claim["scorers"], made.clients, strict=True):
        assert abs(float(scorer(own)[0]) - 1) < 1e-5


def test_the_score_is_the_cosine_of_squared_gradients_by_hand() -> None:
    made = steep(4)
    claim = FisherMembership().run(made.artifacts, made.knowledge, np.random.default_rng(0))
    model, sent = (
        next(a.payload for a in made.artifacts if a.kind == k and a.sender.index == 0)
        for k in (Kind.LOCAL_MODEL, Kind.FISHER)
    )
    net, image = FlatArchitecture()(model).module().requires_grad_(True), made.reference.only(np.arange(1))
    loss = nn.functional.cross_entropy(net(torch.from_numpy(image.x)), torch.from_numpy(image.y))
    names, params = zip(*net.named_parameters(), strict=True)
    square = np.concatenate([g.numpy().ravel() ** 2 for g in torch.autograd.grad(loss, params)]).astype(
        np.float64
    )
    fisher = np.concatenate([sent[f"u/{name}"].ravel() for name in names]).astype(np.float64)
    cosine = square @ fisher / np.linalg.norm(square) / np.linalg.norm(fisher)
    assert abs(float(claim["scorers"][0](image)[0]) - cosine) < 1e-4


def test_a_diagonal_without_its_model_is_a_sentence() -> None:
    alone = [a for a in diagonals() if a.kind == Kind.FISHER]
    assert "together with the model" in FisherMembership().not_applicable(alone, world().knowledge)
