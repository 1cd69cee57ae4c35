"""Sums of uploads, read as the one upload of all clients in them.

Where secure aggregation hides single uploads, the server reads the sum of a round (fl/wire/sums.py). Divided by
what it was weighted with, a sum is the upload of a client that holds the examples of all of them: exactly so of
counts, of means over a class, and of one step of training, and about so of longer training. So whatever can be
asked of an upload can be asked of a sum, by the same attacks. The sum over one client is that client's upload.

The sender of a sum is Party(Role.CLIENT), without a number; attacks that number senders call it SEVERAL.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.fl.artifact import Artifact, Party
from fedaudit.fl.kinds import Kind, Summed

Arrays = Mapping[str, NDArray[Any]]
SEVERAL = -1  # the number of a sender that is several clients


def open_sum(aggregate: Artifact, participants: Collection[int] = ()) -> list[Artifact]:
    """The kinds in a sum, each as one client with everybody's examples would have sent it.

    Kinds of which a sum gives no mean are left out. `participants` are the clients of that round, where known.
    """
    message, clients = aggregate.id.rpartition("/")[0], int(aggregate.payload["clients"])
    alone = clients == 1 and len(participants) == 1
    sender = Party.client(*participants) if alone else aggregate.sender
    note = {**aggregate.note, Kind.AGGREGATE.value: float(clients)}
    return [
        replace(aggregate, id=f"{message}/{kind}", kind=kind, sender=sender, payload=payload, note=note)
        for kind, payload in average_sum(aggregate.payload).items()
    ]


def average_sum(payload: Arrays) -> dict[Kind, Arrays]:
    """The means that the arrays of an `aggregate` give; see open_sum."""
    sums: dict[Kind, dict[str, NDArray[Any]]] = {}
    for key in payload:
        kind, _, name = key.partition("/")
        if name:
            sums.setdefault(Kind(kind), {})[name] = np.asarray(payload[key])
    clients = float(payload["clients"])
    examples = float(sums.get(Kind.NUM_EXAMPLES, {}).get("count", clients))
    means = {kind: _average(kind, arrays, sums, clients, examples) for kind, arrays in sums.items()}
    return {kind: mean for kind, mean in means.items() if mean}


def is_sum(artifact: Artifact) -> bool:
    """Whether it was opened from a sum."""
    return Kind.AGGREGATE in artifact.note


def count_clients(artifact: Artifact) -> int:
    """How many clients an upload is of."""
    return max(1, int(artifact.note.get(Kind.AGGREGATE, 1)))


def number_of(sender: Party) -> int:
    """A sender's number; SEVERAL of a sum."""
    return SEVERAL if sender.index is None else sender.index


def _average(
    kind: Kind, arrays: Arrays, sums: Mapping[Kind, Arrays], clients: float, examples: float
) -> dict[str, NDArray[Any]]:
    if kind.counted:
        return dict(arrays)  # how many examples all of them hold
    if kind is Kind.MEAN_LOGIT_TABLE:  # rows of classes that a client lacks are zero in its table
        holders = np.maximum(arrays["present"].astype(np.float64), 1)
        return {"table": _divide(arrays["table"], holders[:, None]), "present": arrays["present"] > 0}
    if kind.summed is Summed.BY_CLASS_WEIGHTED:
        counts = sums.get(Kind.PROTO_COUNTS, {})
        if not counts or not np.array_equal(counts["classes"], arrays["classes"]):
            return {}
        held = np.asarray(counts["counts"], np.float64)
        return {
            name: v if name == "classes" else _divide(v, held.reshape(-1, *[1] * (v.ndim - 1)))
            for name, v in arrays.items()
        }
    divisor = examples if kind.summed is Summed.WEIGHTED else clients
    return {name: _divide(v, divisor) for name, v in arrays.items()}


def _divide(values: NDArray[Any], by: Any) -> NDArray[Any]:
    """Quotients as float32, as models are sent; 0 where nobody is counted."""
    divisor = np.where(np.asarray(by, np.float64) == 0, np.inf, by)
    return np.asarray(values.astype(np.float64) / divisor, np.float32)
