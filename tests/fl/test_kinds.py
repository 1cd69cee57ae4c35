"""One row a kind: complete for whatever a card names, and true of what is sent."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

from fedaudit.audit.settings import catalog
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind, Row, Summed


def mismatch(artifact: Artifact) -> str:
    """What an artifact's arrays have that the row of its kind does not allow; empty where they agree."""
    allowed = artifact.kind.arrays
    for name, array in artifact.payload.items():
        shapes = allowed.get(name, allowed.get("*", allowed.get("KIND/NAME")))
        if shapes is None:
            return f"{artifact.kind} holds {name!r}, its row {list(allowed)}"
        dimensions = {0 if s == "[]" else s.count(",") + 1 for s in shapes.split(" or ") if s.startswith("[")}
        if dimensions and array.ndim not in dimensions and "..." not in shapes:
            return f"{artifact.kind}/{name} has shape {array.shape}, its row says {shapes}"
    return ""


@pytest.mark.parametrize("kind", Kind)
def test_a_row_is_complete_and_its_words_are_words(kind: Kind) -> None:
    assert kind.words and kind.words != kind.replace("_", " ") and not kind.words.endswith(".")
    assert kind.arrays and all(kind.arrays.values())
    assert kind.counted in ("", *kind.arrays)
    if kind.summed in (Summed.BY_CLASS, Summed.BY_CLASS_WEIGHTED):
        assert "classes" in kind.arrays


def test_every_kind_that_a_card_names_is_a_row() -> None:
    for shelf, fields in {
        "methods": ("uplink", "downlink", "relay", "release"),
        "attacks": ("requires",),
    }.items():
        for name in catalog.names(shelf):
            card = catalog.load(shelf, name).card
            assert all(isinstance(k, Kind) and k.words for f in fields for k in getattr(card, f))


def test_no_two_kinds_have_the_same_words() -> None:
    assert len({k.words for k in Kind}) == len(Kind)


def test_a_kind_is_its_name_and_survives_pickling_as_itself() -> None:
    assert f"{Kind.GAN_G}" == "gan_G" and Kind("gan_G") is Kind.GAN_G
    assert pickle.loads(pickle.dumps(Kind.PROTO_COUNTS)) is Kind.PROTO_COUNTS
    with pytest.raises(ValueError, match="nothing"):
        Kind("nothing")


def test_reading_kinds_and_threats_imports_no_library() -> None:
    code = "import sys, fedaudit.fl.kinds, fedaudit.fl.threats.threat"
    code += "; print([m for m in ('torch', 'numpy', 'pydantic') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert out.stdout.strip() == "[]"


def test_mismatch_sees_a_wrong_name_and_a_wrong_shape() -> None:
    def artifact(**payload: object) -> Artifact:
        from fedaudit.fl.artifact import SERVER, Channel

        held = {k: np.asarray(v) for k, v in payload.items()}
        return Artifact(
            id="x",
            kind=Kind.PROTO_COUNTS,
            channel=Channel.UPLINK,
            round=0,
            sender=SERVER,
            seen_by=(),
            payload=held,
        )

    assert mismatch(artifact(classes=[1], counts=[2])) == ""
    assert "holds 'count'" in mismatch(artifact(count=[2]))
    assert "has shape (1, 1)" in mismatch(artifact(counts=[[2]]))


def test_a_row_has_what_the_kind_has() -> None:
    assert set(Row._fields) - {"name"} == {k for k in Kind.__annotations__ if not k.startswith("_")}
