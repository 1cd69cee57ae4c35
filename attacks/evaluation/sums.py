"""Sums of uploads, read as the one upload of all clients in them.

Where secure aggregation hides single uploads, the server reads the sum of a round (fl/wire/sums.py). Divided by
what it was weighted with, a sum is the upload of a client that holds the examples of all of them: exactly so of
counts, of means over a class, and of one step of training, and about so of longer training. So whatever can be
asked of an upload can be asked of a sum, by the same attacks. The sum over one client is that client's upload.

Where who took part is known, differences of sums give single clients' shares of them (solve_shares).

The sender of a sum is Party(Role.CLIENT), without a number; attacks that number senders call it SEVERAL.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.fl.artifact import Artifact, Party
from fedaudit.fl.kinds import DELTAS, HOLDERS, TRAINED, Kind, Summed

Arrays = Mapping[str, NDArray[Any]]
SEVERAL = -1  # the number of a sender that is several clients
MOST_BYTES = 2**28  # of what is solved from sums
_SHARE = "#"  # before the client's number, in the name of what is solved from sums


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


def solve_shares(
    sums: Sequence[Artifact], starts: Mapping[int, Arrays], participants: Mapping[int, Collection[int]]
) -> list[Artifact]:
    """What single clients changed in the model, from the sums of rounds in which others took part.

    Sums are linear equations in what each client adds to them (Lam et al., Gradient Disaggregation, ICML 2021,
    arXiv:2106.06089; here participants are known): two rounds that differ in one client are the plainest case.
    What a client adds is taken to be the same in every round, of which the least squares solution is a mean.

    Parameters
    ----------
    sums : artifacts of kind `aggregate`, with weights or changes of models.
    starts : round -> the model that its clients began with.
    participants : round -> who is in its sum, where known.

    Returns
    -------
    For each client that stands alone in some combination of rounds: its change, as a model_delta, and its number
    of examples where sums tell it, in the last round that it took part in.
    """
    known, kind = _select_sums(sums, starts, participants)
    names = _find_shared_arrays(known, kind, starts) if kind and len(known) > 1 else []
    if kind is None or not names:
        return []
    clients = sorted({k for a in known for k in participants[a.round]})
    took_part = np.array([[k in participants[a.round] for k in clients] for a in known], np.float64)
    inverse = np.linalg.pinv(took_part)
    weights = np.array([float(a.payload.get(f"{Kind.NUM_EXAMPLES}/count", a.payload["clients"])) for a in known])
    examples = np.rint(inverse @ weights)
    is_alone = np.isclose(np.diag(inverse @ took_part), 1, atol=1e-6) & (examples > 0)
    size = 8 * sum(np.size(known[-1].payload[f"{kind}/{name}"]) for name in names)
    rows = sorted(np.flatnonzero(is_alone).tolist(), key=lambda row: float(np.linalg.norm(inverse[row])))
    shares = list[Artifact]()
    for row in sorted(rows[: max(1, MOST_BYTES // max(1, size))]):  # those that are solved from fewest rounds
        terms = [*zip(inverse[row], known, weights, strict=True)]
        change = {
            name: sum(c * _read_change(a, kind, name, w, starts) for c, a, w in terms) / examples[row]
            for name in names
        }
        rounds = (a for a, there in zip(known, took_part[:, row], strict=True) if there)
        last = max(rounds, key=lambda a: a.round)
        shares += _make_share(last, kind, clients[row], change, examples[row])
    return shares


def _select_sums(
    sums: Sequence[Artifact], starts: Mapping[int, Arrays], participants: Mapping[int, Collection[int]]
) -> tuple[list[Artifact], Kind | None]:
    """Sums of several known clients that give changes of a model, and the kind that these are read from."""
    known = [a for a in sums if len(participants.get(a.round, ())) == int(a.payload["clients"]) > 1]
    kind = next((k for k in (*DELTAS, *TRAINED) if known and _list_names(known[0], k)), None)
    return [a for a in known if kind not in TRAINED or a.round in starts], kind


def _find_shared_arrays(known: Sequence[Artifact], kind: Kind, starts: Mapping[int, Arrays]) -> list[str]:
    """Arrays that every sum has, in one shape, and where weights are sent every model that it began with."""
    names = set.intersection(*({*_list_names(a, kind)} for a in known))
    if kind in TRAINED:
        names.intersection_update(*(starts[a.round] for a in known))
    return [n for n in sorted(names) if len({np.shape(a.payload[f"{kind}/{n}"]) for a in known}) == 1]


def _make_share(last: Artifact, kind: Kind, client: int, change: Arrays, examples: np.float64) -> list[Artifact]:
    """What one client is solved to have sent: its change, and its number of examples where sums tell it."""
    own = Kind.ADAPTER_DELTA if kind is Kind.ADAPTER else kind if kind in DELTAS else Kind.MODEL_DELTA
    payloads: dict[Kind, Arrays] = {own: change}
    if f"{Kind.NUM_EXAMPLES}/count" in last.payload:
        payloads[Kind.NUM_EXAMPLES] = {"count": np.asarray(examples)}
    message, note = f"{last.id.rpartition('/')[0]}{_SHARE}{client}", {Kind.AGGREGATE.value: 1.0, "share": 1.0}
    sender = Party.client(client)
    return [
        replace(last, id=f"{message}/{of}", kind=of, sender=sender, payload=payload, note=note)
        for of, payload in payloads.items()
    ]


def find_client(artifact: str) -> int | None:
    """The client whose share of sums an artifact is, by its identifier; None of all others."""
    _, found, client = artifact.rpartition("/")[0].rpartition(_SHARE)
    return int(client) if found and client.isdecimal() else None


def is_share(artifact: Artifact) -> bool:
    """Whether it was solved from several sums."""
    return "share" in artifact.note


def _list_names(aggregate: Artifact, kind: Kind) -> list[str]:
    return [key.partition("/")[2] for key in aggregate.payload if key.partition("/")[0] == kind]


def _read_change(
    aggregate: Artifact, kind: Kind, name: str, weight: float, starts: Mapping[int, Arrays]
) -> NDArray[np.float64]:
    """What all clients of a sum together changed in one array, each times its weight."""
    total = np.asarray(aggregate.payload[f"{kind}/{name}"], np.float64)
    if kind in DELTAS:
        return total
    return total - weight * np.asarray(starts[aggregate.round][name], np.float64)


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


def find_kind(artifact: Artifact) -> Kind:
    """What crossed: of what was opened from a recorded sum, the sum."""
    return Kind.AGGREGATE if is_sum(artifact) and artifact.origin == "recorded" else artifact.kind


def count_clients(artifact: Artifact) -> int:
    """How many clients an upload is of."""
    return max(1, int(artifact.note.get(Kind.AGGREGATE, 1)))


def number_of(sender: Party) -> int:
    """A sender's number; SEVERAL of a sum."""
    return SEVERAL if sender.index is None else sender.index


def _average(
    kind: Kind, arrays: Arrays, sums: Mapping[Kind, Arrays], clients: float, examples: float
) -> dict[str, NDArray[Any]]:
    rows = {name: v for name, v in arrays.items() if name != HOLDERS}
    if kind.counted:
        return rows  # how many examples all of them hold
    if kind is Kind.MEAN_LOGIT_TABLE:  # rows of classes that a client lacks are zero in its table
        holders = np.maximum(arrays["present"].astype(np.float64), 1)
        return {"table": _divide(arrays["table"], holders[:, None]), "present": arrays["present"] > 0}
    if kind.summed is Summed.BY_CLASS_WEIGHTED:
        counts = sums.get(Kind.PROTO_COUNTS, {})
        # where nobody says how many examples are behind a prototype, each client's counts once
        behind = counts.get("counts") if counts else arrays.get(HOLDERS)
        if behind is None or (counts and not np.array_equal(counts["classes"], arrays["classes"])):
            return {}
        held = np.asarray(behind, np.float64)
        return {
            name: v if name == "classes" else _divide(v, held.reshape(-1, *[1] * (v.ndim - 1)))
            for name, v in rows.items()
        }
    divisor = examples if kind.summed is Summed.WEIGHTED else clients
    return {name: _divide(v, divisor) for name, v in arrays.items()}


def _divide(values: NDArray[Any], by: Any) -> NDArray[Any]:
    """Quotients as float32, as models are sent; 0 where nobody is counted."""
    divisor = np.where(np.asarray(by, np.float64) == 0, np.inf, by)
    return np.asarray(values.astype(np.float64) / divisor, np.float32)
