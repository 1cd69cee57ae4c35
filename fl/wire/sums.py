"""Sums of a round's uploads: all that a server learns where secure aggregation hides single ones.

How a kind is summed stands in fl/kinds.py. Models are multiplied by the number of examples where the client
sends it, and prototypes by theirs, because that is the sum from which the server computes its means. Kinds with
one row a class are added up class by class, so the sum tells which classes anybody has, and how many clients do.

A server's code is written for uploads. Behind secure aggregation it gets as many of them as were sent, among
which the sums are dealt out: each is the mean, and whole numbers differ by one at most. Nothing in them depends
on more than the sums.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from fedaudit.fl.kinds import HOLDERS, Kind, Summed
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.wire.protection import Message, Payload


class Sums:
    """add() each message of a round, then value(), or deal() it out."""

    def __init__(self) -> None:
        self.messages = 0
        self._examples = 0.0  # what models were multiplied by, added up
        self._like: dict[Kind, Payload] = {}  # the first payload of each kind, for names and types
        self._sums: dict[tuple[Kind, str], Tensor] = {}
        self._rows: dict[tuple[Kind, str], dict[int, Tensor]] = {}  # class -> row
        self._weights: dict[Kind, Counter[int]] = {}  # class -> what its rows were multiplied by, added up
        self._holders: dict[Kind, Counter[int]] = {}  # class -> how many clients sent a row of it

    def add(self, message: Message) -> None:
        """Raises UserError where arrays of one name differ in shape, of which there is no sum."""
        self.messages += 1
        counts = _read_counts(message.get(Kind.PROTO_COUNTS, {}))
        examples = float(message.get(Kind.NUM_EXAMPLES, {}).get("count", torch.tensor(1)))
        self._examples += examples
        for kind, payload in message.items():
            like = self._like.setdefault(kind, {})
            for name, value in payload.items():
                like.setdefault(name, value)
            if kind.summed in (Summed.BY_CLASS, Summed.BY_CLASS_WEIGHTED):
                self._add_rows(kind, payload, counts if kind.summed is Summed.BY_CLASS_WEIGHTED else {})
                continue
            weight = examples if kind.summed is Summed.WEIGHTED else 1.0
            for name, value in payload.items():
                term, before = value.detach().cpu().double() * weight, self._sums.get((kind, name))
                if before is not None and before.shape != term.shape:
                    raise UserError(
                        f"there is no sum of uploads that differ in shape: {name} of {kind.value} has "
                        f"{list(before.shape)} and {list(term.shape)}",
                        hint="leave secure_aggregation out, or have all clients send arrays of one shape",
                    )
                self._sums[kind, name] = term if before is None else before + term

    def _add_rows(self, kind: Kind, payload: Payload, weights: Mapping[int, float]) -> None:
        classes = payload["classes"].tolist()
        self._holders.setdefault(kind, Counter()).update(classes)
        for c in classes:
            self._weights.setdefault(kind, Counter())[c] += weights.get(c, 1.0)  # type: ignore[assignment]
        for name, value in payload.items():
            if name == "classes":
                continue
            rows = self._rows.setdefault((kind, name), {})
            for c, row in zip(classes, value, strict=True):
                term = row.detach().cpu().double() * weights.get(c, 1.0)
                rows[c] = rows[c] + term if c in rows else term

    def value(self) -> Payload:
        """The arrays of an `aggregate`: float32 sums, and how many clients are in them, and in each class."""
        out: Payload = {"clients": torch.tensor(self.messages)}
        out |= {f"{kind}/{name}": v.float() for (kind, name), v in self._sums.items()}
        for (kind, name), rows in self._rows.items():
            classes = sorted(rows)
            out[f"{kind}/classes"] = torch.tensor(classes)
            out[f"{kind}/{HOLDERS}"] = torch.tensor([self._holders[kind][c] for c in classes])
            out[f"{kind}/{name}"] = torch.stack([rows[c] for c in classes]).float()
        return out

    def deal(self) -> Iterator[Message]:
        """As many uploads as were added, with the same sums and nothing else in them."""
        for place in range(self.messages):
            yield {kind: self._deal_kind(kind, like, place) for kind, like in self._like.items()}

    def _deal_kind(self, kind: Kind, like: Payload, place: int) -> Payload:
        if kind.summed in (Summed.BY_CLASS, Summed.BY_CLASS_WEIGHTED):
            return self._deal_rows(kind, like, place)
        weighted = kind.summed is Summed.WEIGHTED
        dealt: Payload = {}
        for name, value in like.items():
            total = self._sums[kind, name]
            if weighted:
                mean = total / self._examples if self._examples else torch.zeros_like(total)
                dealt[name] = mean if kind.about else _restore_type(mean, value)
            else:
                dealt[name] = _deal_out(total, value, self.messages, place)
        if Kind.MEAN_LOGIT_TABLE is kind:  # of classes that a client lacks the rows are zero in its table
            present = self._sums[kind, "present"]
            table = self._sums[kind, "table"] / present.clamp(min=1)[:, None] * dealt["present"][:, None]
            dealt["table"] = _restore_type(table, like["table"])
        return dealt

    def _deal_rows(self, kind: Kind, like: Payload, place: int) -> Payload:
        """The first clients have a class, as many as had it."""
        holders, weights = self._holders[kind], self._weights[kind]
        classes = [c for c in sorted(holders) if place < holders[c]]
        dealt: Payload = {"classes": torch.tensor(classes, dtype=like["classes"].dtype)}
        for name, value in like.items():
            if name == "classes":
                continue
            rows = [
                _deal_out(self._rows[kind, name][c], value, holders[c], place)
                if kind.summed is Summed.BY_CLASS
                else _restore_type(self._rows[kind, name][c] / (weights[c] or 1.0), value)
                for c in classes
            ]
            dealt[name] = torch.stack(rows) if rows else value[:0].detach().cpu().clone()
        return dealt


def _deal_out(total: Tensor, like: Tensor, clients: int, place: int) -> Tensor:
    """One client's share of a sum: the mean, and of whole numbers one more for the first where it is none."""
    if like.is_floating_point():
        return _restore_type(total / clients, like)
    return _restore_type(torch.floor(total / clients) + (place < total % clients), like)


def _restore_type(value: Tensor, like: Tensor) -> Tensor:
    return value.to(like.dtype) if like.is_floating_point() else value.round().to(like.dtype)


def _read_counts(payload: Payload) -> dict[int, float]:
    if not payload:
        return {}
    return dict(zip(payload["classes"].tolist(), payload["counts"].tolist(), strict=True))
