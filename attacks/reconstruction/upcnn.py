"""UpCNN: an up-convolutional network trained to turn features back into pictures.

Dosovitskiy, Brox. Inverting Visual Representations with Convolutional Networks. CVPR 2016.
arXiv:1506.02753, eq. 2: minimise over W the sum of ||x_i - g(f(x_i); W)||^2 on the attacker's own
pictures. Its optimum is the expected picture given the features, so blur is correct behaviour.

Changed: smaller (Linear D-512-512-64 s^2, two strided up-convolutions, one convolution, sigmoid)
for pictures of 8 to 64 pixels; features standardised; Adam with a one-cycle rate; a tenth of the
pictures decides which epoch is kept. A decoder is trained on the global model's features once and
then fine-tuned on those of each client's own model: without that step the leak stays hidden.
Left out: the 4096-wide layers and the unpooling of the paper, and its convolutional-feature variant.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attacks.attack import Extractor, Knowledge
from attacks.prototype_inversion import PrototypeInversion, Standard, Task
from attacks.reconstruction.ridge import Ridge
from fl.errors import UserError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Floats = NDArray[np.floating[Any]]


class UpCNN(PrototypeInversion):
    card = replace(
        Ridge.card,
        title="UpCNN inversion of prototypes",
        source="arXiv:1506.02753, eq. 2",
        learns="pictures a client trained on, or their class where many stand behind a prototype",
        does_not_show="what a better decoder, or more auxiliary data, would recover",
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(PrototypeInversion.Config):
        epochs: int = 10  # passes over the auxiliary pictures on the global model's features
        fine_tune_epochs: int = 2  # more passes on the features of each client's model
        least_steps: int = 600  # where few pictures make an epoch short; half as many to fine-tune
        width: int = 512  # of the hidden layers; channels are width/8, width/16, width/32
        batch: int = 128
        lr: float = 2e-3  # peak of the one-cycle rate; half of it when fine-tuning

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.width < 32 or self.width % 32:
                raise UserError(
                    f"upcnn.width must be a multiple of 32, got {self.width}", hint="use 512"
                )
            for name in ("epochs", "fine_tune_epochs", "batch"):
                if getattr(self, name) < 1:
                    raise UserError(
                        f"upcnn.{name} must be at least 1, got {getattr(self, name)}",
                        hint="leave it out for the default",
                    )

    def invert(
        self, tasks: Sequence[Task], first: Extractor, knowledge: Knowledge,
        rng: np.random.Generator,
    ) -> list[Floats]:  # fmt: skip
        import torch

        assert knowledge.auxiliary is not None
        aux = knowledge.auxiliary.x
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        start = first.features(aux)
        decoder = build(start.shape[1], knowledge.image_shape, self.config.width, generator)
        decoder = decoder.to(knowledge.device)
        settings = self.config
        self._train(decoder, Standard(start)(start), aux, settings.epochs, settings.lr, generator)
        pictures = []
        for task in tasks:
            features = task.extractor.features(aux)
            scale = Standard(features)
            own = copy.deepcopy(decoder)
            if not np.array_equal(features, start):
                self._train(own, scale(features), aux, settings.fine_tune_epochs, settings.lr / 2,
                            generator, share=0.5)  # fmt: skip
            with torch.no_grad():
                inputs = torch.from_numpy(scale(task.features)).float().to(knowledge.device)
                pictures.append(own.eval()(inputs).cpu().numpy())
        return pictures

    def _train(
        self, decoder: "nn.Module", features: Floats, images: Floats, epochs: int, lr: float,
        generator: "torch.Generator", share: float = 1.0,
    ) -> None:  # fmt: skip
        """Trains in place; leaves the weights of the epoch with the least validation error."""
        import torch
        from torch.nn.functional import mse_loss

        device = next(decoder.parameters()).device
        x = torch.from_numpy(np.ascontiguousarray(features)).float().to(device)
        y = torch.from_numpy(np.ascontiguousarray(images)).float().to(device)
        order = torch.randperm(len(x), generator=generator).to(device)
        held, used = order[: len(x) // 10], order[len(x) // 10 :]
        per_epoch = -(-len(used) // self.config.batch)
        epochs = max(epochs, -(-int(self.config.least_steps * share) // per_epoch))
        optimizer = torch.optim.Adam(decoder.parameters(), lr=lr)
        rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=epochs * per_epoch)
        best, kept = np.inf, copy.deepcopy(decoder.state_dict())
        for _ in range(epochs):
            shuffled = used[torch.randperm(len(used), generator=generator).to(device)]
            for rows in torch.split(shuffled, self.config.batch):
                optimizer.zero_grad()
                torch.autograd.backward(mse_loss(decoder(x[rows]), y[rows]))
                optimizer.step()
                rate.step()
            error = _validation_error(decoder, x[held], y[held])
            if error <= best:
                best, kept = error, copy.deepcopy(decoder.state_dict())
        decoder.load_state_dict(kept)


def build(
    inputs: int, shape: tuple[int, int, int], width: int, generator: "torch.Generator"
) -> "nn.Module":
    """The decoder [k, inputs] -> [k, C, H, W]; starts at a quarter of the side and doubles twice."""
    import torch
    from torch import nn

    channels, height, across = shape
    h, w = -(-height // 4), -(-across // 4)
    a, b, c = width // 8, width // 16, width // 32
    with torch.random.fork_rng(devices=[]):  # initialisation draws from the global generator
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        return nn.Sequential(
            nn.Linear(inputs, width), nn.LeakyReLU(0.2),
            nn.Linear(width, width), nn.LeakyReLU(0.2),
            nn.Linear(width, a * h * w), nn.LeakyReLU(0.2),
            nn.Unflatten(1, (a, h, w)),
            nn.ConvTranspose2d(a, b, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.ConvTranspose2d(b, c, 4, 2, 1), nn.LeakyReLU(0.2),
            # a kernel of 3, or larger by the pixels that the rounded-up quarter has too many
            nn.Conv2d(c, channels, (3 + 4 * h - height, 3 + 4 * w - across), padding=1),
            nn.Sigmoid(),
        )  # fmt: skip


def _validation_error(decoder: "nn.Module", x: "Tensor", y: "Tensor") -> float:
    import torch

    with torch.no_grad():
        pairs = zip(torch.split(x, 500), torch.split(y, 500), strict=True)
        return sum(float((decoder(a) - b).square().sum()) for a, b in pairs)
