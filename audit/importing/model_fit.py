"""Whether models fit the examples: labels and their order.

A client's model after its training should name the client's own examples at least as well as a constant guess
does. One that does not may simply be bad, which is no contradiction. If labels are as stated, a step along the
gradient raises the stated class. Labels are contradicted where it raised others: one rule, label -> class whose
logit rose most, is learnt on every other example; of the rest with a label that the rule moves, it holds more
often than a constant guess would (binomial, LEVEL) and for more than half of what that guess misses, and the
stated labels do not. tests/audit/importing counts how often honest federations are contradicted.

Labels hold where an exchange of any two classes would have been noticed: of the examples of both that models gave
one of the two names, more have the stated one (sign test, LEVEL). Another normalisation is not noticed here, but
where clients are played (replay.py). With noise claimed, a bad fit leaves it open.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy
import torch
from numpy.typing import NDArray

from fedaudit.audit.importing.identity import MOST_CLIENTS, MOST_EXAMPLES, LatestUploads, client_models
from fedaudit.audit.observer.models import BoundExtractor, KnownArchitecture
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.data.partition import Index
from fedaudit.fl.kinds import UPDATES, Kind
from fedaudit.fl.tasks.text import Text
from fedaudit.fl.wire.protection import Protection, published_noise
from fedaudit.reports import format as fmt
from fedaudit.reports.imported import CheckedStatement

Pair = tuple[Mapping[str, NDArray[np.generic]], Index]  # a model, and rows that it should fit
TITLE, ID = "Labels", "fit"
LEVEL = 0.01
ORDERS = 99  # of labels, beside which those stated are the best by luck once in a hundred
FEWEST, MOST_NAMED = 3, 4  # clients that a rule is learnt on; pairs of classes


def check_fit(uploads: LatestUploads) -> CheckedStatement:
    """The latest models on the examples that were given."""
    build, data, pairs = uploads.build, uploads.data, _pairs(uploads)
    if build is None or not pairs:
        why = "the network is not stated" if build is None else "no examples were given"
        return CheckedStatement(id=ID, title=TITLE, status="open", text=f"Could not be checked: {why}.")
    net = build(data)
    if isinstance(data.task, Text):
        return _fit_tokens(net, data.train.x, pairs)
    if not data.task.has_classes:
        return _fit_labels(net, data, pairs)
    hits, n, guess, classes = 0, 0, 0, len(data.classes)
    named = np.zeros((classes, classes), np.int64)  # [stated, given by the model]
    for weights, rows in pairs:
        y = data.train.y[rows]
        logits = _logits(net(weights), data.train.x[rows])
        finite = np.isfinite(logits).all(1)  # what is no number names nothing
        np.add.at(named, (y[finite], logits[finite].argmax(1)), 1)
        n, guess = n + len(y), guess + int(np.bincount(y).max())
    hits = int(named.trace())
    of_clients = pairs[0][0] is not _find_last_model(uploads.messages)
    whose = ("Models of clients", "own examples of theirs") if of_clients else ("The latest model", "examples")
    text = f"{whose[0]} named {hits / n:.0%} of {n:,} {whose[1]} right, a constant guess {guess / n:.0%}"
    if of_clients and not _has_noise(uploads.protections) and (other := _other_labels(net, uploads)):
        return CheckedStatement(id=ID, title=TITLE, status="contradicted", text=f"{text}; {other}.")
    if float(scipy.stats.binom.sf(hits - 1, n, guess / n)) > LEVEL:
        why = "a bad model, claimed noise, or labels, their order or the normalisation are not as stated"
        return CheckedStatement(id=ID, title=TITLE, status="open", text=f"{text}: {why}.")
    if alike := _list_alike(named):
        which = ", ".join(f"{data.classes[a]} and {data.classes[b]}" for a, b in alike[:MOST_NAMED])
        text += (
            f"; of {fmt.plural(len(alike), 'pair')} of classes an exchange would not have been noticed: {which}"
        )
        return CheckedStatement(id=ID, title=TITLE, status="open", text=f"{text}.")
    text += "; an exchange of any two classes would have been noticed, another normalisation not"
    return CheckedStatement(id=ID, title=TITLE, status="holds", text=f"{text}.")


def _fit_labels(net: KnownArchitecture, data: Data, pairs: Sequence[Pair]) -> CheckedStatement:
    """Whether models fit the stated labels better than the same labels dealt out in another order."""
    rng, as_stated, otherwise = np.random.default_rng(0), 0.0, np.zeros(ORDERS)
    for weights, rows in pairs:
        answers, y = torch.from_numpy(_logits(net(weights), data.train.x[rows])), data.train.y[rows]
        as_stated += float(data.task.loss(answers, torch.from_numpy(y), "sum"))
        for i in range(ORDERS):
            otherwise[i] += float(data.task.loss(answers, torch.from_numpy(y[rng.permutation(len(y))]), "sum"))
    better = int((as_stated < otherwise).sum())
    text = (
        f"Labels as stated fit the models better than {better} of {ORDERS} other orders of them; another scale "
        "of labels, or of examples, might not have been noticed."
    )
    return CheckedStatement(id=ID, title=TITLE, status="holds" if better == ORDERS else "open", text=text)


def _list_alike(named: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Pairs of classes with examples that might as well have each other's name; `named` [stated, given]."""
    held = np.flatnonzero(named.sum(1))
    found = []
    for a, b in itertools.combinations(held.tolist(), 2):
        as_stated, exchanged = int(named[a, a] + named[b, b]), int(named[a, b] + named[b, a])
        if float(scipy.stats.binom.sf(as_stated - 1, as_stated + exchanged, 0.5)) > LEVEL:
            found.append((a, b))
    return found


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
            rise = _logits(net(weights), x) - _logits(net(served[rounds[k]]), x)
            finite = np.isfinite(rise).all(1)
            rows.append(data.train.y[own][finite])
            raised.append(rise[finite].argmax(1))
            clients.append(np.full(int(finite.sum()), k))
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
    rest = ~learnt & (rule != np.arange(classes))[y]  # a rule that keeps a label says nothing of it
    y, towards, whose = y[rest], towards[rest], whose[rest]
    hits = int((rule[y] == towards).sum())
    guess = sum(int(np.bincount(y[whose == k]).max()) for k in np.unique(whose))
    as_stated = int((towards == y).sum())
    least = float(scipy.stats.binom.sf(hits - 1, len(y), guess / max(1, len(y))))
    if not len(y) or least > LEVEL or as_stated >= guess or 2 * hits < len(y) + guess:
        return ""
    return (
        f"of {len(y):,} of them training raised the stated class on {as_stated / len(y):.0%} and, by a rule "
        f"learnt on others, another class on {hits / len(y):.0%} (by chance with probability {least:.2g}): "
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


def _logits(model: BoundExtractor, x: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(model.logits(x), np.float64)
