"""Importing four times as many messages is at most little more than four times the work, in every function.

Counted, not timed: calls of every function during an import, and during the phase that checks what was taken in.
"""

import cProfile
import pstats
from pathlib import Path

import numpy as np
import pytest

from fedaudit.fl.ledger import read
from tests.audit.importing import nets
from tests.audit.importing.inboxes import Inbox, Round, Upload, digits, record, record_truth, start
from tests.audit.importing.test_inboxes import state, take

MOST = 5.2  # times the calls at four times the messages: what sorts takes a little more
FEW = 2_000  # calls that are not looked at


def write(folder: Path, clients: int, rounds: int) -> None:
    """Clients that move a model at random, and a server that takes their mean."""
    rng, model = np.random.default_rng(5), start(nets.Mlp)
    parts, own = digits(5)
    kept = []
    for _ in range(rounds):
        uploads = [
            Upload(
                k,
                {n: (v + rng.normal(0, 0.1, v.shape)).astype(v.dtype) for n, v in model.items()},
                len(parts[k % 5][1]),
                1.0,
            )
            for k in range(clients)
        ]
        kept.append(Round(model, uploads))
        total = sum(u.examples for u in uploads)
        model = {
            n: sum(u.state[n].astype(np.float64) * (u.examples / total) for u in uploads).astype(v.dtype)
            for n, v in model.items()
        }
    record(folder, kept, model)
    record_truth(folder, parts, own)


def count_calls(folder: Path, clients: int, rounds: int) -> dict[str, int]:
    """Function -> how often it was called during an import."""
    write(folder, clients, rounds)
    one = Inbox(lambda _: None, has_labels=False)
    subject = state(folder, one)
    watch = cProfile.Profile()
    watch.runcall(take, folder, one, subject)
    stats = pstats.Stats(watch).stats  # type: ignore[attr-defined]
    return {f"{Path(file).name}:{line} {name}": calls for (file, line, name), (_, calls, *_) in stats.items()}


@pytest.mark.nightly
def test_an_import_grows_as_messages_do(tmp_path: Path) -> None:
    count_calls(tmp_path / "first", 5, 1)  # imports of modules
    few, many = count_calls(tmp_path / "few", 20, 5), count_calls(tmp_path / "many", 40, 10)
    grown = {n: (few.get(n, 0), c) for n, c in many.items() if c > FEW and c > MOST * few.get(n, 0)}
    assert grown == {}


@pytest.mark.nightly
def test_noise_that_is_everybodys_is_listed_once_a_round(tmp_path: Path) -> None:
    """Of many clients as of few: it was listed once a client where there were more than a thousand lines."""
    write(tmp_path, 350, 2)
    one = Inbox(lambda _: None, has_labels=False)
    central = {"name": "central_dp", "clip_norm": 1.0, "noise_multiplier": 1.0}
    run, _, _ = take(tmp_path, one, state(tmp_path, one) | {"protections": [central]})
    common = [r for r in read(run.ledger) if r.sender.endswith("*")]
    assert common and len(common) == len(set(common))
