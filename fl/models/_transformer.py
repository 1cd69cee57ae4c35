"""What the small transformers share: pre-norm blocks, positions, and how padding is left out.

Layers are named q, k, v, o, up and down, below blocks.0, blocks.1, ... An adapter is put on any of them by these
names. Norms have no bias, so that what enters the first block is spanned by embeddings and positions alone. The
id 0 is padding, which stands behind the text: nobody reads it or is asked to predict it.
"""

from math import sqrt
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import gelu, linear

from fedaudit.fl.model import Net
from fedaudit.fl.models.rnns import check_sequence
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import name_of
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.tasks.text import Text

SPREAD = 0.02  # standard deviation of first weights, as in GPT-2


@settings
class TransformerConfig:
    """Settings that the transformers share."""

    dim: AtLeastOne = Field(default=128, description="d: numbers that stand for a token")
    layers: AtLeastOne = Field(default=2, description="blocks of attention, one after the other")
    heads: AtLeastOne = Field(default=4, description="heads of attention; they divide dim")
    positions: Literal["learned", "rotary"] = Field(
        default="learned", description="how a model knows where a token stands: added vectors, or rotations"
    )
    vocabulary: AtLeastOne | None = Field(
        default=None,
        description="number of tokens the model knows; null is the vocabulary of the data, else the classes",
    )

    def __post_init__(self) -> None:
        if self.dim % self.heads or (self.positions == "rotary" and self.dim // self.heads % 2):
            raise UserError(
                f"model.dim {self.dim} does not make {self.heads} heads of equal, for rotations even, width",
                hint="dim: 128, heads: 4",
            )


class Block(nn.Module):
    """One pre-norm block: attention, then two dense layers, each added to what came in."""

    def __init__(self, dim: int, heads: int, rotary: bool, causal: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, bias=False), nn.LayerNorm(dim, bias=False)
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self._heads, self._rotary, self._causal = heads, rotary, causal

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """[b, T, d] and which positions [b, T] are text -> [b, T, d]."""
        x = x + self.attend(self.norm1(x), mask)
        out: Tensor = x + self.down(gelu(self.up(self.norm2(x))))
        return out

    def attend(self, z: Tensor, mask: Tensor) -> Tensor:
        """[b, T, d] of the normalised input."""
        length = z.shape[1]
        q, k, v = (self._split(part(z)) for part in (self.q, self.k, self.v))
        if self._rotary:
            q, k = rotate(q), rotate(k)
        scores = q @ k.transpose(-1, -2) / sqrt(q.shape[-1])  # [b, heads, T, T]
        seen = mask[:, None, None, :] | torch.eye(length, dtype=torch.bool, device=z.device)
        if self._causal:
            seen = seen & torch.ones(length, length, dtype=torch.bool, device=z.device).tril()
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        out: Tensor = self.o((weights @ v).transpose(1, 2).flatten(2))
        return out

    def _split(self, x: Tensor) -> Tensor:
        """[b, T, d] -> [b, heads, T, d / heads]."""
        return x.reshape(*x.shape[:-1], self._heads, -1).transpose(1, 2)


def rotate(x: Tensor) -> Tensor:
    """[..., T, d]: each pair of numbers turned by an angle that grows with the position.

    Su et al. RoFormer. 2021. arXiv:2104.09864, section 3.4.2.
    """
    length, dim = x.shape[-2:]
    rates = 10_000.0 ** (-torch.arange(0, dim, 2, device=x.device) / dim)
    angles = torch.arange(length, device=x.device)[:, None] * rates
    cos, sin = angles.cos(), angles.sin()
    one, two = x[..., ::2], x[..., 1::2]
    return torch.stack([one * cos - two * sin, one * sin + two * cos], -1).flatten(-2)


class TiedHead(nn.Module):
    """Logits of every token by the embedding itself, which stays the embedding's alone."""

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self._embedding = (embedding,)  # in a tuple, so that it is no submodule

    def forward(self, h: Tensor) -> Tensor:
        return linear(h, self._embedding[0].weight)


class Transformer(Net):
    """Embedding, positions, blocks, norm and head; subclasses say whether a token sees those after it."""

    causal: bool

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        config: TransformerConfig,
        task: Literal["lm", "classify"],
        tied: bool,
    ) -> None:
        super().__init__(shape, classes)
        check_sequence(name_of(type(self)), shape)
        vocabulary = config.vocabulary or classes
        if task == "lm":
            self.task = Text()
        self.embed = nn.Embedding(vocabulary, config.dim)
        rotary = config.positions == "rotary"
        self.positions = None if rotary else nn.Embedding(shape[0], config.dim)
        self.blocks = nn.ModuleList(
            Block(config.dim, config.heads, rotary, self.causal) for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(config.dim, bias=False)
        if task == "lm" and tied:
            self.head: nn.Module = TiedHead(self.embed)
        else:
            self.head = nn.Linear(config.dim, vocabulary if task == "lm" else classes, bias=task != "lm")
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=SPREAD)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def states(self, x: Tensor) -> Tensor:
        """[b, T] tokens -> [b, T, d], normalised."""
        mask = x != 0
        h = self.embed(x)
        if self.positions is not None:
            h = h + self.positions.weight[: x.shape[1]]
        for block in self.blocks:
            h = block(h, mask)
        out: Tensor = self.norm(h)
        return out

    def features(self, x: Tensor) -> Tensor:
        """[b, T] tokens -> [b, T, d] of a language model, [b, d] of a classifier."""
        h = self.states(x)
        return h if isinstance(self.task, Text) else self.pool(h, x != 0)

    def pool(self, h: Tensor, mask: Tensor) -> Tensor:
        """[b, T, d] -> [b, d]: what stands for the whole text."""
        raise NotImplementedError

    def answers(self, x: Tensor) -> Tensor:
        if not isinstance(self.task, Text):
            return super().answers(x)
        out: Tensor = self.head(self.features(x)[:, :-1])
        return out
