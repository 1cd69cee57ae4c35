"""FLDetector: clients whose uploads are not what their own history and the model's movement predict are left out.

Zhang, Cao, Jia, Gong. FLDetector: Defending Federated Learning Against Model Poisoning Attacks via Detecting
Malicious Clients. KDD 2022. arXiv:2207.09209, Algorithms 1 to 3. With v the last change of the model and H v by
L-BFGS from the last `window` changes of the model and of the mean upload (Byrd, Nocedal, Schnabel 1994, eq.
3.13),

    distance_i = ||d_i(t - 1) + H v - d_i(t)||,   divided by the sum over the clients heard

A client's score is the mean of these over the last `window` rounds. Where the gap statistic (Tibshirani et al.
2001) finds more than one cluster of scores, the one of two with the larger mean is left out, for good. Changed:
training goes on in place of being repeated; uploads are changes of weights, of which H is then the derivative;
the paper's window is 10, and all its clients answer in every round. Here the clients heard that have scores of
`window` rounds are told apart, others are kept until they have, and one that was absent is predicted from its
last upload.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.aggregation.aggregator import Combined, Context, RowRule
from fedaudit.fl.aggregators._rows import lengths, sum_weighted_rows
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings

REFERENCES = 20  # sets of uniform scores, for the gap statistic
EXACT = 1e-5  # of a score: uploads are kept in single precision, and by so little equal ones differ


class FLDetector(RowRule):
    title = "FLDetector"
    source = "arXiv:2207.09209, Alg. 3"

    @settings
    class Config(RowRule.Config):
        window: AtLeastOne = Field(
            default=5,
            description="rounds of history, of the model and of a client, before which it is not left out",
        )

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        state = dict(context.state)
        banned, scores = set(state.get("banned", [])), _score(rows, clients, state, self.config.window)
        means = {k: sum(s) / len(s) for k, s in scores.items() if len(s) >= self.config.window}
        known = [k for k in clients if str(k) in means]
        here = torch.tensor([means[str(k)] for k in known], dtype=torch.float64)
        if is_split(here, context.generator()):
            banned |= {k for k, bad in zip(known, split(here), strict=True) if bad}
        share = weights * torch.tensor([k not in banned for k in clients])
        share = share / share.sum() if share.sum() else share  # nobody is left: no step
        change = sum_weighted_rows(rows, share)
        kept = {k: float(w) for k, w in zip(clients, share, strict=True) if w}
        mean = sum_weighted_rows(rows, weights / weights.sum())
        moves, turns = (state.get(k, torch.zeros(0, rows.shape[1])) for k in ("moves", "turns"))
        if "last" in state:
            moves = torch.cat([moves, state["last"][None]])
            turns = torch.cat([turns, mean.float()[None] - state["mean"]])
        uploads = dict(state.get("uploads", {})) | {
            str(k): row.clone() for k, row in zip(clients, rows, strict=True)
        }
        return Combined(
            change=change,
            kept=kept or dict.fromkeys(clients, 0.0),
            state={
                "banned": sorted(banned),
                "scores": scores,
                "moves": moves[-self.config.window :],
                "turns": turns[-self.config.window :],
                "last": change.float(),
                "mean": mean.float(),
                "uploads": uploads,
            },
        )


def _score(rows: Tensor, clients: Sequence[int], state: Mapping[str, Any], window: int) -> dict[str, list[float]]:
    """The last scores of each client, with this round's; none where the history is too short to predict."""
    scores = {k: list(v) for k, v in state.get("scores", {}).items()}
    known = [i for i, k in enumerate(clients) if str(k) in state.get("uploads", {})]
    if len(state.get("moves", [])) < window or not known:
        return scores
    turned = predict_turn(state["moves"], state["turns"], state["last"])
    before = torch.stack([state["uploads"][str(clients[i])] for i in known])
    far = lengths(rows[known] - before, turned)
    total = float(far.sum())
    for i, distance in zip(known, far.tolist(), strict=True):
        own = scores.setdefault(str(clients[i]), [])
        scores[str(clients[i])] = [*own, distance / total if total else 0.0][-window:]
    return scores


def predict_turn(moves: Tensor, turns: Tensor, v: Tensor) -> Tensor:
    """H v [P] by compact L-BFGS, where H moves_j = turns_j nearly; moves, turns [N, P], the last the newest."""
    s, y, v = moves.double(), turns.double(), v.double()
    inner = s @ y.T
    lower = inner.tril(-1)
    length = float(s[-1] @ s[-1])
    sigma = float(y[-1] @ s[-1]) / length if length else 0.0
    top = torch.cat([sigma * (s @ s.T), lower], 1)
    bottom = torch.cat([lower.T, -inner.diagonal().diag()], 1)
    right = torch.cat([sigma * (s @ v), y @ v])
    coefficients = torch.linalg.pinv(torch.cat([top, bottom])) @ right
    n = len(s)
    found: Tensor = sigma * v - sigma * (coefficients[:n] @ s) - coefficients[n:] @ y
    return found


def split(scores: Tensor) -> list[bool]:
    """The two clusters [n] with the least squares within; True: in the one with the larger scores."""
    order = scores.sort().values
    bar = order[_cut(order)]
    return [bool(s >= bar) for s in scores]


def is_split(scores: Tensor, rng: torch.Generator) -> bool:
    """Whether the gap statistic finds more than one cluster in scores [n]."""
    if len(scores) < 3:
        return False
    spread = float(scores.max() - scores.min())
    if spread <= EXACT * float(scores.max()):
        return False
    own = _log_squares((scores - scores.min()) / spread)
    drawn = torch.rand(REFERENCES, len(scores), generator=rng, dtype=torch.float64)
    uniform = torch.tensor([_log_squares(row) for row in drawn], dtype=torch.float64)
    gap = uniform.mean(0) - torch.tensor(own, dtype=torch.float64)
    error = float(uniform[:, 1].std(correction=0)) * (1 + 1 / REFERENCES) ** 0.5
    return bool(gap[0] < gap[1] - error)


def _log_squares(scores: Tensor) -> tuple[float, float]:
    """Logarithms of the squares within one cluster, and within the best two."""
    order = scores.sort().values
    cut = _cut(order)
    parts = (order, order[:cut], order[cut:])
    one, low, high = (float((p - p.mean()).square().sum()) for p in parts)
    logs = torch.tensor([one, low + high], dtype=torch.float64).clamp(min=1e-300).log().tolist()
    return logs[0], logs[1]


def _cut(order: Tensor) -> int:
    """Where sorted scores [n] are cut in two with the least squares within."""
    n = len(order)
    sums, squares = order.cumsum(0), order.square().cumsum(0)
    count = torch.arange(1, n, dtype=torch.float64)
    low = squares[:-1] - sums[:-1].square() / count
    high = squares[-1] - squares[:-1] - (sums[-1] - sums[:-1]).square() / (n - count)
    return int((low + high).argmin()) + 1
