"""Statistics of a table that give rows away: what such attacks share.

A subclass derives rows from what a client sent, message by message. The planted leak is what the client would
send of all its rows, and without one.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Card, Claim, Knowledge
from fedaudit.attacks.evaluation.artifacts import message_of
from fedaudit.attacks.evaluation.row_recovery import RowRecovery, claim_rows
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.data.columns import Rows

Payload = Mapping[str, NDArray[Any]]
MOST = 200  # rows that are derived of a client, the newest


class RowStatistics(RowRecovery):
    """Base class: a subclass has `card`, and says what rows statistics give away."""

    leak = "what a client sends of all its rows, and without one"
    found_in: str  # "sums of products", as the end of "no message holds"

    @abstractmethod
    def derive(self, sent: Sequence[Payload], public: Rows) -> Rows:
        """[k, F] rows that follow from a client's messages, which come in their order; public ones are [m, F]."""

    @abstractmethod
    def summarise(self, rows: Rows) -> Payload:
        """What a client sends of its rows [n, width]."""

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        payloads, public = list_payloads(view, self.card).items(), read_public(knowledge)
        rows = {client: self.derive(sent, public)[-MOST:] for client, sent in payloads}
        return claim_rows({client: some for client, some in rows.items() if len(some)}, knowledge)

    def plant(self, rows: Rows, claim: Claim, rng: np.random.Generator) -> Rows:
        return self.derive([self.summarise(rows), self.summarise(rows[1:])], rows)

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        public = np.zeros((0, *knowledge.shape)) if knowledge.auxiliary is None else read_public(knowledge)
        if not any(len(self.derive(sent, public)) for sent in list_payloads(view, self.card).values()):
            return f"no client's messages hold {self.found_in}"
        return ""


def read_public(knowledge: Knowledge) -> Rows:
    """[m, F] rows that everybody has."""
    return np.asarray(knowledge.granted_auxiliary.x, np.float64)


def list_payloads(view: Sequence[Artifact], card: Card) -> dict[int, list[Payload]]:
    """By client the numbers of each of its messages, whatever their kinds, in the order of rounds."""
    found: dict[int, dict[tuple[int, str], dict[str, NDArray[Any]]]] = {}
    for a in sorted(view, key=lambda a: a.id):
        if a.from_client and a.sender.index is not None and card.pick_read([a.kind]):
            sent = found.setdefault(a.sender.index, {}).setdefault((a.round, message_of(a)), {})
            sent.update({f"{a.kind}/{name}": np.asarray(v) for name, v in a.payload.items()})
    return {client: [sent[key] for key in sorted(sent)] for client, sent in sorted(found.items())}
