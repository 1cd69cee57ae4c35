"""Dataset condensation: a few synthetic images whose gradients are those of a class's real ones.

Zhao, Mopuri, Bilen. Dataset Condensation with Gradient Matching. ICLR 2021. arXiv:2006.05929, as FedDC
uses it: in every iteration a fresh random network theta, and for each class c

    D_c = sum over layers of 1 - <gS, gD> / (|gS| |gD| + 1e-6),    gD, gS = gradient of CE on real, on X_c
    X_c <- X_c - image_lr * dD_c / dX_c,    the gradient cut to the norm `image_clip`

The networks are never trained and have nothing to do with the model of the federation.

All classes of a client share theta. The gradients of the images that are made, and of real ones where every
class has one, are taken at once: one pass through the network, and the gradient of a layer's weights as one
matrix product a class (its input times the gradient of its output). A linear layer's on one image is never
multiplied out: lengths and products of its rows follow from the two factors. Real batches run class by class.
Only convolutions and linear layers are matched; normalisation layers run in evaluation mode.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, unfold

from fedaudit.fl.model import Net
from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import seed_networks

EPSILON = 1e-6


@dataclass(frozen=True, kw_only=True)
class Condensing:
    """How images are condensed; the defaults are FedDC's."""

    iterations: int = 500
    image_lr: float = 3.0
    image_momentum: float = 0.0  # FedDC+: 0.9
    image_weight_decay: float = 0.0  # FedDC+: 4e-5
    image_clip: float = 0.25  # largest norm of the gradient on one class's images; 0: no clipping
    images_per_class: int = 1
    real_batch: int = 50
    match: Literal["dc_rows", "layer"] = "dc_rows"  # a cosine an output unit, or one a layer
    init: Literal["noise", "real"] = "noise"


@dataclass(frozen=True)
class ClassBatch:
    """Real images of one class, [n, C, H, W] normalised, n >= 1."""

    real: Tensor
    label: int


class Outer(NamedTuple):
    """Gradients of a linear layer's weights on one image a cell, [m, rows, columns], as two vectors each."""

    slopes: Tensor  # [m, rows], of the loss by what the layer gives
    given: Tensor  # [m, columns], what it is given


Gradients = Tensor | Outer  # of the weights of a layer, [m, rows, columns]


class Matcher:
    """Gradient distances under fresh random networks; `net` lends its architecture, its weights go.

    Raises UserError for an architecture whose weights are not all those of convolutions and linear
    layers, or that cannot be drawn anew.
    """

    def __init__(self, net: Net, settings: Condensing) -> None:
        self.net, self.settings = net, settings
        self.layers = [m for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
        matched = {id(m.weight) for m in self.layers}
        drawn = {
            id(p) for m in net.modules() if hasattr(m, "reset_parameters") for p in m.parameters(recurse=False)
        }
        for name, p in net.named_parameters():
            if not p.requires_grad or id(p) not in drawn or (p.dim() > 1 and id(p) not in matched):
                raise UserError(
                    f"condensation cannot match the gradient of {name} in {type(net).__name__}",
                    hint="use a model of convolutions and linear layers, such as cnn3",
                )
        if any(isinstance(m, nn.Conv2d) and m.groups > 1 for m in self.layers):
            raise UserError(
                f"condensation cannot match grouped convolutions, {type(net).__name__} has some",
                hint="use a model of plain convolutions, such as cnn3",
            )

    def redraw(self, rng: torch.Generator) -> None:
        """Fresh weights from the default initialisation of every layer; no other generator moves."""
        device = next(self.net.parameters()).device
        with seed_networks(int(torch.randint(2**62, (), generator=rng)), device):
            for module in self.net.modules():
                reset = getattr(module, "reset_parameters", None)
                if reset is not None:
                    reset()

    def distances(
        self, cells: Sequence[ClassBatch], images: Tensor, rng: torch.Generator, epsilon: float = EPSILON
    ) -> Tensor:
        """D of every cell, [m], differentiable in its images [m, ipc, C, H, W]; redraws the network."""
        self.redraw(rng)
        self.net.eval()
        batches = [_draw_batch(c.real, self.settings.real_batch, rng) for c in cells]
        labels = torch.tensor([c.label for c in cells], device=images.device)
        made = self._compute_gradients(images, labels, graph=True)  # which says what layer is not used
        real = self._compute_real_gradients(batches, labels)
        by_layer = self.settings.match == "layer"
        return sum(
            (measure_distance(s, d, epsilon, by_layer=by_layer) for s, d in zip(made, real, strict=True)),
            start=images.new_zeros(len(cells)),
        )

    def _compute_real_gradients(self, batches: Sequence[Tensor], labels: Tensor) -> list[Gradients]:
        """Gradients of the real batches, layer by layer."""
        if all(len(batch) == 1 for batch in batches):
            return self._compute_gradients(torch.stack(list(batches)), labels, graph=False)
        each = [self._compute_own_gradients(x, label) for x, label in zip(batches, labels, strict=True)]
        return [torch.stack(layer) for layer in zip(*each, strict=True)]

    def _compute_own_gradients(self, x: Tensor, label: Tensor) -> list[Tensor]:
        """Of one batch, [rows, columns] each."""
        loss = cross_entropy(self.net(x), label.expand(len(x)))
        wanted = [p for m in self.layers for p in (m.weight, self._choose_bias(m)) if p is not None]
        found = iter(torch.autograd.grad(loss, wanted))
        rows = []
        for layer in self.layers:
            weight = next(found).flatten(1)
            has_bias = self._choose_bias(layer) is not None
            rows.append(torch.cat([weight, next(found)[:, None]], 1) if has_bias else weight)
        return rows

    def _compute_gradients(self, x: Tensor, labels: Tensor, *, graph: bool) -> list[Gradients]:
        """Of the mean losses of all cells, x [m, n, C, H, W]; with the `graph` differentiable in x."""
        seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}

        def remember(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            seen[module] = (inputs[0], output)

        hooks = [m.register_forward_hook(remember) for m in self.layers]
        try:
            logits = self.net(x.flatten(0, 1))
        finally:
            for hook in hooks:
                hook.remove()
        if len(seen) < len(self.layers):
            name = next(name for name, m in self.net.named_modules() if m in self.layers and m not in seen)
            raise UserError(
                f"condensation cannot match the gradient of {name}, which {type(self.net).__name__} does not use",
                hint="leave that layer out of the network",
            )
        (m, n), outputs = x.shape[:2], [seen[layer][1] for layer in self.layers]
        total = cross_entropy(logits, labels.repeat_interleave(n), reduction="sum") / n
        slopes = torch.autograd.grad(total, outputs, create_graph=graph)
        found: list[Gradients] = []
        for layer, slope in zip(self.layers, slopes, strict=True):
            given = seen[layer][0] if graph else seen[layer][0].detach()
            if isinstance(layer, nn.Conv2d):
                given = unfold(given, layer.kernel_size, layer.dilation, _read_padding(layer), layer.stride)
                slope = slope.flatten(2)
            else:
                given, slope = given[:, :, None], slope[:, :, None]
            if self._choose_bias(layer) is not None:
                given = torch.cat([given, torch.ones_like(given[:, :1])], 1)
            if n == given.shape[2] == 1:
                found.append(Outer(slope[:, :, 0], given[:, :, 0]))
            else:
                found.append(_join_images(slope, m) @ _join_images(given, m).transpose(1, 2))
        return found

    def _choose_bias(self, layer: nn.Conv2d | nn.Linear) -> Tensor | None:
        """The bias, where it is matched with the rest of its layer."""
        return layer.bias if self.settings.match == "layer" else None


def condense(net: Net, cells: Sequence[ClassBatch], settings: Condensing, rng: torch.Generator) -> Tensor:
    """Condensed images of every cell, [m, ipc, C, H, W] in normalised input space.

    `net` is overwritten. Initialised with noise from N(0, 1); `init: real` starts from real images,
    which an honest client must never do: at zero iterations it sends them.
    """
    matcher, ipc = Matcher(net, settings), settings.images_per_class
    shape = cells[0].real.shape[1:]
    images = torch.randn(len(cells), ipc, *shape, generator=rng).to(cells[0].real)
    if settings.init == "real":
        for image, cell in zip(images, cells, strict=True):
            chosen = _draw_batch(cell.real, ipc, rng)
            image[: len(chosen)] = chosen  # with fewer images than images, noise stays
    images.requires_grad_()
    optimiser = eager(torch.optim.SGD)(
        [images], lr=settings.image_lr, momentum=settings.image_momentum, weight_decay=settings.image_weight_decay
    )
    for _ in range(settings.iterations):
        total = matcher.distances(cells, images, rng).sum()
        (gradient,) = torch.autograd.grad(total, [images])
        images.grad = clip(gradient, settings.image_clip)
        optimiser.step()
    return images.detach()


def clip(gradient: Tensor, most: float) -> Tensor:
    """Each cell's gradient [m, ...] cut to the norm `most`; 0 leaves it as it is."""
    if most <= 0:
        return gradient
    norms = gradient.flatten(1).norm(dim=1)
    scale: Tensor = (most / norms.clamp(min=1e-12)).clamp(max=1)
    return gradient * scale.view(-1, *[1] * (gradient.dim() - 1))


def measure_distance(made: Gradients, real: Gradients, epsilon: float, *, by_layer: bool = False) -> Tensor:
    """Sum of 1 - cosine over the rows, or of the whole layer, [m]; what has no gradient is 1."""
    products, lengths = _multiply_rows(made, real), (_measure_rows(made), _measure_rows(real))
    if by_layer:
        products, lengths = products.sum(1, True), tuple(rows.norm(dim=1, keepdim=True) for rows in lengths)
    total: Tensor = (1 - products / (lengths[0] * lengths[1] + epsilon)).sum(1)
    return total


def _multiply_rows(a: Gradients, b: Gradients) -> Tensor:
    """Inner products of the rows, [m, rows]."""
    if isinstance(a, Tensor):
        return (a * b).sum(2) if isinstance(b, Tensor) else _multiply_rows(b, a)
    if isinstance(b, Tensor):
        return a.slopes * torch.bmm(b, a.given[:, :, None])[:, :, 0]
    return a.slopes * b.slopes * (a.given * b.given).sum(1, True)


def _measure_rows(a: Gradients) -> Tensor:
    """Lengths of the rows, [m, rows]."""
    lengths: Tensor = (
        a.slopes.abs() * a.given.norm(dim=1, keepdim=True) if isinstance(a, Outer) else a.norm(dim=2)
    )
    return lengths


def _join_images(values: Tensor, m: int) -> Tensor:
    """[m n, k, places] of the n images of every cell to [m, k, n places]."""
    return values.reshape(m, -1, *values.shape[1:]).transpose(1, 2).flatten(2)


def _draw_batch(real: Tensor, most: int, rng: torch.Generator) -> Tensor:
    chosen = torch.randperm(len(real), generator=rng)[:most]
    return real[chosen.to(real.device)]


def _read_padding(layer: nn.Conv2d) -> tuple[int, ...]:
    if isinstance(layer.padding, str):
        raise UserError(
            f"condensation needs padding in numbers, a convolution says {layer.padding!r}",
            hint="write padding=1 for a kernel of 3",
        )
    return tuple(layer.padding)
