"""Language models as an adversary runs them: how likely each token of a text is, and how a text goes on."""

from collections.abc import Mapping, Sequence
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

    Padding that all texts end with is not computed. Raises ValueError for a network that predicts no tokens.
    """
    import torch

    module = extractor.module()
    found = np.full((len(texts), texts.shape[1] - 1), np.nan)
    longest = max(2, int((texts != PADDING).any(axis=0).nonzero()[0].max(initial=0)) + 1)
    step = 1
    with torch.no_grad():
        place, start = find_device(module), 0
        while start < len(texts):
            some = texts[start : start + step, :longest]
            batch = torch.from_numpy(np.ascontiguousarray(some)).to(place)
            logits = _predict(module, batch)
            scores = _compute_log_probabilities(logits[:, :-1], batch[:, 1:]).cpu().numpy()
            found[start : start + step, : longest - 1] = np.where(some[:, 1:] == PADDING, np.nan, scores)
            start += step
            step = max(1, (GPU_NUMBERS if place.type == "cuda" else NUMBERS) // max(1, int(logits[0].numel())))
    return found


def _compute_log_probabilities(logits: "Tensor", tokens: "Tensor") -> "Tensor":
    """ln p of tokens [N, T] by logits [N, T, V], [N, T]; sums in double precision."""
    top = logits.max(-1, keepdim=True).values
    wanted = logits.gather(-1, tokens[..., None])[..., 0].double() - top[..., 0].double()
    return wanted - (logits - top).exp_().sum(-1, dtype=wanted.dtype).log()


def continue_texts(
    extractor: Extractor, prompts: Sequence[Sequence[int]], length: int, rng: np.random.Generator | None = None
) -> list[tuple[int, ...]]:
    """`length` tokens that follow each prompt: the likeliest, or drawn with `rng`. Prompts are equally long."""
    import torch

    module, texts = extractor.module(), np.array(prompts, np.int64)
    place, begin = find_device(module), texts.shape[1]
    with torch.no_grad():
        for _ in range(length):
            step = max(1, NUMBERS // max(1, texts.shape[1] * 4000))
            last = [
                _predict(module, batch.to(place))[:, -1].double().cpu().numpy()
                for batch in torch.split(torch.from_numpy(texts), step)
            ]
            logits = np.concatenate(last)
            logits[:, PADDING] = -np.inf
            if rng is not None:  # the largest of logits and Gumbel noise is a draw of the softmax
                logits = logits + rng.gumbel(size=logits.shape)
            texts = np.concatenate([texts, logits.argmax(axis=1)[:, None]], axis=1)
    return [tuple(map(int, row)) for row in texts[:, begin:]]


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
