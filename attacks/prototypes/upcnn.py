"""UpCNN: an up-convolutional network trained to turn features back into images.

Dosovitskiy, Brox. Inverting Visual Representations with Convolutional Networks. CVPR 2016.
arXiv:1506.02753, eq. 2: minimise over W the sum of ||x_i - g(f(x_i); W)||^2 on the attacker's own
images. Its optimum is the expected image given the features, so blur is correct behaviour.

Changed: smaller (Linear D-512-512-64 s^2, two strided up-convolutions, one convolution, sigmoid)
for images of 8 to 64 pixels; features standardised; Adam; held-out images decide when fitting stops and
which weights are kept (attacks/evaluation/decoder.py). A decoder is trained on the global model's features once
and then fine-tuned on those of each client's own model: without that step the leak stays hidden.
Left out: the 4096-wide layers and the unpooling of the paper, and its convolutional-feature variant.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedaudit.attacks.attack import Effort
from fedaudit.attacks.evaluation.decoder import build
from fedaudit.attacks.evaluation.prototype_inversion import InversionTask, Standard
from fedaudit.attacks.prototypes._decoding import DecoderInversion
from fedaudit.attacks.prototypes.ridge import Ridge

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


class UpCNN(DecoderInversion):
    card = replace(
        Ridge.card,
        rounds="latest",  # a decoder is trained for each model, and each round has models of its own
        title="UpCNN inversion of prototypes",
        source="arXiv:1506.02753, eq. 2",
        learns="images a client trained on, or their class where many stand behind a prototype",
        does_not_show="what a better decoder, or more auxiliary data, would recover",
        # steps hardly grow with the images they are drawn from
        effort=Effort(seconds=25, grows=("pixels",), settings=("epochs",)),
    )

    def build_networks(self, features: int, shape: tuple[int, ...], generator: "torch.Generator") -> "nn.Module":
        return build(features, shape, self.config.width, generator)

    def loss(self, networks: Any, features: "Tensor", images: "Tensor", *noise: "Tensor") -> "Tensor":
        from torch.nn.functional import mse_loss

        return mse_loss(networks(features), images)

    def make_images(self, networks: Any, task: InversionTask, scale: Standard, wanted: "Tensor") -> "Tensor":
        import torch

        with torch.no_grad():
            found: Tensor = networks(wanted)
        return found
