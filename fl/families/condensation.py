"""Dataset condensation: a few synthetic images whose gradients are those of a class's real ones.

Zhao, Mopuri, Bilen. Dataset Condensation with Gradient Matching. ICLR 2021. arXiv:2006.05929, as FedDC
uses it: in every iteration a fresh random network theta, and for each class c

    D_c = sum over layers of 1 - <gS, gD> / (|gS| |gD| + 1e-6),    gD, gS = gradient of CE on real, on X_c
    X_c <- X_c - image_lr * dD_c / dX_c,    the gradient cut to the norm `image_clip`

The networks are never trained and have nothing to do with the model of the federation.

All classes of a client share theta, and their gradients are taken at once: one pass through the network,
and the gradient of a layer's weights as one matrix product a class (its input times the gradient of its
output). Real batches large enough to fill a core run one by one instead, because together they leave the
cache. Only convolutions and linear layers are matched; normalisation layers run in evaluation mode.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, unfold

from fedaudit.fl.model import Net
from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import seed_networks

EPSILON = 1e-6
_TOGETHER = 32  # real images that run as one batch; larger ones gain nothing from company


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
            if id(p) not in drawn or (p.dim() > 1 and id(p) not in matched):
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
        real = self._compute_real_gradients(batches, labels)
        made = self._compute_gradients(images.flatten(0, 1), [images.shape[1]] * len(cells), labels, True)
        return sum(
            (_measure_distance(s, d, epsilon) for s, d in zip(made, real, strict=True)),
            start=images.new_zeros(len(cells)),
        )

    def _compute_real_gradients(self, batches: Sequence[Tensor], labels: Tensor) -> list[Tensor]:
        """Gradients of the real batches, layer by layer, [m, rows, columns] each."""
        pieces = []
        for rows in _split_cells([len(b) for b in batches]):
            sizes = [len(b) for b in batches[rows]]
            x = torch.cat(list(batches[rows]))
            if len(sizes) == 1:
                pieces.append(self._compute_own_gradients(x, labels[rows]))
            else:
                pieces.append(self._compute_gradients(x, sizes, labels[rows], False))
        return [torch.cat(layer).detach() for layer in zip(*pieces, strict=True)]

    def _compute_own_gradients(self, x: Tensor, label: Tensor) -> list[Tensor]:
        loss = cross_entropy(self.net(x), label.expand(len(x)))
        wanted = [p for m in self.layers for p in (m.weight, m.bias) if p is not None]
        found = iter(torch.autograd.grad(loss, wanted))
        return [
            self._shape_gradients(next(found).flatten(1)[None], None if m.bias is None else next(found)[None])
            for m in self.layers
        ]

    def _compute_gradients(self, x: Tensor, sizes: Sequence[int], labels: Tensor, graph: bool) -> list[Tensor]:
        """Per-cell gradients of the mean loss of consecutive cells in x [sum of sizes, C, H, W]."""
        seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}

        def remember(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            seen[module] = (inputs[0], output)

        hooks = [m.register_forward_hook(remember) for m in self.layers]
        try:
            logits = self.net(x)
        finally:
            for hook in hooks:
                hook.remove()
        each = torch.tensor(sizes, device=x.device)
        losses = cross_entropy(logits, labels.repeat_interleave(each), reduction="none")
        outputs = [seen[m][1] for m in self.layers]
        total = (losses / each.repeat_interleave(each)).sum()
        slopes = torch.autograd.grad(total, outputs, create_graph=graph)
        found = []
        for layer, slope in zip(self.layers, slopes, strict=True):
            given = seen[layer][0]
            if isinstance(layer, nn.Conv2d):
                patches = unfold(given, layer.kernel_size, layer.dilation, _read_padding(layer), layer.stride)
            else:
                patches, slope = given[:, :, None], slope[:, :, None]
            by_cell = _sum_products(slope.flatten(2), patches, sizes)
            bias = None if layer.bias is None else _sum_cells(slope.flatten(2).sum(2), sizes)
            found.append(self._shape_gradients(by_cell, bias))
        return found

    def _shape_gradients(self, weight: Tensor, bias: Tensor | None) -> Tensor:
        """[m, out, in] with one row a cosine: an output unit, or the whole layer with its bias."""
        if self.settings.match == "dc_rows":
            return weight
        parts = [weight.flatten(1)] + ([] if bias is None else [bias])
        return torch.cat(parts, 1)[:, None]


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


def _measure_distance(made: Tensor, real: Tensor, epsilon: float) -> Tensor:
    """Sum of 1 - cosine over the rows, [m, rows, columns] twice -> [m]; a row without gradient is 1."""
    product = (made * real).sum(2)
    lengths: Tensor = made.norm(dim=2) * real.norm(dim=2)
    total: Tensor = (1 - product / (lengths + epsilon)).sum(1)
    return total


def _draw_batch(real: Tensor, most: int, rng: torch.Generator) -> Tensor:
    chosen = torch.randperm(len(real), generator=rng)[:most]
    return real[chosen.to(real.device)]


def _split_cells(sizes: Sequence[int]) -> Iterator[slice]:
    """Consecutive cells of at most _TOGETHER images together."""
    start = total = 0
    for i, size in enumerate(sizes):
        if i > start and total + size > _TOGETHER:
            yield slice(start, i)
            start, total = i, 0
        total += size
    yield slice(start, len(sizes))


def _sum_products(slope: Tensor, patches: Tensor, sizes: Sequence[int]) -> Tensor:
    """Sum over a cell's images and places; [n, out, L] and [n, in, L] -> [m, out, in]."""
    if len(set(sizes)) == 1:
        a, b = (t.reshape(len(sizes), sizes[0], *t.shape[1:]) for t in (slope, patches))
        return torch.einsum("mnol,mnil->moi", a, b)
    pairs = zip(torch.split(slope, list(sizes)), torch.split(patches, list(sizes)), strict=True)
    return torch.stack([torch.einsum("nol,nil->oi", a, b) for a, b in pairs])


def _sum_cells(rows: Tensor, sizes: Sequence[int]) -> Tensor:
    return torch.stack([part.sum(0) for part in torch.split(rows, list(sizes))])


def _read_padding(layer: nn.Conv2d) -> tuple[int, ...]:
    if isinstance(layer.padding, str):
        raise UserError(
            f"condensation needs padding in numbers, a convolution says {layer.padding!r}",
            hint="write padding=1 for a kernel of 3",
        )
    return tuple(layer.padding)
