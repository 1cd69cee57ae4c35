"""Pieces side by side: a core that one process gives up is taken by whoever has work left."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fedaudit.fl.runtime import side_by_side as side_by_side_module
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.side_by_side import Death, SpareCores, collect, share_cores, side_by_side
from fedaudit.fl.runtime.workers import one_thread
from tests.fl.test_workers import end_copy, leave_a_copy


def silent(phase: str, at: int, total: int) -> None:
    pass


def meet(folder: Path) -> int:
    """Says who works here, and waits for another at most for half a minute."""
    (folder / str(os.getpid())).touch()
    until = time.monotonic() + 30
    while len(list(folder.iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    return os.getpid()


def work(item: str, _: object) -> list[int]:
    """A long piece of four parts, each in a copy of its process; nothing else."""
    return [] if item == "short" else collect(range(4), lambda part: meet(Path(item)))


def test_the_last_piece_takes_the_core_that_a_finished_one_gave_up(tmp_path: Path) -> None:
    found: dict[str, list[int] | Death] = {}
    side_by_side([str(tmp_path), "short"], work, silent, found.__setitem__, processes=2)
    pids = found[str(tmp_path)]
    assert isinstance(pids, list) and len(pids) == 4 and len(set(pids)) == 2


def test_a_core_that_no_piece_needs_is_taken_by_a_part_of_one(tmp_path: Path) -> None:
    with one_thread(), share_cores(2):
        short, pids = collect(["short", str(tmp_path)], lambda item: work(item, None))
    assert short == [] and len(pids) == 4 and len(set(pids)) == 2


def test_copies_are_as_many_as_cores_are_shared_and_none_without(tmp_path: Path) -> None:
    with one_thread(), share_cores(2):
        pids = collect(range(5), lambda item: meet(tmp_path))
    assert len(set(pids)) == 2 and os.getpid() not in pids
    for few in (0, 1):
        with share_cores(few):
            assert collect(range(5), lambda item: os.getpid()) == [os.getpid()] * 5


def test_results_come_in_the_order_of_the_pieces_and_the_first_error_is_raised() -> None:
    def invert(item: int) -> float:
        time.sleep(0.05 * (3 - item))
        return 6 / item

    with one_thread(), share_cores(3):
        assert collect([1, 2, 3], invert) == [6, 3, 2]
        with pytest.raises(ZeroDivisionError):
            collect([1, 0, 2], invert)
        with pytest.raises(UserError, match="SIGKILL"):
            collect([1, 2], lambda item: os.kill(os.getpid(), signal.SIGKILL))


class Silent(Exception):
    def __str__(self) -> str:
        raise TypeError("no words")


def leave(item: int) -> None:
    sys.exit(0)


def fail_in_silence(item: int) -> None:
    raise Silent


@pytest.mark.parametrize("piece", [leave, fail_in_silence])
def test_whatever_a_part_raises_is_raised_here_and_no_process_dies_of_it(piece: Callable[[int], None]) -> None:
    with one_thread(), share_cores(2), pytest.raises((RuntimeError, Silent)):
        collect([1, 2], piece)


class Unreadable:
    """Can be written by pickle and not read back."""

    def __reduce__(self) -> tuple[object, ...]:
        return int, ("no number",)


@pytest.mark.parametrize(("result", "words"), [(threading.Lock(), "pickle"), (Unreadable(), "no number")])
def test_a_result_that_cannot_travel_is_an_error_of_its_part_and_no_death(result: object, words: str) -> None:
    with one_thread(), share_cores(2), pytest.raises((TypeError, ValueError), match=words):
        collect([1, 2], lambda item: result)


def test_a_process_that_dies_in_the_middle_of_its_answer_is_one_that_died() -> None:
    found: dict[int, bytes | Death] = {}

    def answer(item: int, _: object) -> bytes:
        if item:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()
        return bytes(item << 26)

    def end(item: int, result: bytes | Death) -> None:
        found[item] = result
        time.sleep(0 if item else 0.5)  # nobody reads what the other one sends

    with one_thread(), share_cores(2):
        side_by_side([0, 1], answer, silent, end)
    assert found == {0: b"", 1: Death(-signal.SIGKILL)}


def test_a_copy_that_a_process_leaves_behind_hides_no_death(tmp_path: Path) -> None:
    found: dict[str, Death | None] = {}
    with one_thread(), share_cores(2):
        side_by_side(
            [str(tmp_path / "1"), str(tmp_path / "2")],
            lambda place, _: leave_a_copy(place),
            silent,
            found.__setitem__,
        )
    assert [*found.values()] == [Death(-signal.SIGKILL)] * 2
    for place in found:
        end_copy(place)


def test_a_spare_core_is_taken_once() -> None:
    cores = SpareCores(multiprocessing.get_context("spawn"), 2)
    assert [cores.take() for _ in range(3)] == [True, True, False]
    cores.give()
    assert cores.take() and not cores.take()


def test_a_core_that_was_taken_for_a_piece_that_fails_is_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = SpareCores(multiprocessing.get_context("fork"), 2)
    monkeypatch.setattr(side_by_side_module, "_spare", cores)

    def fail(item: int, result: object) -> None:
        raise UserError(f"piece {item} ends the work")

    with pytest.raises(UserError, match="ends the work"):
        side_by_side(range(9), lambda item, _: item, silent, fail)
    assert [cores.take() for _ in range(3)] == [True, True, False]
