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
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
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
from fedaudit.attacks.evaluation.update_inversion import CARD, UpdateInversion
from fedaudit.attacks.evidence import Evidence, is_replay
from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne
from fedaudit.fl.runtime.settings import settings

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.floating[Any]]
MATCHED = 1e-6  # cosine distance below which no other factor is tried


class IDLG(UpdateInversion):
    card = replace(
        CARD,
        title="iDLG",
        source="arXiv:2001.02610, Alg. 1",
        learns="the label and the image of a client that trained on a single example",
        does_not_show="anything of updates made with more than one example",
        effort=Effort(seconds=16, grows=("network", "updates"), settings=("iterations",)),
    )

    @settings
    class Config(UpdateInversion.Config):
        iterations: AtLeastOne = Field(
            default=25, description="iterations on an image; with L-BFGS each has at most 20 evaluations"
        )
        optimiser: Literal["lbfgs", "adam"] = Field(
            default="lbfgs", description="what fits the image; L-BFGS as in the authors' code, or Adam"
        )
        lr: Amount = Field(default=1.0, description="step size on the image; 0.1 suits Adam")

    def applies(self, update: Update) -> bool:
        return update.examples == 1

    def invert(
        self, update: Update, number: int, knowledge: Knowledge, rng: np.random.Generator
    ) -> tuple[Floats, NDArray[np.int64]]:
        import torch

        found = labels(update, knowledge, 1)
        y = rng.integers(knowledge.classes, size=1) if found is None else found
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        copy = Imitation(update, knowledge)
        x = torch.rand((1, *knowledge.shape), generator=generator).to(copy.device)
        target = torch.from_numpy(y).to(copy.device)
        fit(self.config, [x], lambda: copy.gradient(x, target), copy.target)
        return x.detach().cpu().numpy(), y

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
    c: IDLG.Config, variables: "list[Tensor]", imitate: "Callable[[], list[Tensor]]", target: "list[Tensor]"
) -> None:
    """Move the variables until the gradient they lead to is the target, or else a multiple of it."""
    import torch

    starts = [v.clone() for v in variables]
    tried: list[tuple[float, list[Tensor]]] = []
    for distance in (squared_distance, distance_to_multiple):
        with torch.no_grad():
            for v, start in zip(variables, starts, strict=True):
                v.copy_(start)
        descend(c.optimiser, c.lr, c.iterations, lambda d=distance: d(imitate(), target), variables)
        apart = float(cosine_distance(imitate(), target).detach())
        tried.append((math.inf if math.isnan(apart) else apart, [v.detach().clone() for v in variables]))
        if apart < MATCHED:
            return
    with torch.no_grad():
        for v, best in zip(variables, min(tried, key=lambda t: t[0])[1], strict=True):
            v.copy_(best)


def descend(optimiser: str, lr: float, iterations: int, loss: Any, variables: "list[Tensor]") -> None:
    """Minimises loss() in place over `variables`; stops where L-BFGS diverges, at the last sound value."""
    import torch

    for v in variables:
        v.requires_grad_(True)
    made: torch.optim.Optimizer = (
        eager(torch.optim.LBFGS)(variables, lr=lr)
        if optimiser == "lbfgs"
        else eager(torch.optim.Adam)(variables, lr=lr)
    )

    def closure() -> float:
        value = loss()
        for v, g in zip(variables, torch.autograd.grad(value, variables), strict=True):
            v.grad = g
        return float(value.detach())

    for _ in range(iterations):
        before = [v.detach().clone() for v in variables]
        made.step(closure)
        if not all(bool(torch.isfinite(v).all()) for v in variables):
            with torch.no_grad():
                for v, old in zip(variables, before, strict=True):
                    v.copy_(old)
            return
