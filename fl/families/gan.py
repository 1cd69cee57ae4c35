"""WGAN-GP: a generator and a critic for small images, and one visit's training of both.

Gulrajani, Ahmed, Arjovsky, Dumoulin, Courville. Improved Training of Wasserstein GANs. NIPS 2017.
arXiv:1704.00028, Algorithm 1; with the settings of GANDALF, sec. 3.2. With z ~ N(0, I), u ~ U[0, 1] for
each image and h = u x + (1 - u) G(z),

    critic     mean[ D(G(z)) - D(x) + penalty (||grad D(h)|| - 1)^2 ]
    generator  mean[ -D(G(z)) ]

Images are [n, C, H, W] in [-1, 1] here. Weights start He-normal; Adam starts anew at each visit. A step is
GANDALF's: `critic_steps` batches for the critic, then one for the generator.

The networks are for small images, plain or conditional. Changed from GANDALF's, which are for 32 x 32:
any size from 4 pixels, by nearest-neighbour upsampling from a quarter of it; and a norm over each image
(GroupNorm with one group) where the generator had BatchNorm, whose running statistics would be handed
on and noised like weights. As there: no biases. Conditional networks get the class besides, one-hot: as
inputs, and as constant planes.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import interpolate, leaky_relu, one_hot, relu

from fedaudit.fl.model import State, state_of
from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne, AtLeastZero
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.streams import seed_networks
from fedaudit.fl.training.layout import channels_last


class Generator(nn.Module):
    """z [n, latent] to images [n, C, H, W] in [-1, 1]."""

    def __init__(self, shape: tuple[int, ...], latent: int, width: int, classes: int = 0) -> None:
        super().__init__()
        channels, height, across = shape
        self.sizes = [(-(-height // 4), -(-across // 4)), (-(-height // 2), -(-across // 2)), (height, across)]
        self.width, first = width, self.sizes[0][0] * self.sizes[0][1]
        self.fc = nn.Linear(latent + classes, 2 * width * first, bias=False)
        self.norm0 = nn.GroupNorm(1, 2 * width)
        self.conv1 = nn.Conv2d(2 * width, width, 3, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(1, width)
        self.conv2 = nn.Conv2d(width, channels, 3, padding=1, bias=False)

    def forward(self, z: Tensor, label: Tensor | None = None) -> Tensor:
        """`label` [n, classes], one-hot, where the generator is conditional."""
        z = z if label is None else torch.cat([z, label], 1)
        x = relu(self.norm0(self.fc(z).reshape(len(z), 2 * self.width, *self.sizes[0])))
        x = relu(self.norm1(self.conv1(interpolate(x, self.sizes[1]))))
        out: Tensor = self.conv2(interpolate(x, self.sizes[2])).tanh()
        return out


class Critic(nn.Module):
    """Images [n, C, H, W] to scores [n]; higher means: more like the training images."""

    def __init__(self, shape: tuple[int, ...], width: int, classes: int = 0) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(shape[0] + classes, width, 4, 2, 1, bias=False)
        self.conv2 = nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False)
        self.norm = nn.GroupNorm(1, 2 * width)
        quarter = (shape[1] // 2 // 2) * (shape[2] // 2 // 2)
        self.fc = nn.Linear(2 * width * quarter, 1, bias=False)

    def forward(self, x: Tensor, label: Tensor | None = None) -> Tensor:
        if label is not None:
            planes = label[:, :, None, None].expand(-1, -1, *x.shape[2:])
            x = torch.cat([x, planes], 1)
        x = leaky_relu(self.conv1(x), 0.2)
        x = leaky_relu(self.norm(self.conv2(x)), 0.2)
        out: Tensor = self.fc(x.flatten(1))[:, 0]
        return out


@settings
class GanConfig:
    """Settings of generators and their training; the paper's where it gives them."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    cycles: AtLeastOne = Field(default=150, description="most visits that a client gets")
    least_cycles: AtLeastZero = Field(default=120, description="visits before convergence is checked")
    unit: Literal["epoch", "step"] = Field(
        default="epoch", description="what `local` counts; the paper says steps, its code epochs"
    )
    local: AtLeastOne = Field(default=3, description="T_g: epochs or generator steps of a visit, as `unit` says")
    critic_steps: AtLeastOne = Field(
        default=2, description="T_d: steps of the critic for each step of the generator"
    )
    batch_size: AtLeastOne = Field(default=256, description="images in a batch")
    lr_generator: Amount = Field(default=5e-5, description="Adam's step size for the generator")
    lr_critic: Amount = Field(default=1e-4, description="Adam's step size for the critic")
    penalty: Amount = Field(default=10.0, description="weight of the gradient penalty (arXiv:1704.00028)")
    latent: AtLeastOne = Field(default=128, description="dimension of z, the generator's random input")
    width: AtLeastOne = Field(default=32, description="channels of the critic's first convolution")


@dataclass(frozen=True)
class GanPair:
    """Weights of a generator and its critic, on the CPU."""

    generator: State
    critic: State


def networks(shape: tuple[int, ...], config: GanConfig, classes: int = 0) -> tuple[Generator, Critic]:
    """Both networks with weights that nobody uses; `classes` > 0: conditional ones."""
    if len(shape) != 3 or min(shape[1:]) < 4:
        raise UserError(
            f"a generator makes images of at least 4 x 4 pixels, not {list(shape)}",
            hint="use a data set of images, or augmentation: none",
        )
    with seed_networks(0):
        return (Generator(shape, config.latent, config.width, classes), Critic(shape, config.width, classes))


def initial(shape: tuple[int, ...], config: GanConfig, rng: torch.Generator, classes: int = 0) -> GanPair:
    """He-normal weights from `rng`."""
    generator, critic = networks(shape, config, classes)
    for weight in [*generator.parameters(), *critic.parameters()]:
        if weight.dim() > 1:
            nn.init.kaiming_normal_(weight, generator=rng)
    return GanPair(state_of(generator), state_of(critic))


def gradient_penalty(critic: nn.Module, between: Tensor, label: Tensor | None = None) -> Tensor:
    """Mean of (||grad D|| - 1)^2 at images `between` [n, C, H, W]."""
    between = between.detach().requires_grad_()
    scores = critic(between) if label is None else critic(between, label)
    [slope] = torch.autograd.grad(scores.sum(), between, create_graph=True)
    penalty: Tensor = (slope.flatten(1).norm(dim=1) - 1).square().mean()
    return penalty


@dataclass(frozen=True)
class GanVisit:
    """What one visit makes of a pair."""

    pair: GanPair
    critic_loss: float  # means over the last epoch, or over all steps
    generator_loss: float


def train(
    pair: GanPair, x: Tensor, y: Tensor, config: GanConfig, rng: torch.Generator, classes: int = 0
) -> GanVisit:
    """One client's visit: x [n, C, H, W] in [-1, 1], labels y [n] for conditional networks."""
    g, d = networks(tuple(x.shape[1:]), config, classes)
    g.load_state_dict(pair.generator)
    d.load_state_dict(pair.critic)
    for net in (g.to(x.device), d.to(x.device)):
        channels_last(net)
    step_g = eager(torch.optim.Adam)(g.parameters(), config.lr_generator, betas=(0.0, 0.9), eps=1e-4)
    step_d = eager(torch.optim.Adam)(d.parameters(), config.lr_critic, betas=(0.0, 0.9), eps=1e-4)
    critic_losses: list[Tensor] = []
    generator_losses: list[Tensor] = []

    def fake(label: Tensor | None, n: int) -> Tensor:
        out: Tensor = g(torch.randn(n, config.latent, generator=rng).to(x), label)
        return out

    for number, batch in enumerate(_draw_batches(len(x), config, rng), start=1):
        real, n = x[batch.to(x.device)], len(batch)
        label = one_hot(y[batch.to(x.device)], classes).to(x) if classes else None
        with torch.no_grad():
            made = fake(label, n)
        u = torch.rand(n, 1, 1, 1, generator=rng).to(x)
        scores = d(torch.cat([made, real]), None if label is None else torch.cat([label, label]))
        loss = scores[:n].mean() - scores[n:].mean()
        loss = loss + config.penalty * gradient_penalty(d, u * real + (1 - u) * made, label)
        step_d.zero_grad()
        loss.backward()
        step_d.step()
        critic_losses.append(loss.detach())
        if number % config.critic_steps == 0:
            d.requires_grad_(False)  # its slopes would be thrown away
            loss = -d(fake(label, n), label).mean()
            step_g.zero_grad()
            loss.backward()
            step_g.step()
            d.requires_grad_()
            generator_losses.append(loss.detach())
    return GanVisit(GanPair(state_of(g), state_of(d)), _average(critic_losses), _average(generator_losses))


def sample(
    generator: State,
    shape: tuple[int, ...],
    n: int,
    config: GanConfig,
    rng: torch.Generator,
    labels: Tensor | None = None,
    classes: int = 0,
    batch: int = 500,
) -> Tensor:
    """[n, C, H, W] images in [0, 1]; `labels` [n] for a conditional generator."""
    net, _ = networks(shape, config, classes)
    net.load_state_dict(generator)
    if not n:
        return torch.zeros(0, *shape)
    z, given = torch.randn(n, config.latent, generator=rng), None
    if labels is not None:
        given = one_hot(labels, classes).float()
    with torch.no_grad():
        made = [
            net(z[i : i + batch], None if given is None else given[i : i + batch]) for i in range(0, n, batch)
        ]
    return (torch.cat(made) + 1) / 2


def _draw_batches(n: int, config: GanConfig, rng: torch.Generator) -> list[Tensor]:
    """Indices of a visit's batches: whole passes, or as many as the steps ask for."""
    size = min(config.batch_size, n)
    if config.unit == "step":
        return [torch.randperm(n, generator=rng)[:size] for _ in range(config.local * config.critic_steps)]
    return [b for _ in range(config.local) for b in torch.split(torch.randperm(n, generator=rng), size)]


def _average(losses: list[Tensor]) -> float:
    return float(torch.stack(losses).mean()) if losses else 0.0
