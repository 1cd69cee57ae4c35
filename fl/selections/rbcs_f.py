"""RBCS-F: short rounds in which every client still gets its share of turns in the long run.

Huang, Lin, Shen, Wu, Lin, Jin, Dinh. An Efficiency-Boosting Client Selection Scheme for Federated Learning With
Fairness Guarantee. IEEE TPDS 2021. arXiv:2011.01783, Algorithm 2; as a compared method of FreezeFL.

Every client has a queue of the turns it is owed; each round

    S = argmin over sets of s clients of  V max_{k in S} tau_k - sum_{k in S} Z_k
    Z_k <- max(0, Z_k + beta - x_k),    x_k = 1 for those in S

exactly: for each client as the slowest allowed, the s longest queues among those no slower. `penalty: 0` is
round robin by queue; a large one takes the s fastest. The times are those of the simulated clock, known to the
server, where the paper estimates them by a bandit. The public code of FreezeFL's baseline counts communication
alone and adds a stray client, and prints rounds twice as long as this optimum.
"""

from collections.abc import Collection, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.clients.selection import Choice, Selection
from fedaudit.fl.families.choosing import expected_times
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne, Share
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree

Values = NDArray[np.float64]


class RBCSF(Selection):
    title, source, timed = "RBCS-F", "arXiv:2011.01783, Alg. 2", True
    text = (
        "FedAvg whose server asks the fastest clients, but owes every client a share of the turns and asks "
        "those that it owes most."
    )

    @settings
    class Config:
        clients_per_round: AtLeastOne = Field(default=3, description="s: clients that are asked")
        penalty: Amount = Field(default=3.0, description="V: what a unit of time costs, in turns owed")
        share: Share | None = Field(
            default=None, description="beta: turns owed to each client a round; null is s over all clients"
        )

    def describe(self) -> str:
        many = self.config.clients_per_round
        return f"the server asks {many} clients in a round, fast ones and those that it owes most turns"

    def start(self, choice: Choice) -> Tree:
        return {"owed": torch.zeros(len(choice.federation.parts), dtype=torch.float64)}

    def choose_candidates(self, choice: Choice) -> Sequence[int]:
        owed = choice.state["selection"]["owed"].numpy()
        return choose(expected_times(choice), owed, self.config.clients_per_round, self.config.penalty)

    def remember(self, choice: Choice, candidates: Sequence[int], heard: Collection[int]) -> Tree:
        owed, share = choice.state["selection"]["owed"], self.config.share
        asked = torch.zeros_like(owed)
        asked[list(candidates)] = 1.0
        share = min(1.0, self.config.clients_per_round / len(asked)) if share is None else share
        return {"owed": (owed + share - asked).clamp(min=0.0)}


def choose(times: Values, owed: Values, count: int, penalty: float) -> list[int]:
    """The best `count` clients, ascending; ties take the lower number, and no client that never answers."""
    able = np.flatnonzero(np.isfinite(times))
    count = min(count, len(able))
    by_queue = able[np.lexsort((able, -owed[able]))]
    time, queue = times[by_queue], owed[by_queue]
    best, found = np.inf, list[int]()
    for limit in np.unique(time):
        chosen = np.flatnonzero(time <= limit)[:count]
        if len(chosen) < count:
            continue
        value = penalty * max(time[chosen]) - sum(queue[chosen])
        if value < best - 1e-12:
            best, found = value, sorted(by_queue[chosen].tolist())
    return found
