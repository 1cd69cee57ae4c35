"""Ghost clipping: the sum of a batch's clipped gradients, without a gradient of each example in memory.

Goodfellow. Efficient Per-Example Gradient Computations. 2015. arXiv:1510.01799; Li, Tramèr, Liang, Hashimoto.
Large Language Models Can Be Strong Differentially Private Learners. ICLR 2022. arXiv:2110.05679, sec. 4. A first
pass back through the batch measures the norm of each example's gradient layer by layer, by Opacus' samplers (only
one layer's gradients exist at a time); a second one goes back from the losses, each times min(1, C / norm), which
is the sum. In real numbers that is what clipping each gradient gives; in float32 the two differ by rounding, at
most 1e-4 of C for each example (tests/fl/training/test_ghosts.py).

Memory: a few copies of the weights, and of the largest layer's as many as the batch has examples.
"""

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn

from fedaudit.fl.model import Net
from fedaudit.fl.training.local import Params

LEAST = 1_000_000  # weights; below, gradients of all examples at once take less time
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.GroupNorm, nn.LayerNorm)  # whose norms are computed one by one
RANDOM = nn.modules.dropout._DropoutNd


def fits(method: Any, net: Net, params: Params, x: Tensor) -> bool:
    """Whether the network is large, each weight is used once, and the loss is a mean over examples; x [n, ...].

    What else enters an example's gradient, such as a penalty on the weights, is clipped with it, and takes the
    gradients of all examples.
    """
    own = {id(p) for m in net.modules() if isinstance(m, LAYERS) for p in m.parameters(recurse=False)}
    whole = len(params) == len(list(net.named_parameters(remove_duplicate=False)))
    is_of_network = getattr(method.loss, "is_of_network", False)
    plain = is_of_network and type(net).loss is Net.loss and net.task.separable
    drawn = any(isinstance(m, RANDOM) for m in net.modules())
    large = sum(p.numel() for p in params.values()) >= LEAST
    known = large and plain and whole and not drawn and all(id(p) in own for p in params.values())
    return known and len(x) > 0 and x.is_floating_point() and _uses_each_once(net, x[:1])


def _uses_each_once(net: Net, x: Tensor) -> bool:
    """Whether each layer is called once, with what is made of x."""
    called: Counter[nn.Module] = Counter()
    layers = [m for m in net.modules() if isinstance(m, LAYERS)]
    weights = [(p, p.requires_grad) for p in net.parameters()]

    def count(layer: nn.Module, _: object, out: Tensor) -> None:
        called[layer] += 1 if out.requires_grad else 2

    hooks = [m.register_forward_hook(count) for m in layers]
    try:
        for p, _ in weights:
            p.requires_grad_(False)
        net(x.detach().requires_grad_())
    finally:
        for p, needed in weights:
            p.requires_grad_(needed)
        for hook in hooks:
            hook.remove()
    return all(called[m] == 1 for m in layers)


def sum_clipped(net: Net, params: Params, x: Tensor, y: Tensor, clip_norm: float) -> tuple[Params, Tensor]:
    """The sum of the clipped gradients of x [b, ...], y [b] by parameter, and the losses [b], b at least 1.

    An example whose gradient is not finite counts as 0.
    """
    losses, norms = _measure(net, x, y)
    finite = torch.isfinite(norms)
    if not finite.all():
        if not finite.any():
            return {k: torch.zeros_like(p) for k, p in params.items()}, losses.detach()
        return sum_clipped(net, params, x[finite], y[finite], clip_norm)[0], losses.detach()
    factors = (clip_norm / (norms + 1e-6)).clamp(max=1.0)  # as DPOptimizer has it
    grads = torch.autograd.grad((factors * losses).sum(), list(params.values()))
    return dict(zip(params, grads, strict=True)), losses.detach()


def _measure(net: Net, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The losses [b], which can be differentiated once more, and the norms [b] of their gradients."""
    from opacus.grad_sample import GradSampleModuleFastGradientClipping as Opacus

    squares, seen = torch.zeros(len(y), device=y.device), set[nn.Module]()

    def add_squares(layer: nn.Module, given: Tensor, gradient: Tensor) -> None:
        seen.add(layer)
        if layer in norm_known and given.dim() == 2:
            found = Opacus.NORM_SAMPLERS[type(layer)](layer, [given], gradient)
            squares.add_(sum(norm.square() for norm in found.values()))
        else:
            found = Opacus.GRAD_SAMPLERS[type(layer)](layer, [given], gradient)
            squares.add_(sum(each.flatten(1).square().sum(1) for each in found.values()))

    def watch(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        given = inputs[0].detach()
        # a hook of the tensor, since one of the layer forbids that a network adds to its output in place
        output.register_hook(  # type: ignore[no-untyped-call]
            lambda gradient: add_squares(layer, given, gradient.detach())
        )

    norm_known = {m for m in net.modules() if type(m) in Opacus.NORM_SAMPLERS}
    layers = [m for m in net.modules() if isinstance(m, LAYERS)]
    hooks = [m.register_forward_hook(watch) for m in layers]
    x = x.detach().requires_grad_()  # the way back to it passes every layer, and makes no gradient of a weight
    try:
        losses = net.task.losses(net(x), y)
    finally:
        for hook in hooks:
            hook.remove()
    torch.autograd.grad(losses.sum(), [x], retain_graph=True)
    assert seen == set(layers), "a layer that does not read the batch"
    return losses, squares.sqrt()
