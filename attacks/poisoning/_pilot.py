"""The networks with which a server hijacks clients' layers: a pilot with its decoder, and a critic.

Pasquini, Ateniese, Bernaschi. CCS 2021, arXiv:2012.02670, sec. 3. The pilot encodes the server's own images into
the space of what clients send, its decoder reads them there, and the critic tells the pilot's features from
clients'. For activations that are maps all three are convolutional: where layers of clients and pilot keep the
places of pixels, features that are distributed alike mean the same images, which between dense layers nothing
sees to.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.streams import Streams, seed_networks

SLOPE = 0.2  # of leaky ReLU


@dataclass(frozen=True)
class Pilot:
    """An encoder of images into activations, and the decoder back."""

    encoder: nn.Module
    decoder: nn.Module

    def fit(self, images: Tensor, steps: int, batch: int, rate: float, rng: torch.Generator) -> None:
        """Train both in place, so that images [m, C, H, W] come back out."""
        params = [*self.encoder.parameters(), *self.decoder.parameters()]
        optimiser = eager(torch.optim.Adam)(params, lr=rate)
        for _ in range(steps):
            drawn = images[torch.randint(len(images), (batch,), generator=rng)]
            optimiser.zero_grad()
            torch.autograd.backward(mse_loss(self.decoder(self.encoder(drawn)), drawn))
            optimiser.step()


def build_pilot(images: Sequence[int], activations: Sequence[int], is_positive: bool, streams: Streams) -> Pilot:
    """A pilot for images of shape [C, H, W] and activations of shape [c, h, w] or [D]."""
    end: list[nn.Module] = [nn.ReLU()] if is_positive else []
    with seed_networks(streams.key("pilot")):
        if len(activations) != 3:
            pixels, width = _multiply(images), _multiply(activations)
            return Pilot(
                nn.Sequential(nn.Flatten(), nn.Linear(pixels, width), *end),
                nn.Sequential(
                    nn.Flatten(),
                    nn.Linear(width, 2 * pixels),
                    nn.ReLU(),
                    nn.Linear(2 * pixels, pixels),
                    nn.Sigmoid(),
                    nn.Unflatten(1, tuple(images)),
                ),
            )
        conv = partial(nn.Conv2d, kernel_size=3, padding=1)
        (channels, *sides), (maps, height, width) = images, activations
        return Pilot(
            nn.Sequential(conv(channels, maps), *end, nn.AdaptiveMaxPool2d((height, width))),
            nn.Sequential(
                conv(maps, 32),
                nn.ReLU(),
                nn.Upsample(size=tuple(sides)),
                conv(32, 16),
                nn.ReLU(),
                conv(16, channels),
                nn.Sigmoid(),
            ),
        )


def build_critic(activations: Sequence[int], streams: Streams) -> nn.Module:
    """A critic [b, ...] -> [b, 1] of activations of shape [c, h, w] or [D]."""
    act: Callable[[], nn.Module] = partial(nn.LeakyReLU, SLOPE)
    with seed_networks(streams.key("critic")):
        if len(activations) != 3:
            width = _multiply(activations)
            dense = (nn.Linear(width, 128), act(), nn.Linear(128, 128), act(), nn.Linear(128, 1))
            return nn.Sequential(nn.Flatten(), *dense)
        maps, height, width = activations
        rest = 64 * -(-height // 4) * -(-width // 4)
        return nn.Sequential(
            *(nn.Conv2d(maps, 32, 3, 2, 1), act(), nn.Conv2d(32, 64, 3, 2, 1), act(), nn.Flatten()),
            *(nn.Linear(rest, 64), act(), nn.Linear(64, 1)),
        )


def penalise_slope(critic: nn.Module, true: Tensor, sent: Tensor, rng: torch.Generator) -> Tensor:
    """Mean (|slope| - 1)^2 of the critic between two batches [b, ...]; the norm is over all of an activation.

    The authors' code sums over height and width alone.
    """
    share = torch.rand((len(sent), *(1,) * (sent.dim() - 1)), generator=rng).to(sent)
    between = (share * true + (1 - share) * sent).requires_grad_()
    [slope] = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    penalty: Tensor = (slope.flatten(1).norm(dim=1) - 1).square().mean()
    return penalty


class Stepper:
    """Adam for a network, whose weights and moments travel as a state."""

    def __init__(self, net: nn.Module, rate: float) -> None:
        self.net = net
        self._params = dict(net.named_parameters())
        self.optimiser = eager(torch.optim.Adam)(list(self._params.values()), lr=rate, betas=(0.5, 0.9))

    def load(self, state: dict[str, Tensor]) -> None:
        self.net.load_state_dict({k: state[k] for k in self._params})
        for name, p in self._params.items():
            own = {
                key: v
                for key in ("step", "exp_avg", "exp_avg_sq")
                if (v := state.get(f"{key}/{name}")) is not None
            }
            self.optimiser.state[p].update({k: v.clone() for k, v in own.items()})

    def save(self) -> dict[str, Tensor]:
        found = {k: p.detach().clone() for k, p in self._params.items()}
        for name, p in self._params.items():
            found |= {f"{key}/{name}": v.clone() for key, v in self.optimiser.state[p].items()}
        return found


def _multiply(shape: Sequence[int]) -> int:
    found = 1
    for n in shape:
        found *= n
    return found
