"""The times of FreezeFL's two networks, from its public code.

A published profile has an entry for each Keras layer: the time with all layers before it frozen.
"""

from pydantic import Field
from torch import nn

from fedaudit.fl.clients.time_model import Devices, Workload
from fedaudit.fl.runtime.ranges import Positive
from fedaudit.fl.runtime.settings import settings

PLUGINS = ("femnist_cnn", "shakespeare_rnn")
CONVOLUTIONAL = (1.93564e-4, 1.77742e-4, 1.62296e-4, 1.43990e-4, 1.43990e-4)
WIDTHS = ((0.25, 2.02e-4), (0.5, 2.00e-4), (0.75, 1.98e-4), (1.0, 1.93564e-4))
RECURRENT = (1.39197e-4, 1.27089e-4, 1.03903e-4, 0.76649e-4)


class FemnistCNN(Devices):
    """Femnist_cnn: the times of FreezeFL's convolutional network, 4.4 million weights, from its public code.

    Chou et al., FreezeFL. Its other folders use bw 50 and comp 1.5 for this network; only bw 100 with comp 0.4
    fits its tables. Entries: input, reshape, conv, pool, conv, pool, flatten, fc, fc, out. A frozen layer with
    weights takes the pool and the flattening behind it along, so that n = 0..4 frozen layers cost what entries 1,
    4, 7, 8 and 9 say. That of a narrower network is the public FjORD baseline's, where a GPU gains nothing by it.
    """

    title = "Devices of FreezeFL's convolutional network"
    source = "FreezeFL, public code"

    def workload(self, net: nn.Module, shape: tuple[int, ...]) -> Workload:
        c = self.config
        return Workload(bandwidth=c.bandwidth, compute=c.compute, profile=CONVOLUTIONAL, widths=WIDTHS)


class ShakespeareRNN(Devices):
    """Shakespeare_rnn: the times of FreezeFL's recurrent network, 818 thousand weights, from its public code.

    Chou et al., FreezeFL. Entries: input, embedding, LSTM, LSTM, dense, so that n = 0..3 frozen layers cost what
    entries 1 to 4 say.
    """

    title = "Devices of FreezeFL's recurrent network"
    source = "FreezeFL, public code"

    @settings
    class Config(Devices.Config):
        bandwidth: Positive = Field(default=25, description="bw: megabytes in a unit of time at capability 1")
        compute: Positive = Field(
            default=3.0, description="comp: seconds of the profile in a unit of time at capability 1"
        )

    def workload(self, net: nn.Module, shape: tuple[int, ...]) -> Workload:
        return Workload(bandwidth=self.config.bandwidth, compute=self.config.compute, profile=RECURRENT)
