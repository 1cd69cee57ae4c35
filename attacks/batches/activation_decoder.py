"""Decoder of activations: an up-convolutional network trained to turn them back into images.

Dosovitskiy, Brox. Inverting Visual Representations with Convolutional Networks. CVPR 2016. arXiv:1506.02753,
eq. 2: minimise ||g(f_a(x')) - x'||^2 over auxiliary images x', then g(z). Where the weights of the first layers
differ from batch to batch, a decoder of the first is fine-tuned for each, with draws of its own. Changed as in
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
from fedaudit.attacks.evaluation.decoder import DecoderTraining, Fit, Lesson, build, divide, fit, hold_out, tensor
from fedaudit.attacks.evaluation.prototype_inversion import Standard
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne, AtLeastZero
from fedaudit.fl.runtime.settings import settings

Floats = NDArray[np.floating[Any]]


class ActivationDecoder(ActivationInversion):
    on_accelerator = "decoders side by side"
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
        from torch.nn.functional import mse_loss

        assert knowledge.auxiliary is not None
        aux, c, device = knowledge.auxiliary.x, self.config, knowledge.device
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        whole = DecoderTraining(epochs=c.epochs, least_steps=c.least_steps, batch=c.batch, lr=c.lr)
        tuning = replace(whole, epochs=c.fine_tune_epochs, least_steps=c.least_steps // 10, lr=c.lr / 2)
        lesson = Lesson(
            targets=tensor(aux, device),
            rows=hold_out(len(aux), generator),
            loss=lambda decoder, x, images: mse_loss(decoder(x), images),
        )

        def read(group: Sequence[Batch]) -> tuple[Standard, torch.Tensor]:
            sent = np.concatenate([b.activations for b in group])
            z = imitate_noise(run_first_layers(group[0].weights, aux, knowledge), sent, knowledge, rng)
            scale = Standard(z)
            return scale, tensor(scale(z), "cpu")

        def decode(group: Sequence[Batch], decoder: Any, scale: Standard) -> list[Floats]:
            with torch.no_grad():
                return [decoder(tensor(scale(b.activations), device)).cpu().numpy() for b in group]

        scale, x = read(groups[0])
        fresh = build(x.shape[1], knowledge.shape, c.width, generator).to(device)
        [common] = fit([Fit(networks=fresh, inputs=x, generator=generator)], lesson, whole)
        found = [decode(groups[0], common, scale)]
        seeds = torch.randint(2**62, (len(groups) - 1,), generator=generator).tolist()
        for part in divide([*zip(groups[1:], seeds, strict=True)], device):
            scales, fits = list[Standard](), list[Fit]()
            for group, seed in part:
                scale, x = read(group)
                scales.append(scale)
                by = torch.Generator().manual_seed(seed)
                fits.append(Fit(networks=copy.deepcopy(common), inputs=x, generator=by))
            tuned = fit(fits, lesson, tuning)
            found += [decode(g, own, s) for (g, _), own, s in zip(part, tuned, scales, strict=True)]
        return found
