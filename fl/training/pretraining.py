"""Training of a base model on public text, before any federation: the start that everybody has."""

import torch
from torch import nn

from fedaudit.fl.data.dataset import Arrays
from fedaudit.fl.model import Net, State, state_of
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.workers import one_thread


def train_base(net: Net, data: Arrays, steps: int, batch_size: int, lr: float, streams: Streams) -> State:
    """The state after `steps` of AdamW on batches drawn from `data`; `net` is overwritten.

    One thread, so that the bits do not depend on the machine's number of cores.
    """
    x, y = torch.from_numpy(data.x), torch.from_numpy(data.y)
    draws = streams.torch("base")
    optimiser = torch.optim.AdamW(net.parameters(), lr=lr, weight_decay=0.01)
    with one_thread():
        net.train()
        for step in range(steps):
            batch = torch.randint(len(y), (batch_size,), generator=draws)
            for group in optimiser.param_groups:
                group["lr"] = lr * min(1.0, (step + 1) / 10) * (1 - step / steps)
            optimiser.zero_grad()
            net.loss(x[batch], y[batch]).backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimiser.step()
    return state_of(net)
