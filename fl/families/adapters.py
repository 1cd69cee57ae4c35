"""Adapters: a frozen model whose linear layers each get a trained change of low rank (LoRA).

Hu et al. LoRA: Low-Rank Adaptation of Large Language Models. ICLR 2022. arXiv:2106.09685, section 4.1. A layer x
W^T becomes x W^T + (alpha / rank) (x A^T) B^T with A [rank, in] ~ N(0, 1 / in) and B [out, rank] = 0, so that an
adapted model begins as the function of its base. Changes: the paper draws A from a Gaussian of no stated width.

Only the adapters are parameters of an adapted model. The base is there as buffers that its state_dict() does not
have, so it is not trained, sent or recorded, and all that works on a model works on its adapters. Their arrays
have the names that peft gives them: LAYER.lora_A.weight and LAYER.lora_B.weight.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from fedaudit.fl.model import Net, State, unwrap
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.training.batches import has_batch_statistics

A, B, FOLDED = ".lora_A.weight", ".lora_B.weight", ".folded"


class LoRALinear(nn.Module):
    """A frozen linear layer and its adapter; `folded` [out, in], where a method has it, is added to the
    weights."""

    weight: Tensor
    bias: Tensor | None
    folded: Tensor | None

    def __init__(self, base: nn.Linear, rank: int, alpha: float, folds: bool, draws: torch.Generator) -> None:
        super().__init__()
        self.scale = alpha / rank
        self.register_buffer("weight", base.weight.detach(), persistent=False)
        self.register_buffer("bias", None if base.bias is None else base.bias.detach(), persistent=False)
        self.register_buffer("folded", torch.zeros_like(base.weight) if folds else None)
        self.lora_A = nn.Linear(base.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, base.out_features, bias=False)
        nn.init.normal_(self.lora_A.weight, std=base.in_features**-0.5, generator=draws)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight if self.folded is None else self.weight + self.folded
        out: Tensor = linear(x, weight, self.bias) + self.scale * self.lora_B(self.lora_A(x))
        return out


def attach(
    net: Net,
    rank: int,
    alpha: float,
    targets: Sequence[str],
    in_full: Sequence[str] = (),
    *,
    folds: bool = False,
    seed: int = 0,
) -> Net:
    """The same network, whose linear layers `targets` have adapters and whose other arrays are frozen.

    A layer is named by its whole name or by how that ends: `q` is every blocks.*.q. Modules `in_full` are trained
    as they are. First values of A are drawn from `seed`, so that everybody has the same. Raises UserError for a
    name that no linear layer has.
    """
    inner = unwrap(net)
    layers = {name: m for name, m in inner.named_modules() if type(m) is nn.Linear}
    chosen = [name for name in layers if any(_ends(name, t) for t in targets)]
    whole = [name for name, _ in inner.named_modules() if name and any(_ends(name, t) for t in in_full)]
    _check_names(targets, list(layers), "targets", "linear layer")
    _check_names(in_full, [name for name, _ in inner.named_modules()], "in_full", "module")
    if twice := [name for name in chosen if any(_is_below(name, w) for w in whole)]:
        raise UserError(
            f"adapters.targets and adapters.in_full both name {twice[0]!r}", hint="leave it out of one of them"
        )
    if has_batch_statistics(inner):
        raise UserError(
            "adapters leave the model below them as it is, and its batch normalisation changes with every batch",
            hint="choose a model with group normalisation or layer norms",
            key="federation.adapters",
        )
    draws = torch.Generator().manual_seed(seed)
    for name in chosen:
        parent, _, own = name.rpartition(".")
        setattr(inner.get_submodule(parent), own, LoRALinear(layers[name], rank, alpha, folds, draws))
    for name, module in list(inner.named_modules()):
        if any(_is_below(name, c) for c in chosen) or any(_is_below(name, w) for w in whole):
            continue
        _freeze(module)
    return net


def _freeze(module: nn.Module) -> None:
    """A module's own parameters and buffers become buffers that no state holds."""
    for name, value in [*module._parameters.items(), *module._buffers.items()]:
        module._parameters.pop(name, None)
        module._buffers.pop(name, None)
        module.register_buffer(name, None if value is None else value.detach(), persistent=False)


def _ends(name: str, wanted: str) -> bool:
    return name == wanted or name.endswith("." + wanted)


def _is_below(name: str, module: str) -> bool:
    return name == module or name.startswith(module + ".")


def _check_names(wanted: Sequence[str], there: Sequence[str], key: str, what: str) -> None:
    for one in wanted:
        if not any(_ends(name, one) for name in there):
            last = sorted({name.rpartition(".")[2] for name in there if name})
            raise UserError(
                f"adapters.{key} names {one!r:.60}, and the model has no {what} of that name",
                hint="its names end in: " + ", ".join(last)[:300],
                key=f"federation.adapters.{key}",
            )


class Factors(NamedTuple):
    """One layer's adapter: the change of its weights is scale * b @ a, with the scale of the adapters."""

    layer: str
    a: Tensor  # [rank, in]
    b: Tensor  # [out, rank]


def list_factors(state: Mapping[str, Tensor]) -> Iterator[Factors]:
    """The adapters in a state, in its order; those of which one factor is missing are left out."""
    for name, a in state.items():
        layer = name.removesuffix(A)
        if layer != name and layer + B in state:
            yield Factors(layer, a, state[layer + B])


def compute_products(state: Mapping[str, Tensor]) -> State:
    """Layer -> b @ a [out, in] in double precision, without the scale."""
    return {f.layer: f.b.double() @ f.a.double() for f in list_factors(state)}


def find_scale(net: Net) -> float:
    """alpha / rank of a network's adapters; raises UserError where it has none."""
    found = next((m.scale for m in net.modules() if isinstance(m, LoRALinear)), None)
    if found is None:
        raise UserError(
            "the method averages adapters, and the model has none",
            hint="set federation.adapters: {rank: 8, targets: [q, v]}",
            key="federation.adapters",
        )
    return found
