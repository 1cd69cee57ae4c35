"""Work on several machines: rank 0 of a torchrun job calls, and the other ranks do their share.

    torchrun --nnodes 3 --nproc-per-node 1 ... -m fedaudit run CONFIG --workers torchrun

In a simulation rank 0 has the server, the wire and the run folder. Every other rank reads the same config, builds
the same clients and lends its processes: they answer over TCP, as a local process does over a pipe, and results
come back in the order of the calls, so the numbers are those of one process. What travels is pickled by our own
processes, which prove to each other that they know a key drawn for this job; its network is trusted, as torchrun
trusts it. Of long pieces of work (attacks, cells) each rank takes the next one when it is free, by a counter in
the job's store.
"""

import json
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Listener
from typing import Any

from torch.distributed import DistError
from torch.distributed.distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

from fedaudit.fl.runtime import children, foreign
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.machine import cores_of_rank
from fedaudit.fl.runtime.shared_pipe import SharedPipe
from fedaudit.fl.runtime.strict_json import parse_json
from fedaudit.fl.runtime.workers import Pool, choose_context, serve

_OVER = "fedaudit/over"
_CONNECTING = timedelta(minutes=1)
_POLL = 0.1  # seconds between two looks into the store


def rank() -> int:
    """Of this process in its job; 0 outside one."""
    return int(os.environ.get("RANK", "0"))


def count_ranks() -> int:
    """Of this job; 1 outside one."""
    return int(os.environ.get("WORLD_SIZE", "1"))


class Call:
    """Something that rank 0 asked all ranks to do, and the pieces that each of them takes of it."""

    def __init__(self, number: int) -> None:
        self._key, self._store = f"fedaudit/call/{number}", _store()
        self._own = set[int]()

    def claim(self, pieces: Sequence[int]) -> Iterator[int]:
        """Of these numbers, in the same order on every rank, those that this rank takes; no other takes them."""
        while (place := self._store.add(f"{self._key}/next", 1) - 1) < len(pieces):
            self._own.add(pieces[place])
            yield pieces[place]

    def end(self, piece: int, answer: str) -> None:
        """A piece was done here."""
        self._store.set(f"{self._key}/{piece}", answer)

    def answers(self, pieces: Sequence[int]) -> Iterator[tuple[int, str]]:
        """What other ranks answered of the pieces that they took, until there is an answer of each."""
        missing = {*pieces} - self._own
        while missing:
            for piece in sorted(missing):
                if self._store.check([f"{self._key}/{piece}"]):
                    missing.remove(piece)
                    yield piece, self._store.get(f"{self._key}/{piece}").decode()
            if missing:
                time.sleep(_POLL)


_calls: list[Call] = []


def call(duty: str, what: str) -> Call:
    """Ask every other rank to do its share; for rank 0."""
    number = len(_calls)
    _store().set(f"fedaudit/call/{number}", json.dumps([duty, what]))
    _calls.append(Call(number))
    return _calls[-1]


def follow(duties: Mapping[str, Callable[[Call, str], None]]) -> None:
    """Do what rank 0 calls for, one thing after another, until it needs nobody any more; for every other rank."""
    store, number = _store(), 0
    while not store.check([_OVER]):
        if store.check([f"fedaudit/call/{number}"]):
            duty, what = parse_json(store.get(f"fedaudit/call/{number}"))
            duties[duty](Call(number), what)
            number += 1
        else:
            time.sleep(_POLL)


@contextmanager
def lead() -> Iterator[None]:
    """What rank 0 does in here it may call others for; then it needs nobody any more.

    A UserError says so where a rank is lost.
    """
    before = signal.signal(signal.SIGTERM, _stop_lost)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
    _store().set(_OVER, "1")


class Torchrun(Pool):
    """The worker processes of every rank, as one pool; for rank 0."""

    def __init__(self, make_site: Callable[[], Any]) -> None:
        store, key = _store(), secrets.token_bytes(32)
        super().__init__(cores_of_rank(), make_site)
        host, ranks = os.environ["MASTER_ADDR"], count_ranks()
        alone = ranks == int(os.environ["LOCAL_WORLD_SIZE"])  # nobody else's machine is asked
        with Listener((host if alone else "0.0.0.0", 0), authkey=key, backlog=1024) as listener:
            _, port = listener.address
            call("lend", f"{host} {port} {key.hex()}")
            for other in range(1, ranks):
                for _ in range(int(store.get(f"fedaudit/lent/{other}"))):
                    self._ends.append(_accept_process(listener))
        self.count = len(self._ends)


def lend(make_site: Callable[[], Any], address: str) -> None:
    """Answer rank 0, which listens at "HOST PORT KEY", until it closes its pool; for every other rank."""
    host, port, key = address.split()
    _store().set(f"fedaudit/lent/{rank()}", str(cores_of_rank()))
    context: Any = choose_context()
    lent = [
        context.Process(
            target=_serve_requests, args=((host, int(port)), bytes.fromhex(key), foreign.Carried(make_site))
        )
        for _ in range(cores_of_rank())
    ]
    for process in lent:
        process.start()
    for process in lent:
        process.join()
    if any(process.exitcode for process in lent):
        raise UserError(f"a worker process of rank {rank()} ended unexpectedly", hint="look for its memory")


def _accept_process(listener: Listener) -> SharedPipe:
    """The next process that knows the key; who does not is turned away."""
    while True:
        with suppress(AuthenticationError, EOFError, ConnectionError):
            return SharedPipe(listener.accept())


def _serve_requests(address: tuple[str, int], key: bytes, make_site: foreign.Carried) -> None:
    serve(SharedPipe(Client(address, authkey=key)), make_site, [])


_stores: list[Store] = []


def _store() -> Store:
    """The job's store of keys; raises UserError outside a job."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        raise UserError(
            "workers is torchrun, and torchrun did not start this process",
            hint="torchrun --nproc-per-node 2 -m fedaudit run CONFIG --workers torchrun, or workers: auto",
        )
    if not _stores:
        children.die_with_parent()  # torchrun has the store: without it a rank would wait for ever
        try:
            store, _, _ = next(iter(rendezvous("env://", timeout=_CONNECTING)))
        except DistError as error:
            raise UserError(
                "the store of the torchrun job cannot be reached", hint="torchrun has ended; start it again"
            ) from error
        _stores.append(store)
    return _stores[0]


def _stop_lost(number: int, frame: object) -> None:  # noqa: ARG001
    raise UserError(
        "a rank of the torchrun job was lost, and the job ends",
        hint="the same command goes on from the last checkpoint",
    )
