"""DLG, deep leakage from gradients: images and labels fitted together to the client's gradient.

Zhu, Liu, Han. Deep Leakage from Gradients. NeurIPS 2019. arXiv:1906.08935, Alg. 1:

    x, y = argmin ||gradient(x, softmax(y)) - g||^2

from noise, by L-BFGS of rate 1 as in their code, or Adam; and once more for an unknown factor of the loss, as
in idlg. The first of these attacks and the least stable: published for sigmoid networks at initialisation;
where it misses its planted leak, that says nothing of the update (use `inverting_gradients`).
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Knowledge
from fedaudit.attacks.evaluation.gradients import Imitation, Update
from fedaudit.attacks.evaluation.update_inversion import CARD, UpdateInversion
from fedaudit.attacks.updates.idlg import IDLG, fit
from fedaudit.fl.runtime.settings import settings

Floats = NDArray[np.floating[Any]]


class DLG(UpdateInversion):
    card = replace(
        CARD,
        title="DLG",
        source="arXiv:1906.08935, Alg. 1",
        effort=replace(CARD.effort, settings=("iterations",)),
    )

    @settings
    class Config(IDLG.Config):
        pass

    def invert(
        self, update: Update, number: int, knowledge: Knowledge, rng: np.random.Generator
    ) -> tuple[Floats, NDArray[np.int64]]:
        import torch

        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        copy = Imitation(update, knowledge)
        x = torch.rand((number, *knowledge.shape), generator=generator).to(copy.device)
        y = torch.randn((number, knowledge.classes), generator=generator).to(copy.device)
        fit(self.config, [x, y], lambda: copy.gradient(x, y.softmax(1)), copy.target)
        return x.detach().cpu().numpy(), y.detach().argmax(1).cpu().numpy()
