"""For all tests: bare names are refused, dear tests run at night, and files that take long are named.

Our folders lie at the top of the repository, so `import fl` would work here and make every class a second time.
`make test` leaves out what is marked `nightly` and names files that take longer than `SECONDS` of a core: a suite
that takes half an hour is not run. They do not fail it, for a core is as fast as others on the machine let it be.
A test process has one core, so that no run forks workers unless its config says how many: each of them would make
its networks and graphs anew, for rounds of milliseconds.
"""

import gc
import multiprocessing
import os
import resource
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from fedaudit.audit.accounting.child import keep

FOLDERS = ("fl", "attacks", "audit", "reports")
SECONDS = 40  # of the processor, with all processes that the tests of a file start
QUICK = "not nightly"  # what `make test` selects

BEGAN = pytest.StashKey[float]()  # seconds of the processor when a test began
_spent: Counter[str] = Counter()


class RefuseBareNames:
    """A finder that comes first and refuses `import fl`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in FOLDERS:
            raise ModuleNotFoundError(f"import fedaudit.{name} instead of {name}", name=name)
        return None


sys.meta_path.insert(0, RefuseBareNames())
# jsonschema would make a grammar of international addresses for four seconds; no schema here has any
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]


def pytest_configure(config: pytest.Config) -> None:
    """A core for each test process, so that `workers: auto` of a small run starts no processes of its own."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    starts_others = not worker and bool(config.getoption("numprocesses", None))  # they inherit what it may use
    if hasattr(os, "sched_setaffinity") and not starts_others:
        usable = sorted(os.sched_getaffinity(0))
        number = int(worker.removeprefix("gw")) if worker else os.getpid()
        os.sched_setaffinity(0, {usable[number % len(usable)]})
    gc.disable()  # until all tests are known: what is made until then stays


def pytest_collection_finish() -> None:
    """What was imported and collected is never garbage: no later search for garbage looks through it again."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)  # nearly all that tests make is freed without: a tenth of their time
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases nightly that are dear, or that a test's sample leaves out."""
    cases: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items:
        test, _, case = item.nodeid.removesuffix("]").partition("[")
        dear = item.get_closest_marker("dear")
        if dear and case in dear.args:
            item.add_marker(pytest.mark.nightly)
        elif mark := item.get_closest_marker("sample"):
            cases.setdefault((test, mark.args[0]), []).append(item)
    for (_, count), group in cases.items():
        for item in order_evenly(group)[count:]:
            item.add_marker(pytest.mark.nightly)


def order_evenly(group: Sequence[pytest.Item]) -> list[pytest.Item]:
    """In an order of which any first few are spread over all, whichever product of parameters they are.

    Multiples of the golden section modulo 1 are: steps of no length come again and again.
    """
    places = sorted(range(len(group)), key=lambda i: (i * (5**0.5 - 1) / 2) % 1)
    return [group[i] for i in places]


def processor_seconds() -> float:
    """Of this process, of its children that ended and of those that run, where the system shows them."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    running = sum(_of_process(child.pid) for child in multiprocessing.active_children())
    return time.process_time() + ended.ru_utime + ended.ru_stime + running


def _of_process(pid: int | None) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    item.stash[BEGAN] = processor_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "teardown":
        report.user_properties.append(("processor", processor_seconds() - item.stash[BEGAN]))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown":
        _spent[report.location[0]] += dict(report.user_properties).get("processor", 0.0)


def slow_files() -> list[str]:
    """A line for each file that took more than its share."""
    return [
        f"{file}: {spent:.0f} s of a core, {SECONDS} at most"
        for file, spent in _spent.most_common()
        if spent > SECONDS
    ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.option.markexpr == QUICK:
        for line in slow_files():
            terminalreporter.write_line(f"too slow: {line}; mark its dearest tests nightly, or make them cheaper")
    if config.option.durations:
        for file, spent in _spent.most_common(30):
            terminalreporter.write_line(f"{spent:7.1f} s  {file}")


@pytest.fixture(scope="session", autouse=True)
def one_process_for_accountants() -> Iterator[None]:
    """All tests of a process share the one that accountants compute in: each takes a second to import."""
    with keep():
        yield


@pytest.fixture(scope="session", autouse=True)
def no_wait_for_the_disk() -> Iterator[None]:
    """No flush waits: what a test wrote is not asked for after a power cut, only that and when it is flushed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_command_line() -> Iterator[None]:
    """Typer reads our commands off their functions once, not at each of some hundred calls of them."""
    with pytest.MonkeyPatch.context() as patch:
        if testing := sys.modules.get("typer.testing"):
            patch.setattr(testing, "_get_command", cache(testing._get_command))
        yield


@pytest.fixture(scope="module")
def few_epochs() -> Iterator[None]:
    """Plants of the control `memorised`, and nets that judge images, learn little, where nobody asks what."""
    from fedaudit.attacks.evaluation import audit_net
    from fedaudit.audit.controls import memorised

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memorised, "EPOCHS", 2)
        patch.setattr(audit_net, "TRAINING", replace(audit_net.TRAINING, epochs=1, least_steps=20))
        patch.setattr(audit_net, "_trained", OrderedDict())  # so that no other test is judged by them
        yield
