"""Models of one recorded round on the auditor's examples: what they answer, and how an attacker judges them."""

import math
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from fedaudit.audit.case.case import Split
from fedaudit.audit.observer.models import KnownArchitecture
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.data.partition import Index
from fedaudit.fl.model import Net
from fedaudit.fl.runtime.streams import seed_networks
from fedaudit.fl.tasks.classify import choose_classes
from fedaudit.fl.threats.adversary import JudgedModel
from fedaudit.fl.threats.rehearsal import judge_model
from fedaudit.fl.wire.protection import Payload

MOST_EXAMPLES = 2_000  # of the auditor's that a model is measured on, and that an attacker judges by

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class ModelTest:
    """Models on examples of the auditor's, where the network and such examples are known.

    `start` is the model that a round began with, and `sent` are the names of the arrays that clients send of it.
    """

    make_net: Callable[[], Net] | None
    data: Data
    held: Split
    device: str
    start: Payload
    sent: AbstractSet[str]

    @cached_property
    def net(self) -> Net | None:
        if self.make_net is None:
            return None
        with seed_networks(0):
            return self.make_net()

    @cached_property
    def examples(self) -> tuple[NDArray[np.float32], Labels] | None:
        """Examples of the auditor's that no attacker goes by; None where models cannot be measured."""
        if self.obstacle:
            return None
        return self._take_sample(np.sort(np.concatenate([self.held.reference, self.held.planted])))

    def _take_sample(self, rows: Index) -> tuple[NDArray[np.float32], Labels]:
        rows = rows[:: math.ceil(len(rows) / MOST_EXAMPLES)]
        return self.data.train.x[rows], np.asarray(self.data.train.y, np.int64)[rows]

    @cached_property
    def obstacle(self) -> str:
        """Why no model can be measured, as a sentence; empty where they can."""
        if self.net is None:
            return "the network was not stated, or the weights of its base were not given"
        if not self.sent <= self.start.keys():
            return "the model that the round began with was not recorded"
        if not len(self.held.auxiliary) or not len(self.held.reference):
            return "the auditor gave no labelled examples of their own (own.npz in --truth)"
        return ""

    @cached_property
    def _architecture(self) -> KnownArchitecture:
        assert self.make_net is not None
        return KnownArchitecture(self.make_net, self.data, self.device)

    def answer(self, model: Payload) -> Labels:
        """[N] the class that a model gives to each example of `examples`."""
        assert self.examples is not None
        logits = self._architecture({k: v.numpy() for k, v in model.items()}).logits(self.examples[0])
        found: Labels = choose_classes(torch.from_numpy(logits)).numpy()
        return found

    def judge(self, models: Sequence[Payload]) -> list[JudgedModel]:
        """Each model on the auxiliary examples, which stand for the attackers' own: `Meeting.judge`."""
        images, labels = self._take_sample(self.held.auxiliary)
        x, y = torch.from_numpy(images), torch.from_numpy(labels)

        def judge_one(model: Payload) -> JudgedModel:
            known = self._architecture({k: v.numpy() for k, v in model.items()})
            return judge_model(
                lambda x: torch.from_numpy(known.logits(x.numpy())), x, y, len(self.data.classes), None
            )

        return [judge_one(model) for model in models]
