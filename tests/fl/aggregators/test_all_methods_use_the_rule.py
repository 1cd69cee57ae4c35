"""Every method that averages models does so by the federation's aggregator, and keeps the rule's state.

A rule that takes nothing from anybody must leave the model as it was; one that computes the mean from rows must
agree with `mean`. What is over a few test worlds holds for every method that is discovered.
"""

import ast
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedaudit.audit.settings import catalog
from fedaudit.fl.aggregation.aggregator import Aggregator, Averages, Combined, Context, RowRule, mean
from fedaudit.fl.aggregators.mean import Mean
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.protections.secure_aggregation import SecureAggregation
from fedaudit.fl.runtime import plugin
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from tests.fl.test_all_methods import method
from tests.fl.worlds import EVERYONE, NormalisedNet, Stopped, World, close, data, parts, run, same

FL = Path(__file__).parents[3] / "fl"
# What they average beside models: what an answer started from, control variates, losses, stored models, curvature
BESIDE = {"fedasync", "scaffold", "feddpgan", "feddyn", "fedcurv"}
# No server that averages models: no model is sent, or each answer is mixed in as it comes
WITHOUT = {"fd", "datacenter", "fedasync", "split_learning", "split_u_shape", "fedgkt", "fedmd", "fedproto"}
NAMES = [n for n in plugin.names("fedaudit.fl.methods") if n not in WITHOUT]


class RowMean(RowRule):
    """The weighted mean of the rows; counts its calls in its own state."""

    title = "Mean of rows"

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        change = (rows.double() * weights[:, None]).sum(0) / weights.sum()
        kept = dict(zip(clients, weights.tolist(), strict=True))
        calls = context.state.get("calls", torch.tensor(0)) + 1
        return Combined(change=change, kept=kept, state={"calls": calls})


class Refusing(RowRule):
    title = "Nobody"

    def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
        raise Stopped


def small(name: str, rule: Aggregator, folder: Path | None = None) -> World:
    return run(method(name), d=data(n=100), index=parts(data(n=80)), aggregator=rule, folder=folder)


@pytest.mark.sample(10)
@pytest.mark.parametrize("name", NAMES)
def test_the_rule_is_called(name: str) -> None:
    with pytest.raises(Stopped):
        small(name, Refusing())


@pytest.mark.dear("feddpgan")
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedbuff", "fednova", "ifca", "feddpgan", "lg_fedavg"])
def test_a_mean_of_rows_agrees_with_the_streaming_mean(name: str) -> None:
    assert close(small(name, RowMean()), small(name, mean()), tolerance=1e-5)


def test_no_server_averages_models_by_itself() -> None:
    found = set()
    for path in [*(FL / "methods").glob("*.py"), *(FL / "families").glob("*.py"), FL / "method.py"]:
        names = {
            a.name
            for n in ast.walk(ast.parse(path.read_text()))
            if isinstance(n, ast.ImportFrom)
            for a in n.names
        }
        if "WeightedMean" in names:
            found.add(path.stem)
    assert found == BESIDE


def test_the_rules_state_goes_through_checkpoints(tmp_path: Path) -> None:
    def world(stop: int | None) -> World:
        fed = FedAvg(FedAvg.Config(rounds=6, local_epochs=1))
        return run(fed, folder=tmp_path, aggregator=RowMean(), stop_after=stop, workers=0)

    with pytest.raises(Stopped):
        world(2)
    assert same(world(None), run(FedAvg(FedAvg.Config(rounds=6, local_epochs=1)), aggregator=RowMean()))
    from fedaudit.fl.runtime.tree import load

    saved = [load(p) for p in (tmp_path / "checkpoint").glob("*.safetensors")]
    assert any("calls" in str(tree) for tree in saved)


def test_whom_a_rule_kept_is_in_the_metrics_and_the_mean_says_nothing() -> None:
    assert small("fedavg", RowMean()).history[0]["kept"]["model"] == {"0": 7.0, "1": 20.0, "2": 11.0, "4": 30.0}
    assert "kept" not in small("fedavg", mean()).history[0]


def test_a_rule_on_single_uploads_is_refused_where_they_are_hidden() -> None:
    fed = FedAvg(FedAvg.Config(rounds=1))
    with pytest.raises(UserError, match="Mean of rows reads each client's upload, and Secure aggregation"):
        run(fed, aggregator=RowMean(), protections=[SecureAggregation()])
    run(fed, aggregator=mean(), protections=[SecureAggregation()])


def test_uploads_that_are_too_many_to_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedaudit.fl.aggregation.aggregator.MOST_BYTES", 100)
    with pytest.raises(UserError, match="needs all uploads of a round at once"):
        small("fedavg", RowMean())


def test_rows_are_changes_and_buffers_take_the_plain_mean_of_who_is_kept() -> None:
    class First(RowRule):
        title = "First"

        def combine(self, rows: Tensor, weights: Tensor, clients: Sequence[int], context: Context) -> Combined:
            assert rows.tolist() == [[1.0, -2.0], [3.0, 5.0]] and weights.tolist() == [2.0, 6.0]
            return Combined(change=rows[0], kept={clients[0]: 1.0})

    averages = Averages(First(), 4, Streams(1), {}, ("w",))
    model = averages.begin()
    start = {"w": torch.tensor([10.0, 10.0]), "seen": torch.tensor(0), "mean": torch.tensor(0.0)}
    first = {"w": torch.tensor([11.0, 8.0]), "seen": torch.tensor(3), "mean": torch.tensor(-1.0)}
    second = {"w": torch.tensor([13.0, 15.0]), "seen": torch.tensor(9), "mean": torch.tensor(5.0)}
    model.add(7, first, 2.0, start)
    model.add(3, second, 6.0, start)
    got = {k: v.tolist() for k, v in model.value().items()}
    assert got == {"w": [11.0, 8.0], "seen": 3, "mean": -1.0}
    assert averages.get_client_weights() == {"model": {7: 1.0}} and averages.entries() == {}


@pytest.mark.parametrize("name", ["median", "trimmed_mean", "krum", "centered_clipping"])
def test_where_a_rule_takes_no_weights_a_claimed_count_moves_no_running_statistic_either(name: str) -> None:
    lie = catalog.load("adversaries", "count_inflation")
    honest, lied = (
        run(
            method("fedavg"),  # type: ignore[arg-type]
            script=EVERYONE,
            make=NormalisedNet,
            aggregator=catalog.load("aggregators", name)(),
            adversary=lie(lie.Config(clients=(1,), factor=factor)),
        )
        for factor in (1.0, 1000.0)
    )
    assert same(honest, lied)


def test_mean_needs_no_single_upload() -> None:
    assert not Mean.reads_single_uploads and RowMean.reads_single_uploads
