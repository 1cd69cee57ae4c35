"""Client work on several machines: the other ranks of a torchrun job lend their worker processes to rank 0.

    torchrun --nnodes 3 --nproc-per-node 1 ... -m fedaudit run CONFIG --workers torchrun

Rank 0 has the server, the wire and the run folder, and is the only one that writes. Every other rank reads the
same config, builds the same clients and answers over TCP, as a local process does over a pipe: results come back
in the order of the calls, so the numbers are those of one process. What travels is pickled by our own processes,
which prove to each other that they know a key drawn for this job; its network is trusted, as torchrun trusts it.
"""

import os
import secrets
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import AuthenticationError, get_context
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from torch.distributed.distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

from fedaudit.fl.runtime import foreign
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.machine import cores
from fedaudit.fl.runtime.workers import Pool, serve

_ADDRESS, _OVER = "fedaudit/address", "fedaudit/over"


def rank() -> int:
    """Of this process in its job; 0 outside one."""
    return int(os.environ.get("RANK", "0"))


def over() -> None:
    """Rank 0 needs nobody any more, or never did."""
    _store().set(_OVER, "1")


class Torchrun(Pool):
    """The worker processes of every rank, as one pool; for rank 0."""

    def __init__(self, make_site: Callable[[], Any]) -> None:
        store, key = _store(), secrets.token_bytes(32)
        super().__init__(_share(), make_site)
        host, ranks = os.environ["MASTER_ADDR"], int(os.environ["WORLD_SIZE"])
        alone = ranks == int(os.environ["LOCAL_WORLD_SIZE"])  # nobody else's machine is asked
        with Listener((host if alone else "0.0.0.0", 0), authkey=key, backlog=1024) as listener:
            _, port = listener.address
            store.set(_ADDRESS, f"{host} {port} {key.hex()}")
            for other in range(1, ranks):
                for _ in range(int(store.get(f"fedaudit/lent/{other}"))):
                    self._ends.append(_accept_process(listener))
        self.count = len(self._ends)
        self._before = signal.signal(signal.SIGTERM, _stop_lost)

    def close(self) -> None:
        super().close()
        signal.signal(signal.SIGTERM, self._before)


def lend(make_site: Callable[[], Any]) -> None:
    """Answers rank 0 until it closes its pool; for every other rank."""
    store = _store()
    while not store.check([_ADDRESS]):
        if store.check([_OVER]):
            return
        time.sleep(0.1)
    host, port, key = store.get(_ADDRESS).decode().split()
    store.set(f"fedaudit/lent/{rank()}", str(_share()))
    lent = [
        get_context("fork").Process(
            target=_serve_requests, args=((host, int(port)), bytes.fromhex(key), foreign.Carried(make_site))
        )
        for _ in range(_share())
    ]
    for process in lent:
        process.start()
    for process in lent:
        process.join()
    if any(process.exitcode for process in lent):
        raise UserError(f"a worker process of rank {rank()} ended unexpectedly", hint="look for its memory")


def _accept_process(listener: Listener) -> Connection:
    """The next process that knows the key; who does not is turned away."""
    while True:
        with suppress(AuthenticationError, EOFError, ConnectionError):
            return listener.accept()


def _serve_requests(address: tuple[str, int], key: bytes, make_site: foreign.Carried) -> None:
    end: Connection = Client(address, authkey=key)
    serve(end, make_site, [])


def _share() -> int:
    """Worker processes of this rank: the usable cores, shared by the ranks of this machine."""
    return max(1, cores() // int(os.environ["LOCAL_WORLD_SIZE"]))


_stores: list[Store] = []


def _store() -> Store:
    """The job's store of keys; raises UserError outside a job."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        raise UserError(
            "workers is torchrun, and torchrun did not start this process",
            hint="torchrun --nproc-per-node 2 -m fedaudit run CONFIG --workers torchrun, or workers: auto",
        )
    if not _stores:
        store, _, _ = next(iter(rendezvous("env://")))
        _stores.append(store)
    return _stores[0]


def _stop_lost(number: int, frame: object) -> None:  # noqa: ARG001
    raise UserError(
        "a rank of the torchrun job was lost, and the job ends",
        hint="the same command goes on from the last checkpoint",
    )
