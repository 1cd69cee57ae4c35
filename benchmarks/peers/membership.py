"""Membership scores beside Privacy Meter's on the same models: python -m benchmarks.peers.membership.

Each of so many models trained on random halves of the same images (benchmarks/peers/shadow_models.py) is audited
in turn, with the models that an image was not in as its references. Privacy Meter (privacy-meter 1.0.1; Ye et
al., CCS 2022, the reference attack) sets a threshold on an image's loss from those references, by each of its
rules; at how many of its false-positive rates it says "member" is its score. Ours are LiRA offline and RMIA on
the very same losses. Mean over the models of the AUC and of the true positives at 1 % false positives.

The tool is no dependency of this project: run this with the Python of an environment that has both. Of the tool
only `privacy_meter.hypothesis_test` is imported.
"""

import argparse
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.shadow_models import _case, _ours
from fedaudit.attacks import stats
from fedaudit.attacks.attack import Examples
from fedaudit.attacks.evaluation.scores import likelihood_ratio, lira_offline, log_probability, scaled_logit
from fedaudit.fl.runtime.errors import UserError

RULES = ("linear_itp", "gaussian", "logit_rescale", "min_linear_logit")
RATES = np.logspace(-5, 0, 100)  # its default
Values = NDArray[np.float64]
Score = Callable[[int, NDArray[np.int64]], Values]  # model, its references for each image [N, R] -> [N]


def scores(logits: NDArray[Any], y: NDArray[np.int64], tool: Any) -> Mapping[str, Score]:
    """By name; logits [K, N, C] of all models."""
    loss, phi = -log_probability(logits, y), scaled_logit(logits, y)
    p, every = np.exp(-loss), np.arange(len(y))

    def theirs(rule: str) -> Score:
        threshold = getattr(tool, f"{rule}_threshold_func")
        return lambda k, out: (loss[k] < threshold(loss[out, every[:, None]], RATES)).sum(axis=0).astype(float)

    return {
        "LiRA, offline": lambda k, out: lira_offline(phi[k], phi[out, every[:, None]].T),
        "LiRA, offline, one deviation": lambda k, out: lira_offline(phi[k], phi[out, every[:, None]].T, True),
        "RMIA": lambda k, out: likelihood_ratio(p[k], p[out, every[:, None]].T, 0.3),
        **{f"privacy-meter, {rule}": theirs(rule) for rule in RULES},
    }


def compare(dataset: str, model: str, images: int, models: int) -> dict[str, tuple[float, float]]:
    """Name -> mean AUC and mean TPR at 1 % FPR; raises UserError where the tool is not installed."""
    try:
        tool = importlib.import_module("privacy_meter.hypothesis_test")
    except ImportError as error:
        raise UserError(
            "Privacy Meter is not installed, so there is nothing to compare with",
            hint="in a separate environment: pip install privacy-meter==1.0.1, then run this with its Python",
        ) from error
    case = _case(dataset, model, 0)
    train = case.data.train
    chosen = case.streams.numpy("images").permutation(len(train))[:images]
    pool = Examples(x=train.x[chosen], y=train.y[chosen])
    logits, inside = _ours(case, pool, models)()()
    found: dict[str, list[tuple[float, float]]] = {}
    for k in range(models):
        left = np.array([[m for m in np.flatnonzero(~row) if m != k][: models // 2 - 1] for row in inside.T])
        for name, score in scores(logits, pool.y, tool).items():
            own, others = (score(k, left)[side] for side in (inside[k], ~inside[k]))
            tpr = stats.tpr_at_fpr(own, others, 0.01, groups=stats.INDEPENDENT)
            area = stats.auc(own, others, groups=stats.INDEPENDENT)  # its interval is not used
            found.setdefault(name, []).append((area.value, tpr.value if tpr else np.nan))
    return {name: tuple(np.mean(rows, axis=0).tolist()) for name, rows in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--models", type=int, default=32, help="an even number; 32")
    given = parser.parse_args()
    for name, (area, tpr) in compare(given.dataset, given.model, given.images, given.models).items():
        print(f"{name:34}AUC {area:.3f}  TPR at 1 % FPR {tpr:.3f}", flush=True)


if __name__ == "__main__":
    main()
