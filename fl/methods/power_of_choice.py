"""Power-of-choice: of d candidates, the server lets those with the largest loss train.

Cho, Wang, Joshi. Towards Understanding Biased Client Selection in Federated Learning. AISTATS 2022.
arXiv:2010.01243 (pow-d).

Differs from FedAvg in who trains. Each round

    draw d candidates without replacement, with probability in proportion to n_k
    send them w; each answers with F_k(w) over all its training examples
    the m with the largest loss train; their models are averaged uniformly

so d = m is FedAvg over clients drawn in proportion to n_k. Availability draws among the candidates,
and those who do not answer are not waited for. Left out: the variants that estimate F_k from a
mini-batch (cpow-d) or from the last round (rpow-d).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Chosen, LocalConfig
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.wire.protection import Message


class PowerOfChoice(FedAvg):
    card = replace(
        FedAvg.card,
        title="Power-of-choice",
        source="arXiv:2010.01243, pow-d",
        text="FedAvg whose server first asks some clients how badly the model does on their data, "
        "and lets the worst of them train.",
        uplink=(Kind.LOCAL_MODEL, Kind.NUM_EXAMPLES, Kind.LOCAL_LOSS),
    )

    @settings
    class Config(LocalConfig):
        candidates: AtLeastOne = Field(
            default=6,
            description="d: clients that report their loss; as many as `chosen` is FedAvg, 2 to 10 times as "
            "many is usual",
        )
        chosen: AtLeastOne = Field(default=3, description="m: candidates with the largest loss that train")
        weighting: Literal["samples", "uniform"] = Field(
            default="uniform",
            description="how the server weights clients: all alike as in the paper, or by their numbers of "
            "examples",
        )

        def __post_init__(self) -> None:
            if self.chosen > self.candidates:
                raise UserError(
                    f"power_of_choice.chosen must be <= candidates ({self.candidates}), got {self.chosen}",
                    hint="candidates = chosen is FedAvg; 2 to 10 times as many is usual",
                )

    def choose_candidates(self, state: Tree, round: int, federation: Federation) -> Sequence[int]:
        sizes = np.array([len(part) for part in federation.parts], dtype=np.float64)
        d = min(self.config.candidates, int((sizes > 0).sum()))
        rng = federation.streams.numpy("power_of_choice", round)
        drawn = rng.choice(len(sizes), d, replace=False, p=sizes / sizes.sum())
        return sorted(drawn.tolist())

    def select(
        self, state: Tree, answering: Sequence[int], round: int, message: Message, federation: Federation
    ) -> Chosen:
        losses: dict[int, float] = {}
        jobs = [("report_loss", (k, Tree(), Message())) for k in answering]
        replies = federation.workers.map("work", jobs)
        for k, reply in zip(answering, replies, strict=True):
            heard = federation.wire.uplink(round, reply.message, k, message)
            if heard is not None:
                losses[k] = float(heard[Kind.LOCAL_LOSS]["loss"])
        worst = sorted(losses, key=lambda k: (-losses[k], k))[: self.config.chosen]
        return Chosen(sorted(worst))

    def report_loss(self, client: Client) -> Reply:
        """F_k(w) on all training examples, in evaluation mode."""
        loss = client.net.task.loss(client.run("forward", client.start).double(), client.y)
        return Reply(message={Kind.LOCAL_LOSS: {"loss": loss.cpu()}}, examples=len(client.y))
