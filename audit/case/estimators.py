"""Models that are no networks, such as scikit-learn's: whoever has one asks it, and has no gradients."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.task import Task

LEAST = 1e-12  # a probability that counts as none


class Estimator(nn.Module):
    """A fitted model of scikit-learn's kind, as a network without gradients.

    It gives the logarithms of `predict_proba`, whose softmax are its probabilities, where classes are wanted, and
    else what it predicts.
    """

    def __init__(self, fitted: Any, *, has_classes: bool) -> None:
        super().__init__()
        self._fitted, self._has_classes = fitted, has_classes
        self.register_buffer("is_fitted", torch.ones(1))  # messages of a model hold a number at least

    def forward(self, x: Tensor) -> Tensor:
        """x [n, ...] -> [n, classes], or [n, 1]; such a model is given rows, so that images are laid out."""
        rows = x.detach().cpu().flatten(1).numpy()
        if self._has_classes:
            found = np.log(np.clip(np.asarray(self._fitted.predict_proba(rows), np.float64), LEAST, None))
        else:
            found = np.asarray(self._fitted.predict(rows), np.float64).reshape(len(rows), -1)
        return torch.from_numpy(found.astype(np.float32)).to(x.device)


def wrap_estimator(model: Any, task: Task) -> Any:
    """The model as a network where it predicts as scikit-learn's do; anything else as it is.

    Raises UserError where it gives no probabilities, or its classes are not numbered from 0.
    """
    if isinstance(model, nn.Module | type) or not callable(getattr(model, "predict", None)):
        return model
    name = type(model).__name__
    if task.has_classes and not callable(getattr(model, "predict_proba", None)):
        raise UserError(
            f"the model, a {name}, has no predict_proba, and attacks ask for the probability of each class",
            hint="wrap it in sklearn.calibration.CalibratedClassifierCV, or fit it with probability=True",
        )
    known = np.asarray(getattr(model, "classes_", ()))
    if task.has_classes and known.dtype.kind in "iufb" and not np.array_equal(known, np.arange(len(known))):
        raise UserError(
            f"the model's classes are {', '.join(map(str, known[:6].tolist()))}, expected 0, 1, 2 and so on",
            hint="fit it with labels that count from 0, such as np.unique(y, return_inverse=True)[1]",
        )
    return Estimator(model, has_classes=task.has_classes)
