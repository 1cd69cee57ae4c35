"""Narrow networks: the first share of the units of every hidden layer, held in a network of full size.

FjORD's and HeteroFL's slices: the first ceil(p units) of each hidden dimension, gate by gate in a recurrent
layer, channel by channel where maps are flattened; inputs of the first layer and outputs of the last stay
whole. What is outside is zero. That is exact where a unit of zero weights gives zero and passes no gradient on,
as with ReLU, tanh and LSTMs; a normalisation layer breaks it and is refused, and so is a convolution in groups.

Layers are taken to feed one another in the order of registration. An input that comes from no unit before, such
as the one that carries a bias, stays whole.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import torch
from torch import Tensor, nn

from fedaudit.fl.families.layers import NORMALISATION, layers
from fedaudit.fl.model import State
from fedaudit.fl.recording.coded import part
from fedaudit.fl.runtime.errors import UserError

Masks = dict[str, Tensor]  # name -> bool, as the parameter


def masks(net: nn.Module, share: float) -> Masks:
    """Which numbers of each parameter the narrow network has. Raises UserError where there is no such network."""
    modules = dict(net.named_modules())
    if bad := next((type(m).__name__ for m in modules.values() if isinstance(m, NORMALISATION)), ""):
        raise UserError(
            f"{type(net).__name__} has {bad}, whose statistics differ with the width of a layer",
            hint="use a model without normalisation, such as cnn_w or femnist_cnn",
        )
    names = [owned[0].rpartition(".")[0] for owned in layers(net)]
    found: Masks = {}
    units, kept = 0, torch.ones(0, dtype=torch.bool)  # of the layer before
    for i, name in enumerate(names):
        whole = i == len(names) - 1
        own, units, kept = _mask_layer(modules[name], units, kept, 1.0 if whole else share)
        found |= {f"{name}.{k}" if name else k: v for k, v in own.items()}
    return found


def _mask_layer(module: nn.Module, units: int, before: Tensor, share: float) -> tuple[Masks, int, Tensor]:
    """Masks of one layer's parameters, how many units it has, and which of them are there."""
    if isinstance(module, nn.RNNBase):
        if module.num_layers > 1 or module.bidirectional:
            raise UserError(
                "a recurrent layer of several layers or directions cannot be cut",
                hint="register each layer by itself, one direction each",
            )
        kept = _mask_first(module.hidden_size, share)
        gates = len(module.all_weights[0][0]) // int(module.hidden_size)
        rows, into = torch.cat([kept] * gates), _mask_inputs(module.input_size, units, before)
        shaped = {"weight_ih_l0": _combine_masks(rows, into), "weight_hh_l0": _combine_masks(rows, kept)}
        biases = {k: rows for k, _ in module.named_parameters() if k.startswith("bias")}
        return shaped | biases, module.hidden_size, kept
    if isinstance(module, nn.Embedding):
        kept = _mask_first(module.embedding_dim, share)
        return {"weight": kept.expand(module.num_embeddings, -1).clone()}, module.embedding_dim, kept
    weight = getattr(module, "weight", None)
    if not isinstance(module, nn.Linear | nn.modules.conv._ConvNd) or not isinstance(weight, Tensor):
        raise UserError(
            f"a {type(module).__name__} cannot be cut to a share of its units",
            hint="use convolutions, linear layers, embeddings or LSTMs",
        )
    if getattr(module, "groups", 1) > 1:
        raise UserError("a convolution in groups cannot be cut", hint="use a convolution of one group")
    kept = _mask_first(weight.shape[0], share)
    flat = _combine_masks(kept, _mask_inputs(weight.shape[1], units, before))
    shape = (*flat.shape, *(1 for _ in weight.shape[2:]))
    found = {"weight": flat.reshape(shape).expand(weight.shape).clone()}
    return found | ({} if module.bias is None else {"bias": kept}), int(weight.shape[0]), kept


def _mask_first(units: int, share: float) -> Tensor:
    return torch.arange(units) < ceil(share * units - 1e-9)


def _mask_inputs(size: int, units: int, kept: Tensor) -> Tensor:
    """Which inputs come from units that are there: of so many units before, each a block, the rest whole."""
    if not units or size < units:
        return torch.ones(size, dtype=torch.bool)
    block = kept.repeat_interleave(size // units)
    return torch.cat([block, torch.ones(size - len(block), dtype=torch.bool)])


def _combine_masks(rows: Tensor, columns: Tensor) -> Tensor:
    return rows[:, None] & columns[None, :]


@dataclass(frozen=True)
class Widths:
    """The shares of a federation, ascending, with their masks; buffers are whole."""

    shares: tuple[float, ...]
    masks: tuple[Masks, ...]

    @classmethod
    def from_shares(cls, net: nn.Module, shares: Sequence[float]) -> "Widths":
        return cls(tuple(shares), tuple(masks(net, p) for p in shares))

    def cut(self, state: Mapping[str, Tensor], width: int) -> State:
        """The narrow network in the wide one, sent without what is around it."""
        return part(state, self.masks[width])

    def values(self, width: int) -> int:
        """How many numbers of it are sent."""
        return sum(int(m.sum()) for m in self.masks[width].values())

    def band(self, width: int) -> Masks:
        """What a width has and the one before has not."""
        own = self.masks[width]
        return own if not width else {k: m & ~self.masks[width - 1][k] for k, m in own.items()}


def tiers(capability: Sequence[float], count: int) -> list[int]:
    """Which of `count` equal groups each client is in, the slowest in 0; equals by number."""
    order = np.argsort(np.asarray(capability), kind="stable")
    found = np.empty(len(order), dtype=int)
    found[order] = np.arange(len(order)) * count // max(1, len(order))
    return [int(t) for t in found]
