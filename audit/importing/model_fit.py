"""Whether models fit the examples: labels, their order, and the normalisation that is stated.

A client's model after its training should name the client's own examples at least as well as a constant guess
does. One that does not may simply be bad, which is no contradiction. If labels are as stated, a step along the
gradient raises the stated class. Labels are contradicted where it raised others: one rule, label -> class whose
logit rose most, learnt on every other example, holds for the rest more often than a constant guess would
(binomial, LEVEL) and for more than half of what that guess misses, and the stated labels do not.
tests/audit/importing counts how often honest federations are contradicted. With noise claimed, and for another
normalisation, a bad fit leaves it open.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy
import torch
from numpy.typing import NDArray

from fedaudit.audit.importing.identity import MOST_CLIENTS, MOST_EXAMPLES, Build, LatestUploads, client_models
from fedaudit.audit.observer.models import BoundExtractor, KnownArchitecture
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.data.partition import Index
from fedaudit.fl.kinds import UPDATES, Kind
from fedaudit.fl.wire.protection import Protection, published_noise
from fedaudit.reports.imported import CheckedStatement

Pair = tuple[Mapping[str, NDArray[np.generic]], Index]  # a model, and rows that it should fit
TITLE, ID = "Labels and normalisation", "fit"
LEVEL = 0.01
FEWEST, BETTER = 3, 0.9  # clients that a rule is learnt on; loss over the loss as stated, on every client


def check_fit(uploads: LatestUploads) -> CheckedStatement:
    """The latest models on the examples that were given."""
    build, data, pairs = uploads.build, uploads.data, _pairs(uploads)
    if build is None or not pairs:
        why = "the network is not stated" if build is None else "no examples were given"
        return CheckedStatement(id=ID, title=TITLE, status="open", text=f"Could not be checked: {why}.")
    net = build(data)
    if data.predicts == "lm":
        return _fit_tokens(net, data.train.x, pairs)
    hits, n, guess, losses = 0, 0, 0, []
    for weights, rows in pairs:
        y = data.train.y[rows]
        logits = _logits(net(weights), data.train.x[rows])
        right = (logits.argmax(1) == y) & np.isfinite(logits).all(1)  # what is no number names nothing
        hits, n = hits + int(right.sum()), n + len(y)
        guess += int(np.bincount(y).max())
        losses.append(_loss(logits, y))
    of_clients = pairs[0][0] is not _find_last_model(uploads.messages)
    whose = ("Models of clients", "own examples of theirs") if of_clients else ("The latest model", "examples")
    text = f"{whose[0]} named {hits / n:.0%} of {n:,} {whose[1]} right, a constant guess {guess / n:.0%}"
    if float(scipy.stats.binom.sf(hits - 1, n, guess / n)) <= LEVEL:
        better = _find_better_scale(build, data, pairs, losses) if of_clients else ""
        more = (
            f"; with {better} they fit better on every client, which may be how they were trained"
            if better
            else ""
        )
        return CheckedStatement(id=ID, title=TITLE, status="open" if better else "holds", text=f"{text}{more}.")
    if of_clients and not _has_noise(uploads.protections) and (other := _other_labels(net, uploads)):
        return CheckedStatement(id=ID, title=TITLE, status="contradicted", text=f"{text}; {other}.")
    why = "a bad model, claimed noise, or labels, their order or the normalisation are not as stated"
    return CheckedStatement(id=ID, title=TITLE, status="open", text=f"{text}: {why}.")


def _fit_tokens(net: KnownArchitecture, texts: NDArray[Any], pairs: list[Pair]) -> CheckedStatement:
    """Language models on texts that were given: whether more next tokens are right than by a constant guess.

    A text counts as one trial, right where the model knows more of its tokens than the guess does: tokens of one
    text tell of each other.
    """
    better, worse, right, guessed, tokens = 0, 0, 0, 0, 0
    for weights, rows in pairs:
        x = texts[rows]
        graded = net(weights).grade(x)
        wanted = x[:, 1:]
        often = int(np.bincount(wanted[wanted > 0]).argmax()) if (wanted > 0).any() else 0
        by_guess = ((wanted == often) & (wanted > 0)).sum(1)
        better, worse = (
            better + int((graded[:, 1] > by_guess).sum()),
            worse + int((graded[:, 1] < by_guess).sum()),
        )
        right, guessed = right + int(graded[:, 1].sum()), guessed + int(by_guess.sum())
        tokens += int(graded[:, 2].sum())
    text = f"The models named {right / max(1, tokens):.0%} of {tokens:,} next tokens right, the most frequent "
    text += f"token is {guessed / max(1, tokens):.0%} of them"
    if float(scipy.stats.binom.sf(better - 1, better + worse, 0.5)) <= LEVEL:
        return CheckedStatement(id=ID, title=TITLE, status="holds", text=f"{text}.")
    why = "a bad model, claimed noise, or another vocabulary than stated"
    return CheckedStatement(id=ID, title=TITLE, status="open", text=f"{text}: {why}.")


def _has_noise(protections: Sequence[Protection]) -> bool:
    if any(p.central or p.training() is not None for p in protections):
        return True
    return any(bool(published_noise(protections, k)) for k in UPDATES)


def _other_labels(net: KnownArchitecture, uploads: LatestUploads) -> str:
    """How training moved outputs away from the stated labels and towards others; empty where it did not."""
    data, examples, latest = uploads.data, uploads.examples, uploads.messages
    served = {a.round: a.payload for a in latest if a.kind == Kind.GLOBAL_MODEL}
    rounds = {a.sender.index: a.round for a in latest if a.kind in UPDATES}
    rows, raised, clients = [], [], []
    for k, weights in sorted(client_models(latest).items()):
        if k in examples.parts and len(examples.parts[k]) and rounds.get(k) in served:
            own = examples.parts[k][:MOST_EXAMPLES]
            x = data.train.x[own]
            before = _logits(net(served[rounds[k]]), x)
            rows.append(data.train.y[own])
            raised.append((_logits(net(weights), x) - before).argmax(1))
            clients.append(np.full(len(own), k))
    if len(rows) < FEWEST:
        return ""
    y, towards, whose = np.concatenate(rows), np.concatenate(raised), np.concatenate(clients)
    classes = len(data.classes)
    learnt = np.arange(len(y)) % 2 == 0
    counts = np.zeros((classes, classes))
    np.add.at(counts, (y[learnt], towards[learnt]), 1)
    rule = np.full(classes, -1)
    labels, names = scipy.optimize.linear_sum_assignment(-counts)
    rule[labels] = names
    y, towards, whose = y[~learnt], towards[~learnt], whose[~learnt]
    hits = int((rule[y] == towards).sum())
    guess = sum(int(np.bincount(y[whose == k]).max()) for k in np.unique(whose))
    as_stated = int((towards == y).sum())
    least = float(scipy.stats.binom.sf(hits - 1, len(y), guess / len(y)))
    if least > LEVEL or as_stated >= guess or 2 * hits < len(y) + guess:
        return ""
    return (
        f"training raised the stated class on {as_stated / len(y):.0%} of them and, by a rule learnt on others, "
        f"another class on {hits / len(y):.0%} (by chance with probability {least:.2g}): "
        "labels or their order are not as stated"
    )


def _pairs(uploads: LatestUploads) -> list[Pair]:
    """Models and rows of examples that they should fit."""
    rng, examples = uploads.streams.numpy("fits"), uploads.examples

    def sample(rows: Index) -> Index:
        return np.sort(rng.permutation(rows)[:MOST_EXAMPLES])

    models = client_models(uploads.messages)
    own = [
        (models[k], sample(examples.parts[k]))
        for k in sorted(models.keys() & examples.parts.keys())
        if len(examples.parts[k])
    ]
    if own:
        return own[:MOST_CLIENTS]
    served, rows = (
        _find_last_model(uploads.messages),
        np.concatenate([*examples.parts.values(), examples.auxiliary, examples.reference]),
    )
    return [(served, sample(rows))] if served is not None and len(rows) else []


def _find_last_model(latest: Sequence[Artifact]) -> Mapping[str, NDArray[np.generic]] | None:
    """The server's last model."""
    found = [a for a in latest if a.kind == Kind.GLOBAL_MODEL]
    return max(found, key=lambda a: a.round).payload if found else None


def _find_better_scale(build: Build, data: Data, pairs: list[Pair], losses: list[float]) -> str:
    """Another normalisation under which the loss is lower on every client; empty where none is."""
    x = data.train.x
    if x.dtype.kind != "f" or len(pairs) < FEWEST:
        return ""
    axes = (0, *range(2, x.ndim))
    own = tuple(map(float, x.mean(axes))), tuple(float(s) or 1.0 for s in x.std(axes))
    zeros, ones, halves = (0.0,) * len(own[0]), (1.0,) * len(own[0]), (0.5,) * len(own[0])
    others = {"values from 0 to 1": (zeros, ones), "values from -1 to 1": (halves, halves)}
    others["the examples' own mean and deviation"] = own
    for words, (mean, std) in others.items():
        net = build(replace(data, mean=mean, std=std))
        found = [_loss(_logits(net(w), x[rows]), data.train.y[rows]) for w, rows in pairs]
        if all(new < BETTER * old for new, old in zip(found, losses, strict=True)):
            return words
    return ""


def _logits(model: BoundExtractor, x: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(model.logits(x), np.float64)


def _loss(logits: NDArray[np.float64], y: NDArray[np.int64]) -> float:
    return float(torch.nn.functional.cross_entropy(torch.from_numpy(logits), torch.from_numpy(y)))
