"""Outputs on public examples, as what a client's model makes of images that the adversary knows."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Knowledge, PublicExamples
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.fl.artifact import Artifact, Role
from fedaudit.fl.kinds import Kind


class ClientAnswers(NamedTuple):
    """What one client answered."""

    client: int
    round: int
    artifact: str
    places: NDArray[np.int64]  # [m] in the public images
    logits: NDArray[np.float64]  # [m, C]


def read_answers(view: Sequence[Artifact], knowledge: Knowledge) -> list[ClientAnswers]:
    """The outputs of clients on public images that the adversary knows, one a message."""
    public = knowledge.public
    if public is None:
        return []
    sent = index(view).select(kind=Kind.PUBLIC_LOGITS, origin="recorded")
    found = []
    for a in sorted(sent, key=lambda a: (a.round, a.id)):
        if a.sender.role == Role.CLIENT and a.sender.index is not None and _fits(a, public, knowledge.classes):
            places = np.asarray(a.payload["index"], np.int64)
            logits = np.asarray(a.payload["logits"], np.float64)
            found.append(ClientAnswers(a.sender.index, a.round, a.id, places, logits))
    return found


def _fits(a: Artifact, public: PublicExamples, classes: int) -> bool:
    """Whether a message has a row of finite outputs for each of some public images."""
    if not {"index", "logits"} <= a.payload.keys():
        return False
    places: NDArray[Any] = np.asarray(a.payload["index"])
    logits: NDArray[Any] = np.asarray(a.payload["logits"])
    known = places.dtype.kind in "iu" and bool(((places >= 0) & (places < len(public))).all())
    return (
        known and logits.shape == (len(places), classes) and len(places) > 0 and bool(np.isfinite(logits).all())
    )
