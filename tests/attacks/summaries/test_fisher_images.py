"""Images from Fisher diagonals: of one example by algebra, of many where a unit fires for one of them alone."""

from dataclasses import replace

import numpy as np

from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.summaries.fisher_images import FisherImages
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from tests.attacks.summaries.worlds import Steep, diagonals, steep, world


def measured(made: Steep, view: list[Artifact] | None = None) -> dict[str, Evidence]:
    attack = FisherImages()
    claim = attack.run(view or made.artifacts, made.knowledge, np.random.default_rng(0))
    return {e.control: e for e in attack.measure(claim, made, np.random.default_rng(1))}  # type: ignore[arg-type]


def test_a_client_of_one_image_sends_it_and_that_is_algebra() -> None:
    found = measured(steep(1))
    assert found["none"].value == found["positive"].value == 1 and found["negative"].value == 0
    assert "by algebra" in found["positive"].note


def evened(made: Steep) -> list[Artifact]:
    """Every unit has the quotient of all units together, as if each had fired for every image."""
    view = []
    for a in made.artifacts:
        if a.kind == Kind.FISHER:
            weight, bias = a.payload["u/first.weight"], a.payload["u/first.bias"]
            same = bias[:, None] * weight.sum(axis=0) / bias.sum()
            a = replace(a, payload={**a.payload, "u/first.weight": same})
        view.append(a)
    return view


def test_of_thirty_images_units_that_fire_for_one_show_it_and_all_units_together_show_nobody() -> None:
    found, together = measured(steep(30)), measured(steep(30), evened(steep(30)))
    assert found["none"].value == found["positive"].value == 1 and found["negative"].value == 0
    assert together["none"].value == together["negative"].value == 0 and together["positive"].value == 1


def test_one_unit_that_one_image_fires_gives_it_away() -> None:
    made, view = steep(30), []
    for a in evened(steep(30)):
        if a.kind == Kind.FISHER and a.sender.index == 0:
            weight = a.payload["u/first.weight"].copy()
            weight[5] = a.payload["u/first.bias"][5] * made.clients[0].x[7].ravel() ** 2
            a = replace(a, payload={**a.payload, "u/first.weight": weight})
        view.append(a)
    assert measured(made, view)["none"].value == 1 / 6


def test_a_first_layer_of_convolutions_is_not_read() -> None:
    assert "linear in pixels" in FisherImages().not_applicable(diagonals(), world().knowledge)
