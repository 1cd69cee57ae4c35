"""Scores of models on the test set, which the workers compute."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from fedaudit.fl.data.dataset import Data
from fedaudit.fl.data.partition import Index
from fedaudit.fl.model import State
from fedaudit.fl.runtime.workers import Workers

_CHUNK = 1000  # test examples scored at a time; fixed, so that sums do not depend on the workers


class Evaluator:
    """Scores models on the test set of `data`, whose training rows the clients hold as `parts`."""

    def __init__(self, workers: Workers, data: Data, parts: Sequence[Index]) -> None:
        self._workers, self._data, self._parts = workers, data, parts

    def evaluate(self, model: State, *, keep_answers: bool = False) -> dict[str, Any]:
        """Accuracy, which is the mean of the task's scores, and loss on the whole test set, accuracy also by
        group where labels make some (`class_accuracy`), and a backdoor's success as `asr`.

        With `keep_answers` also `correct`, a bit for each test example in their order, as hexadecimal digits: two
        runs on one test set are compared example by example.
        """
        self._workers.everywhere("serve", model)
        total = np.arange(len(self._data.test))
        chunks = [total[i : i + _CHUNK] for i in range(0, len(total), _CHUNK)]
        scores = list(self._workers.map("score", chunks))
        correct, seen = (torch.stack([s[i] for s in scores]).sum(0) for i in (0, 1))
        turned, of = (sum(s[3][i] for s in scores) for i in (0, 1))
        answers = np.packbits(torch.cat([s[4] for s in scores]).numpy()).tobytes().hex() if keep_answers else ""
        return (
            ({"asr": turned / of} if of else {})
            | ({"correct": answers} if answers else {})
            | {"accuracy": float(correct.sum() / seen.sum()), "test_loss": sum(s[2] for s in scores) / len(total)}
            | ({"class_accuracy": (correct.double() / seen.clamp(min=1)).tolist()} if self._data.groups else {})
        )

    def evaluate_clients(self, models: Iterable[tuple[int, State]]) -> dict[str, Any]:
        """Mean scores of clients' own models, as `client_*`, on the whole test set.

        `personal_accuracy` weighs each model's accuracy by group with its owner's label
        distribution: what the owner can expect on data like its own.
        """
        scores, personal, groups = [], [], self._data.group(self._data.train)
        for k, model in models:
            scores.append(self.evaluate(model))
            by_group = np.array(scores[-1].get("class_accuracy", [scores[-1]["accuracy"]]))
            mix = np.bincount(groups[self._parts[k]], minlength=len(by_group))
            personal.append(float(mix @ by_group / mix.sum()))
        if not scores:
            return {}
        mean = {
            f"client_{name}": np.mean([s[name] for s in scores], 0).tolist()
            for name in ("accuracy", "test_loss", "class_accuracy")
            if name in scores[0]
        }
        return mean | {"personal_accuracy": float(np.mean(personal))}
