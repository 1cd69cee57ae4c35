"""What inversions share that train a decoder: on the global model's features, then a copy on each client's.

A subclass writes what is trained (`build_networks`), its loss (`loss`) and what it makes of features
(`make_images`).
"""

import copy
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Extractor, Knowledge
from fedaudit.attacks.evaluation.decoder import DecoderTraining, Fit, Lesson, divide, fit, hold_out, tensor
from fedaudit.attacks.evaluation.prototype_inversion import InversionTask, PrototypeInversion, Standard
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne, AtLeastZero
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.side_by_side import collect

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Floats = NDArray[np.floating[Any]]


class DecoderInversion(PrototypeInversion):
    """Base class. A subclass sets `card` and writes `build_networks`, `loss` and `make_images`."""

    on_accelerator = "decoders side by side"

    @settings
    class Config(PrototypeInversion.Config):
        epochs: AtLeastOne = Field(
            default=10, description="passes over the auxiliary images on the global model's features, at most"
        )
        fine_tune_epochs: AtLeastOne = Field(
            default=2, description="more passes on the features of each client's model, at most"
        )
        least_steps: AtLeastZero = Field(
            default=600,
            description="steps that may be taken even where few images make an epoch short; half as many to "
            "fine-tune",
        )
        width: int = Field(
            default=512,
            ge=32,
            multiple_of=32,
            description="width of the hidden layers, a multiple of 32; channels are 1/8, 1/16 and 1/32 of it",
        )
        batch: AtLeastOne = Field(default=128, description="images in a batch")
        lr: Amount = Field(
            default=5e-3,
            description="step size until held-out images no longer gain; half of it when fine-tuning",
        )

    @abstractmethod
    def build_networks(self, features: int, shape: tuple[int, ...], generator: "torch.Generator") -> "nn.Module":
        """The networks that are trained, for that many features."""

    @abstractmethod
    def loss(self, networks: Any, features: "Tensor", images: "Tensor", *noise: "Tensor") -> "Tensor":
        """Their mean loss [], of standardised features [b, D] and images [b, C, H, W]."""

    def list_noise(self) -> list[int]:
        """Columns of the standard normal numbers [b, columns] that the loss takes."""
        return []

    @abstractmethod
    def make_images(self, networks: Any, task: InversionTask, scale: Standard, wanted: "Tensor") -> "Tensor":
        """Images [k, C, H, W] of the task's standardised features [k, D]."""

    def invert(
        self, tasks: Sequence[InversionTask], first: Extractor, knowledge: Knowledge, rng: np.random.Generator
    ) -> list[Floats]:
        import torch

        aux, c, device = knowledge.granted_auxiliary.x, self.config, knowledge.device
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        whole = DecoderTraining(epochs=c.epochs, least_steps=c.least_steps, batch=c.batch, lr=c.lr)
        tuning = replace(whole, epochs=c.fine_tune_epochs, least_steps=c.least_steps // 2, lr=c.lr / 2)
        lesson = Lesson(
            targets=tensor(aux, device),
            rows=hold_out(len(aux), generator),
            loss=self.loss,
            noise=self.list_noise(),
        )
        start = first.features(aux)
        common = self.build_networks(start.shape[1], knowledge.shape, generator).to(device)
        inputs = tensor(Standard(start)(start), "cpu")
        fit([Fit(networks=common, inputs=inputs, generator=generator)], lesson, whole)
        seeds = torch.randint(2**62, (len(tasks),), generator=generator).tolist()

        def redraw(some: Sequence[int]) -> list[Floats]:
            fits, made = list[Fit](), list[Floats]()
            own = [copy.deepcopy(common) for _ in some]
            features = [tasks[i].extractor.features(aux) for i in some]
            scales = [Standard(f) for f in features]
            for i, networks, f, scale in zip(some, own, features, scales, strict=True):
                if not np.array_equal(f, start):
                    by = torch.Generator().manual_seed(seeds[i])
                    fits.append(Fit(networks=networks, inputs=tensor(scale(f), "cpu"), generator=by))
            fit(fits, lesson, tuning)
            for i, networks, scale in zip(some, own, scales, strict=True):
                wanted = tensor(scale(tasks[i].features), device)
                found = self.make_images(networks, tasks[i], scale, wanted)
                made.append(np.asarray(found.detach().cpu().numpy()))
            return made

        parts = divide(range(len(tasks)), device)
        return [images for made in collect(parts, redraw) for images in made]
