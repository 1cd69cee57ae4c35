"""Sparse updates: by hand, as a change of the model, and no promise of privacy."""

import pytest
import torch

from fedaudit.fl.kinds import Kind
from fedaudit.fl.protections.dp_gaussian import DPGaussian
from fedaudit.fl.protections.top_k import TopK
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from tests.fl.protections.sends import make, send

MODEL = Kind.LOCAL_MODEL
BASE = {"w": torch.tensor([10.0, 20.0, 30.0]), "b": torch.tensor([5.0])}
MOVED = {"w": torch.tensor([10.5, 17.0, 30.25]), "b": torch.tensor([6.0]), "n": torch.tensor([7])}


def test_the_largest_changes_of_all_arrays_together_are_left() -> None:
    """Changes .5, -3, .25 and 1: half of them are -3 and 1."""
    out, releases = send(make(TopK, share=0.5), {MODEL: MOVED}, {Kind.GLOBAL_MODEL: BASE})
    assert out[MODEL]["w"].tolist() == [10.0, 17.0, 30.0] and out[MODEL]["b"].tolist() == [6.0]
    assert out[MODEL]["n"].tolist() == [7]
    assert releases == []  # leaving out promises nothing: the wire lists it in clear


def test_ternary_keeps_signs_and_one_magnitude() -> None:
    out, _ = send(make(TopK, share=0.5, values="ternary"), {MODEL: MOVED}, {Kind.GLOBAL_MODEL: BASE})
    assert out[MODEL]["w"].tolist() == [10.0, 18.0, 30.0] and out[MODEL]["b"].tolist() == [7.0]


def test_ties_keep_the_first_and_one_number_at_least_is_sent() -> None:
    out, _ = send(make(TopK, share=0.01), {Kind.MODEL_DELTA: {"w": torch.tensor([0.0, 2.0, -2.0])}})
    assert out[Kind.MODEL_DELTA]["w"].tolist() == [0.0, 2.0, 0.0]


def test_everything_is_sent_as_it_was() -> None:
    out, _ = send(make(TopK, share=1.0), {MODEL: MOVED}, {Kind.GLOBAL_MODEL: BASE})
    assert all(out[MODEL][k] is v for k, v in MOVED.items())


def test_after_noise_the_ledger_keeps_the_noise() -> None:
    message, base = {MODEL: {"w": torch.zeros(100)}}, {Kind.GLOBAL_MODEL: {"w": torch.zeros(100)}}
    noised, [before] = send(make(DPGaussian, clip_norm=1.0, noise_multiplier=1.0), message, base)
    sparse, releases = send(make(TopK, share=0.1), noised, base)
    assert int((sparse[MODEL]["w"] != 0).sum()) == 10 and releases == [] and before.noise_std > 0


def test_bits_are_the_papers() -> None:
    """Of one number in a hundred: 6 + 1 / (1 - .99^64) bits for its place (eq. 15 to 17), and its sign."""
    assert make(TopK, share=0.01, values="ternary").bits() == pytest.approx(9.108, abs=0.01)


def test_a_share_of_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="share must be > 0"):
        configure(TopK, {"share": 0}, "protections[0]")
