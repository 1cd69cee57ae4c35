"""Likeliest classes alone: outputs by hand, the identity with all of them, and FedMD with and without."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.fl.kinds import Kind
from fedaudit.fl.protections.quantise import Quantise
from fedaudit.fl.protections.top_class import TopClass
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from tests.fl.test_all_methods import method
from tests.fl.worlds import EVERYONE, data, parts, run


def logits(folder: Path, *protections: Any) -> Any:
    """What client 4 sends in the first round."""
    world = run(
        method("fedmd", first_epochs=1),  # type: ignore[arg-type]
        folder=folder,
        d=data(n=100),
        index=parts(data(n=80)),
        script=EVERYONE,
        protections=protections,
    )
    sent = [a for a in world.artifacts if a.kind == Kind.PUBLIC_LOGITS and a.sender.index == 4]
    return sent[0].payload["logits"]


def test_two_numbers_are_left_and_the_likeliest_class_is_where_it_was(tmp_path: Path) -> None:
    plain, kept = logits(tmp_path / "plain"), logits(tmp_path / "kept", TopClass())
    assert len(np.unique(kept)) == 2 and kept.argmax(1).tolist() == plain.argmax(1).tolist()
    first = plain.max(1)
    assert kept.max() == pytest.approx(first.mean(), abs=1e-5)
    assert kept.min() == pytest.approx((plain.sum() - first.sum()) / (plain.size - len(plain)), abs=1e-5)


def test_all_classes_kept_change_nothing(tmp_path: Path) -> None:
    whole = logits(tmp_path / "all", TopClass(TopClass.Config(keep=4)))
    assert np.array_equal(logits(tmp_path / "plain"), whole)


def test_outputs_are_rounded_by_quantising_them(tmp_path: Path) -> None:
    kinds = (Kind.PUBLIC_LOGITS,)
    rounded = logits(tmp_path, Quantise(Quantise.Config(kinds=kinds, bits=2, rounding="nearest")))
    assert len(np.unique(rounded)) <= 4


def test_no_class_at_all_is_refused() -> None:
    with pytest.raises(UserError, match="keep"):
        configure(TopClass, {"keep": 0}, "protections")
