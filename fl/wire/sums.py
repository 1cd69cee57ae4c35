"""Sums of a round's uploads: all that a server learns where secure aggregation hides single ones.

How a kind is summed stands in fl/kinds.py. Models are multiplied by the number of examples where the client
sends it, and prototypes by theirs, because that is the sum from which the server computes its means. Kinds with
one row a class are added up class by class, so the sum tells which classes anybody has.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from fedaudit.fl.kinds import Kind, Summed
from fedaudit.fl.wire.protection import Message, Payload


class Sums:
    """add() each message of a round, then value() and clear()."""

    def __init__(self) -> None:
        self.messages = 0
        self._sums: dict[str, Tensor] = {}  # "local_model/fc.weight"
        self._rows: dict[str, dict[int, Tensor]] = {}  # "local_prototypes/features" -> class -> row

    def add(self, message: Message) -> None:
        self.messages += 1
        counts = _read_counts(message.get(Kind.PROTO_COUNTS, {}))
        examples = float(message.get(Kind.NUM_EXAMPLES, {}).get("count", torch.tensor(1)))
        for kind, payload in message.items():
            if kind.summed in (Summed.BY_CLASS, Summed.BY_CLASS_WEIGHTED):
                self._add_rows(kind, payload, counts if kind.summed is Summed.BY_CLASS_WEIGHTED else {})
                continue
            weight = examples if kind.summed is Summed.WEIGHTED else 1.0
            for name, value in payload.items():
                key, term = f"{kind}/{name}", value.detach().cpu().double() * weight
                self._sums[key] = self._sums[key] + term if key in self._sums else term

    def _add_rows(self, kind: Kind, payload: Payload, weights: Mapping[int, float]) -> None:
        for name, value in payload.items():
            if name == "classes":
                continue
            rows = self._rows.setdefault(f"{kind}/{name}", {})
            for c, row in zip(payload["classes"].tolist(), value, strict=True):
                term = row.detach().cpu().double() * weights.get(c, 1.0)
                rows[c] = rows[c] + term if c in rows else term

    def value(self) -> Payload:
        """The arrays of an `aggregate`: float32 sums, and how many clients are in them."""
        out: Payload = {"clients": torch.tensor(self.messages)}
        out |= {k: v.float() for k, v in self._sums.items()}
        for key, rows in self._rows.items():
            classes = sorted(rows)
            out[f"{key.partition('/')[0]}/classes"] = torch.tensor(classes)
            out[key] = torch.stack([rows[c] for c in classes]).float()
        return out


def _read_counts(payload: Payload) -> dict[int, float]:
    if not payload:
        return {}
    return dict(zip(payload["classes"].tolist(), payload["counts"].tolist(), strict=True))
