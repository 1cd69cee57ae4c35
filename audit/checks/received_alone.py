"""Received alone: messages that are made of what their sender received, and of none of its examples.

A client's code may send back what it got, or a constant. No attack can say how many people such a message
exposes, since no leak can be planted in it. So the code is asked: it is played with other examples in the place
of its own, with a few, with another client's and with those of one class at a time, and every recorded message of
a kind has to come out again to the byte, of every client, in every round that was recorded. Whoever reads the
message cannot tell these data from the client's own. The first message that comes out otherwise ends it, and for
code that trains that is the first of all, played with two examples. The code is imported anew for that: what it
remembers of a client would come out again whatever the client is played with.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.evaluation.artifacts import index, message_of
from fedaudit.audit.case.case import ObservedFederation
from fedaudit.audit.case.messages import messages
from fedaudit.audit.checks._check import Check, IndependentKind, Seen
from fedaudit.audit.controls.lab import Lab, find_received_message
from fedaudit.fl.artifact import Artifact, Channel, Role
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.foreign import find, importing_anew, name_code
from fedaudit.fl.runtime.tree import to_numpy

FEWEST, MOST_OF_CLASS = 2, 20  # examples that a client is played with
MOST_PLAYED = 5000  # visits; where it would take more, nothing is said

Rows = NDArray[np.int64]
Upload = Mapping[Kind, Artifact]


class ReceivedAlone(Check):
    """Every kind whose recorded messages do not depend on their senders' examples."""

    def inspect(self, federation: ObservedFederation, lab: Lab | None) -> Iterator[Seen]:
        if lab is None or federation.artifacts is None or not federation.simulated:
            return
        kinds = {*federation.card.uplink, *federation.card.downlink}
        latest = messages(federation.artifacts, kinds, "latest")
        if not (first := _list_uploads(latest)[:1]) or not _find_equal(lab, latest, first):
            return
        recorded = messages(federation.artifacts, kinds, "all")
        uploads = _list_uploads(recorded)
        with importing_anew([name := name_code(lab.method)]):
            forgetful = replace(lab, method=find(name)(lab.method.config))  # type: ignore[operator]
            equal = _find_equal(forgetful, recorded, uploads)
        for kind in sorted(equal):
            rounds = sorted({u[kind].round for u in uploads if kind in u})
            yield IndependentKind(kind=str(kind), rounds=tuple(rounds))


def _list_uploads(recorded: Sequence[Artifact]) -> list[Upload]:
    """Messages of single clients, whole."""
    found: dict[str, dict[Kind, Artifact]] = {}
    for a in recorded:
        if a.channel == Channel.UPLINK and a.sender.role == Role.CLIENT and a.sender.index is not None:
            found.setdefault(message_of(a), {})[a.kind] = a
    return list(found.values())


def _find_equal(lab: Lab, recorded: Sequence[Artifact], uploads: Sequence[Upload]) -> set[Kind]:
    """Kinds of which every one of these uploads comes out the same with other examples."""
    left = {k for u in uploads for k in u}
    found, visits = index(recorded), 0
    for upload in uploads:
        like = next(iter(upload.values()))
        received = find_received_message(found, like)
        for rows in list_other_examples(lab, like.sender.number):
            visits += 1
            if not left or visits > MOST_PLAYED:
                return set()
            parts = list(lab.holdings.parts)
            parts[like.sender.number] = rows
            try:
                sent = lab.holding(parts=parts).replay(like, received) or {}
            except Exception:  # somebody's code that cannot work on these  # noqa: BLE001
                return set()
            left -= {k for k, a in upload.items() if k not in sent or not _is_equal(a, to_numpy(sent[k]))}
    return left


def list_other_examples(lab: Lab, client: int) -> Iterator[Rows]:
    """Rows of other clients' examples: a few, all of one client, those of each class."""
    others = [np.asarray(rows) for k, rows in lab.owned.items() if k != client and len(rows)]
    if not others:
        return
    pool = np.concatenate(others)
    yield pool[:FEWEST]
    yield max(others, key=len)
    labels = lab.holdings.data.train.y[pool]
    for label in np.unique(labels):
        yield pool[labels == label][:MOST_OF_CLASS]


def _is_equal(recorded: Artifact, sent: Mapping[str, NDArray[np.generic]]) -> bool:
    """To the byte, names included."""
    if recorded.payload.keys() != sent.keys():
        return False
    pairs = [(np.asarray(recorded.payload[name]), np.asarray(value)) for name, value in sent.items()]
    return all(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)
