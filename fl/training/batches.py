"""How the examples of an epoch become batches, for whoever trains and for whoever replays a training."""

import copy

from torch import Tensor, nn, no_grad
from torch.nn.modules.batchnorm import _BatchNorm
from torch.random import fork_rng

from fedaudit.fl.model import Net


def has_batch_statistics(net: nn.Module) -> bool:
    """Whether the examples of a batch share statistics, which a single one has not."""
    return any(isinstance(m, _BatchNorm) for m in net.modules())


def split_into_batches(examples: int, size: int, *, joins: bool = False) -> list[int]:
    """The sizes of an epoch's batches, in their order; none for no examples.

    The last one may be smaller. With `joins`, one that would hold a single example joins the one before it: for a
    network with batch statistics, since a single value has no variance.
    """
    sizes = [min(size, examples - start) for start in range(0, examples, size)]
    if joins and size > 1 and sizes[1:] and sizes[-1] == 1:
        sizes[-2:] = [size + 1]
    return sizes


def find_smallest_batch(net: Net, x: Tensor) -> int:
    """Examples that the network needs in a training batch: 1, or 2 where it does not take x [1, ...] alone."""
    if not has_batch_statistics(net):
        return 1
    net = copy.deepcopy(net).train()  # whose running statistics move
    with fork_rng(devices=[]), no_grad():
        try:
            net(x)
        except Exception:  # whatever kind a network of somebody's own raises  # noqa: BLE001
            return 2
    return 1
