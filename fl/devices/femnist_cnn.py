"""Femnist_cnn: the times of FreezeFL's convolutional network, 4.4 million weights, from its public code.

Chou et al., FreezeFL. Its other folders use bw 50 and comp 1.5 for this network; only bw 100 with comp 0.4 fits
its tables. The published profile has an entry for each Keras layer, the time with all layers before it frozen:
input, reshape, conv, pool, conv, pool, flatten, fc, fc, out. A frozen layer with weights takes the pool and the
flattening behind it along, so that n = 0..4 frozen layers cost what entries 1, 4, 7, 8 and 9 say. That of a
narrower network is the public FjORD baseline's, where a GPU gains nothing by it.
"""

from torch import nn

from fedaudit.fl.clients.time_model import Devices, Workload

PROFILE = (1.93564e-4, 1.77742e-4, 1.62296e-4, 1.43990e-4, 1.43990e-4)
WIDTHS = ((0.25, 2.02e-4), (0.5, 2.00e-4), (0.75, 1.98e-4), (1.0, 1.93564e-4))


class FemnistCNN(Devices):
    title = "Devices of FreezeFL's convolutional network"
    source = "FreezeFL, public code"

    def workload(self, net: nn.Module, shape: tuple[int, ...]) -> Workload:
        c = self.config
        return Workload(bandwidth=c.bandwidth, compute=c.compute, profile=PROFILE, widths=WIDTHS)
