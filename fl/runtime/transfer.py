"""Copies between the memory of the processor and of a device: pinned, which CUDA reads and writes by itself."""

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor

K = TypeVar("K")


def send(value: Tensor, device: str) -> Tensor:
    """The same on a device, where what uses it next waits for it, and not this process."""
    if torch.device(device).type != "cuda" or value.is_cuda:
        return value.to(device)
    return value.pin_memory().to(device, non_blocking=True)


def fetch(values: Mapping[K, Tensor]) -> dict[K, Tensor]:
    """The same in the processor's memory, all of which this process waits for once."""
    if not any(v.is_cuda for v in values.values()):
        return {k: v.cpu() for k, v in values.items()}
    here = {k: torch.empty(v.shape, dtype=v.dtype, pin_memory=True) for k, v in values.items()}
    for k, v in values.items():
        here[k].copy_(v, non_blocking=True)
    torch.cuda.synchronize()
    return here
