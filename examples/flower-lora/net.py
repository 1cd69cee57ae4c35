"""A tiny GPT and its adapters, in plain torch, with the names of `tiny_gpt` in fedaudit and of peft."""

import math

import torch
from torch import Tensor, nn

VOCABULARY, LENGTH, DIM, LAYERS, HEADS = 800, 32, 64, 2, 4
RANK, ALPHA, TARGETS = 8, 16.0, ("q", "v")
PREFIX = "base_model.model."


class Block(nn.Module):
    """Pre-norm attention and two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM, bias=False), nn.LayerNorm(DIM, bias=False)
        self.q, self.k, self.v, self.o = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x: Tensor) -> Tensor:
        z = self.norm1(x)
        q, k, v = (layer(z).unflatten(-1, (HEADS, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        scores = (q @ k.transpose(-1, -2) / math.sqrt(DIM // HEADS)).masked_fill(later, -torch.inf)
        x = x + self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Tokens [b, T], where 0 is padding behind the text, to logits [b, T, VOCABULARY]."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.positions = nn.Embedding(VOCABULARY, DIM), nn.Embedding(LENGTH, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(DIM, bias=False)
        self.head = nn.Linear(DIM, VOCABULARY, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x) + self.positions.weight[: x.shape[1]]
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


class LoRA(nn.Module):
    """A frozen layer and its adapter."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_A = nn.Linear(base.in_features, RANK, bias=False)
        self.lora_B = nn.Linear(RANK, base.out_features, bias=False)
        nn.init.normal_(self.lora_A.weight, std=base.in_features**-0.5)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + ALPHA / RANK * self.lora_B(self.lora_A(x))


def adapt(net: GPT) -> GPT:
    """The same network, of which only adapters are trained."""
    net.requires_grad_(False)
    for block in net.blocks:
        for name in TARGETS:
            setattr(block, name, LoRA(getattr(block, name)))
    return net


def list_adapters(net: GPT) -> dict[str, Tensor]:
    """As peft's get_peft_model_state_dict names them; the base is not in it."""
    return {PREFIX + name: value for name, value in net.state_dict().items() if "lora_" in name}


def load_adapters(net: GPT, adapters: dict[str, Tensor]) -> None:
    net.load_state_dict({name.removeprefix(PREFIX): value for name, value in adapters.items()}, strict=False)


def compute_loss(net: GPT, x: Tensor) -> Tensor:
    """Mean -log p of each token that is text, given those before it."""
    return nn.functional.cross_entropy(net(x)[:, :-1].transpose(1, 2), x[:, 1:], ignore_index=0)
