"""Networks and data as people bring them, and by hand what must come of each.

The truths were written by somebody who had read the documentation and not the code, before any world was run.
Where the documentation promises a form, the world runs; where it promises another one, the world is refused in a
sentence; where it says nothing, both are right.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from torch import Tensor, nn
from torch.nn.functional import interpolate, log_softmax, relu
from torch.nn.utils import parametrizations, weight_norm
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from fedaudit.fl.data.partition import Index, OwnedLabels, Partition
from fedaudit.fl.model import Net
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.vision import torchvision
from tests.worlds.world import RUNS, Truth, either, refused

HERE = "tests.worlds.ordinary_networks"
IMAGES = 400  # of a world, all parts together


class Pair(NamedTuple):
    """Examples as somebody has them."""

    x: Any
    y: Any


# ---- Data


@cache
def digits() -> Pair:
    """Grey images [N, 1, 8, 8] float32 from 0 to 1, and the digits on them."""
    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))[:IMAGES]
    return Pair((found.images[order, None] / 16).astype(np.float32), found.target[order].astype(np.int64))


@cache
def colour() -> Pair:
    """The digits in three channels."""
    x, y = digits()
    return Pair(np.concatenate([x, 1 - x, x[..., ::-1]], 1), y)


@cache
def larger() -> Pair:
    """The same, 16 pixels wide."""
    x, y = colour()
    return Pair(x.repeat(2, 2).repeat(2, 3), y)


@cache
def two_classes() -> Pair:
    """Odd and even digits."""
    x, y = digits()
    return Pair(x, y % 2)


@cache
def tokens() -> Pair:
    """Texts of 12 tokens, int64 [N, 12]; the class is the first token modulo 3."""
    x = np.random.default_rng(1).integers(1, 60, (IMAGES, 12))
    return Pair(x, x[:, 0] % 3)


def table() -> Pair:
    """Rows of 12 columns from 0 to 1; the class is whether the first is large."""
    x = np.random.default_rng(2).random((IMAGES, 12), dtype=np.float32)
    return Pair(x, (x[:, 0] > 0.5).astype(np.int64))


def with_x(change: Callable[[NDArray[Any]], Any]) -> Callable[[], Pair]:
    """The digits with other images."""
    return lambda: Pair(change(digits().x.copy()), digits().y)


def with_y(change: Callable[[NDArray[Any]], Any]) -> Callable[[], Pair]:
    """The digits with other labels."""
    return lambda: Pair(digits().x, change(digits().y.copy()))


def blank_first(x: NDArray[Any]) -> NDArray[Any]:
    x[::50] = 0
    return x


def hole(x: NDArray[Any]) -> NDArray[Any]:
    x[3].flat[1] = np.nan
    return x


def some_unknown(y: NDArray[Any]) -> NDArray[Any]:
    y[::7] = -1
    return y


def read_only(x: NDArray[Any]) -> NDArray[Any]:
    x.flags.writeable = False
    return x


class FirstHolds(Partition):
    """The first client holds so many examples, the others the rest in equal parts."""

    title, source = "So many at the first", ""

    @settings
    class Config:
        examples: int = Field(default=1, description="of the first client")

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        first, rest = np.split(np.arange(len(labels.y), dtype=np.int64), [self.config.examples])
        return [first, *np.array_split(rest, clients - 1)]

    def describe(self) -> str:
        return f"the first client holds {self.config.examples} examples"


# ---- Networks: a class that a config names is called with nothing, or with an example's shape and the classes


class Layers(nn.Module):
    """Layers in a row; subclasses say which."""

    def __init__(self, shape: tuple[int, ...] = (1, 8, 8), classes: int = 10) -> None:
        super().__init__()
        self.layers = nn.Sequential(*self.make(shape, prod(shape), classes))

    def make(self, shape: tuple[int, ...], pixels: int, classes: int) -> Iterator[nn.Module]:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Any:
        return self.layers(x)


class Dense(Layers):
    """Two fully connected layers, with something between them and before them."""

    def make(self, shape: tuple[int, ...], pixels: int, classes: int) -> Iterator[nn.Module]:
        yield from (nn.Flatten(), self.first(pixels), self.between(16), nn.ReLU(), self.last(classes))

    def first(self, pixels: int) -> nn.Module:
        return nn.Linear(pixels, 16)

    def between(self, width: int) -> nn.Module:
        return nn.Identity()

    def last(self, classes: int) -> nn.Module:
        return nn.Linear(16, classes)


class Convolution(Layers):
    """One convolution, something after it, and a fully connected layer."""

    def make(self, shape: tuple[int, ...], pixels: int, classes: int) -> Iterator[nn.Module]:
        yield from (nn.Conv2d(shape[0], 8, 3, padding=1), self.after(8), nn.ReLU(), nn.AdaptiveAvgPool2d(4))
        yield from (nn.Flatten(), nn.Linear(8 * 16, classes))

    def after(self, channels: int) -> nn.Module:
        return nn.Identity()


class BatchNorm1d(Dense):
    def between(self, width: int) -> nn.Module:
        return nn.BatchNorm1d(width)


class BatchNorm2d(Convolution):
    def after(self, channels: int) -> nn.Module:
        return nn.BatchNorm2d(channels)


class BatchNormUntracked(Convolution):
    def after(self, channels: int) -> nn.Module:
        return nn.BatchNorm2d(channels, track_running_stats=False)


class BatchNormCumulative(Convolution):
    def after(self, channels: int) -> nn.Module:
        return nn.BatchNorm2d(channels, momentum=None)


class BatchNormPlain(Convolution):
    """Without weights of its own."""

    def after(self, channels: int) -> nn.Module:
        return nn.BatchNorm2d(channels, affine=False)


class SyncBatchNorm(Convolution):
    def after(self, channels: int) -> nn.Module:
        return nn.SyncBatchNorm(channels)


class LayerNorm(Dense):
    def between(self, width: int) -> nn.Module:
        return nn.LayerNorm(width)


class GroupNorm(Convolution):
    def after(self, channels: int) -> nn.Module:
        return nn.GroupNorm(2, channels)


class InstanceNorm(Convolution):
    def after(self, channels: int) -> nn.Module:
        return nn.InstanceNorm2d(channels, affine=True)


class InstanceNormTracked(Convolution):
    def after(self, channels: int) -> nn.Module:
        return nn.InstanceNorm2d(channels, affine=True, track_running_stats=True)


class Dropout(Dense):
    def between(self, width: int) -> nn.Module:
        return nn.Dropout(0.5)


class Dropout2d(Convolution):
    def after(self, channels: int) -> nn.Module:
        return nn.Dropout2d(0.25)


class InplaceReLU(Dense):
    def between(self, width: int) -> nn.Module:
        return nn.ReLU(inplace=True)


class Lazy(Dense):
    """The first layer learns its width from the first batch."""

    def first(self, pixels: int) -> nn.Module:
        return nn.LazyLinear(16)


class WeightNorm(Dense):
    def first(self, pixels: int) -> nn.Module:
        return parametrizations.weight_norm(nn.Linear(pixels, 16))


class OldWeightNorm(Dense):
    """As it was written before torch 2.0."""

    def first(self, pixels: int) -> nn.Module:
        return weight_norm(nn.Linear(pixels, 16))


class SpectralNorm(Dense):
    def first(self, pixels: int) -> nn.Module:
        return parametrizations.spectral_norm(nn.Linear(pixels, 16))


class WeightNormHead(Dense):
    def last(self, classes: int) -> nn.Module:
        return parametrizations.weight_norm(nn.Linear(16, classes))


class NoBias(Layers):
    def make(self, shape: tuple[int, ...], pixels: int, classes: int) -> Iterator[nn.Module]:
        yield from (
            nn.Flatten(),
            nn.Linear(pixels, 16, bias=False),
            nn.Tanh(),
            nn.Linear(16, classes, bias=False),
        )


class ManyOutputs(Dense):
    """A hundred outputs for ten classes, as a head that was kept from elsewhere."""

    def last(self, classes: int) -> nn.Module:
        return nn.Linear(16, 100)


class FewOutputs(Dense):
    """Five outputs for ten classes."""

    def last(self, classes: int) -> nn.Module:
        return nn.Linear(16, 5)


class OneLogit(Dense):
    """[b, 1]: how much likelier the second of two classes is."""

    def last(self, classes: int) -> nn.Module:
        return nn.Linear(16, 1)


class OneLogitFlat(OneLogit):
    """[b]."""

    def forward(self, x: Tensor) -> Any:
        return self.layers(x).squeeze(1)


class Tied(nn.Module):
    """A layer that is applied twice, under two names."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(prod(shape), 16)
        self.second = nn.Linear(16, 16)
        self.third = self.second
        self.head = nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.third(self.second(self.first(x.flatten(1)).relu()).relu()).relu())
        return out


class TiedWeight(nn.Module):
    """Two layers that share one weight, as an encoder and its decoder, or an embedding and a head."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.first, self.back = nn.Linear(prod(shape), 16), nn.Linear(16, 16)
        self.again = nn.Linear(16, 16)
        self.again.weight = self.back.weight
        self.head = nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.again(self.back(self.first(x.flatten(1)).relu()).relu()).relu())
        return out


@dataclass
class Output:
    logits: Tensor
    hidden: Tensor


class InDataclass(Dense):
    def forward(self, x: Tensor) -> Any:
        hidden = self.layers[:4](x)
        return Output(self.layers[4](hidden), hidden)


class InTuple(Dense):
    def forward(self, x: Tensor) -> Any:
        return self.layers(x), None


class InDict(Dense):
    def forward(self, x: Tensor) -> Any:
        return {"logits": self.layers(x)}


class BFloat16(Dense):
    def __init__(self, shape: tuple[int, ...] = (1, 8, 8), classes: int = 10) -> None:
        super().__init__(shape, classes)
        self.to(torch.bfloat16)


class Float64(Dense):
    def __init__(self, shape: tuple[int, ...] = (1, 8, 8), classes: int = 10) -> None:
        super().__init__(shape, classes)
        self.double()


class CastsItself(Dense):
    """Weights in bf16, images and logits in float32: whoever trains in bf16 writes this."""

    def __init__(self, shape: tuple[int, ...] = (1, 8, 8), classes: int = 10) -> None:
        super().__init__(shape, classes)
        self.to(torch.bfloat16)

    def forward(self, x: Tensor) -> Any:
        return self.layers(x.to(torch.bfloat16)).float()


class Autocast(Dense):
    def forward(self, x: Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return self.layers(x).float()


class FrozenBackbone(Convolution):
    def __init__(self, shape: tuple[int, ...] = (1, 8, 8), classes: int = 10) -> None:
        super().__init__(shape, classes)
        self.layers[0].requires_grad_(False)


class FrozenBatchNorm(BatchNorm2d):
    """A frozen convolution with its normalisation; the head learns."""

    def __init__(self, shape: tuple[int, ...] = (1, 8, 8), classes: int = 10) -> None:
        super().__init__(shape, classes)
        self.layers[:2].requires_grad_(False)


class Unused(Dense):
    """A layer that no output depends on."""

    def __init__(self, shape: tuple[int, ...] = (1, 8, 8), classes: int = 10) -> None:
        super().__init__(shape, classes)
        self.auxiliary = nn.Linear(16, 3)


class WithArguments(Dense):
    """forward() has arguments of its own."""

    def forward(self, x: Tensor, scale: float = 1.0, *, return_features: bool = False) -> Any:
        hidden = self.layers[:4](x) * scale
        return hidden if return_features else self.layers[4](hidden)


class IntegerBuffers(Dense):
    def __init__(self, shape: tuple[int, ...] = (1, 8, 8), classes: int = 10) -> None:
        super().__init__(shape, classes)
        self.register_buffer("order", torch.arange(prod(shape)).flip(0))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mask", torch.ones(prod(shape), dtype=torch.bool))
        self.register_buffer("scratch", torch.zeros(3), persistent=False)

    def forward(self, x: Tensor) -> Any:
        return self.layers(x.flatten(1)[:, self.order] * self.mask)


class Counts(Dense):
    """Counts its own training steps in a buffer."""

    steps: Tensor

    def __init__(self, shape: tuple[int, ...] = (1, 8, 8), classes: int = 10) -> None:
        super().__init__(shape, classes)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Any:
        if self.training:
            self.steps += 1
        return self.layers(x)


class ScalarParameter(Dense):
    """A temperature that is learnt, as in CLIP."""

    def __init__(self, shape: tuple[int, ...] = (1, 8, 8), classes: int = 10) -> None:
        super().__init__(shape, classes)
        self.temperature = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor) -> Any:
        return self.layers(x) * self.temperature


class Nested(nn.Module):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"in": nn.Linear(n, 16), "rest": nn.ModuleList([nn.Linear(16, 16)])})
            for n in (prod(shape), 16)
        )
        self.scales = nn.ParameterList(torch.ones(16) for _ in range(2))
        self.heads = nn.ModuleDict({"digits": nn.Linear(16, classes)})

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for block, scale in zip(self.blocks, self.scales, strict=True):
            x = block["rest"][0](block["in"](x).relu()).relu() * scale  # type: ignore[index]
        out: Tensor = self.heads["digits"](x)
        return out


class WithoutArguments(nn.Module):
    """As in examples/flower/net.py."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(64, 16), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.hidden(x.flatten(1)).relu())
        return out


class OwnSequential(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


class NeedsMore(WithoutArguments):
    """Cannot be made of a shape and classes."""

    def __init__(self, *, depth: int) -> None:
        super().__init__()
        self.depth = depth


class Ours(Net):
    """By the contract of fl/model.py, with a setting."""

    @settings
    class Config:
        width: int = Field(default=8, description="of the hidden layer")

    def __init__(self, shape: tuple[int, ...], classes: int, config: Config | None = None) -> None:
        super().__init__(shape, classes, config)
        width = (config or self.Config()).width
        self.body, self.head = nn.Linear(prod(shape), width), nn.Linear(width, classes)

    def features(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x.flatten(1)).relu()
        return out


def factory(shape: tuple[int, ...] = (1, 8, 8), classes: int = 10) -> nn.Module:
    """A network without a class of its own."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), 16), nn.ReLU(), nn.Linear(16, classes))


built = factory()  # a network that stands in a module


class ResNet18(nn.Module):
    """torchvision's as it comes: BatchNorm, activations in place."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.net = torchvision.models.resnet18(num_classes=classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x)
        return out


class ViT(nn.Module):
    """torchvision's, small."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.net = torchvision.models.VisionTransformer(
            image_size=shape[1],
            patch_size=4,
            num_layers=1,
            num_heads=2,
            hidden_dim=16,
            mlp_dim=32,
            num_classes=classes,
            dropout=0.1,
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x)
        return out


class UNet(nn.Module):
    """Down and up again; a map of each class, and the mean of each map. Without a fully connected layer."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.down = nn.Conv2d(shape[0], 8, 3, stride=2, padding=1)
        self.deep = nn.Conv2d(8, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.maps = nn.Conv2d(8 + shape[0], classes, 1)

    def segment(self, x: Tensor) -> Tensor:
        up = relu(self.up(relu(self.deep(relu(self.down(x))))))
        out: Tensor = self.maps(torch.cat([x, interpolate(up, x.shape[-2:])], 1))
        return out

    def forward(self, x: Tensor) -> Tensor:
        return self.segment(x).mean((2, 3))


class Mask(UNet):
    """Gives a class to each pixel and none to the image."""

    def forward(self, x: Tensor) -> Tensor:
        return self.segment(x)


class Recurrent(nn.Module):
    """Reads an image row by row."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.rows = self.kind(shape[-1], 16, batch_first=True)
        self.head = nn.Linear(16, classes)

    kind: type[nn.LSTM] | type[nn.GRU] = nn.LSTM

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.rows(x.squeeze(1))[0][:, -1])
        return out


class Gated(Recurrent):
    kind = nn.GRU


class Attention(nn.Module):
    """torch's own encoder over the rows, with dropout."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(shape[-1], 2, 16, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)
        self.head = nn.Linear(shape[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.encoder(x.squeeze(1)).mean(1))
        return out


class Words(nn.Module):
    """Tokens [b, T] to classes: the mean of their vectors."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(60, 16, padding_idx=0), nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.embedding(x).mean(1))
        return out


class LogProbabilities(Dense):
    def forward(self, x: Tensor) -> Any:
        return log_softmax(self.layers(x), 1)


class Asserts(Dense):
    """Looks at the numbers of a batch, as careful people write it."""

    def forward(self, x: Tensor) -> Any:
        if torch.isnan(x).any():
            raise ValueError("an image has a hole")
        return self.layers(x)


class Item(Dense):
    """Takes a number out of a tensor."""

    def forward(self, x: Tensor) -> Any:
        return self.layers(x / max(x.abs().max().item(), 1e-6))


class Noisy(Dense):
    """Adds noise while it is trained."""

    def forward(self, x: Tensor) -> Any:
        return self.layers(x + 0.1 * torch.randn_like(x) if self.training else x)


class Checkpointed(Dense):
    """Computes activations again in place of keeping them."""

    def forward(self, x: Tensor) -> Any:
        return self.layers[4](checkpoint(self.layers[:4], x, use_reentrant=False))


class Complex(nn.Module):
    """A filter in the frequencies of an image."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.ones(shape, dtype=torch.complex64))
        self.head = nn.Linear(prod(shape), classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.fft.ifft2(torch.fft.fft2(x) * self.filter).real.flatten(1))
        return out


class NoParameters(nn.Module):
    """Says the same of every image."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.classes = classes

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, : self.classes]


class EmptyParameter(Dense):
    def __init__(self, shape: tuple[int, ...] = (1, 8, 8), classes: int = 10) -> None:
        super().__init__(shape, classes)
        self.prompts = nn.Parameter(torch.zeros(0, 16))


class Hooked(Dense):
    """Keeps its last features by a hook, and a function without a name."""

    def __init__(self, shape: tuple[int, ...] = (1, 8, 8), classes: int = 10) -> None:
        super().__init__(shape, classes)
        self.scale = lambda x: 0.5 * x
        self.kept: list[Tensor] = []
        self.layers[3].register_forward_hook(lambda _, inputs, output: self.kept.append(output.detach()))

    def forward(self, x: Tensor) -> Any:
        self.kept.clear()
        return self.layers(self.scale(x))


class Locked(Dense):
    """Has something that cannot be copied."""

    def __init__(self, shape: tuple[int, ...] = (1, 8, 8), classes: int = 10) -> None:
        super().__init__(shape, classes)
        self.lock = threading.Lock()

    def forward(self, x: Tensor) -> Any:
        with self.lock:
            return self.layers(x)


# ---- The worlds


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network in a federation of digits, and what must come of `run` and of `fa.attack`."""

    network: str  # as a config names it, in this module
    run: Truth
    attack: Truth | None = None  # None: as `run`
    data: Callable[[], Pair] = digits
    first: int | None = None  # examples of the first of four clients; None: all hold as many
    method: Mapping[str, Any] = field(default_factory=dict)
    attacks: Any = ("loss_threshold",)  # of the run
    setting: Mapping[str, Any] = field(default_factory=dict)  # of the network
    auto: bool = False  # whether every attack that applies is tried as well

    @property
    def attacked(self) -> Truth:
        return self.attack or self.run

    def build(self) -> nn.Module:
        """The network, for fa.attack; its weights follow a seed."""
        torch.manual_seed(0)
        x, y = self.data()
        make = globals()[self.network]
        net: nn.Module = make() if make in BY_NOTHING else make(x.shape[1:], int(y.max()) + 1)
        return net


BY_NOTHING: Sequence[Any] = (WithoutArguments, OwnSequential)  # classes that are called without arguments


# Outputs, types and layers of which the documentation says nothing are read, or refused by name.
OUTPUTS = either("logits", "output", "forward")
NUMBERS = either("float32", "bfloat16", "float64", "dtype", "precision")
ONE = either("logit", "output", "column")
BATCH = either("BatchNorm", "normalis", "one example", "batch")

NETWORKS: dict[str, Network] = {
    "BatchNorm1d": Network(network="BatchNorm1d", run=RUNS, auto=True),
    "BatchNorm2d": Network(network="BatchNorm2d", run=RUNS, auto=True),
    "BatchNorm, 21 examples in batches of 20": Network(network="BatchNorm1d", run=RUNS, first=21),
    "BatchNorm, 41 examples in batches of 20": Network(network="BatchNorm1d", run=RUNS, first=41),
    "BatchNorm2d, 21 examples in batches of 20": Network(network="BatchNorm2d", run=RUNS, first=21),
    "BatchNorm, a client with one example": Network(network="BatchNorm1d", run=BATCH, attack=RUNS, first=1),
    "BatchNorm2d, a client with one example": Network(network="BatchNorm2d", run=BATCH, attack=RUNS, first=1),
    "a client with one example": Network(network="Dense", run=RUNS, first=1, auto=True),
    "BatchNorm, batches of one": Network(network="BatchNorm1d", run=BATCH, attack=RUNS, method={"batch_size": 1}),
    "BatchNorm, batches larger than any client": Network(
        network="BatchNorm1d", run=RUNS, method={"batch_size": 500}
    ),
    "BatchNorm with Adam": Network(network="BatchNorm1d", run=RUNS, method={"optimiser": "adam"}),
    "BatchNorm under FedProx": Network(network="BatchNorm2d", run=RUNS, method={"name": "fedprox"}),
    "BatchNorm under SCAFFOLD": Network(network="BatchNorm2d", run=RUNS, method={"name": "scaffold"}),
    "BatchNorm without running statistics": Network(network="BatchNormUntracked", run=RUNS),
    "BatchNorm with cumulative statistics": Network(network="BatchNormCumulative", run=RUNS),
    "BatchNorm without weights": Network(network="BatchNormPlain", run=RUNS),
    "SyncBatchNorm": Network(network="SyncBatchNorm", run=RUNS),
    "LayerNorm": Network(network="LayerNorm", run=RUNS),
    "GroupNorm": Network(network="GroupNorm", run=RUNS),
    "InstanceNorm": Network(network="InstanceNorm", run=RUNS),
    "InstanceNorm with running statistics": Network(network="InstanceNormTracked", run=RUNS),
    "dropout": Network(network="Dropout", run=RUNS, auto=True),
    "dropout of channels": Network(network="Dropout2d", run=RUNS),
    "activations in place": Network(network="InplaceReLU", run=RUNS),
    "lazily made layers": Network(network="Lazy", run=either("lazy", "LazyLinear", "first batch", "initialis")),
    "weight_norm": Network(network="WeightNorm", run=RUNS),
    "weight_norm of old": Network(network="OldWeightNorm", run=either("weight_norm", "parametri", "copy")),
    "weight_norm of the head": Network(network="WeightNormHead", run=RUNS),
    "spectral_norm": Network(network="SpectralNorm", run=RUNS, auto=True),
    "no bias": Network(network="NoBias", run=RUNS, auto=True),
    "more outputs than classes": Network(network="ManyOutputs", run=RUNS),
    "fewer outputs than classes": Network(network="FewOutputs", run=refused("output", "classes", "logits")),
    "one logit": Network(network="OneLogit", run=ONE, data=two_classes, auto=True),
    "one logit without an axis": Network(network="OneLogitFlat", run=ONE, data=two_classes),
    "a layer under two names": Network(network="Tied", run=RUNS, auto=True),
    "a weight of two layers": Network(network="TiedWeight", run=RUNS),
    "outputs in a dataclass": Network(network="InDataclass", run=OUTPUTS),
    "outputs in a tuple": Network(network="InTuple", run=OUTPUTS),
    "outputs in a dict": Network(network="InDict", run=OUTPUTS),
    "bf16": Network(network="BFloat16", run=NUMBERS),
    "bf16 inside": Network(network="CastsItself", run=NUMBERS),
    "float64": Network(network="Float64", run=NUMBERS),
    "autocast": Network(network="Autocast", run=RUNS),
    "a frozen backbone": Network(network="FrozenBackbone", run=RUNS, auto=True),
    "a frozen backbone with BatchNorm": Network(network="FrozenBatchNorm", run=RUNS),
    "an unused layer": Network(network="Unused", run=RUNS),
    "arguments of forward()": Network(network="WithArguments", run=RUNS),
    "buffers of whole numbers": Network(network="IntegerBuffers", run=RUNS),
    "a buffer that counts steps": Network(network="Counts", run=RUNS),
    "a scalar parameter": Network(network="ScalarParameter", run=RUNS),
    "ModuleList and ModuleDict": Network(network="Nested", run=RUNS),
    "no arguments": Network(network="WithoutArguments", run=RUNS),
    "a subclass of Sequential": Network(network="OwnSequential", run=RUNS),
    "the contract, with a setting": Network(network="Ours", run=RUNS, setting={"width": 5}),
    "torchvision's ResNet-18": Network(network="ResNet18", run=RUNS, data=larger, attacks=()),
    "torchvision's ViT": Network(network="ViT", run=RUNS, data=colour),
    "a U-Net": Network(network="UNet", run=RUNS),
    "a class for each pixel": Network(network="Mask", run=refused("logits", "output", "[")),
    "LSTM": Network(network="Recurrent", run=RUNS),
    "GRU": Network(network="Gated", run=RUNS),
    "a transformer": Network(network="Attention", run=RUNS),
    "words": Network(
        network="Words",
        run=RUNS,
        attacks="auto",
        data=tokens,
        attack=either("0 to 1", "text", "token", "image", "[N"),
    ),
    "log-probabilities": Network(network="LogProbabilities", run=RUNS),
    "a look at the numbers": Network(network="Asserts", run=either("branch", "depends on", "value", "number")),
    "a number out of a tensor": Network(network="Item", run=either("item", "depends on", "value", "number")),
    "noise in training": Network(network="Noisy", run=RUNS),
    "activations computed again": Network(network="Checkpointed", run=either("checkpoint")),
    "complex weights": Network(network="Complex", run=either("complex")),
    "no parameters": Network(network="NoParameters", run=refused("parameter", "weights", "train")),
    "a parameter of no numbers": Network(network="EmptyParameter", run=either("prompts", "empty", "no numbers")),
    "a hook": Network(network="Hooked", run=RUNS),
    "a lock": Network(network="Locked", run=either("copy", "copied", "lock")),
}

# What a config may name in place of a class; the documentation speaks of module:Class.
NAMED: dict[str, Network] = {
    "a factory": Network(network="factory", run=either("class", "nn.Module")),
    "a network that was built": Network(network="built", run=either("class", "nn.Module")),
    "a class that wants more": Network(network="NeedsMore", run=refused("depth", "NeedsMore")),
    "a class that is not there": Network(network="Missing", run=refused("Missing")),
}


def of_sklearn(kind: Any) -> Any:
    x, y = digits()
    return kind(max_iter=1000).fit(x.reshape(len(x), -1)[:60], y[:60])


def lazily_run() -> nn.Module:
    """A network of lazily made layers that has seen a batch."""
    net = Lazy()
    net(torch.from_numpy(digits().x[:2]))
    return net


# What may be handed to fa.attack as the model; the documentation speaks of an nn.Module.
MODELS: dict[str, tuple[Callable[[], Any], Truth]] = {
    "Sequential": (factory, RUNS),
    "in training mode": (lambda: BatchNorm1d().train(), RUNS),
    "in evaluation mode": (lambda: BatchNorm1d().eval(), RUNS),
    "no gradients wanted": (lambda: Dense().requires_grad_(False), RUNS),
    "lazily made layers after a batch": (lazily_run, RUNS),
    "compiled by TorchScript": (
        lambda: torch.jit.script(factory()),
        either("TorchScript", "ScriptModule", "copy"),
    ),
    "traced": (lambda: torch.jit.trace(factory(), torch.zeros(2, 1, 8, 8)), either("TorchScript", "trace")),
    "DataParallel": (lambda: nn.DataParallel(factory()), either("DataParallel")),
    "a factory": (lambda: factory, refused("nn.Module")),
    "a class": (lambda: Dense, refused("nn.Module")),
    "a function": (lambda: lambda x: x.flatten(1)[:, :10], refused("nn.Module")),
    "a state": (lambda: factory().state_dict(), refused("nn.Module")),
    "a path": (lambda: "model.pt", refused("nn.Module")),
    "nothing": (lambda: None, refused("nn.Module")),
    "LogisticRegression": (lambda: of_sklearn(LogisticRegression), RUNS),
    "MLPClassifier": (lambda: of_sklearn(MLPClassifier), RUNS),
}


@dataclass(frozen=True, kw_only=True)
class Brought:
    """Examples of one's own, what must come of them in a file of arrays, and handed to fa.attack."""

    data: Callable[[], Pair]
    file: Truth | None  # of `plan` and `run`; None: no file can hold them, or degenerate.py says it
    attack: Truth | None
    network: Callable[[], nn.Module] = factory  # for fa.attack
    model: str = "mlp"  # for a file
    attacks: Any = ("loss_threshold",)  # of the run
    more: Mapping[str, Any] = field(default_factory=dict)  # settings beside the path


SHAPE = ("[N, C", "[N, channels", "channel", "shape")
RANGE = ("0 to 1", "255")
LABELS = ("label", "y_train", "classes")
ALIKE = ("no training examples", "members too", "equal", "alike", "same", "left", "twice")


def dense(*shape: int) -> Callable[[], nn.Module]:
    return lambda: factory(shape)


DATA: dict[str, Brought] = {
    "float64 from 0 to 1": Brought(data=with_x(lambda x: x.astype(np.float64)), file=RUNS, attack=RUNS),
    "float16": Brought(data=with_x(lambda x: x.astype(np.float16)), file=RUNS, attack=RUNS),
    "bytes": Brought(
        data=with_x(lambda x: (255 * x).astype(np.uint8)), file=RUNS, attack=either(*RANGE, "uint8", "bytes")
    ),
    "float64 from 0 to 255": Brought(
        data=with_x(lambda x: 255 * x.astype(np.float64)), file=refused(*RANGE), attack=refused(*RANGE)
    ),
    "16 bits": Brought(
        data=with_x(lambda x: (65535 * x).astype(np.uint16)),
        file=refused("uint16", "uint8", "65535"),
        attack=refused(*RANGE, "uint16"),
    ),
    "from -1 to 1": Brought(
        data=with_x(lambda x: 2 * x - 1), file=refused("values from", "0 to 1"), attack=refused(*RANGE)
    ),
    "channels last": Brought(
        data=lambda: Pair(larger().x.transpose(0, 2, 3, 1), larger().y),
        file=refused("layout", "channels"),
        attack=refused("channels", "[N, C"),
        network=lambda: Convolution((3, 16, 16)),
    ),
    "channels last, declared": Brought(
        data=lambda: Pair(larger().x.transpose(0, 2, 3, 1), larger().y),
        file=RUNS,
        attack=None,
        more={"layout": "hwc"},
    ),
    "grey without an axis": Brought(data=with_x(lambda x: x[:, 0]), file=RUNS, attack=either(*SHAPE)),
    "four channels": Brought(
        data=lambda: Pair(np.concatenate([colour().x, digits().x], 1), digits().y),
        file=RUNS,
        attack=RUNS,
        network=dense(4, 8, 8),
    ),
    "not square": Brought(data=with_x(lambda x: x[..., :5]), file=RUNS, attack=RUNS, network=dense(1, 8, 5)),
    "volumes": Brought(
        data=lambda: Pair(np.random.default_rng(3).random((IMAGES, 1, 4, 4, 4), dtype=np.float32), digits().y),
        file=RUNS,
        attack=either(*SHAPE, "volume", "image"),
        network=dense(1, 4, 4, 4),
    ),
    "a table": Brought(
        data=table,
        file=either("tabular", "table"),
        attack=either("tabular", "table", *SHAPE),
        network=lambda: factory((12,), 2),
    ),
    "a hole in a table": Brought(
        data=lambda: Pair(hole(table().x), table().y),
        file=either("tabular", "table", "NaN", "missing"),
        attack=refused("NaN", "nan", "table", "tabular", "missing", *SHAPE),
        network=lambda: factory((12,), 2),
    ),
    "a hole in an image": Brought(data=with_x(hole), file=refused("NaN"), attack=refused("NaN", "nan")),
    "columns of objects": Brought(
        data=lambda: Pair(table().x.astype(object), table().y),
        file=refused("object", "pickle", "tabular", "table"),
        attack=refused("object", "number", "table", *SHAPE),
        network=lambda: factory((12,), 2),
    ),
    "images of objects": Brought(
        data=with_x(lambda x: x.astype(object)),
        file=refused("object", "pickle"),
        attack=either("object", "number", *SHAPE),
    ),
    "complex numbers": Brought(
        data=with_x(lambda x: x.astype(np.complex64)), file=refused("complex"), attack=refused("complex")
    ),
    "big endian": Brought(data=with_x(lambda x: x.astype(">f4")), file=RUNS, attack=RUNS),
    "read backwards": Brought(data=with_x(lambda x: x[..., ::-1]), file=RUNS, attack=RUNS),
    "read only": Brought(data=with_x(read_only), file=None, attack=RUNS),
    "tokens": Brought(
        data=tokens,
        file=RUNS,
        attack=either(*RANGE, "text", "token", *SHAPE),
        network=lambda: Words((12,), 3),
        model=f"{HERE}:Words",
        attacks="auto",
    ),
    "some blank images": Brought(data=with_x(blank_first), file=RUNS, attack=either(*ALIKE)),
    "all images blank": Brought(data=with_x(np.zeros_like), file=None, attack=either(*ALIKE, "blank")),
    "all images equal": Brought(data=with_x(lambda x: x[:1].repeat(len(x), 0)), file=None, attack=either(*ALIKE)),
    "labels from 1": Brought(data=with_y(lambda y: y + 1), file=either(*LABELS), attack=refused(*LABELS)),
    "labels below nothing": Brought(
        data=with_y(some_unknown), file=refused(*LABELS, "-1"), attack=refused(*LABELS)
    ),
    "labels as text": Brought(data=with_y(lambda y: y.astype(str)), file=RUNS, attack=refused(*LABELS)),
    "labels as bytes": Brought(
        data=with_y(lambda y: y.astype("S1")), file=either(*LABELS), attack=refused(*LABELS)
    ),
    "labels of one column": Brought(
        data=with_y(lambda y: y[:, None]), file=either(*LABELS), attack=either(*LABELS)
    ),
    "one-hot labels": Brought(data=with_y(lambda y: np.eye(10)[y]), file=either(*LABELS), attack=either(*LABELS)),
    "several labels": Brought(
        data=with_y(lambda y: np.stack([y % 2, y > 4, y % 3 > 0], 1).astype(np.int64)),
        file=RUNS,
        attack=refused(*LABELS),
    ),
    "labels of 32 bits": Brought(data=with_y(lambda y: y.astype(np.int32)), file=RUNS, attack=RUNS),
    "labels of 8 bits": Brought(data=with_y(lambda y: y.astype(np.uint8)), file=RUNS, attack=RUNS),
    "labels as floats": Brought(
        data=with_y(lambda y: y.astype(np.float32)), file=either(*LABELS, "regression"), attack=either(*LABELS)
    ),
    "yes and no": Brought(data=with_y(lambda y: y > 4), file=either(*LABELS), attack=either(*LABELS)),
    "real numbers": Brought(data=with_y(lambda y: y + 0.5), file=RUNS, attack=refused("regression", *LABELS)),
    "one class": Brought(data=with_y(lambda y: 0 * y + 3), file=None, attack=RUNS),
    "a class of one example": Brought(
        data=with_y(lambda y: np.where(np.arange(len(y)) == 0, 9, y % 9)), file=RUNS, attack=RUNS
    ),
    "names and a missing one": Brought(
        data=with_y(lambda y: np.where(y == 3, None, y.astype(str))),
        file=refused("object", "pickle", *LABELS),
        attack=refused(*LABELS),
    ),
    "tensors": Brought(data=lambda: Pair(*map(torch.from_numpy, digits())), file=None, attack=RUNS),
    "tensors of gradients": Brought(
        data=lambda: Pair(torch.from_numpy(digits().x).requires_grad_(), torch.from_numpy(digits().y)),
        file=None,
        attack=either("grad", "detach"),
    ),
    "tensors in bf16": Brought(
        data=lambda: Pair(torch.from_numpy(digits().x).bfloat16(), torch.from_numpy(digits().y)),
        file=None,
        attack=either("bfloat16", "float"),
    ),
    "lists": Brought(
        data=lambda: Pair(digits().x.tolist(), digits().y.tolist()),
        file=None,
        attack=either("array", "list", "pair"),
    ),
    "a list of arrays": Brought(
        data=lambda: Pair(list(digits().x), list(digits().y)), file=None, attack=either("array", "list", "pair")
    ),
}

PLACES = ("pair", "(x, y)", "arrays")


def dataset(first: int, last: int) -> TensorDataset:
    return TensorDataset(*(torch.from_numpy(a[first:last]) for a in digits()))


def loader(first: int, last: int) -> Any:
    return DataLoader(dataset(first, last), batch_size=20)


def pair(first: int, last: int) -> Pair:
    return Pair(*(a[first:last] for a in digits()))


# What may be handed to fa.attack as members and as nonmembers; the documentation speaks of (x, y).
GIVEN: dict[str, tuple[Callable[[], tuple[Any, Any]], Truth]] = {
    "a Dataset": (lambda: (dataset(0, 60), dataset(60, 160)), either(*PLACES)),
    "a DataLoader": (lambda: (loader(0, 60), loader(60, 160)), either(*PLACES)),
    "a list of pairs": (
        lambda: (list(dataset(0, 60)), list(dataset(60, 160))),
        either(*PLACES, "images", "example"),
    ),
    "a mapping": (lambda: (pair(0, 60)._asdict(), pair(60, 160)._asdict()), either(*PLACES)),
    "images alone": (lambda: (pair(0, 60).x, pair(60, 160).x), refused(*PLACES)),
    "no members": (lambda: (pair(0, 0), pair(60, 160)), refused("no example", "empty", "members")),
    "no nonmembers": (lambda: (pair(0, 60), None), refused("nonmembers", "auxiliary")),
    "one member": (lambda: (pair(0, 1), pair(60, 160)), either("one", "few", "members")),
    "one nonmember": (lambda: (pair(0, 60), pair(60, 61)), either("one", "few", "nonmembers")),
    "members of one class, others of another": (
        lambda: (
            Pair(digits().x[digits().y == 1], digits().y[digits().y == 1]),
            Pair(digits().x[digits().y == 7], digits().y[digits().y == 7]),
        ),
        either("class", "label"),
    ),
    "the same twice": (lambda: (pair(0, 60), pair(0, 60)), refused("members too", "members")),
    "fewer labels than images": (lambda: (Pair(pair(0, 60).x, pair(0, 59).y), pair(60, 160)), refused("label")),
}
