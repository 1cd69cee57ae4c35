"""What backdoors share: clients that train on batches of which a share carries a trigger and the wrong label."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedaudit.attacks.poisoning._trigger import PARTS, Trigger, stamped_normalised
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastZero, Share
from fedaudit.fl.threats.adversary import Adversary, Client, Loss


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

    def triggered(self, client: Client, x: Tensor) -> Tensor:
        """Normalised images x [n, C, H, W] as this client triggers them."""
        part = client.rank % len(PARTS) if self.config.trigger == "dba" else None
        return stamped_normalised(x, client.mean, client.std, self.config.trigger, part)

    def aim(self, x: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> tuple[Tensor, int]:
        return stamped_normalised(x, mean, std, self.config.trigger), int(self.config.target)

    def data(self, client: Client) -> Client:
        if client.x.dim() != 4 or not client.x.is_floating_point():
            raise UserError(
                f"{self.card.title} puts a trigger into images; one example here has shape "
                f"{list(client.x.shape[1:])}",
                hint="choose a data set of images, or another adversary, such as label_flip",
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
        x[:bad] = self.triggered(client, x[:bad])
        y[:bad] = self.config.target
        return loss(x, y)
