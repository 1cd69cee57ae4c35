"""Decoder of activations: an up-convolutional network trained to turn them back into images.

Dosovitskiy, Brox. Inverting Visual Representations with Convolutional Networks. CVPR 2016. arXiv:1506.02753,
eq. 2: minimise ||g(f_a(x')) - x'||^2 over auxiliary images x', then g(z). Where the weights of the first layers
differ from batch to batch, a decoder of the first is fine-tuned for each. Changed as in
attacks/prototypes/upcnn.py.
"""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Effort, Knowledge
from fedaudit.attacks.batches._inversion import ActivationInversion
from fedaudit.attacks.batches._running import imitate_noise, run_first_layers
from fedaudit.attacks.batches.activation_ridge import ActivationRidge
from fedaudit.attacks.evaluation.batch_readings import Batch
from fedaudit.attacks.evaluation.decoder import DecoderTraining, build, fit, hold_out, tensor
from fedaudit.attacks.evaluation.prototype_inversion import Standard
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne, AtLeastZero
from fedaudit.fl.runtime.settings import settings

Floats = NDArray[np.floating[Any]]


class ActivationDecoder(ActivationInversion):
    card = replace(
        ActivationRidge.card,
        title="Decoder of activations",
        source="arXiv:1506.02753, eq. 2",
        does_not_show="what a server finds that does not know the first layers, nor what more images would add",
        effort=Effort(seconds=25, grows=("pixels", "auxiliary"), settings=("epochs",)),
    )

    @settings
    class Config(ActivationInversion.Config):
        epochs: AtLeastOne = Field(default=20, description="passes over the auxiliary images, at most")
        fine_tune_epochs: AtLeastOne = Field(
            default=2, description="more passes for each further set of weights of the first layers, at most"
        )
        least_steps: AtLeastZero = Field(
            default=600,
            description="steps that may be taken even where few images make an epoch short; a tenth to fine-tune",
        )
        width: int = Field(default=256, ge=32, multiple_of=32, description="width of the hidden layers")
        batch: AtLeastOne = Field(default=128, description="images in a batch")
        lr: Amount = Field(
            default=5e-3, description="step size until held-out images no longer gain; half of it to fine-tune"
        )

    def invert(
        self, groups: Sequence[Sequence[Batch]], knowledge: Knowledge, rng: np.random.Generator
    ) -> list[list[Floats]]:
        import torch
        from torch import nn
        from torch.nn.functional import mse_loss

        assert knowledge.auxiliary is not None
        aux, c, device = knowledge.auxiliary.x, self.config, knowledge.device
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        whole = DecoderTraining(epochs=c.epochs, least_steps=c.least_steps, batch=c.batch, lr=c.lr)
        tuning = replace(whole, epochs=c.fine_tune_epochs, least_steps=c.least_steps // 10, lr=c.lr / 2)
        images, found = tensor(aux, device), list[list[Floats]]()
        rows = hold_out(len(aux), generator, device)
        common: nn.Module | None = None
        for group in groups:
            sent = np.concatenate([b.activations for b in group])
            z = imitate_noise(run_first_layers(group[0].weights, aux, knowledge), sent, knowledge, rng)
            scale = Standard(z)
            x = tensor(scale(z), device)
            first = common is None
            fresh = build(z.shape[1], knowledge.shape, c.width, generator) if common is None else common
            own = copy.deepcopy(fresh).to(device)

            def loss(some: Any, own: Any = own, x: Any = x) -> Any:
                return mse_loss(own(x[some]), images[some])

            fit(own, loss, rows, whole if first else tuning, generator)
            common = own if first else common
            with torch.no_grad():
                found.append([own(tensor(scale(b.activations), device)).cpu().numpy() for b in group])
        return found
