"""Label flip: compromised clients train as told, on examples whose labels they changed.

Tolpegin, Truex, Gursoy, Liu. Data Poisoning Attacks Against Federated Learning Systems. ESORICS 2020.
arXiv:2007.08432: examples of one class are called another (`mode: pair`), or every class c becomes C - 1 - c.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastZero
from fedaudit.fl.threats.adversary import Adversary, Card, Client
from fedaudit.fl.threats.threat import Aim


class LabelFlip(Adversary):
    card = Card(
        title="Label flip",
        needs="classes",
        aim=Aim.TARGETED,
        source="arXiv:2007.08432",
        does="teaches the model to take classes for one another",
        remedy="use a robust rule, and compare accuracy class by class",
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Adversary.Config):
        mode: Annotated[
            Literal["all", "pair"],
            Field(description="all classes change, c to C - 1 - c, or `source` to `target`"),
        ] = "all"
        source: Annotated[AtLeastZero, Field(description="class that is called another, with mode: pair")] = 0
        target: Annotated[AtLeastZero, Field(description="what it is called, with mode: pair")] = 1

    def data(self, client: Client) -> Client:
        c = self.config
        if c.mode == "all":
            return replace(client, y=client.classes - 1 - client.y)
        if max(c.source, c.target) >= client.classes:
            raise UserError(
                f"adversary.source and target must be below {client.classes}, the number of classes, got "
                f"{c.source} and {c.target}",
                hint="classes are numbered from 0",
                key="adversary",
            )
        return replace(client, y=client.y.where(client.y != c.source, c.target))
