"""How FedRS's networks start: convolutions He-normal (fan-out), their biases zero, the rest torch's."""

from torch import nn


def he_normal(net: nn.Module) -> None:
    """Draw the weights of all convolutions of `net` anew, from torch's generator."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
