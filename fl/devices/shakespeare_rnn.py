"""Shakespeare_rnn: the times of FreezeFL's recurrent network, 818 thousand weights, from its public code.

Chou et al., FreezeFL. The published profile has an entry for each Keras layer (input, embedding, LSTM, LSTM,
dense): the time with all layers before it frozen, so that n = 0..3 frozen layers cost what entries 1 to 4 say.
"""

from pydantic import Field
from torch import nn

from fedaudit.fl.clients.time_model import Devices, Workload
from fedaudit.fl.runtime.ranges import Positive
from fedaudit.fl.runtime.settings import settings

PROFILE = (1.39197e-4, 1.27089e-4, 1.03903e-4, 0.76649e-4)


class ShakespeareRNN(Devices):
    title = "Devices of FreezeFL's recurrent network"
    source = "FreezeFL, public code"

    @settings
    class Config(Devices.Config):
        bandwidth: Positive = Field(default=25, description="bw: megabytes in a unit of time at capability 1")
        compute: Positive = Field(
            default=3.0, description="comp: seconds of the profile in a unit of time at capability 1"
        )

    def workload(self, net: nn.Module, shape: tuple[int, ...]) -> Workload:
        return Workload(bandwidth=self.config.bandwidth, compute=self.config.compute, profile=PROFILE)
