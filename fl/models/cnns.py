"""Convolutional networks of the papers: convolutions, dense layers, a linear head; one builder for all.

A network is its `Layers`. They are called `conv1`, `conv2`, ..., then `fc`, or `fc1` and `fc2`, then `head`; in a
network without dense layers the convolutions are `convs`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, leaky_relu, max_pool2d, relu

from fedaudit.fl.model import Net
from fedaudit.fl.models._fedrs import he_normal
from fedaudit.fl.models._images import channels, flat_size, pool_then
from fedaudit.fl.runtime.plugin import name_of
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings

PLUGINS = (
    "cnn3",
    "cnn5",
    "cnn_byzfl",
    "cnn_pytorch",
    "cnn_w",
    "fecnn",
    "femnist_cnn",
    "lenet_c",
    "lenet_f",
    "lenet_v",
    "small_cnn",
    "tfcnn",
)

Function = Callable[[Tensor], Tensor]


def relu_pool(x: Tensor) -> Tensor:
    return pool_then(relu, x)


def leaky_pool(x: Tensor) -> Tensor:
    return pool_then(leaky_relu, x)


def relu_average(x: Tensor) -> Tensor:
    return avg_pool2d(relu(x), 2)


def pool(x: Tensor) -> Tensor:
    return max_pool2d(x, 2)


def identity(x: Tensor) -> Tensor:
    return x


class Conv(NamedTuple):
    """A convolution, and what is applied to its maps."""

    width: int
    kernel: int
    padding: int = 0
    then: Function = relu_pool


@dataclass(frozen=True, kw_only=True)
class Layers:
    """All that makes one network differ from another."""

    convs: tuple[Conv, ...]
    dense: tuple[int, ...] = ()  # widths
    activation: Function = relu  # of the dense layers
    last: Function | None = None  # of the last dense layer, where it is another
    he: bool = False  # whether convolutions start as FedRS's
    bias: bool = True  # of the head


class _CNN(Net):
    """The builder."""

    layers: Layers

    def __init__(self, shape: tuple[int, ...], classes: int, config: Any = None) -> None:
        super().__init__(shape, classes)
        name, self.layers = name_of(type(self)), self.configure(config or self.Config())
        widths = pairwise([channels(name, shape), *(conv.width for conv in self.layers.convs)])
        convs = [
            nn.Conv2d(a, b, conv.kernel, padding=conv.padding)
            for (a, b), conv in zip(widths, self.layers.convs, strict=True)
        ]
        if self.layers.dense:
            self.conv_names = [f"conv{i}" for i in range(1, len(convs) + 1)]
            for conv_name, module in zip(self.conv_names, convs, strict=True):
                self.add_module(conv_name, module)
        else:
            self.conv_names = [f"convs.{i}" for i in range(len(convs))]
            self.convs = nn.ModuleList(convs)
        if self.layers.he:
            he_normal(self)
        sizes = [flat_size(name, self.maps, shape), *self.layers.dense]
        self.dense_names = ["fc"] if len(sizes) == 2 else [f"fc{i}" for i in range(1, len(sizes))]
        for dense_name, (a, b) in zip(self.dense_names, pairwise(sizes), strict=True):
            self.add_module(dense_name, nn.Linear(a, b))
        self.head = nn.Linear(sizes[-1], classes, bias=self.layers.bias)

    def configure(self, config: Any) -> Layers:
        """The layers with the settings of a config."""
        return self.layers

    def maps(self, x: Tensor) -> Tensor:
        """[b, C, H, W] -> [b, D, h, w], the maps after all convolutions."""
        for name, conv in zip(self.conv_names, self.layers.convs, strict=True):
            x = conv.then(self.get_submodule(name)(x))
        return x

    def features(self, x: Tensor) -> Tensor:
        x = self.maps(x).flatten(1)
        for name in self.dense_names:
            last = self.layers.last if name == self.dense_names[-1] else None
            x = (last or self.layers.activation)(self.get_submodule(name)(x))
        return x


class CNN3(_CNN):
    """CNN3: the ConvNet of FedDC (dataset condensation), 319,242 weights at 3 x 32 x 32 and 10 classes.

    Three times conv3x3 128 (pad 1), ReLU, average pool; no normalisation; features 2048.
    """

    source = "FedDC (dataset condensation), the authors' logs"
    layers = Layers(convs=(Conv(128, 3, 1, relu_average),) * 3)


class CNN5(_CNN):
    """CNN5: Seol and Kim's five-layer network for CIFAR-10.

    conv5x5 64, pool, conv5x5 128, pool, fc 384, fc 192. The paper says conv5x5 64, conv5x5 128, "a max pool" and
    three fully connected layers. Our choice of the rest: a pool after each convolution, no padding, ReLU, fc 384
    and 192; 1,514,826 weights at 3 x 32 x 32 and 10 classes.
    """

    source = "Seol and Kim"
    layers = Layers(convs=(Conv(64, 5), Conv(128, 5)), dense=(384, 192))


class CnnByzfl(_CNN):
    """ByzFL's network for MNIST: 431,080 weights at 1 x 28 x 28 and 10 classes.

    conv5x5 20, pool, conv5x5 50, pool, fc 500; ReLU throughout.
    """

    source = "ByzFL, cnn_mnist"
    layers = Layers(convs=(Conv(20, 5), Conv(50, 5)), dense=(500,))


class CnnPytorch(_CNN):
    """The network of PyTorch's MNIST example, which the bucketing paper trains: 1,199,882 weights at 1 x 28 x 28.

    conv3x3 32, ReLU, conv3x3 64, pool, fc 128, ReLU. The example drops a quarter of the maps and half of the
    features while it trains; here nothing is dropped, because all randomness of a run has streams of its own.
    """

    source = "PyTorch examples, mnist"
    layers = Layers(convs=(Conv(32, 3, then=relu), Conv(64, 3, then=pool)), dense=(128,))


class CnnW(_CNN):
    """CNN-W: two 5x5 convolutions and two fully connected layers; the workload of the speed bench.

    conv5x5 16, pool, conv5x5 32, pool, fc 128; ReLU throughout, features after the last one. 80,202 weights at
    1 x 28 x 28 and 10 classes. With `padding: 2` it is the network the prototype inversion was developed on
    (215,370 weights).
    """

    source = "ours"
    layers = Layers(convs=(Conv(16, 5), Conv(32, 5)), dense=(128,))

    @settings
    class Config:
        padding: int = Field(
            default=0,
            ge=0,
            le=2,
            description="zeros around the image before each convolution, in pixels; 2 keeps its size",
        )

    def configure(self, config: Config) -> Layers:
        return replace(self.layers, convs=tuple(c._replace(padding=config.padding) for c in self.layers.convs))


class FeCNN(_CNN):
    """FeCNN: FedRS's network for FEMNIST, 6,476,672 weights before the head at 1 x 28 x 28.

    conv5x5 32, pool, conv5x5 64, pool (both padded by 2), fc 2048; ReLU; head without bias.
    """

    source = "FedRS, KDD 2021"
    layers = Layers(convs=(Conv(32, 5, 2), Conv(64, 5, 2)), dense=(2048,), he=True, bias=False)


class FemnistCNN(_CNN):
    """FEMNIST CNN: FreezeFL's network, 4,377,534 weights at 1 x 28 x 28 and 62 classes.

    conv5x5 32, pool, conv5x5 64, pool (both padded by 2), fc 1024, fc 1024; ReLU throughout.
    """

    source = "FreezeFL"
    layers = Layers(convs=(Conv(32, 5, 2), Conv(64, 5, 2)), dense=(1024, 1024))


class LeNetC(_CNN):
    """LeNet-C: ReBaFL's network for CIFAR, 107,680 weights at 3 x 32 x 32 and 10 classes.

    conv5x5 16, conv5x5 32 (pad 1), conv3x3 64 (pad 1), each with leaky ReLU and pool; fc 128; head without bias.
    The paper does not say whether an activation follows the fc layer; the authors' code has none, and neither has
    this unless `activation` is on.
    """

    source = "ReBaFL"
    layers = Layers(
        convs=(Conv(16, 5, 0, leaky_pool), Conv(32, 5, 1, leaky_pool), Conv(64, 3, 1, leaky_pool)),
        dense=(128,),
        activation=identity,
        bias=False,
    )

    @settings
    class Config:
        activation: bool = Field(
            default=False, description="whether a leaky ReLU follows the fully connected layer"
        )

    def configure(self, config: Config) -> Layers:
        return replace(self.layers, activation=leaky_relu) if config.activation else self.layers


class LeNetF(_CNN):
    """LeNet-F: ReBaFL's network for Fashion-MNIST, 117,066 weights at 1 x 28 x 28 and 10 classes.

    conv5x5 16, pool, conv5x5 32 (pad 1), pool, fc 128; leaky ReLU throughout.
    """

    source = "ReBaFL"
    layers = Layers(
        convs=(Conv(16, 5, 0, leaky_pool), Conv(32, 5, 1, leaky_pool)), dense=(128,), activation=leaky_relu
    )


class LeNetV(_CNN):
    """LeNet-V: FedRS's network with two features, so that they can be plotted.

    conv5x5 6, pool, conv5x5 16, pool, fc 120, fc 2. 33,654 weights before the head at 1 x 28 x 28. The paper
    gives the sizes; ReLU and the pools are LeNet's, and nothing follows the two features. The head has no bias,
    as FedRS's others.
    """

    source = "FedRS, KDD 2021"
    layers = Layers(convs=(Conv(6, 5), Conv(16, 5)), dense=(120, 2), last=identity, he=True, bias=False)


class SmallCNN(_CNN):
    """Small CNN: two 3x3 convolutions, for images of 8 to about 25 pixels. Ours, from no paper.

    conv3x3 16, pool, conv3x3 32, pool (both padded by 1), fc 64; ReLU throughout. It exists because the data sets
    that ship with the package (scikit-learn's digits at 8 x 8, scikit-image's faces at 25 x 25) are too small for
    the papers' 5x5 kernels.
    """

    source = "ours"
    layers = Layers(convs=(Conv(16, 3, 1), Conv(32, 3, 1)), dense=(64,))

    @settings
    class Config:
        features: AtLeastOne = Field(default=64, description="width of the layer before the head")

    def configure(self, config: Config) -> Layers:
        return replace(self.layers, dense=(config.features,))


class TFCNN(_CNN):
    """TFCNN: FedRS's network for CIFAR, 56,320 weights before the head at 3 x 32 x 32.

    conv3x3 32, 64, 64 (pad 1), each with ReLU and pool; features 1024; head without bias.
    """

    source = "FedRS, KDD 2021"
    layers = Layers(convs=(Conv(32, 3, 1), Conv(64, 3, 1), Conv(64, 3, 1)), he=True, bias=False)
