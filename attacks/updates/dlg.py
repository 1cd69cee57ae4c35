"""DLG, deep leakage from gradients: images and labels fitted together to the client's gradient.

Zhu, Liu, Han. Deep Leakage from Gradients. NeurIPS 2019. arXiv:1906.08935, Alg. 1:

    x, y = argmin ||gradient(x, softmax(y)) - g||^2

from noise, by L-BFGS of rate 1 as in their code, or Adam; and once more for an unknown factor of the loss, as
in idlg. The first of these attacks and the least stable: published for sigmoid networks at initialisation;
where it misses its planted leak, that says nothing of the update (use `inverting_gradients`).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedaudit.attacks.attack import Knowledge
from fedaudit.attacks.evaluation.gradients import Imitation, Update
from fedaudit.attacks.evaluation.searches import Measure
from fedaudit.attacks.evaluation.update_inversion import CARD
from fedaudit.attacks.evaluation.update_search import Drawn, UpdateSearch, UpdateSearching
from fedaudit.attacks.updates.idlg import DISTANCES, IDLG, fit
from fedaudit.fl.runtime.settings import settings

if TYPE_CHECKING:
    from torch import Tensor


class DLG(UpdateSearching):
    card = replace(
        CARD,
        title="DLG",
        source="arXiv:1906.08935, Alg. 1",
        effort=replace(CARD.effort, settings=("iterations",)),
    )

    @settings
    class Config(IDLG.Config):
        pass

    def draw(
        self, update: Update, number: int, knowledge: Knowledge, rng: np.random.Generator
    ) -> list[UpdateSearch]:
        import torch

        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        x = torch.rand((number, *knowledge.shape), generator=generator)
        y = torch.randn((number, knowledge.classes), generator=generator)
        unknown = np.full(number, -1)
        return [UpdateSearch(start=[x, y], update=update, knowledge=knowledge, labels=unknown)]

    def list_measures(self, search: UpdateSearch, copy: Imitation) -> list[Measure]:
        return [lambda x, y, *target, d=d: d(copy.gradient(x, y.softmax(1)), target) for d in DISTANCES]

    def descend(
        self, variables: "Sequence[Tensor]", measures: Sequence[Measure], stacked: bool
    ) -> "list[Tensor]":
        return fit(self.config, variables, measures, stacked)

    def finish(self, search: UpdateSearch, found: "Sequence[Tensor]") -> Drawn:
        x, y = found
        return Drawn(0.0, x.numpy(), y.argmax(1).numpy())
