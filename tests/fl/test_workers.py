"""Workers: order, exceptions, dead processes, early stops; one process or three give the same bits."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

import numpy as np
import pytest
import torch

from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import Net
from fedaudit.fl.runtime import children, machine, workers
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.shared_pipe import SIZE, SharedPipe
from fedaudit.fl.runtime.torchrun import _accept_process
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.runtime.workers import Pool, Workers
from tests.fl.worlds import CLASSES, run, same

PART = 1000  # bytes of an answer


class Awkward(Exception):
    """Can be written by pickle and not read back."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


class OwnError(UserError):
    pass


@dataclass
class Site:
    told: int = 0

    def tell(self, number: int) -> None:
        if number < 0:
            raise UserError("a number below 0", hint="tell another")
        self.told += number

    def add(self, item: int) -> int:
        return self.told + item

    def slow(self, item: float) -> float:
        time.sleep(item)
        return item

    def fail(self, item: int) -> int:
        if item == 2:
            raise OwnError("item 2 is no good", hint="leave it out")
        if item == 3:
            raise ZeroDivisionError("three")
        if item == 4:
            raise Awkward(1, 2)
        return item

    def die(self, item: int) -> int:
        if item == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return item

    def die_while_sending(self, item: int) -> bytes:
        def send_part(connection: Connection, content: bytes, write: object = None) -> None:
            os.write(connection.fileno(), content[:PART])
            if len(content) > PART:  # no header
                os.kill(os.getpid(), signal.SIGKILL)

        if item == 1:
            Connection._send = send_part  # type: ignore[attr-defined]
        return bytes(SIZE + 1)

    def leave_a_copy(self, ended: str) -> None:
        leave_a_copy(ended)

    def leave(self, code: int) -> None:
        sys.exit(code)

    def echo(self, item: object) -> object:
        return item

    def pid(self, _: object) -> int:
        return os.getpid()

    def threads(self, _: object) -> int:
        return torch.get_num_threads()

    def devices(self, _: object) -> str | None:
        return os.environ.get("CUDA_VISIBLE_DEVICES")

    def noise(self, item: int) -> torch.Tensor:
        x = torch.randn(40, 40, generator=torch.Generator().manual_seed(item))
        return (x @ x.T).softmax(0)


def leave_a_copy(place: str) -> None:
    """Fork as a library may, and end while the copy works on; `place` gets its number."""
    if copy := os.fork():
        Path(place).write_text(str(copy))
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(20)
    Path(f"{place}.over").touch()
    os._exit(0)


def end_copy(place: str) -> None:
    """End the copy, which must be there still."""
    assert not Path(f"{place}.over").exists()
    os.kill(int(Path(place).read_text()), signal.SIGKILL)


def make_no_site() -> Site:
    raise OwnError("no network of that size", hint="take another")


@pytest.fixture(params=[0, 2])
def pool(request: pytest.FixtureRequest) -> Iterator[Workers]:
    with workers.start(request.param, Site) as started:
        yield started


@pytest.fixture
def two() -> Iterator[Workers]:
    with workers.start(2, Site) as started:
        yield started


def usable(pool: Workers) -> bool:
    """Whether broadcasts and work still get their own answers."""
    [told] = pool.map("add", [0])
    pool.everywhere("tell", 1)
    return list(pool.map("add", range(5))) == [told + 1 + i for i in range(5)]


# Order and results --------------------------------------------------------------------------


def test_results_come_in_the_order_asked_for(pool: Workers) -> None:
    waits = [0.05, 0.0, 0.03, 0.0, 0.0, 0.01]  # later ones are ready first
    assert list(pool.map("slow", waits)) == waits
    assert list(pool.map("add", range(200))) == list(range(200))
    assert list(pool.map("add", [])) == []


def test_a_broadcast_reaches_every_site(pool: Workers) -> None:
    pool.everywhere("tell", 10)
    pool.everywhere("tell", 5)
    assert set(pool.map("add", [0] * 50)) == {15}


def test_work_is_spread_over_the_processes(two: Workers) -> None:
    pids = set(two.map("pid", range(40)))
    assert len(pids) == 2 and os.getpid() not in pids


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("count", [0, 2])
def test_sites_and_this_process_run_one_thread_until_the_workers_are_closed(count: int) -> None:
    with threads(2):
        with workers.start(count, Site) as pool:
            assert set(pool.map("threads", range(4))) == {1} and torch.get_num_threads() == 1
            pool.close()  # closed twice, it gives back what it took once
            torch.set_num_threads(3)
        assert torch.get_num_threads() == 3
    with threads(2), pytest.raises(UserError, match="cannot be built"):
        workers.start(0, _unbuildable)
    with threads(2):
        with workers.start(1, Site):
            pass
        assert torch.get_num_threads() == 2


def _unbuildable() -> Site:
    raise UserError("cannot be built", hint="none")


class Wide(Net):
    """80,000 weights: enough that torch would share a sum of them among threads."""

    def __init__(self, shape: tuple[int, ...] = (1, 6, 6), classes: int = CLASSES) -> None:
        super().__init__(shape, classes)
        self.fc, self.head = torch.nn.Linear(36, 2000), torch.nn.Linear(2000, classes)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.fc(x.flatten(1)))


class AddsItsSum(FedAvg):
    """A server that takes a float32 sum over the whole model, as norms and step sizes are computed."""

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        model = super().combine(state, deliveries, round)["model"]
        total = torch.cat([v.flatten() for v in model.values()]).sum()
        return state | {"model": {k: v + 1e-3 * total for k, v in model.items()}}


def test_the_number_of_threads_changes_no_bit_of_what_the_server_computes() -> None:
    found = []
    for number in (1, 2, 3):
        with threads(number):
            found.append(run(AddsItsSum(FedAvg.Config(rounds=2, local_epochs=1)), make=Wide))
    assert same(found[0], found[1]) and same(found[0], found[2])


def test_any_number_of_processes_gives_the_same_bits() -> None:
    results = []
    for count in (0, 1, 2, 3):
        with workers.start(count, Site) as started:
            results.append(torch.stack(list(started.map("noise", range(7)))))
    assert all(torch.equal(results[0], r) for r in results[1:])


def test_few_items_are_taken_ahead_of_what_was_asked_for(two: Workers) -> None:
    taken = []

    def source() -> Iterator[float]:
        for i in range(1000):
            taken.append(i)
            yield 0.0 if i else 0.4  # the first one holds up the others

    results = two.map("slow", source())
    assert next(results) == 0.4
    assert len(taken) == 8 * 2  # a round of 10,000 clients is never held whole
    assert [next(results) for _ in range(3)] == [0.0] * 3 and len(taken) <= 3 + 8 * 2


def test_tensors_travel_exactly(pool: Workers) -> None:
    base = torch.arange(24.0).reshape(2, 3, 4)
    tensors = {
        "scalar": torch.tensor(-0.0),
        "count": torch.tensor(2**62 + 1),
        "empty": torch.empty(0, 5),
        "transposed": base.transpose(0, 2),
        "slice": base[:, 1, ::2],
        "channels_last": torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        "bool": torch.tensor([True, False]),
        "half": torch.tensor([1e-7, 65504.0], dtype=torch.float16),
        "double": torch.tensor([1 / 3], dtype=torch.float64),
        "odd": torch.tensor([float("nan"), float("inf"), 1e-45]),
        "graph": torch.nn.Parameter(torch.ones(2)),
    }
    [back] = pool.map("echo", [tensors])
    for name, tensor in tensors.items():
        assert (back[name].dtype, back[name].shape) == (tensor.dtype, tensor.shape), name
        plain = tensor.detach().contiguous().numpy().tobytes()
        assert back[name].detach().contiguous().numpy().tobytes() == plain, name


def test_what_arrived_may_be_changed(two: Workers) -> None:
    sent = torch.zeros(3)
    [back] = two.map("echo", [{"t": sent, "n": np.zeros(2)}])
    back["t"] += 1
    back["n"] += 1
    assert back["t"].tolist() == [1, 1, 1] and sent.tolist() == [0, 0, 0]


def test_large_messages_both_ways_do_not_block(two: Workers) -> None:
    big = torch.zeros(500_000)  # 2 MB: more than a pipe holds
    assert sum(t.numel() for t in two.map("echo", [big] * 6)) == 3_000_000  # type: ignore[attr-defined]


# Failure ------------------------------------------------------------------------------------


def test_an_exception_arrives_with_its_type_and_hint(pool: Workers) -> None:
    with pytest.raises(OwnError) as error:
        list(pool.map("fail", range(4)))
    assert str(error.value) == "item 2 is no good\n  hint: leave it out"
    with pytest.raises(ZeroDivisionError, match="three"):
        list(pool.map("fail", [0, 3]))
    assert usable(pool)


def test_an_exception_that_cannot_be_read_back_arrives_as_text(two: Workers) -> None:
    with pytest.raises(RuntimeError, match="Awkward: 1 and 2"):
        list(two.map("fail", [4]))
    assert usable(two)


@pytest.mark.parametrize("attempt", range(5))
def test_results_before_the_first_failure_are_delivered(pool: Workers, attempt: int) -> None:
    heard = []
    with pytest.raises(OwnError):
        for result in pool.map("fail", [0, 1, 2, 3, 5, 3]):
            heard.append(result)
    assert heard == [0, 1]


def test_of_several_failures_the_first_in_order_is_heard(two: Workers) -> None:
    for first, error in ((2, OwnError), (3, ZeroDivisionError)):
        with pytest.raises(error):
            list(two.map("fail", [first, 5 - first, 2, 3, 2, 3]))
        assert usable(two)


def test_a_failing_broadcast_leaves_no_answers_behind(two: Workers) -> None:
    with pytest.raises(UserError, match="a number below 0"):
        two.everywhere("tell", -1)
    assert usable(two)


def test_a_source_that_fails_leaves_the_pool_usable(pool: Workers) -> None:
    def source() -> Iterator[int]:
        yield from range(5)
        raise KeyError("source")

    with pytest.raises(KeyError):
        list(pool.map("add", source()))
    assert usable(pool)


def test_stopping_early_leaves_the_pool_usable(pool: Workers) -> None:
    results = pool.map("add", range(1000))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    results.close()  # type: ignore[attr-defined]
    assert usable(pool)


def test_a_dead_worker_is_a_user_error(two: Workers) -> None:
    with pytest.raises(UserError, match="a worker process ended unexpectedly") as error:
        list(two.map("die", range(20)))
    assert "workers: 0" in error.value.hint
    with pytest.raises(UserError, match="ended unexpectedly"):  # and stays one
        list(two.map("add", range(20)))
    with pytest.raises(UserError, match="ended unexpectedly"):
        two.everywhere("tell", 1)


def test_a_worker_that_dies_in_the_middle_of_its_answer_is_one_that_died(two: Workers) -> None:
    results = two.map("die_while_sending", range(2))
    assert len(next(results)) == SIZE + 1
    with pytest.raises(UserError, match="ended unexpectedly"):
        next(results)


def test_a_copy_that_a_worker_leaves_behind_hides_no_death(tmp_path: Path) -> None:
    with workers.start(1, Site) as one, pytest.raises(UserError, match="ended unexpectedly"):
        list(one.map("leave_a_copy", [str(tmp_path / "copy")]))
    end_copy(str(tmp_path / "copy"))


@pytest.mark.parametrize("code", [0, 3])
def test_work_that_leaves_its_program_ends_no_other(two: Workers, code: int) -> None:
    with pytest.raises(RuntimeError, match=f"SystemExit: {code}"):
        list(two.map("leave", [code]))
    assert usable(two)


def test_why_no_site_can_be_made_is_said() -> None:
    for count in (0, 2):
        with (
            pytest.raises(OwnError, match="no network of that size"),
            workers.start(count, make_no_site) as broken,
        ):
            broken.everywhere("tell", 1)


def test_a_worker_that_died_while_idle_is_a_user_error() -> None:
    with workers.start(1, Site) as one:
        [pid] = one.map("pid", [None])
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
        with pytest.raises(UserError, match="ended unexpectedly"):
            one.everywhere("tell", 1)
        with pytest.raises(UserError, match="ended unexpectedly"):
            list(one.map("add", [1]))


def test_closing_ends_the_processes() -> None:
    pool = Pool(2, Site)
    pids = set(pool.map("pid", range(30)))
    began = time.monotonic()
    pool.close()
    assert time.monotonic() - began < 4  # nobody holds an end open, so none had to be killed
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_cuda_keeps_its_work_in_this_process() -> None:
    assert workers.processes("auto", "cuda") == 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert workers.processes("auto", "cpu") == (cores if (cores or 1) > 1 else 0)


def test_what_computes_on_the_processor_hides_devices_from_itself_and_from_no_program_of_a_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with workers.start(2, Site) as pool:
        assert [*pool.map("devices", [1, 2])] == ["", ""]
    machine.hide_unused("cpu")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"  # tests are a program of a user's
    monkeypatch.setattr(machine, "_is_ours", True)
    machine.hide_unused("cuda")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    machine.hide_unused("cpu")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


COMMAND = """
import atexit, os
atexit.register(lambda: print("devices", [os.environ["CUDA_VISIBLE_DEVICES"]]))
from fedaudit.audit.cli.main import main
main()
"""


@pytest.mark.nightly
def test_a_command_on_the_processor_hides_devices_from_itself(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "federation: {dataset: digits, limit: [100, 20], clients: 2, model: logreg}\n"
        "method: {name: fedavg, rounds: 1, local_epochs: 1}\ndevice: cpu\nworkers: 0\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "run", "c.yaml", "--phase", "simulate"],
        cwd=tmp_path,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "0"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1] == "devices ['']", done.stdout + done.stderr


def test_who_does_not_know_the_key_lends_nothing() -> None:
    with Listener(("127.0.0.1", 0), authkey=b"key") as listener:

        def strangers() -> None:
            with suppress(AuthenticationError):
                Client(listener.address, authkey=b"another")
            socket.create_connection(listener.address).close()
            SharedPipe(Client(listener.address, authkey=b"key")).send("hello")

        caller = threading.Thread(target=strangers)
        caller.start()
        assert _accept_process(listener).receive() == "hello"
        caller.join()


PROGRAM = """
print("ran", flush=True)
import os, subprocess, sys
from fedaudit.fl.runtime import children, children
before = dict(os.environ)
for method in ("fork", "spawn", "forkserver"):
    child = children.get_context(method).Process(target=print, args=(method,))
    child.start()
    child.join()
    assert child.exitcode == 0, method
context = children.get_context("spawn")
context.Lock()
assert dict(os.environ) == before
subprocess.run([sys.executable, "-c", "import json"], check=True)
"""


def test_a_program_of_a_users_own_runs_once_although_it_guards_nothing(tmp_path: Path) -> None:
    """Ours see no module of its working directory; interpreters that it starts itself do, as before."""
    (tmp_path / "mine.py").write_text(PROGRAM)
    (tmp_path / "json.py").write_text("print('json')")  # in the place of the library's
    env = {name: value for name, value in os.environ.items() if name != children.SAFE}
    command = [sys.executable, "-P", tmp_path / "mine.py"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ran", "fork", "spawn", "forkserver", "json"] and not done.stderr


def test_processes_are_started_in_one_place() -> None:
    """What starts them elsewhere would run a user's program again, or a module of the working directory."""
    root, known = Path(workers.__file__).parents[2], ("runtime/children.py", "runtime/torchrun.py")
    files = [
        p for folder in ("fl", "attacks", "audit", "reports", "fedaudit") for p in (root / folder).rglob("*.py")
    ]
    starting = re.compile(
        r"multiprocessing\.(get_context|Process|Pool)\(|import .*\bget_context\b|ProcessPoolExecutor"
    )
    found = [p.as_posix() for p in files if starting.search(p.read_text()) and not p.as_posix().endswith(known)]
    assert len(files) > 600 and found == []
