"""Uploads of clients that train on text: what each changed in the model, and what it started from."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Knowledge
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.sources import SAID_WITH, UPLOADS, compute_change, global_model, uploads
from fedaudit.attacks.evaluation.sums import find_kind, number_of
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind

Arrays = Mapping[str, NDArray[Any]]
READ = (*UPLOADS, *SAID_WITH, Kind.AGGREGATE)
AIDS = (Kind.GLOBAL_MODEL, *SAID_WITH)


@dataclass(frozen=True, kw_only=True)
class Change:
    """What one upload added to the weights that it started from, float64."""

    artifact: str
    kind: Kind
    origin: str
    sender: int
    round: int
    n: int  # texts behind a replayed one; 0: not known
    series: str  # of replayed ones that are read together; "" otherwise
    start: Arrays
    change: Arrays


def iterate_changes(view: Sequence[Artifact], knowledge: Knowledge) -> Iterator[Change]:
    """Every upload whose starting model was seen and that changed something, in the order of the view."""
    view = index(view)
    for a in uploads(view, knowledge.training, UPLOADS):
        start = global_model(view, a.round, a)
        if start is None or start.round != a.round:
            continue
        change = compute_change(a, start.payload, view, knowledge.training)
        change = {
            k: v for k, v in change.items() if np.issubdtype(np.asarray(start.payload[k]).dtype, np.floating)
        }
        if not any(v.any() for v in change.values()) or not all(np.isfinite(v).all() for v in change.values()):
            continue
        yield Change(
            artifact=a.id,
            kind=find_kind(a),
            origin=a.origin,
            sender=number_of(a.sender),
            round=a.round,
            n=int(a.note.get("batch", a.note.get("n", 0))),
            series=str(a.note.get("series", "")),
            start=start.payload,
            change=change,
        )


def explain_absence(view: Sequence[Artifact], knowledge: Knowledge) -> str:
    """Why nothing can be read here, as a sentence; empty where there are uploads of text."""
    shape, auxiliary = knowledge.shape, knowledge.auxiliary
    if len(shape) != 1 or (auxiliary is not None and np.asarray(auxiliary.x).dtype.kind not in "iu"):
        return "it reads texts of tokens, and examples here have another shape"
    if knowledge.architecture is None:
        return "the adversary does not know the network"
    if next(iterate_changes(view, knowledge), None) is None:
        return "no upload was recorded together with the model it started from"
    return ""
