"""The models a membership attack is aimed at: the global one, uploaded ones, and those of relays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.sources import compute_change, global_model, uploads, weighting
from fedaudit.attacks.evaluation.sums import count_clients, find_kind, is_share, number_of
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import MODELS, UPDATES, Kind

Arrays = Mapping[str, NDArray[Any]]
GLOBAL, UPDATE, RELAYED = "global model", "update", "relayed model"
SUM, SHARE = "sum of updates", "update solved from sums"
BLIND = "blind"


@dataclass(frozen=True, kw_only=True)
class Target:
    artifact: str
    origin: str  # "recorded", "replayed" (and of what) or "blind": weights that tell nothing
    kind: Kind
    model: str  # GLOBAL, UPDATE, SUM, SHARE or RELAYED
    sender: int  # -1: the server, or several clients
    weights: Arrays  # all of the model's
    start: Arrays  # what an update started from; empty for the others
    round: int = 0
    n: int = 0  # examples that a replayed one was trained on, where replays make a curve
    examples: int = 0  # behind an update, where it was asked and is said
    clients: int = 1  # in a sum

    def change(self) -> Arrays:
        """What local training did to the floating weights that it started from, float64."""
        return {
            k: np.asarray(self.weights[k], np.float64) - v
            for k, v in sorted(self.start.items())
            if np.issubdtype(v.dtype, np.floating)
        }


def targets(
    view: Sequence[Artifact], rng: np.random.Generator, clients: int, training: Mapping[str, float]
) -> list[Target]:
    """The global models, the newest with a blind copy, then replayed uploads and those of `clients` clients.

    Uploads whose starting model was not seen are left out. What a client does not train, such as the server's
    part of a network that is split, is as the newest global model has it. The blind copy has the same weights in
    random order within each array, so whatever it tells about members is no membership.
    """
    view, found = index(view), []
    newest = global_model(view, max((a.round for a in view), default=0))
    if newest is not None:
        for older in view.select(kind=Kind.GLOBAL_MODEL, origin="recorded"):
            if older.round < newest.round and older.seen_by == newest.seen_by:
                found.append(_target_global(older, "recorded", older.payload))
        # by name: what is drawn depends on no order of the arrays
        shuffled = {k: _shuffle(np.asarray(v), rng) for k, v in sorted(newest.payload.items())}
        for origin, weights in (("recorded", newest.payload), (BLIND, shuffled)):
            found.append(_target_global(newest, origin, weights))
    sent = uploads(view, training, (*UPDATES, Kind.NORMALIZED_DELTA))
    rest = {} if newest is None else newest.payload
    changed = [t for a in sent if (t := _upload(a, view, training, rest)) is not None]
    return [*found, *_select_recorded(changed, rng, clients)]


def _target_global(a: Artifact, origin: str, weights: Arrays) -> Target:
    return Target(
        artifact=a.id,
        origin=origin,
        kind=a.kind,
        model=GLOBAL,
        sender=-1,
        weights=weights,
        start={},
        round=a.round,
    )


def select_relays(view: Sequence[Artifact], rng: np.random.Generator, clients: int) -> list[Target]:
    """The newest models that clients handed on: replayed ones, then those of `clients` clients."""
    handed = [a for a in view if a.kind == Kind.RELAY_MODEL]
    newest = {(_origin(a), a.sender): a for a in sorted(handed, key=lambda a: a.round)}
    models = [
        Target(
            artifact=a.id,
            origin=_origin(a),
            kind=a.kind,
            model=RELAYED,
            sender=a.sender.index,
            weights=a.payload,
            start={},
            round=a.round,
        )
        for a in newest.values()
        if a.sender.index is not None and all(np.isfinite(v).all() for v in a.payload.values())
    ]
    return _select_recorded(models, rng, clients)


def _select_recorded(models: Sequence[Target], rng: np.random.Generator, clients: int) -> list[Target]:
    """All replayed ones, then `clients` of the recorded."""
    recorded = [t for t in models if t.origin == "recorded"]
    some = sorted(rng.permutation(len(recorded))[:clients].tolist())
    return [*(t for t in models if t.origin.startswith("replayed")), *(recorded[i] for i in some)]


def _upload(a: Artifact, view: Sequence[Artifact], training: Mapping[str, float], rest: Arrays) -> Target | None:
    start = global_model(view, a.round, a)
    if start is None or start.round != a.round:
        return None
    before: Arrays = start.payload
    sent: Arrays = {k: v for k, v in a.payload.items() if k in before}
    if a.kind not in MODELS or weighting(a, before) != 1:
        change = compute_change(a, before, view, training)
        sent = {k: np.asarray(before[k] + v, before[k].dtype) for k, v in change.items()}
    if not all(np.isfinite(v).all() for v in sent.values()):
        return None
    return Target(
        artifact=a.id,
        origin=_origin(a),
        kind=find_kind(a),
        model=SHARE if is_share(a) else SUM if a.sender.index is None else UPDATE,
        sender=number_of(a.sender),
        weights={**rest, **before, **sent},
        start=before,
        round=a.round,
        n=int(a.note["n"]) if "curve" in a.note else 0,
        clients=count_clients(a),
    )


def _origin(a: Artifact) -> str:
    """Replays of other plants than memorised wrong labels are judged apart."""
    return f"{a.origin}, {a.note['plant']}" if "plant" in a.note else a.origin


def _shuffle(values: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    return rng.permutation(values.ravel()).reshape(values.shape)
