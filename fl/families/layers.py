"""Layers of a network: the modules that own parameters, input side first, and what each costs.

A normalisation layer belongs to the layer before it. What freezes, and what is averaged, is a layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from fedaudit.fl.model import Net, count, state_of
from fedaudit.fl.runtime.errors import UserError


@dataclass(frozen=True, kw_only=True)
class NetworkSize:
    """What says about how long a network takes."""

    parameters: int  # numbers of its weights; 0: not known
    layers: int
    products: int  # multiply-adds of one example's forward pass
    convolved: int  # of these, in convolutions


Layers = tuple[tuple[str, ...], ...]  # names of parameters and buffers, layer by layer
NORMALISATION = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.LocalResponseNorm, nn.RMSNorm)


def layers(net: nn.Module) -> Layers:
    """Names of the parameters and buffers of each layer, in order of registration."""
    found: list[list[str]] = []
    for prefix, module in net.named_modules():
        own = [k for k, _ in module.named_parameters(recurse=False)]
        own += [k for k in module.state_dict() if k in dict(module.named_buffers(recurse=False))]
        if not own:
            continue
        names = [f"{prefix}.{k}" if prefix else k for k in own]
        if found and (isinstance(module, NORMALISATION) or not list(module.parameters(recurse=False))):
            found[-1] += names
        else:
            found.append(names)
    return tuple(map(tuple, found))


def multiply_adds(net: nn.Module, of: Layers, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Multiply-adds of the forward pass of one example of this shape, layer by layer.

    Convolutions, linear and recurrent layers count; looking up an embedding, normalising and activations cost
    nothing beside them. Raises UserError where nothing counts.
    """
    owner = {name.rpartition(".")[0]: i for i, names in enumerate(of) for name in names}
    counts = [0] * len(of)

    def hook(prefix: str) -> Any:
        def count(module: nn.Module, given: tuple[Tensor, ...], out: Any) -> None:
            counts[owner[prefix]] += _count(module, given[0], out)

        return count

    handles = [m.register_forward_hook(hook(p)) for p, m in net.named_modules() if p in owner]
    mode, place = net.training, next(net.parameters()).device
    tokens = any(isinstance(m, nn.Embedding) for m in net.modules())
    x = torch.zeros((1, *shape), dtype=torch.long if tokens else torch.float32, device=place)
    try:
        with torch.no_grad():
            net.eval()(x)
    finally:
        net.train(mode)
        for handle in handles:
            handle.remove()
    if not sum(counts):
        raise UserError(
            f"no layer of {type(net).__name__} has multiplications that can be counted",
            hint="use convolutions, linear layers or LSTMs, or a time model with a profile of its own",
        )
    return tuple(counts)


def measure_size(net: Net, shape: tuple[int, ...]) -> NetworkSize:
    """Of a network of examples of this shape; what cannot be counted multiplies once by each weight."""
    of, parameters = layers(net), count(state_of(net))
    convolutions = {name for name, m in net.named_modules() if isinstance(m, nn.modules.conv._ConvNd)}
    try:
        counts = multiply_adds(net, of, shape)
    except Exception:  # other people's code, which a run calls in its own way  # noqa: BLE001
        sizes = {name: v.numel() for name, v in state_of(net).items()}
        counts = tuple(sum(sizes[name] for name in names) for names in of)
    convolved = sum(n for names, n in zip(of, counts, strict=True) if names[0].rpartition(".")[0] in convolutions)
    return NetworkSize(parameters=parameters, layers=len(of), products=sum(counts), convolved=convolved)


def _count(module: nn.Module, given: Tensor, out: Any) -> int:
    if isinstance(module, nn.modules.conv._ConvNd):
        return int(out.numel()) * module.in_channels // module.groups * prod(module.kernel_size)
    if isinstance(module, nn.Linear):
        return int(out.numel()) * module.in_features
    if isinstance(module, nn.RNNBase):
        steps = given.shape[1 if module.batch_first else 0]
        return int(steps * sum(w.numel() for k, w in module.named_parameters() if k.startswith("weight")))
    return 0


def indices(of: Layers) -> dict[str, int]:
    """The layer that each parameter or buffer belongs to, counted from 0."""
    return {name: i for i, names in enumerate(of) for name in names}


def positions(of: Layers, frozen: int) -> Sequence[str]:
    """Names of the first `frozen` layers."""
    return [name for names in of[:frozen] for name in names]
