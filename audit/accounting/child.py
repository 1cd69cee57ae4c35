"""A function in a process of its own, with a cap on time and memory.

Numerical accountants hang, or ask for terabytes, on odd inputs. Past a cap the child is killed and
the caller hears why; nothing of it stays behind.
"""

import contextlib
import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, ParamSpec, TypeVar

from fedaudit.fl.runtime import children

P = ParamSpec("P")
T = TypeVar("T")


class Exceeded(Exception):
    """The child was stopped, or failed; the message is a phrase that says why."""


def call(function: Callable[P, T], seconds: float, gigabytes: float, *args: P.args, **kwargs: P.kwargs) -> T:
    """function(*args, **kwargs), computed in a child; function and arguments must be picklable.

    Raises Exceeded past `seconds` of wall time, past `gigabytes` of address space (where the system
    can limit that), and where the function itself raises. Within a child it is simply called: the caps of
    that child hold.
    """
    if multiprocessing.current_process().daemon:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise Exceeded(_failure(error)) from error
    context: Any = children.get_context("spawn")  # a fork would inherit locked threads
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_serve, args=(theirs, gigabytes, function, args, kwargs), daemon=True)
    child.start()
    theirs.close()
    try:
        if not ours.poll(seconds):
            raise Exceeded(f"it took longer than {seconds:g} s")
        good, answer = ours.recv()
    except EOFError:
        raise Exceeded(f"it was killed, or needed more than {gigabytes:g} GB") from None
    finally:
        child.kill()
        child.join()
        ours.close()
    if not good:
        raise Exceeded(answer)
    found: T = answer
    return found


def _serve(pipe: Connection, gigabytes: float, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        limit = int(gigabytes * 1e9)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        pipe.send((True, function(*args, **kwargs)))
    except MemoryError:
        pipe.send((False, f"it needed more than {gigabytes:g} GB"))
    except Exception as error:
        pipe.send((False, _failure(error)))


def _failure(error: Exception) -> str:
    return f"it failed with {type(error).__name__}: {' '.join(str(error).split())[:200]}"
