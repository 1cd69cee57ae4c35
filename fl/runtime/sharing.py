"""What runs of one process share while they are made together: data read once, first models drawn once.

Outside of `sharing()` nothing is kept, so that a file that changed is read again.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
KEPT = 24  # results at a time; a review of a run with options needs about twenty, nearly all of them small

_kept: OrderedDict[tuple[Any, ...], Any] | None = None


@contextmanager
def sharing() -> Iterator[None]:
    """Inside, `shared` keeps what it computes; blocks may be nested."""
    global _kept
    before = _kept
    _kept = OrderedDict() if before is None else before
    try:
        yield
    finally:
        _kept = before


def share_result(key: tuple[Any, ...], compute: Callable[[], T]) -> T:
    """compute(), or what it gave under the same key. Nobody may change the result in place."""
    if _kept is None:
        return compute()
    if key not in _kept:
        _kept[key] = compute()
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
    _kept.move_to_end(key)
    found: T = _kept[key]
    return found
