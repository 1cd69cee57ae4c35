"""How a worker scores models: those of the federation, and those that an adversary tries."""

from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedaudit.fl.clients.client import evaluate
from fedaudit.fl.data.partition import Index
from fedaudit.fl.execution.site_memory import SiteMemory
from fedaudit.fl.model import Net, State
from fedaudit.fl.tasks.classify import choose_classes
from fedaudit.fl.tasks.text import Text
from fedaudit.fl.threats.adversary import JudgedModel
from fedaudit.fl.threats.rehearsal import judge_model


class SiteEvaluation(SiteMemory):
    """A worker's share of an evaluation: first `serve` the model, then `score` rows of the test part."""

    def serve(self, state: State) -> None:
        """The model to evaluate next."""
        self.model = {k: v.to(self.device) for k, v in state.items()}

    def score(self, index: Index) -> tuple[Tensor, Tensor, float, tuple[int, int], Tensor]:
        """[C] summed scores and [C] seen per group, the summed loss, how many the adversary turned of how many it
        would turn, and [n] which are more right than wrong, on the n test examples `index`; one group where
        labels make none.

        A client's own model may be of the network that clients train instead of the federation's.
        """
        x, y = self.examples(self.data.test, index)
        shared = self.model.keys() == self.net.state_dict().keys()
        net = self.net if shared else self.trained
        if isinstance(net.task, Text):
            return self._score_tokens(net, x, y)
        answers = evaluate(net, "forward", self.model, x)
        scores, loss = net.task.scores(answers, y), net.task.loss(answers, y, "sum")
        groups = torch.from_numpy(self.data.group(self.data.test.take(index))).to(self.device)
        nothing = torch.zeros(max(1, self.classes), device=self.device)
        right, seen = (nothing.index_add(0, groups, v) for v in (scores, torch.ones_like(scores)))
        return right, seen, float(loss), self._count_conversions(net, x, y), (scores > 0.5).cpu()

    def _score_tokens(
        self, net: Net, x: Tensor, y: Tensor
    ) -> tuple[Tensor, Tensor, float, tuple[int, int], Tensor]:
        """As score, of a language model: tokens in the place of examples, counted by their text's class.

        The loss is the sum over texts of the mean over a text's tokens, and a text is correct where most of its
        tokens are the likeliest.
        """
        graded = evaluate(net, "grade", self.model, x, batch=32).double()
        losses, right, seen = graded.unbind(1)
        nothing = torch.zeros(self.classes, dtype=torch.float64, device=y.device)
        by_class = [nothing.index_add(0, y, values).cpu() for values in (right, seen)]
        loss = float((losses / seen.clamp(min=1)).sum())
        return by_class[0], by_class[1], loss, (0, 0), (2 * right > seen).cpu()

    def judge(self, state: State) -> JudgedModel:
        """A shared model on what the compromised clients keep from their training, for `Meeting.judge`."""
        bad, parts, labels = self.compromise, self.holdings.parts, self.groups
        rows = np.concatenate([bad.divide(parts[k], labels)[1] for k in sorted(bad.clients)])
        x, y = self.examples(self.data.train, rows)
        model = {k: v.to(self.device) for k, v in state.items()}
        net = self.net if model.keys() == self.net.state_dict().keys() else self.trained
        aim = bad.adversary.aim(x, self.data.mean, self.data.std) if bad.adversary else None
        return judge_model(partial(evaluate, net, "forward", model), x, y, self.classes, aim)

    def _count_conversions(self, net: Net, x: Tensor, y: Tensor) -> tuple[int, int]:
        """Of other classes than the adversary's, the test examples it turns into that class, and all of them."""
        bad = self.compromise
        aim = bad.adversary.aim(x, self.data.mean, self.data.std) if bad.adversary and bad.clients else None
        if aim is None:
            return 0, 0
        changed, target = aim
        other = y != target
        if not other.any():
            return 0, 0
        answers = choose_classes(evaluate(net, "forward", self.model, changed[other]))
        return int((answers == target).sum()), int(other.sum())
