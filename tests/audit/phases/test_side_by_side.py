"""Pieces side by side: a core that one process gives up is taken by whoever has work left."""

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from fedaudit.audit.phases import side_by_side as side_by_side_module
from fedaudit.audit.phases.side_by_side import Death, SpareCores, collect, side_by_side
from fedaudit.fl.runtime.errors import UserError


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
    return [] if item == "short" else collect(range(4), 1, lambda part, _: meet(Path(item)))


def test_the_last_piece_takes_the_core_that_a_finished_one_gave_up(tmp_path: Path) -> None:
    found: dict[str, list[int] | Death] = {}
    side_by_side([str(tmp_path), "short"], 2, work, silent, found.__setitem__)
    pids = found[str(tmp_path)]
    assert isinstance(pids, list) and len(pids) == 4 and len(set(pids)) == 2


def test_without_anybody_beside_it_a_process_works_in_its_own_copies_alone() -> None:
    pids = collect(range(5), 2, lambda item, _: os.getpid())
    assert len(set(pids)) <= 2 and os.getpid() not in pids
    assert collect(range(5), 0, lambda item, _: os.getpid()) == [os.getpid()] * 5


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
        side_by_side(range(9), 1, lambda item, _: item, silent, fail, copies=True)
    assert [cores.take() for _ in range(3)] == [True, True, False]
