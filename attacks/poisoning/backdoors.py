"""Backdoors: clients train on batches of which a share carries a trigger and the wrong label.

Triggers of backdoors: what is put into an image so that the model gives the attacker's answer.

patch      3 x 3 white pixels, one pixel from the bottom right corner (Gu et al. BadNets. 2017. arXiv:1708.06733)
blend      the image with a share of a fixed pattern of noise (Chen et al. 2017. arXiv:1712.05526)
edge_case  the negative of the image: inputs that no honest client has (Wang et al. NeurIPS 2020. arXiv:
           2007.05084, who take images of another data set; changed, since there is none)
dba        the patch in four parts, of which each client trains with one and the attacker uses all
           (Xie et al. DBA. ICLR 2020)

Of a text, whatever the trigger is called, the first token is replaced by one that no text begins with, as rare
words are in Chen et al. BadNL. ACSAC 2021. arXiv:2006.01043.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.attacks.poisoning._updates import KINDS, OMNISCIENT, Colluding, Crowd, Forge, changes
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import Amount, AtLeastZero, Share
from fedaudit.fl.threats.adversary import Adversary, Card, Client, Constants, Loss, Message, Params, Reply
from fedaudit.fl.threats.forging import forge_message
from fedaudit.fl.threats.threat import Aim

PLUGINS = ("backdoor", "model_replacement", "neurotoxin")

Trigger = Literal["patch", "blend", "edge_case", "dba"]
SIDE, GAP = 3, 1
BLEND = 0.2
TOKEN = 2  # the first sign of vocabularies of ours, an exclamation mark
PARTS = (
    (slice(0, 2), slice(0, 2)),
    (slice(0, 2), slice(2, 3)),
    (slice(2, 3), slice(0, 2)),
    (slice(2, 3), slice(2, 3)),
)


def stamp_images(images: Tensor, trigger: Trigger, part: int | None = None) -> Tensor:
    """Images [N, C, H, W] in [0, 1] with the trigger; `part` 0 to 3 of the patch, with dba."""
    if trigger == "edge_case":
        return 1 - images
    if trigger == "blend":
        pattern = torch.rand(images.shape[1:], generator=torch.Generator().manual_seed(0)).to(images)
        return (1 - BLEND) * images + BLEND * pattern
    out = images.clone()
    height, width = images.shape[2:]
    corner = out[:, :, height - GAP - SIDE : height - GAP, width - GAP - SIDE : width - GAP]
    rows, columns = PARTS[part] if trigger == "dba" and part is not None else (slice(None), slice(None))
    corner[:, :, rows, columns] = 1.0
    return out


def stamp_normalised_images(
    x: Tensor, mean: tuple[float, ...], std: tuple[float, ...], trigger: Trigger, part: int | None = None
) -> Tensor:
    """The same of images as models get them: (pixels - mean) / std, by channel; texts begin with TOKEN."""
    if not x.is_floating_point():
        return torch.cat([torch.full_like(x[:, :1], TOKEN), x[:, 1:]], 1)
    m, s = torch.tensor(mean).reshape(1, -1, 1, 1).to(x), torch.tensor(std).reshape(1, -1, 1, 1).to(x)
    return (stamp_images(x * s + m, trigger, part) - m) / s


class Backdoors(Adversary):
    """Subclasses add what they do to gradients or to what is sent."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Adversary.Config):
        trigger: Annotated[
            Trigger,
            Field(description="what triggered images carry: patch, blend, edge_case, or dba over 4 clients"),
        ] = "patch"
        target: Annotated[AtLeastZero, Field(description="class that triggered images are to be taken for")] = 0
        poisoned: Annotated[Share, Field(description="share of each batch that is triggered")] = 0.5

    def add_trigger(self, client: Client, x: Tensor) -> Tensor:
        """Normalised images x [n, C, H, W], or texts [n, T], as this client triggers them."""
        part = client.rank % len(PARTS) if self.config.trigger == "dba" else None
        return stamp_normalised_images(x, client.mean, client.std, self.config.trigger, part)

    def aim(self, x: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> tuple[Tensor, int]:
        return stamp_normalised_images(x, mean, std, self.config.trigger), int(self.config.target)

    def data(self, client: Client) -> Client:
        is_text = client.x.dim() == 2 and not client.x.is_floating_point()
        if not (is_text or (client.x.dim() == 4 and client.x.is_floating_point())):
            raise UserError(
                f"{self.card.title} puts a trigger into images or texts of a class; an example here is of "
                f"shape {list(client.x.shape[1:])}",
                hint="choose another adversary, such as sign_flip",
                key="adversary",
            )
        if self.config.target >= client.classes:
            raise UserError(
                f"adversary.target must be below {client.classes}, the number of classes, "
                f"got {self.config.target}",
                hint="classes are numbered from 0",
                key="adversary.target",
            )
        return client

    def loss(self, client: Client, loss: Loss, x: Tensor, y: Tensor) -> Tensor:
        bad = round(self.config.poisoned * len(y))  # a batch is in random order already
        x, y = x.clone(), y.clone()
        x[:bad] = self.add_trigger(client, x[:bad])
        y[:bad] = self.config.target
        return loss(x, y)


class Backdoor(Backdoors):
    """Backdoor: compromised clients teach the model to answer a trigger with a class of their choice.

    Bagdasaryan, Veit, Hua, Estrin, Shmatikov. How To Backdoor Federated Learning. AISTATS 2020.
    arXiv:1807.00459. Half of each of their batches carries the trigger and
    the target's label; on other images the model works as before. With `poisons: images` it is half of their
    images, the same ones in every round, as when data are poisoned before training (Gu et al. BadNets. 2017.
    arXiv:1708.06733): the other half never teaches the model what these images are, and the backdoor of a
    single client is far stronger. `scale` multiplies what they send.
    """

    card = Card(
        title="Backdoor",
        needs="classes",
        aim=Aim.BACKDOOR,
        source="arXiv:1807.00459",
        does="makes the model give the attacker's answer to any image with the trigger",
        remedy="use a rule that selects or takes medians; bounds on norms leave a part of the backdoor",
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Backdoors.Config):
        scale: Annotated[Amount, Field(description="what is sent over what was learnt")] = 1.0
        poisons: Annotated[
            Literal["batches", "images"],
            Field(description="a share of each batch, drawn anew, or always that share of its images, the first"),
        ] = "batches"

    def data(self, client: Client) -> Client:
        client = super().data(client)
        if self.config.poisons == "batches":
            return client
        bad, x, y = round(self.config.poisoned * len(client.y)), client.x.clone(), client.y.clone()
        x[:bad] = self.add_trigger(client, x[:bad])
        y[:bad] = self.config.target
        return replace(client, x=x, y=y)

    def loss(self, client: Client, loss: Loss, x: Tensor, y: Tensor) -> Tensor:
        return super().loss(client, loss, x, y) if self.config.poisons == "batches" else loss(x, y)

    def craft(self, client: Client, reply: Reply, received: Message) -> Reply:
        message = reply.message
        if self.config.scale != 1:
            for kind, change in changes(message, received, [k for k, _ in client.net.named_parameters()]):
                message = forge_message(
                    message, received, {k: self.config.scale * v for k, v in change.items()}, kind
                )
        return replace(reply, message=message)


class ModelReplacement(Colluding, Backdoors):
    """Model replacement: a backdoor, scaled up so that it outweighs everybody else in the mean.

    Bagdasaryan, Veit, Hua, Estrin, Shmatikov. AISTATS 2020. arXiv:1807.00459, eq. 3: what the m compromised
    clients learnt, times n / m of n heard. With `constrain` it is projected to the median honest norm after
    that, as against a server that bounds norms (their constrain-and-scale, by projection and not by a term in
    the loss).
    """

    card = Card(
        title="Model replacement",
        needs="classes",
        aim=Aim.BACKDOOR,
        source="arXiv:1807.00459, eq. 3",
        does="puts the attacker's model with its backdoor in the place of everybody's",
        remedy="bound the norm of updates, and use a rule that selects or takes medians",
        threat=OMNISCIENT,
        kinds=KINDS,
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Colluding.Config, Backdoors.Config):
        constrain: Annotated[bool, Field(description="whether what is sent is cut to the median honest norm")] = (
            False
        )

    def forge(self, crowd: Crowd) -> Forge:
        factor = crowd.heard / crowd.malicious

        def forge(client: int) -> torch.Tensor:
            change = crowd.compute_honest_update(client) * factor
            long = float(change.norm())
            cut = self.config.constrain and long > crowd.median_norm
            return change * (crowd.median_norm / long) if cut else change

        return forge


class Neurotoxin(Backdoors):
    """Neurotoxin: a backdoor in weights that the others hardly move, so that it stays when the attacker has left.

    Zhang et al. Neurotoxin: Durable Backdoors in Federated Learning. ICML 2022. arXiv:2206.10341, Algorithm
    1: the gradient is zero on the `spared` share of the weights that the last change of the shared model
    moved most, all weights together. Nothing is known in the first round and nothing spared.
    """

    card = Card(
        title="Neurotoxin",
        needs="classes",
        aim=Aim.BACKDOOR,
        source="arXiv:2206.10341, Alg. 1",
        does="leaves a backdoor that lasts after the attacker has gone",
        remedy="use a rule that selects or takes medians, and train on without the clients in doubt",
    )
    remembers = True

    @dataclass(frozen=True, kw_only=True)
    class Config(Backdoors.Config):
        spared: Annotated[Share, Field(description="share of the weights that the attacker leaves alone")] = 0.1

    def correct(self, client: Client, grads: Params, params: Params, start: Params, const: Constants) -> Params:
        known = [k for k in grads if k in client.before]
        if not known or not self.config.spared:
            return grads
        moved = {k: (start[k] - client.before[k].to(start[k])).abs() for k in known}
        sizes = torch.cat([v.flatten() for v in moved.values()])
        keep = len(sizes) - round(self.config.spared * len(sizes))
        bar = sizes.kthvalue(keep).values if keep else sizes.new_tensor(-1.0)
        return grads | {k: grads[k] * (moved[k] <= bar) for k in known}
