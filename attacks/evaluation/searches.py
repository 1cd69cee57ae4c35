"""Searches: tensors that move until a network that is imitated gives what was seen; side by side where that pays.

On an accelerator the searches of one kind are one batch, halved where memory does not hold it: launching the
steps of one takes longer than they run. A processor makes one after the other, since a large network is no faster
in a batch there and last bits lead some searches elsewhere. So does an accelerator where torch cannot stack them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fedaudit.fl.runtime.shared_weights import find_shared_names

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Measure = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Search:
    """Where tensors that move start, on the processor."""

    start: "Sequence[Tensor]"

    @property
    @abstractmethod
    def kind(self) -> Hashable:
        """Searches alike in this are made with the same arithmetic on one copy of the network."""


S = TypeVar("S", bound=Search)
F = TypeVar("F")
T = TypeVar("T")


class Searching(ABC, Generic[S, F]):
    """An attack that makes searches."""

    on_accelerator = "searches side by side"

    @abstractmethod
    def imitate(self, search: S, stackable: bool) -> Any:
        """What runs the network, for all searches of this kind; `stackable`: under torch.func.vmap."""

    @abstractmethod
    def read(self, search: S, copy: Any) -> "Sequence[Tensor]":
        """What the tensors that move are held against, on the device."""

    @abstractmethod
    def list_measures(self, search: S, copy: Any) -> Sequence[Measure]:
        """Functions of what moves and of what was read, for all searches of this kind.

        Each gives a loss [], alone or first of several tensors.
        """

    @abstractmethod
    def descend(
        self, variables: "Sequence[Tensor]", measures: Sequence[Measure], stacked: bool
    ) -> "Sequence[Tensor]":
        """What moving the variables finds by measures of them alone; `stacked`: of each search in a row."""

    @abstractmethod
    def finish(self, search: S, found: "Sequence[Tensor]") -> F:
        """What is made of what was found, on the processor."""

    def search(self, searches: Iterable[S], device: str) -> list[F]:
        """What each came to. On a processor a search is asked for when the one before it is done."""
        together, each = (partial(do, device=device) for do in (self._search_together, self._search_each))
        return run_alike(searches, device, lambda search: search.kind, together, each)

    def _search_together(self, alike: Sequence[S], device: str) -> list[F]:
        import torch
        from torch.func import vmap

        def stack(each: "Iterable[Sequence[Tensor]]") -> "list[Tensor]":
            """Not in the layout of convolutions, in which vmap cannot normalise by groups."""
            return [torch.stack(of).contiguous() for of in zip(*each, strict=True)]

        copy = self.imitate(alike[0], True)
        variables = [v.to(device) for v in stack(s.start for s in alike)]
        given = stack(self.read(s, copy) for s in alike)
        each = [vmap(measure) for measure in self.list_measures(alike[0], copy)]
        found = [v.cpu() for v in self.descend(variables, [_bind(m, given) for m in each], True)]
        return [self.finish(s, [v[i] for v in found]) for i, s in enumerate(alike)]

    def _search_each(self, searches: Iterable[S], device: str) -> list[F]:
        found, copies = list[F](), dict[Hashable, Any]()
        for search in searches:
            if search.kind not in copies:
                copies = {search.kind: self.imitate(search, False)}  # of one kind at a time
            copy = copies[search.kind]
            given, variables = self.read(search, copy), [v.to(device) for v in search.start]
            measures = [_bind(m, given) for m in self.list_measures(search, copy)]
            found.append(self.finish(search, [v.cpu() for v in self.descend(variables, measures, False)]))
        return found


def _bind(measure: Measure, given: "Sequence[Tensor]") -> Measure:
    return lambda *variables: measure(*variables, *given)


def run_alike(
    pieces: Iterable[T],
    device: "str | torch.device",
    kind: Callable[[T], Hashable],
    together: Callable[[Sequence[T]], list[F]],
    each: Callable[[Iterable[T]], list[F]],
) -> list[F]:
    """What each piece came to. On a processor `each` asks for a piece when the one before it is done.

    On an accelerator those alike in `kind` are made together, as far as its memory and torch allow.
    """
    import torch

    if torch.device(device).type == "cpu":
        return each(pieces)
    listed, alike = [*pieces], dict[Hashable, list[int]]()
    for i, piece in enumerate(listed):
        alike.setdefault(kind(piece), []).append(i)
    found = dict[int, F]()
    for places in alike.values():
        made = _run_together([listed[i] for i in places], together, each)
        found.update(zip(places, made, strict=True))
    return [found[i] for i in range(len(listed))]


def _run_together(
    alike: Sequence[T], together: Callable[[Sequence[T]], list[F]], each: Callable[[Iterable[T]], list[F]]
) -> list[F]:
    import torch

    try:
        return together(alike)
    except torch.OutOfMemoryError:
        half = len(alike) // 2
    except RuntimeError:
        half = 0
    if half:  # outside of what was caught, which holds on to memory
        return [f for some in (alike[:half], alike[half:]) for f in _run_together(some, together, each)]
    return each(alike)


def choose_rows(of: "Tensor", some: "Sequence[Tensor]", others: "Sequence[Tensor]") -> "list[Tensor]":
    """The tensors of `some` in the rows `of` [k] that are true, else those of `others`; of [] all or none."""
    import torch

    each = zip(some, others, strict=True)
    return [torch.where(of.view(*of.shape, *[1] * (a.dim() - of.dim())), a, b) for a, b in each]


def open_weights(module: "nn.Module", names: Sequence[str]) -> "Callable[..., Tensor]":
    """A function of an input and of weights with these names, in order, that runs the module with them."""
    shared = find_shared_names(module)
    return lambda x, *weights: shared.call(module, dict(zip(names, weights, strict=True)), x)


def take_features(model: Any) -> "nn.Module":
    """A module that makes of images what the model makes of them before its last layer."""
    from torch import nn

    class Features(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: "Tensor") -> "Tensor":
            found: Tensor = model.features(x)
            return found

    return Features()
