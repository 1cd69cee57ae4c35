"""Fisher diagonals as class shares: what the head's bias says of labels.

The gradient of cross-entropy by the bias of class c is p_c - [y = c], so the mean of squared gradients is

    F_c = mean (p_c - [y = c])^2 = sum_y share_y M_yc,     M_yc = the same mean over examples of class y

and M can be had from auxiliary examples, as soon as the model is known. Where all p_c are 1 / C,
share_c = (F_c - 1 / C^2) / (1 - 2 / C) in closed form, which two classes leave undefined.

Identities, and no findings: of one example, sqrt(F_W / F_b) of a linear layer is the absolute value of its input,
whatever the network above it; and a column of F_W is 0 if and only if that input is 0 in all examples (or no
gradient arrives there).
"""

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples, Extractor

Values = NDArray[np.float64]
MOST = 200  # auxiliary examples of a class


def square_errors(model: Extractor, images: Examples) -> Values:
    """(p_c - [y = c])^2 of each image, [N, C]."""
    from scipy.special import softmax

    p = softmax(np.asarray(model.logits(images.x), np.float64), axis=1)
    return np.asarray((p - np.eye(p.shape[1])[images.y]) ** 2)


def mean_by_class(model: Extractor, auxiliary: Examples, classes: int) -> Values:
    """M [C, C]; rows of classes without auxiliary images are NaN."""
    found = np.full((classes, classes), np.nan)
    for c in np.unique(auxiliary.y):
        own = auxiliary.only(np.flatnonzero(auxiliary.y == c)[:MOST])
        found[c] = square_errors(model, own).mean(axis=0)
    return found


def unmix(fisher: Values, means: Values) -> Values:
    """Shares [C] >= 0 with sum 1 that best explain F [C] by rows of M [C, C]; classes without a row have none."""
    from scipy.optimize import nnls

    known = np.isfinite(means).all(axis=1)
    scale = float(np.abs(fisher).max()) or 1.0
    found = np.zeros(len(fisher))
    found[known] = nnls(means[known].T / scale, fisher / scale)[0]
    total = found.sum()
    return found / total if total > 0 else np.full(len(found), 1 / len(found))


def solve_uniform(fisher: Values) -> Values:
    """Shares [C] in closed form, as if every p_c were 1 / C; cut at 0, of sum 1. NaN for two classes."""
    classes = len(fisher)
    if classes == 2:
        return np.full(2, np.nan)
    found = np.maximum((fisher - 1 / classes**2) / (1 - 2 / classes), 0)
    total = found.sum()
    return found / total if total > 0 else np.full(classes, 1 / classes)
