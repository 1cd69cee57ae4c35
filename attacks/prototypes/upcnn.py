"""UpCNN: an up-convolutional network trained to turn features back into images.

Dosovitskiy, Brox. Inverting Visual Representations with Convolutional Networks. CVPR 2016.
arXiv:1506.02753, eq. 2: minimise over W the sum of ||x_i - g(f(x_i); W)||^2 on the attacker's own
images. Its optimum is the expected image given the features, so blur is correct behaviour.

Changed: smaller (Linear D-512-512-64 s^2, two strided up-convolutions, one convolution, sigmoid)
for images of 8 to 64 pixels; features standardised; Adam with a one-cycle rate; a tenth of the
images decides which epoch is kept. A decoder is trained on the global model's features once and
then fine-tuned on those of each client's own model: without that step the leak stays hidden.
Left out: the 4096-wide layers and the unpooling of the paper, and its convolutional-feature variant.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from attacks.attack import Effort, Extractor, Knowledge
from attacks.prototypes._inversion import PrototypeInversion, Standard, Task
from attacks.prototypes.ridge import Ridge
from attacks.trials.decoder import Training, build, fit, tensor
from fl.ranges import Amount, AtLeastOne, AtLeastZero

if TYPE_CHECKING:
    import torch
    from torch import nn

Floats = NDArray[np.floating[Any]]


class UpCNN(PrototypeInversion):
    card = replace(
        Ridge.card,
        title="UpCNN inversion of prototypes",
        source="arXiv:1506.02753, eq. 2",
        learns="images a client trained on, or their class where many stand behind a prototype",
        does_not_show="what a better decoder, or more auxiliary data, would recover",
        effort=Effort(seconds=23, grows=("pixels", "auxiliary")),
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(PrototypeInversion.Config):
        epochs: Annotated[
            AtLeastOne, Field(description="passes over the auxiliary images on the global model's features")
        ] = 10
        fine_tune_epochs: Annotated[
            AtLeastOne, Field(description="more passes on the features of each client's model")
        ] = 2
        least_steps: Annotated[
            AtLeastZero,
            Field(
                description="steps that are taken even where few images make an epoch short; half as many to "
                "fine-tune"
            ),
        ] = 600
        width: Annotated[
            int,
            Field(
                ge=32,
                multiple_of=32,
                description="width of the hidden layers, a multiple of 32; channels are 1/8, 1/16 and 1/32 of it",
            ),
        ] = 512
        batch: Annotated[AtLeastOne, Field(description="images in a batch")] = 128
        lr: Annotated[
            Amount, Field(description="peak of the one-cycle step size; half of it when fine-tuning")
        ] = 2e-3

    def invert(
        self, tasks: Sequence[Task], first: Extractor, knowledge: Knowledge, rng: np.random.Generator
    ) -> list[Floats]:
        import torch

        assert knowledge.auxiliary is not None
        aux, c = knowledge.auxiliary.x, self.config
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        start = first.features(aux)
        decoder = build(start.shape[1], knowledge.image_shape, c.width, generator)
        decoder = decoder.to(knowledge.device)
        whole = Training(epochs=c.epochs, least_steps=c.least_steps, batch=c.batch, lr=c.lr)
        tuning = replace(whole, epochs=c.fine_tune_epochs, least_steps=c.least_steps // 2, lr=c.lr / 2)
        self._train(decoder, Standard(start)(start), aux, whole, generator, knowledge.device)
        images = []
        for task in tasks:
            features = task.extractor.features(aux)
            scale = Standard(features)
            own = copy.deepcopy(decoder)
            if not np.array_equal(features, start):
                self._train(own, scale(features), aux, tuning, generator, knowledge.device)
            with torch.no_grad():
                images.append(own(tensor(scale(task.features), knowledge.device)).cpu().numpy())
        return images

    @staticmethod
    def _train(
        decoder: "nn.Module",
        features: Floats,
        images: Floats,
        training: Training,
        generator: "torch.Generator",
        device: str,
    ) -> None:
        from torch.nn.functional import mse_loss

        x, y = tensor(features, device), tensor(images, device)
        fit(decoder, lambda r: mse_loss(decoder(x[r]), y[r]), len(x), training, generator)
