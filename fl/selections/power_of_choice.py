"""Power-of-choice: of d candidates, the server lets those with the largest loss train.

Cho, Wang, Joshi. Towards Understanding Biased Client Selection in Federated Learning. AISTATS 2022.
arXiv:2010.01243 (pow-d).

Each round

    draw d candidates without replacement, with probability in proportion to n_k
    send them w; each answers with F_k(w) over all its training examples
    the m with the largest loss train; as a method of its own, their models are averaged uniformly

so d = m is FedAvg over clients drawn in proportion to n_k. Availability draws among the candidates,
and those who do not answer are not waited for. Left out: the variants that estimate F_k from a
mini-batch (cpow-d) or from the last round (rpow-d).
"""

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.selection import Choice, Chosen, Selection
from fedaudit.fl.families.choosing import ask_losses
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings


class PowerOfChoice(Selection):
    title, source, asks = "Power-of-choice", "arXiv:2010.01243, pow-d", (Kind.LOCAL_LOSS,)
    text = (
        "FedAvg whose server first asks some clients how badly the model does on their data, "
        "and lets the worst of them train."
    )

    @settings
    class Config:
        candidates: AtLeastOne = Field(
            default=6,
            description="d: clients that report their loss; as many as `chosen` is FedAvg, 2 to 10 times as "
            "many is usual",
        )
        chosen: AtLeastOne = Field(default=3, description="m: candidates with the largest loss that train")

        def __post_init__(self) -> None:
            if self.chosen > self.candidates:
                raise UserError(
                    f"power_of_choice.chosen must be <= candidates ({self.candidates}), got {self.chosen}",
                    hint="candidates = chosen is FedAvg; 2 to 10 times as many is usual",
                )

    def describe(self) -> str:
        asked = f"of {self.config.candidates} clients, drawn in proportion to their numbers of examples"
        return f"{asked}, the {self.config.chosen} with the largest loss train"

    def choose_candidates(self, choice: Choice) -> Sequence[int]:
        sizes = np.array([len(part) for part in choice.federation.parts], dtype=np.float64)
        d = min(self.config.candidates, int((sizes > 0).sum()))
        rng = choice.federation.streams.numpy("power_of_choice", choice.round)
        drawn = rng.choice(len(sizes), d, replace=False, p=sizes / sizes.sum())
        return sorted(drawn.tolist())

    def select(self, choice: Choice, answering: Sequence[int]) -> Chosen:
        losses = ask_losses(choice, "selection.report_loss", answering)
        worst = sorted(losses, key=lambda k: (-losses[k], k))[: self.config.chosen]
        return Chosen(sorted(worst))

    def report_loss(self, client: Client) -> Reply:
        """F_k(w) on all training examples, in evaluation mode."""
        loss = client.net.task.loss(client.run("forward", client.start).double(), client.y)
        return Reply(message={Kind.LOCAL_LOSS: {"loss": loss.cpu()}}, examples=len(client.y))
