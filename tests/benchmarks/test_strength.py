"""Strength of attacks: every row has a command, figures are held against what is asked, and pieces are kept."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.strength import bench, gradients, inversions, poisoned, stated
from benchmarks.strength.__main__ import PIECES, chosen, figures
from benchmarks.strength.figure import Figure, Piece
from benchmarks.strength.inversions import DIFFERENCE, recovered, without_classes
from benchmarks.strength.members import Cosine
from fedaudit.attacks.attack import Examples
from fedaudit.attacks.prototypes.prototype_membership import PrototypeMembership
from fedaudit.audit.case.case import Case
from fedaudit.audit.controls.lab import Replays
from fedaudit.audit.observer.models import KnownArchitecture
from fedaudit.audit.settings.merge import merge
from fedaudit.audit.settings.overrides import overridden
from fedaudit.fl.artifact import Artifact, Channel, Party
from fedaudit.fl.clients.client import Reply
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from tests.attacks.poisoning.test_adversaries import client

DIGITS = {
    "federation": {
        "dataset": "digits",
        "limit": 600,
        "clients": 4,
        "partition": {"name": "n_class", "classes_per_client": 2, "examples_per_client": 30},
        "model": {"name": "mlp", "hidden": [16]},
        "holdout": {"auxiliary": 0.4, "reference": 0.2, "own": 0},
    },
    "method": {"name": "rebafl", "rounds": 1, "local_epochs": 1, "batch_size": 10, "lr": 0.01},
}


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return bench.case(tmp_path_factory.mktemp("strength"), "digits", DIGITS)


def test_every_row_has_a_piece_and_every_piece_a_name_of_its_own() -> None:
    assert {r for p in PIECES for r in p.rows} == {f"M{i}" for i in range(1, 20)}
    assert len({p.name for p in PIECES}) == len(PIECES)


@pytest.mark.parametrize(
    ("least", "most", "reached", "asked"),
    [
        (0.5, None, True, ">= 0.5"),
        (0.51, None, False, ">= 0.51"),
        (None, 0.5, True, "<= 0.5"),
        (None, 0.49, False, "<= 0.49"),
        (0.4, 0.45, False, "0.4 to 0.45"),
        (None, None, None, ""),
    ],
)
def test_a_figure_is_held_against_what_is_asked(
    least: float | None, most: float | None, reached: bool | None, asked: str
) -> None:
    figure = Figure(row="M1", what="", value=0.5, least=least, most=most)
    assert (figure.reached, figure.asked) == (reached, asked)


def test_a_piece_that_was_made_is_read_and_not_made_again(tmp_path: Path) -> None:
    made: list[Path] = []

    def make(out: Path) -> list[Figure]:
        made.append(out)
        return [Figure(row="M1", what="rank-1", value=0.25, least=0.5, interval=(0.0, 0.5), trials=4)]

    piece = Piece("once", ("M1",), make)
    assert figures(piece, tmp_path) == figures(piece, tmp_path) == make(tmp_path)
    assert len(made) == 2  # once by figures, once here
    assert json.loads((tmp_path / "once.json").read_text())["seconds"] >= 0


def test_rows_and_pieces_are_chosen_by_name_and_a_wrong_one_is_refused() -> None:
    assert [p.name for p in chosen("M2", "")] == ["shifted", "absent"]
    assert [p.name for p in chosen("", "ridge")] == ["ridge"]
    assert chosen("", "") == list(PIECES)
    with pytest.raises(UserError, match="no row 'M99'"):
        chosen("M99", "")


def test_federations_are_valid_configs() -> None:
    gradient = {**gradients.FEDERATION, "method": {**gradients.METHOD, "rounds": 1}}
    plans = [{"federation": stated.DIGITS} | dict(own) for _, own in stated.PLANTED.values()]
    for settings in (inversions.FEDERATION, gradient, *plans):
        overridden({}, merge(bench.FRAME, settings), where="a federation")


def test_an_adversary_without_the_classes_has_no_image_of_what_it_attacks() -> None:
    images = Examples(x=np.zeros((6, 1, 2, 2), np.float32), y=np.array([0, 1, 2, 0, 1, 2]))
    view = [_prototype("recorded", 0), _prototype("replayed", 2)]
    assert without_classes(images, view).y.tolist() == [0, 1, 0, 1]


def _prototype(origin: str, label: int) -> Artifact:
    payload = {"classes": np.array([label]), "features": np.ones((1, 3), np.float32)}
    return Artifact(
        id=f"{origin}/{label}",
        round=0,
        channel=Channel.UPLINK,
        kind=Kind.LOCAL_PROTOTYPES,
        sender=Party.client(0),
        seen_by=("server",),
        payload=payload,
        origin=origin,
    )


def test_cosine_is_one_for_the_prototype_itself_and_nothing_across_it() -> None:
    claim = {"prototype": np.array([[3.0, 4.0]])}
    rows = np.array([[3.0, 4.0], [6.0, 8.0], [-4.0, 3.0]])
    assert Cosine(PrototypeMembership.Config()).score(claim, 0, rows) == pytest.approx([1, 1, 0])


@pytest.mark.nightly
def test_what_is_recovered_from_two_prototypes_are_the_features_of_the_image_that_joined(digits: Case) -> None:
    kept: list[tuple[Replays, Sequence[Artifact]]] = []

    def more(case: Case, recorded: Sequence[Artifact]) -> Replays:
        kept.append((recovered(case, recorded, n=9), recorded))
        return kept[0][0]

    tool = bench.attack("ridge", max_clients=1, show_sizes=[])
    found = bench.tried(digits, tool, {"sizes": [1], "groups": 8}, more=more, clients=1)
    (made, recorded), train = kept[0], digits.data.train
    assert digits.network.make is not None and len(made.artifacts) > 20
    for a in made.artifacts[:5]:
        sent = next(m for m in recorded if m.kind == Kind.LOCAL_MODEL and m.sender == a.sender)
        extractor = KnownArchitecture(digits.network.make, digits.data)(sent.payload)
        true = extractor.features(train.x[made.groups[a.id]])
        np.testing.assert_allclose(a.payload["features"], true, atol=1e-4)
    rank1 = bench.pick(found.evidence, "rank1", n=1, origin=DIFFERENCE)
    assert rank1.trials == len(made.artifacts) and rank1.control == "none"


def test_of_several_results_or_none_nothing_is_picked(digits: Case) -> None:
    tool = bench.attack("lookup", max_clients=4, show_sizes=[])
    found = bench.tried(digits, tool, {"sizes": [1, 5], "clients": 2, "groups": 4}).evidence
    assert bench.pick(found, "rank1", n=5).condition["n"] == 5
    with pytest.raises(LookupError, match="2 results"):
        bench.pick(found, "rank1")


def test_the_liar_of_counts_trains_on_flipped_labels_and_claims_a_thousand_times_as_many() -> None:
    liar = poisoned.InflatedFlip(poisoned.InflatedFlip.Config(factor=1000.0, clients=(0,)))
    assert liar.data(client()).y.tolist() == [3, 2, 1, 0, 3, 2]
    honest = Reply(message={Kind.NUM_EXAMPLES: {"count": torch.tensor(6)}}, examples=6)
    assert int(liar.craft(client(), honest, {}).message[Kind.NUM_EXAMPLES]["count"]) == 6000
