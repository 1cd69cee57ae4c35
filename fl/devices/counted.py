"""Counted: the times of any network, from the multiplications that training it takes.

The profile is proportional to the multiply-adds of a training step, counted layer by layer
(fl/clients/time_model.py: training_cost). `rate` says how many fit a second; the default is what FreezeFL's
profile and the count of its own network give. For the times of a device at hand, time one epoch there and set the
rate: measured times would make two runs of one config differ.
"""

from pydantic import Field
from torch import nn

from fedaudit.fl.clients.time_model import Devices, Workload, training_cost
from fedaudit.fl.families.layers import layers, multiply_adds
from fedaudit.fl.runtime.ranges import Positive
from fedaudit.fl.runtime.settings import settings

RATE = 44_329_984 / 1.93564e-4  # FEMNIST CNN: multiply-adds an example, over seconds an example
SHARES = (0.0625, 0.125, 0.25, 0.5, 0.75, 1.0)


class Counted(Devices):
    title = "Devices that take as long as there is to multiply"
    source = "arithmetic; the rate is that of FreezeFL's code"

    @settings
    class Config(Devices.Config):
        rate: Positive = Field(default=RATE, description="multiply-adds of training in a second")

    def workload(self, net: nn.Module, shape: tuple[int, ...]) -> Workload:
        forward = multiply_adds(net, layers(net), shape)
        rate, c = self.config.rate, self.config
        widths = tuple((p, training_cost(_cut(forward, p))[0] / rate) for p in SHARES)
        profile = tuple(cost / rate for cost in training_cost(forward))
        return Workload(bandwidth=c.bandwidth, compute=c.compute, profile=profile, widths=widths)


def _cut(forward: tuple[int, ...], share: float) -> list[float]:
    """Costs of layers of which each hidden side is cut: first and last have one such side, the others two."""
    last = len(forward) - 1
    return [f * share ** ((i > 0) + (i < last)) for i, f in enumerate(forward)]
