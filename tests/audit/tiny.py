"""Plugins of a user's own, as a config names them by dotted path; small, and independent of fl/'s."""

from typing import Any

import numpy as np
from torch import Tensor, nn

from fedaudit.fl.data.dataset import Arrays, Data, Dataset
from fedaudit.fl.data.participation import Availability, Participation
from fedaudit.fl.data.partition import Index, OwnedLabels, Partition
from fedaudit.fl.model import Net
from fedaudit.fl.runtime.settings import settings

HERE = "tests.audit.tiny"
VERDICTS = (0, 1, 3)  # exit codes of a run that came to its end
SMALL = {  # a federation of four clients that always answer
    "dataset": {"name": f"{HERE}:TinyImages", "examples": 120},
    "clients": 4,
    "model": {"name": f"{HERE}:Linear", "width": 5},
    "availability": f"{HERE}:Everyone",
    "holdout": {"auxiliary": 0.3, "reference": 0.3},
}
TEXT = f"""
federation:
  dataset: {HERE}:TinyImages
  clients: 4
  partition: {HERE}:Thirds
  availability: {HERE}:Everyone
  model: {{name: "{HERE}:Linear", width: 5}}
method: {{name: fedavg, rounds: 2}}
"""


class TinyImages(Dataset):
    title = "Tiny images"
    holds = "invented"

    @settings
    class Config:
        examples: int = 60

    def load(self) -> Data:
        rng = np.random.default_rng(3)
        n = self.config.examples
        x = rng.random((n + 20, 1, 4, 4), dtype=np.float32)
        y = np.arange(n + 20, dtype=np.int64) % 2
        return Data(train=Arrays(x=x[:n], y=y[:n]), test=Arrays(x=x[n:], y=y[n:]), classes=("even", "odd"))


class Thirds(Partition):
    title, source = "By remainder", ""

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        return [np.arange(len(labels.y), dtype=np.int64)[k::clients] for k in range(clients)]

    def describe(self) -> str:
        return "every client holds every n-th example"


class Everyone(Availability):
    title = "Everyone"

    def draw(self, round: int, candidates: object, streams: object, attempt: int = 0) -> Participation:
        return Participation(tuple(candidates), tuple(candidates))  # type: ignore[call-overload]

    def describe(self) -> str:
        return "everyone answers"


class Linear(Net):
    @settings
    class Config:
        width: int = 3

    def __init__(self, shape: tuple[int, ...], classes: int, config: "Linear.Config") -> None:
        super().__init__(shape, classes, config)
        self.body = nn.Linear(int(np.prod(shape)), config.width)
        self.head = nn.Linear(config.width, classes)

    def features(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x.flatten(1)).relu()
        return out


class NoPlugin:
    """Not a subclass of anything."""


class NoNetwork(Linear):
    """One that cannot be built."""

    def __init__(self, shape: tuple[int, ...], classes: int, config: "Linear.Config") -> None:
        raise ValueError("this network is for images of 28 by 28")


class FailsInTraining(Linear):
    """One that learns in its first step that it was not made for this."""

    def features(self, x: Tensor) -> Tensor:
        if self.training:
            raise ValueError("this network is for batches of 7")
        return super().features(x)


class OneLogit(Linear):
    """One number for two classes."""

    def __init__(self, shape: tuple[int, ...], classes: int, config: "Linear.Config") -> None:
        super().__init__(shape, 1, config)


class Squeezed(OneLogit):
    """One number an example, and no list of logits."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[:, 0]


class Paired(Linear):
    """Logits with something beside them."""

    def forward(self, x: Tensor) -> Any:
        return super().forward(x), None


class Doubled(Linear):
    """Weights of 64 bits."""

    def __init__(self, shape: tuple[int, ...], classes: int, config: "Linear.Config") -> None:
        super().__init__(shape, classes, config)
        self.double()


class MoreLogits(Linear):
    """Logits of classes that nobody has."""

    def __init__(self, shape: tuple[int, ...], classes: int, config: "Linear.Config") -> None:
        super().__init__(shape, classes + 3, config)


class Unused(Linear):
    """A layer that nobody calls."""

    def __init__(self, shape: tuple[int, ...], classes: int, config: "Linear.Config") -> None:
        super().__init__(shape, classes, config)
        self.unused = nn.Linear(3, 3)


class FrozenBody(Linear):
    """Its first layer stays as it is."""

    def __init__(self, shape: tuple[int, ...], classes: int, config: "Linear.Config") -> None:
        super().__init__(shape, classes, config)
        self.body.requires_grad_(False)


class FrozenHead(Linear):
    """Its last layer stays as it is."""

    def __init__(self, shape: tuple[int, ...], classes: int, config: "Linear.Config") -> None:
        super().__init__(shape, classes, config)
        self.head.requires_grad_(False)


class Frozen(FrozenBody):
    """Nothing of it can be trained."""

    def __init__(self, shape: tuple[int, ...], classes: int, config: "Linear.Config") -> None:
        super().__init__(shape, classes, config)
        self.requires_grad_(False)


class PlainUnused(nn.Module):
    """None of ours, with a layer that nobody calls."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(int(np.prod(shape)), classes)
        self.unused = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(x.flatten(1))
        return out
