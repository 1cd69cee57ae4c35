"""FedAvg-FT: after every average the server trains the last layer on a small balanced set of its own.

The preliminary experiment of ReBaFL (sec. 3); its public code uses 300 images, 5 epochs, rate 0.01,
momentum 0.5, weight decay 5e-4, and leaves the feature extractor as it is. That code takes the 300
images from the test set. Here they come from training examples that no client holds
(`federation.holdout.server`), as many of each class as possible. `server_epochs: 0` is FedAvg.
"""

from dataclasses import replace

import numpy as np
from pydantic import Field

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.data.partition import Index
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import Amount, AtLeastZero, BelowOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import PartTraining


class FedAvgFT(FedAvg):
    card = replace(
        FedAvg.card,
        title="FedAvg-FT",
        needs="classes",
        source="ReBaFL, sec. 3 (FedAvg with fine-tuning)",
        text="FedAvg whose server owns a few labelled examples of every class and re-trains the last "
        "layer on them after each average.",
    )

    @settings
    class Config(LocalConfig):
        server_examples: AtLeastZero = Field(
            default=300,
            description="most examples the server trains on, as many of each class; 300 is ReBaFL's code",
        )
        server_epochs: AtLeastZero = Field(
            default=5, description="passes of the server over its examples after each average; 0 is FedAvg"
        )
        server_lr: Amount = Field(default=0.01, description="step size of the server's training")
        server_momentum: BelowOne = Field(default=0.5, description="momentum of the server's training")
        server_weight_decay: Amount = Field(default=5e-4, description="weight decay of the server's training")

    def open(self, federation: Federation) -> None:
        super().open(federation)
        self.own = self._draw_balanced_classes(federation) if self.config.server_epochs else None

    def round(self, t: int, state: Tree, memory: dict[int, Tree], federation: Federation) -> Tree:
        state = super().round(t, state, memory, federation)
        if self.own is None or not federation.tally.delivered:
            return state
        job = ("fine_tune", t, state["model"], self.own)
        [reply] = federation.workers.map("work_on_rows", [job])
        return state | {"model": reply.message[Kind.LOCAL_MODEL]}

    def fine_tune(self, server: Client) -> Reply:
        """The server's own step: SGD on the head alone."""
        c = self.config
        config = LocalConfig(
            local_epochs=c.server_epochs,
            batch_size=c.batch_size,
            lr=c.server_lr,
            momentum=c.server_momentum,
            weight_decay=c.server_weight_decay,
            lr_decay=c.lr_decay,
        )
        head_only = PartTraining(self, config, self.head.__contains__)
        return self.finish(server, server.train(head_only, {}, stream="fine_tune"))

    def _draw_balanced_classes(self, federation: Federation) -> Index:
        """Equally many spare examples of each class, the same in every round."""
        spare, labels = federation.public.spare, federation.public.spare_labels
        by_class = [spare[labels == c] for c in range(self.classes)]
        wanted, fewest = self.config.server_examples, min(len(c) for c in by_class)
        if wanted < self.classes:
            raise UserError(
                f"fedavg_ft.server_examples must be >= {self.classes}, one of each class, got {wanted}",
                hint="300 is the authors'",
            )
        if not fewest:
            raise UserError(
                "fedavg_ft: the server owns no example of some class to fine-tune on",
                hint="set federation.holdout.server, for example to 0.02",
            )
        each = min(fewest, wanted // self.classes)
        rng = federation.streams.numpy("fedavg_ft")
        return np.sort(np.concatenate([rng.permutation(c)[:each] for c in by_class]))
