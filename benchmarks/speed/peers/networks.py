"""The networks of the bench as users of torch write them; contenders of ours train the same weights.

`small` needs torch alone, as peers have it; the others are trained by ours and by the plain loop, under one
interpreter.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

CLASSES = 10
PIXELS, WIDTH = 32, 256  # of coloured images, and numbers that stand for a patch or a token
LENGTH, VOCABULARY = 64, 1000  # tokens of a text


class Small(nn.Module):
    """The network `cnn_w`, with its names, and pooled first as ours is."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 5), nn.Conv2d(16, 32, 5)
        self.fc, self.head = nn.Linear(512, 128), nn.Linear(128, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = relu(max_pool2d(self.conv1(x), 2))
        x = relu(max_pool2d(self.conv2(x), 2))
        logits: Tensor = self.head(relu(self.fc(x.flatten(1))))
        return logits


class ResNet18(nn.Module):
    """torchvision's, normalised by groups, with the stem of small images and the names of ours."""

    def __init__(self) -> None:
        from fedaudit.fl.runtime.vision import torchvision

        super().__init__()
        self.body = torchvision.models.resnet18(norm_layer=lambda channels: nn.GroupNorm(32, channels))
        self.body.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        self.body.maxpool, self.body.fc = nn.Identity(), nn.Identity()
        self.head = nn.Linear(512, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x))
        return logits


def make_vit() -> nn.Module:
    """torchvision's vision transformer, patches of 4 x 4, six layers; 4.8 million weights."""
    from fedaudit.fl.runtime.vision import torchvision

    net: nn.Module = torchvision.models.VisionTransformer(
        image_size=PIXELS,
        patch_size=4,
        num_layers=6,
        num_heads=4,
        hidden_dim=WIDTH,
        mlp_dim=4 * WIDTH,
        num_classes=CLASSES,
    )
    nn.init.normal_(net.get_submodule("heads.head").get_parameter("weight"), std=0.02)  # it begins with zeros
    return net


def make_lora() -> nn.Module:
    """Our small transformer with adapters of rank 8 on each layer's queries and values, and its head trained."""
    from fedaudit.fl.families.adapters import attach
    from fedaudit.fl.models.tiny_bert import TinyBERT

    config = TinyBERT.Config(dim=WIDTH, layers=4, heads=4, vocabulary=VOCABULARY)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # the frozen weights, which no state holds
        return attach(TinyBERT((LENGTH,), CLASSES, config), 8, 16.0, ["q", "v"], ["head"])


NETWORKS: Mapping[str, Callable[[], nn.Module]] = {
    "small": Small,
    "resnet18": ResNet18,
    "vit": make_vit,
    "lora": make_lora,
}
