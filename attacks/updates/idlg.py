"""iDLG: the label of a single example is read off the last layer, then its image is fitted.

Zhao, Mopuri, Bilen. iDLG: Improved Deep Leakage from Gradients. arXiv:2001.02610, Alg. 1. For cross-entropy
the bias gradient is p - onehot(y), whose only negative entry is the label's (and so are the row sums of
the weights' gradient where a ReLU comes before): exact for one example. Then

    x = argmin ||gradient(x, y) - g||^2

from noise, by L-BFGS as in their code, or Adam. Added: where the client's loss is a multiple of the mean
cross-entropy, as a sum is, lengths never meet, so a second try fits the factor. Besides the images it is
judged by its labels, which stay exact where the images fail: L-BFGS does not get far on trained networks with
ReLU and pooling. For one example only; `inverting_gradients` and `dlg` take batches.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from fedaudit.attacks.attack import Claim, Effort, Knowledge, Truth
from fedaudit.attacks.evaluation.count_evidence import blind_counts, exact_match
from fedaudit.attacks.evaluation.gradients import (
    Imitation,
    Update,
    cosine_distance,
    distance_to_multiple,
    labels,
    squared_distance,
)
from fedaudit.attacks.evaluation.searches import Measure, choose_rows
from fedaudit.attacks.evaluation.stacked_lbfgs import StackedLBFGS
from fedaudit.attacks.evaluation.update_inversion import CARD
from fedaudit.attacks.evaluation.update_search import Drawn, UpdateSearch, UpdateSearching
from fedaudit.attacks.evidence import Evidence, is_replay
from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne
from fedaudit.fl.runtime.settings import settings

if TYPE_CHECKING:
    from torch import Tensor

MATCHED = 1e-6  # cosine distance below which no other factor is tried
DISTANCES = (squared_distance, distance_to_multiple, cosine_distance)


class IDLG(UpdateSearching[UpdateSearch]):
    card = replace(
        CARD,
        title="iDLG",
        source="arXiv:2001.02610, Alg. 1",
        learns="the label and the image of a client that trained on a single example",
        does_not_show="anything of updates made with more than one example",
        effort=Effort(seconds=16, grows=("network", "updates"), settings=("iterations",)),
    )

    @settings
    class Config(UpdateSearching.Config):
        iterations: AtLeastOne = Field(
            default=25, description="iterations on an image; with L-BFGS each has at most 20 evaluations"
        )
        optimiser: Literal["lbfgs", "adam"] = Field(
            default="lbfgs", description="what fits the image; L-BFGS as in the authors' code, or Adam"
        )
        lr: Amount = Field(default=1.0, description="step size on the image; 0.1 suits Adam")

    def applies(self, update: Update) -> bool:
        return update.examples == 1

    def draw(
        self, update: Update, number: int, knowledge: Knowledge, rng: np.random.Generator
    ) -> list[UpdateSearch]:
        import torch

        found = labels(update, knowledge, 1)
        y = rng.integers(knowledge.classes, size=1) if found is None else found
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        x = torch.rand((1, *knowledge.shape), generator=generator)
        return [UpdateSearch(start=[x], update=update, knowledge=knowledge, labels=y)]

    def read(self, search: UpdateSearch, copy: Imitation) -> "list[Tensor]":
        import torch

        return [torch.from_numpy(search.labels).to(copy.device), *super().read(search, copy)]

    def list_measures(self, search: UpdateSearch, copy: Imitation) -> list[Measure]:
        return [lambda x, y, *target, d=d: d(copy.gradient(x, y), target) for d in DISTANCES]

    def descend(
        self, variables: "Sequence[Tensor]", measures: Sequence[Measure], stacked: bool
    ) -> "list[Tensor]":
        return fit(self.config, variables, measures, stacked)

    def finish(self, search: UpdateSearch, found: "Sequence[Tensor]") -> Drawn:
        return Drawn(0.0, found[0].numpy(), search.labels)

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        """The images, and how often the label is right."""
        classes = int(claim["classes"])
        true = np.array([[len(truth.members(str(a), c)) for c in range(classes)] for a in claim["artifact"]])
        alone = true.sum(axis=1) == 1
        found = super().measure(claim, truth, rng)
        prior = np.bincount(truth.auxiliary.y, minlength=classes).astype(np.float64)
        prior = prior if prior.any() else np.ones(classes)
        for origin in np.unique(claim["origin"][alone]):
            for steps in np.unique(claim["steps"][alone & (claim["origin"] == origin)]):
                rows = alone & (claim["origin"] == origin) & (claim["steps"] == steps)
                found.append(
                    exact_match(
                        np.eye(classes, dtype=np.int64)[claim["label"][rows]],
                        true[rows],
                        blind_counts(true[rows], prior),
                        {"n": 1.0, "steps": float(steps), "origin": str(origin)},
                        "positive" if is_replay(str(origin)) else "none",
                        groups=np.asarray(claim["sender"])[rows],
                        note="updates whose label is right",
                    )
                )
        return found


def fit(
    c: IDLG.Config, variables: "Sequence[Tensor]", measures: Sequence[Measure], stacked: bool
) -> "list[Tensor]":
    """The variables moved until the gradient they lead to is the target, or else a multiple of it.

    `measures`: of DISTANCES, each of one search or of those `stacked`.
    """
    import torch

    squared, to_multiple, angle = measures

    def fit_by(distance: Measure) -> "tuple[list[Tensor], Tensor]":
        moved = descend(c, [v.clone() for v in variables], distance, stacked)
        return moved, angle(*moved).detach().double().nan_to_num(nan=math.inf)

    found, apart = fit_by(squared)
    if bool((apart < MATCHED).all()):
        return found
    others, further = fit_by(to_multiple)
    return choose_rows(torch.logical_and(apart >= MATCHED, further < apart), others, found)


def descend(c: IDLG.Config, variables: "list[Tensor]", loss: Measure, stacked: bool) -> "list[Tensor]":
    """The variables where the loss is least; of a search that diverges their last sound values."""
    import torch

    for v in variables:
        v.requires_grad_(True)
    made: Any
    if c.optimiser == "adam":
        made = eager(torch.optim.Adam)(variables, lr=c.lr)
    else:
        made = StackedLBFGS(variables, c.lr) if stacked else eager(torch.optim.LBFGS)(variables, lr=c.lr)

    def closure() -> "Tensor":
        value: Tensor = loss(*variables)
        for v, g in zip(variables, torch.autograd.grad(value.sum(), variables), strict=True):
            v.grad = g
        return value.detach()

    rows = 1 if stacked else 0  # dimensions that number searches
    going = torch.ones(variables[0].shape[:rows], dtype=torch.bool, device=variables[0].device)
    for _ in range(c.iterations):
        before = [v.detach().clone() for v in variables]
        made.step(closure)
        going = going & torch.stack([v.isfinite().flatten(rows).all(-1) for v in variables]).all(0)
        with torch.no_grad():
            for v, kept in zip(variables, choose_rows(going, variables, before), strict=True):
                v.copy_(kept)
        if not stacked and not going:
            break
    return [v.detach() for v in variables]
