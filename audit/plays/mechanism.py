"""Plays a mechanism: a new filter, some updates in a row, one seed, and what came out as one row of numbers."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedaudit.audit.plays.sources import hold_clock, reach_sources
from fedaudit.fl.runtime.errors import UserError

MOST_SAID = 100  # letters of what an error says
Floats = NDArray[np.float64]
Update = Mapping[str, Any]  # name -> array
Filter = Callable[[Update], Update]


@dataclass(frozen=True)
class Layout:
    """Which arrays lie where in a row of numbers."""

    shapes: Mapping[str, tuple[int, ...]]
    types: Mapping[str, np.dtype[Any]]

    @cached_property
    def size(self) -> int:
        return sum(part.stop - part.start for part in self.parts.values())

    @cached_property
    def parts(self) -> dict[str, slice]:
        """Name -> its numbers."""
        found, start = {}, 0
        for name, shape in self.shapes.items():
            count = int(np.prod(shape, dtype=int))
            found[name] = slice(start, start + count)
            start += count
        return found

    def cut(self, row: Floats) -> dict[str, NDArray[Any]]:
        """The row as arrays of these names, shapes and types."""
        return {
            name: row[part].astype(self.types[name]).reshape(self.shapes[name])
            for name, part in self.parts.items()
        }


class Crashed(Exception):
    """The mechanism raised, or its answer cannot be read."""


class Player:
    """Plays one mechanism. A context: within it, every source of randomness is seeded where a seed is given.

    `make` builds the filter, `like` is one update; `first` is added to every seed, and `effort` is the share of
    the calls that statistics ask for. Counts its calls.
    """

    def __init__(self, make: Callable[[], Filter], like: Update, *, first: int = 0, effort: float = 1.0) -> None:
        arrays = {str(name): np.asarray(value) for name, value in like.items()}
        if not arrays or not any(a.size for a in arrays.values()):
            raise UserError("an update of no arrays was given", hint="like={'weight': array}, one update")
        self._make = make
        self.given = Layout({n: a.shape for n, a in arrays.items()}, {n: a.dtype for n, a in arrays.items()})
        self.sent: Layout | None = None  # known from the first call on
        self.calls, self.effort, self._first = 0, effort, first
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._plant = self._stack.enter_context(reach_sources())
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def play(self, rows: Sequence[Floats], seed: int) -> list[Floats]:
        """A new filter under `seed`, called once for every row. Raises Crashed."""
        self._plant(self._first + seed)
        return self._call(rows)

    def play_freely(self, rows: Sequence[Floats], *, clock: float | None = None) -> list[Floats]:
        """The same with the sources as they are; the clock stands still at `clock` if given. Raises Crashed."""
        self._stack.close()
        try:
            with nullcontext() if clock is None else hold_clock(clock):
                return self._call(rows)
        finally:
            self._plant = self._stack.enter_context(reach_sources())

    def keep_decimals(self) -> list[str]:
        """Ask without the arrays of whole numbers from now on; returns their names."""
        kept = {n: t for n, t in self.given.types.items() if t.kind == "f"}
        left = [n for n in self.given.shapes if n not in kept]
        if kept:
            self.given = Layout({n: self.given.shapes[n] for n in kept}, kept)
        return left if kept else []

    def _call(self, rows: Sequence[Floats]) -> list[Floats]:
        try:
            play = self._make()
            found = []
            for row in rows:
                self.calls += 1
                found.append(self._read(play(self.given.cut(row))))
            return found
        except Crashed:
            raise
        except Exception as error:  # anybody's code
            said = str(error).partition("\n")[0]
            raise Crashed(type(error).__name__, said[:MOST_SAID]) from error

    def _read(self, answer: Update) -> Floats:
        try:
            arrays = {str(name): np.asarray(value) for name, value in answer.items()}
            row = np.concatenate([a.ravel() for a in arrays.values()], dtype=np.float64, casting="unsafe")
        except (AttributeError, TypeError, ValueError) as error:
            raise Crashed(f"an answer of type {type(answer).__name__}, which is no arrays by name") from error
        layout = Layout({n: a.shape for n, a in arrays.items()}, {n: a.dtype for n, a in arrays.items()})
        if self.sent is None:
            self.sent = layout
        if layout.shapes != self.sent.shapes:
            raise Crashed("an answer of other names or shapes")
        return row
