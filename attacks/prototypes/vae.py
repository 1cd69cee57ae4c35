"""VAE: a conditional variational autoencoder that draws plausible images with given features.

Kingma, Welling. Auto-Encoding Variational Bayes. ICLR 2014. arXiv:1312.6114, eq. 10; conditioned on
features f as by Sohn, Lee, Yan, NeurIPS 2015, eq. 4: encoder q(z | x, f), decoder p(x | z, f),

    L_CVAE = ||x - dec(z, f)||^2 / (2 v) + beta KL(q(z | x, f) || N(0, I)),    v = 0.02, beta = 1,

mixed with what the decoder does at attack time, when no x tells it z (their hybrid objective, eq. 7):

    loss = a L_CVAE + (1 - a) ||x - dec(z, f)||^2 / (2 v) with z ~ N(0, I),    a = 0.5.

Without the second term z carries what the features could tell: on Fashion-MNIST prototypes of one
image, made by clients' own models, rank-1 was 50 % for a = 1 and 84 % for a = 0.5.

The image behind a prototype is not known, so z is 0 (`mode`), or what makes the image's own
features match the prototype best (`latent`: Adam over z through decoder and extractor, with a
penalty on ||z||^2). Its images look right even where they are wrong; only re-identification and the
wrong-prototype baseline tell. The decoder is UpCNN's, trained and fine-tuned in the same way.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Effort, Extractor
from fedaudit.attacks.evaluation.decoder import build, initialise, tensor
from fedaudit.attacks.evaluation.prototype_inversion import InversionTask, Standard
from fedaudit.attacks.prototypes._decoding import DecoderInversion
from fedaudit.attacks.prototypes.ridge import Ridge
from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne, AtLeastZero, Positive, PositiveShare
from fedaudit.fl.runtime.settings import settings

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Floats = NDArray[np.floating[Any]]


class VAE(DecoderInversion):
    card = replace(
        Ridge.card,
        rounds="latest",  # a decoder is trained for each model, and each round has models of its own
        title="VAE inversion of prototypes",
        source="arXiv:1312.6114, eq. 10; Sohn et al., NeurIPS 2015, eqs. 4, 7",
        learns="plausible images with the features of those a client trained on",
        does_not_show="that a plausible image is a true one: read re-identification, not the images",
        effort=Effort(seconds=50, grows=("pixels",), settings=("epochs",)),  # as UpCNN
    )

    @settings
    class Config(DecoderInversion.Config):
        draw: Literal["mode", "latent"] = Field(
            default="mode",
            description="z of an image: 0, or what makes the image's own features match the prototype best",
        )
        latents: AtLeastOne = Field(default=32, description="dimension of z")
        variance: Positive = Field(default=0.02, description="v: variance of a pixel in the likelihood")
        beta: Amount = Field(default=1.0, description="weight of the Kullback-Leibler term")
        hybrid: PositiveShare = Field(
            default=0.5,
            description="a: share of the conditional autoencoder's loss in the hybrid one; 1 is the plain "
            "autoencoder",
        )
        latent_steps: AtLeastZero = Field(
            default=300, description="steps of Adam over z at rate 0.05, with draw: latent"
        )
        latent_penalty: Amount = Field(
            default=0.02,
            description="weight of ||z||^2 against feature gaps in standard deviations, with draw: latent",
        )

    def build_networks(self, features: int, shape: tuple[int, ...], generator: "torch.Generator") -> "nn.Module":
        from torch import nn

        c, (channels, h, w) = self.config, shape
        small = -(-h // 4) * -(-w // 4)  # two strided convolutions
        encoder = initialise(
            lambda: nn.ModuleDict(
                {
                    "image": nn.Sequential(
                        nn.Conv2d(channels, 16, 3, 2, 1),
                        nn.LeakyReLU(0.2),
                        nn.Conv2d(16, 32, 3, 2, 1),
                        nn.LeakyReLU(0.2),
                        nn.Flatten(),
                    ),
                    "joint": nn.Sequential(
                        nn.Linear(32 * small + features, c.width // 2),
                        nn.LeakyReLU(0.2),
                        nn.Linear(c.width // 2, 2 * c.latents),
                    ),
                }
            ),
            generator,
        )
        decoder = build(features + c.latents, shape, c.width, generator)
        return nn.ModuleDict({"encoder": encoder, "decoder": decoder})

    def list_noise(self) -> list[int]:
        return [self.config.latents] * (2 if self.config.hybrid < 1 else 1)

    def loss(self, networks: Any, features: "Tensor", images: "Tensor", *noise: "Tensor") -> "Tensor":
        import torch

        c, encoder = self.config, networks["encoder"]

        def misfit(z: "Tensor") -> "Tensor":
            gap = networks["decoder"](torch.cat([features, z], 1)) - images
            found: Tensor = gap.square().flatten(1).sum(1) / (2 * c.variance)
            return found

        code = encoder["joint"](torch.cat([encoder["image"](images), features], 1))
        mean, log_var = code.chunk(2, dim=1)
        divergence = 0.5 * (mean.square() + log_var.exp() - 1 - log_var).sum(1)
        total = misfit(mean + noise[0] * (log_var / 2).exp()) + c.beta * divergence
        if c.hybrid < 1:
            total = c.hybrid * total + (1 - c.hybrid) * misfit(noise[1])
        average: Tensor = total.mean()
        return average

    def make_images(self, networks: Any, task: InversionTask, scale: Standard, wanted: "Tensor") -> "Tensor":
        import torch

        decoder, z = networks["decoder"], torch.zeros(len(wanted), self.config.latents, device=wanted.device)
        if self.config.draw == "latent":
            z = self._matching(decoder, task.extractor, scale, wanted, z)
        with torch.no_grad():
            found: Tensor = decoder(torch.cat([wanted, z], 1))
        return found

    def _matching(
        self, decoder: "nn.Module", extractor: Extractor, scale: Standard, wanted: "Tensor", start: "Tensor"
    ) -> "Tensor":
        """z [k, latents] whose images have features near `wanted`, each of the k on its own."""
        import torch

        model, z = extractor.module(), start.clone().requires_grad_(True)
        mean, std = (tensor(s, wanted.device) for s in (scale.mean, scale.std))
        optimizer = eager(torch.optim.Adam)([z], lr=0.05)
        for _ in range(self.config.latent_steps):
            found = (model.features(decoder(torch.cat([wanted, z], 1))) - mean) / std
            penalty = self.config.latent_penalty * z.square().sum(1)
            gap = (found - wanted).square().sum(1) + penalty
            (z.grad,) = torch.autograd.grad(gap.sum(), [z])
            optimizer.step()
        return z.detach()
