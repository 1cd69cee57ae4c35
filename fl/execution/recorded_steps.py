"""Steps that CUDA records once and repeats, since launching them takes longer than they run."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Replay = Callable[[], None]


class Step:
    """A step of some rows with a batch each, which is repeated from a recording from its second time on.

    A step of small networks is some hundred kernels, and the host takes longer to launch them than they run. The
    first step of the same rows and shapes runs as it stands, which also prepares libraries. `record` takes a step
    and what it reads, and returns what repeats it on the same tensors; None, or a step that cannot be recorded
    because it waits for the device: every step runs as it stands.
    """

    def __init__(
        self,
        advance: Callable[..., None],
        device: str,
        record: Callable[[Callable[..., None], Sequence[Tensor]], Replay] | None,
    ) -> None:
        self._advance, self._device, self._record = advance, device, record
        self._met: set[Any] = set()
        self._places: dict[tuple[int, ...], Tensor] = {}  # rows on the device
        self._recordings: dict[Any, tuple[Sequence[Tensor], Replay]] = {}  # with what they read

    def __call__(self, rows: Sequence[int], *batch: Tensor) -> None:
        """The step of these rows."""
        key = tuple(rows)
        if key not in self._places:
            self._places[key] = torch.tensor(rows).to(self._device)
        kind, here = (key, *(b.shape for b in batch)), self._places[key]
        if kind in self._met and kind not in self._recordings and self._record is not None:
            read = [here, *(b.clone() for b in batch)]
            try:
                self._recordings[kind] = read, self._record(self._advance, read)
            except RuntimeError:  # CUDA's, which then has run nothing of the step
                self._record = None
        self._met.add(kind)
        if kind not in self._recordings:
            self._advance(here, *batch)
            return
        places, replay = self._recordings[kind]
        for place, given in zip(places[1:], batch, strict=True):
            place.copy_(given)
        replay()


class CudaRecorder:
    """Records what CUDA is given. Recordings share memory: they run one after the other, and what a step leaves
    lies outside of it."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, step: Callable[..., None], read: Sequence[Tensor]) -> Replay:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            step(*read)
        return graph.replay
