"""Tiny GPT: a small causal transformer that predicts the next token, or a text's class.

After Radford et al. Language Models are Unsupervised Multitask Learners (GPT-2). 2019, section 2.3: pre-norm
blocks. Changes: much smaller, norms have no bias, q, k and v are layers of their own without bias, and positions
may be rotations. A classifier reads the state of a text's last token.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.models._transformer import Transformer, TransformerConfig
from fedaudit.fl.runtime.settings import settings


class TinyGPT(Transformer):
    source = "Radford et al. 2019 (GPT-2)"
    causal = True

    @settings
    class Config(TransformerConfig):
        task: Literal["lm", "classify"] = Field(
            default="classify", description="whether it predicts the next token or the class of a text"
        )
        tied: bool = Field(
            default=False, description="whether a language model's head is its embedding, as in GPT-2"
        )

    def __init__(self, shape: tuple[int, ...], classes: int, config: Config | None = None) -> None:
        config = config or self.Config()
        super().__init__(shape, classes, config, config.task, config.tied)

    def pool(self, h: Tensor, mask: Tensor) -> Tensor:
        last = (mask.sum(1) - 1).clamp(min=0)[:, None, None]
        return torch.take_along_dim(h, last.expand(-1, 1, h.shape[-1]), 1)[:, 0]
