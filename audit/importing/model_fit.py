"""Whether models fit the examples: labels, their order, and the normalisation that is stated.

A client's model after its training names the client's own examples at least as well as a constant guess does, and
it was trained under the normalisation that it fits best. With noise claimed in training or on what is sent a bad
fit says nothing. Where no client's examples were given, the latest model of the server is held against the
auditor's own; that one may simply be bad, so it bears out what is stated or leaves it open.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import scipy
import torch
from numpy.typing import NDArray

from fedaudit.audit.case.recorded import RecordedCase
from fedaudit.audit.importing.identity import MOST_CLIENTS, MOST_EXAMPLES, client_models
from fedaudit.audit.observer.models import KnownArchitecture
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.data.partition import Index
from fedaudit.fl.kinds import UPDATES, Kind
from fedaudit.fl.wire.protection import published_noise
from fedaudit.reports.imported import Check

Pair = tuple[Mapping[str, NDArray[np.generic]], Index]  # a model, and rows that it should fit
TITLE, ID = "Labels and normalisation", "fit"
LEVEL = 0.01
FEWEST, BETTER = 3, 0.9  # of the loss as stated, on every one of so many clients: another was trained with


def fits(case: RecordedCase, latest: list[Artifact]) -> Check:
    """The latest models on the examples that were given."""
    pairs = _pairs(case, latest)
    if case.make_net is None or not pairs:
        why = "the network is not stated" if case.make_net is None else "no examples were given"
        return Check(id=ID, title=TITLE, status="open", text=f"Could not be checked: {why}.")
    hits, n, guess, losses = 0, 0, 0, []
    for weights, rows in pairs:
        y = case.data.train.y[rows]
        logits = _logits(case, case.data, weights, rows)
        hits, n = hits + int((logits.argmax(1) == y).sum()), n + len(y)
        guess += int(np.bincount(y).max())
        losses.append(_loss(logits, y))
    of_clients = pairs[0][0] is not _served(latest)
    whose = ("Models of clients", "own examples of theirs") if of_clients else ("The latest model", "examples")
    text = f"{whose[0]} named {hits / n:.0%} of {n:,} {whose[1]} right, a constant guess {guess / n:.0%}"
    noised = case.private is not None or any(p.central for p in case.protections)
    noised = noised or any(published_noise(case.protections, k) for k in UPDATES)
    if not of_clients and float(scipy.stats.binom.sf(hits - 1, n, guess / n)) > LEVEL:
        text += ": a bad model, or labels, their order or the normalisation are not as stated."
        return Check(id=ID, title=TITLE, status="open", text=text)
    if float(scipy.stats.binom.cdf(hits, n, guess / n)) <= LEVEL:
        why = "labels, their order or the normalisation are not as stated"
        text += f": the claimed noise does that, or {why}." if noised else f": {why}."
        return Check(id=ID, title=TITLE, status="open" if noised else "contradicted", text=text)
    if better := _better(case, pairs, losses) if of_clients and not noised else "":
        text += f"; with {better} and not as stated they fit better on every client: it is not theirs."
        return Check(id=ID, title=TITLE, status="contradicted", text=text)
    if float(scipy.stats.binom.sf(hits - 1, n, guess / n)) <= LEVEL:
        return Check(id=ID, title=TITLE, status="holds", text=f"{text}.")
    return Check(id=ID, title=TITLE, status="open", text=f"{text}: that does not tell.")


def _pairs(case: RecordedCase, latest: list[Artifact]) -> list[Pair]:
    """Models and rows of examples that they should fit."""
    rng = case.streams.numpy("fits")

    def some(rows: Index) -> Index:
        return np.sort(rng.permutation(rows)[:MOST_EXAMPLES])

    models = client_models(latest)
    own = [
        (models[k], some(case.parts[k])) for k in sorted(models.keys() & case.parts.keys()) if len(case.parts[k])
    ]
    if own:
        return own[:MOST_CLIENTS]
    served, rows = _served(latest), np.concatenate([*case.parts.values(), case.auxiliary, case.reference])
    return [(served, some(rows))] if served is not None and len(rows) else []


def _served(latest: list[Artifact]) -> Mapping[str, NDArray[np.generic]] | None:
    """The server's last model."""
    found = [a for a in latest if a.kind == Kind.GLOBAL_MODEL]
    return max(found, key=lambda a: a.round).payload if found else None


def _better(case: RecordedCase, pairs: list[Pair], losses: list[float]) -> str:
    """Another normalisation under which the loss is lower on every client; empty where none is."""
    x = case.data.train.x
    if x.dtype.kind != "f" or len(pairs) < FEWEST:
        return ""
    axes = (0, *range(2, x.ndim))
    own = tuple(map(float, x.mean(axes))), tuple(float(s) or 1.0 for s in x.std(axes))
    zeros, ones, halves = (0.0,) * len(own[0]), (1.0,) * len(own[0]), (0.5,) * len(own[0])
    others = {"values from 0 to 1": (zeros, ones), "values from -1 to 1": (halves, halves)}
    others["the examples' own mean and deviation"] = own
    for words, (mean, std) in others.items():
        data = replace(case.data, mean=mean, std=std)
        found = [_loss(_logits(case, data, w, rows), case.data.train.y[rows]) for w, rows in pairs]
        if all(new < BETTER * old for new, old in zip(found, losses, strict=True)):
            return words
    return ""


def _logits(
    case: RecordedCase, data: Data, weights: Mapping[str, NDArray[np.generic]], rows: Index
) -> NDArray[np.float64]:
    assert case.make_net is not None
    return np.asarray(KnownArchitecture(case.make_net, data)(weights).logits(data.train.x[rows]), np.float64)


def _loss(logits: NDArray[np.float64], y: NDArray[np.int64]) -> float:
    return float(torch.nn.functional.cross_entropy(torch.from_numpy(logits), torch.from_numpy(y)))
