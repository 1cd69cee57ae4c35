"""The bench of training speed: its workload file, and rows of contenders that run, fail or are not installed."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.speed import contenders, ours, training, workload
from benchmarks.speed.contenders import Contender, Row, race
from benchmarks.speed.peers import contract, networks
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.execution.site import build_site
from fedaudit.fl.families.drawn_batches import iterate_batches
from fedaudit.fl.method import RoundMethod
from fedaudit.fl.model import initialise, state_of
from fedaudit.fl.runtime.plugin import configure, load
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.training.batches import split_into_batches

CLIENTS, EACH, ROUNDS = 4, 120, 2


@pytest.fixture(scope="module")
def work() -> workload.Workload:
    rng = np.random.default_rng(0)
    arrays = Arrays(x=rng.random((600, 1, 28, 28), dtype=np.float32), y=rng.integers(0, 10, 600))
    data = Data(
        train=arrays, test=arrays.take(np.arange(1)), classes=tuple("0123456789"), mean=(0.3,), std=(0.2,)
    )
    parts = np.split(rng.permutation(600)[: CLIENTS * EACH], CLIENTS)
    return workload.Workload(data, parts, "random images", workload.Size("small", CLIENTS, CLIENTS // 2, EACH))


@pytest.fixture(scope="module")
def file(work: workload.Workload, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("workload") / "workload.npz"
    workload.write(path, work, epochs=1, rounds=ROUNDS)
    return path


def test_the_file_is_what_ours_trains_on_in_the_order_of_its_first_batches(file: Path) -> None:
    read, streams = contract.read(str(file)), Streams(workload.SEED)
    holdings = ours.hold(str(file), streams)
    method = configure(load("fedaudit.fl.methods", "fedavg", RoundMethod), workload.LOCAL, "method")
    site = build_site(method, holdings, workload.network, "cpu")
    assert read.clients == CLIENTS == len(holdings.parts)
    for k in range(CLIENTS):
        x, y = site.examples(holdings.data.train, holdings.parts[k])
        drawn = list(iterate_batches(streams, 0, k, split_into_batches(EACH, read.batch_size), 1))
        for places, (xs, ys) in zip(drawn, read.batches(k), strict=True):
            torch.testing.assert_close(xs, x[places])
            assert torch.equal(ys, y[places])


def test_the_file_holds_the_examples_of_the_workload(file: Path, work: workload.Workload) -> None:
    data = ours.hold(str(file), Streams(workload.SEED)).data
    rows = np.concatenate(work.parts)
    assert np.array_equal(data.train.x, work.data.train.x[rows])
    assert np.array_equal(data.train.y, work.data.train.y[rows])
    assert data.mean == pytest.approx((0.3,)) and data.std == pytest.approx((0.2,))


def test_everybody_takes_part_in_the_first_round_and_half_in_the_others(file: Path) -> None:
    cohorts = contract.read(str(file)).cohorts
    assert cohorts[0] == list(range(CLIENTS)) and [len(c) for c in cohorts[1:]] == [CLIENTS // 2] * ROUNDS


def test_the_network_of_peers_is_ours(file: Path) -> None:
    own = initialise(workload.network, Streams(workload.SEED))
    read = contract.read(str(file))
    assert {k: v.shape for k, v in read.start.items()} == {k: v.shape for k, v in state_of(own).items()}
    torch.testing.assert_close(read.network()(read.x[:7]), own(read.x[:7]))


@pytest.mark.parametrize("name", ["resnet18", "vit", "lora"])
def test_a_real_network_of_the_plain_loop_computes_what_ours_does(name: str, tmp_path: Path) -> None:
    size = workload.WORKLOADS[name]._replace(clients=2, cohort=2, each=10)
    workload.write(tmp_path / "workload.npz", workload.workload(size), epochs=1, rounds=1)
    read = contract.read(str(tmp_path / "workload.npz"))
    own = workload.network(name)
    own.load_state_dict(read.start)
    with torch.no_grad():
        torch.testing.assert_close(read.network()(read.x[:3]), own(read.x[:3]))


def test_a_step_of_the_small_network_has_the_products_that_were_counted_by_hand() -> None:
    # forward 1,116,416 multiply-adds; backward twice that, less the first layer's input gradient
    net = networks.Small()
    assert workload.count_flops(net, torch.rand(2, 1, 28, 28)) == 2 * (3 * 1_116_416 - 230_400)


def test_ours_and_the_plain_loop_have_the_same_loss_after_the_first_round(file: Path) -> None:
    runs = [contenders.method("fedavg", file, 0, averages=True), contenders.plain(file)]
    mine, plain = race(runs, [CLIENTS * EACH, *[CLIENTS * EACH // 2] * ROUNDS])
    assert mine.reason == plain.reason == "" and len(mine.speeds) == len(plain.speeds) == ROUNDS
    assert mine.losses[0] == pytest.approx(plain.losses[0], rel=1e-4)
    assert training.describe_difference(mine, plain) == ""


def answering(name: str, tmp_path: Path, *answers: dict[str, object], end: str = "") -> Contender:
    """A contender that reads a line before each answer but the first."""
    lines = [json.dumps(answer) for answer in answers]
    script = tmp_path / f"{name}.py"
    script.write_text(
        f"import sys\nfor i, line in enumerate({lines!r}):\n"
        f"    if i: assert sys.stdin.readline()\n    print(line, flush=True)\n{end}"
    )
    return Contender(name, [sys.executable, str(script)])


READY: dict[str, object] = {"version": "1.2", "runs": "2 threads", "torch": "2"}


def test_an_adapters_lines_become_a_row(tmp_path: Path) -> None:
    rounds = [{"seconds": s, "loss": loss} for s, loss in ((9.0, 2.0), (2.0, 1.5), (4.0, 1.25))]
    between: list[int] = []
    (row,) = race([answering("peer", tmp_path, READY, *rounds)], [100, 80, 80], lambda: between.append(1))
    assert row == Row("peer", True, "1.2", "2 threads", [40.0, 20.0], [2.0, 1.5, 1.25]) and len(between) == 2


def test_a_peer_that_is_not_installed_is_a_row_not_run(file: Path, tmp_path: Path) -> None:
    missing = contenders.peer("flower", file, tmp_path / "python")
    (row,) = race([missing], [1, 1])
    assert row.reason == "not installed: `make bench-peers`"
    table = training.describe_table([row], row, row, [{"product": 100.0}])
    assert "Flower" in table[1] and "not run: not installed" in table[1]


def test_a_contender_that_fails_is_a_row_and_the_others_go_on(tmp_path: Path) -> None:
    rounds: list[dict[str, object]] = [{"seconds": 1.0, "loss": 1.0}] * 3
    failing = answering("failing", tmp_path, READY, rounds[0], end="raise ValueError('of a peer')")
    shown: list[str] = []
    bad, good = race([failing, answering("good", tmp_path, READY, *rounds)], [1, 1, 1], show=shown.append)
    assert bad.reason == "ended: ValueError: of a peer" and bad.speeds == []
    assert good.reason == "" and len(good.speeds) == 2
    assert "turn 2 of 2: good 1" in shown


def test_the_table_has_ratios_of_the_same_turn_and_the_fastest_kernel() -> None:
    mine = Row("ours", True, "1", "2 workers", [100.0, 50.0, 200.0], [2.0, 1.0])
    peer = Row("peer", True, "2", "1 process", [50.0, 20.0, 120.0], [2.0, 1.0])
    lines = training.describe_table(
        [mine, peer], mine, mine, [{"a": 100.0, "b": 400.0}, {"a": 300.0, "b": 400.0}]
    )
    assert lines[2].split()[:7] == ["peer", "2", "50", "0.50", "0.40-0.60", "12%", "2.0000"]
    assert lines[3].split() == ["b", "400", "100%"]


@pytest.mark.parametrize("losses", [[2.1, 1.0], [2.0, 1.5]])
def test_a_peer_that_trains_something_else_is_marked(losses: list[float]) -> None:
    plain, peer = Row("plain loop", losses=[2.0, 1.0]), Row("peer", losses=losses, speeds=[1.0])
    assert "SOMETHING ELSE" in training.describe_difference(peer, plain)
    peer.averages = False  # another method
    assert training.describe_difference(peer, plain) == ""
