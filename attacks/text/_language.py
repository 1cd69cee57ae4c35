"""Language models as an adversary runs them: how likely each token of a text is, and how a text goes on."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Extractor
from fedaudit.attacks.evaluation.decoder import find_device
from fedaudit.attacks.modality.text import PADDING

if TYPE_CHECKING:
    from torch import Tensor, nn

Arrays = Mapping[str, NDArray[Any]]
Tokens = NDArray[np.int64]
Values = NDArray[np.float64]
NUMBERS = 2_000_000  # logits that are computed at once, few enough to stay near a processor
GPU_NUMBERS = 20_000_000


def score_tokens(extractor: Extractor, texts: Tokens) -> Values:
    """ln p of each token of texts [N, T] given those before it, [N, T - 1]; NaN for padding.

    A text that stands there twice is computed once. Raises ValueError for a network that predicts no tokens.
    """
    texts, again = np.unique(texts, axis=0, return_inverse=True)
    found = np.full((len(texts), texts.shape[1] - 1), np.nan)
    for start, logits, batch in _run_batches(extractor, texts):
        scores = _compute_log_probabilities(logits, batch[:, 1:]).cpu().numpy()
        known = np.where(batch[:, 1:].cpu().numpy() == PADDING, np.nan, scores)
        found[start : start + len(known), : known.shape[1]] = known
    return found[again.ravel()]


def score_continuations(
    extractor: Extractor, texts: Sequence[Sequence[int]], begins: Sequence[int]
) -> tuple[NDArray[np.bool_], Values]:
    """Whether each text is the likeliest one after its first `begins` tokens, [n], and ln p of its rest, [n].

    As long as what a model emits agrees with the text, it has read the text: one pass tells what a pass for each
    token would. Padding is never emitted.
    """
    import torch

    longest = max(map(len, texts), default=0)
    padded = np.array([[*t, *[PADDING] * (longest - len(t))] for t in texts], np.int64).reshape(
        len(texts), longest
    )
    likeliest, odds = np.zeros(len(texts), np.bool_), np.zeros(len(texts))
    for start, logits, batch in _run_batches(extractor, padded):
        logits[..., PADDING] = -torch.inf
        tokens, some = batch[:, 1:], slice(start, start + len(batch))
        place = torch.arange(1, batch.shape[1], device=batch.device)
        rest = (place >= torch.tensor(begins[some], device=batch.device)[:, None]) & (tokens != PADDING)
        likeliest[some] = ((logits.argmax(-1) == tokens) | ~rest).all(1).cpu().numpy()
        each = torch.where(rest, _compute_log_probabilities(logits, tokens), 0.0)
        odds[some] = each.sum(1).cpu().numpy()
    return likeliest, odds


def _run_batches(extractor: Extractor, texts: Tokens) -> "Iterator[tuple[int, Tensor, Tensor]]":
    """Of texts [N, T], some at a time: the first row, logits [n, t - 1, V] from token 1 on, and texts [n, t].

    Padding that all texts end with is left out.
    """
    import torch

    module = extractor.module()
    longest = max(2, int((texts != PADDING).any(axis=0).nonzero()[0].max(initial=0)) + 1)
    place, start, step = find_device(module), 0, 1
    with torch.no_grad():
        while start < len(texts):
            batch = torch.from_numpy(np.ascontiguousarray(texts[start : start + step, :longest])).to(place)
            logits = _predict(module, batch)
            yield start, logits[:, :-1], batch
            start += step
            step = max(1, (GPU_NUMBERS if place.type == "cuda" else NUMBERS) // max(1, int(logits[0].numel())))


def _compute_log_probabilities(logits: "Tensor", tokens: "Tensor") -> "Tensor":
    """ln p of tokens [N, T] by logits [N, T, V], [N, T]; sums in double precision."""
    top = logits.max(-1, keepdim=True).values
    wanted = logits.gather(-1, tokens[..., None])[..., 0].double() - top[..., 0].double()
    return wanted - (logits - top).exp_().sum(-1, dtype=wanted.dtype).log()


def predicts_tokens(module: "nn.Module", length: int) -> bool:
    """Whether a network answers texts [N, T] with logits [N, T, V]."""
    import torch

    with torch.no_grad():
        probe = torch.ones((1, length), dtype=torch.int64, device=find_device(module))
        return bool(module(probe).ndim == 3)


def _predict(module: "nn.Module", texts: Any) -> Any:
    logits = module.eval()(texts)
    if logits.ndim != 3:
        raise ValueError(
            f"the network answers a text with {tuple(logits.shape[1:])} numbers, and predicts no tokens"
        )
    return logits


def average_lowest(log_probabilities: Values, share: float) -> Values:
    """[N, T] with NaN for padding -> [N]: the mean of each text's lowest share, of one token at least.

    Shi, Ajith, Xia, Huang, Liu, Blevins, Chen, Zettlemoyer. Detecting Pretraining Data from Large Language
    Models. ICLR 2024. arXiv:2310.16789, eq. 1 (Min-K% Prob).
    """
    found = np.empty(len(log_probabilities))
    for i, row in enumerate(log_probabilities):
        known = np.sort(row[np.isfinite(row)])
        found[i] = known[: max(1, int(share * len(known)))].mean() if len(known) else 0.0
    return found
