"""Secure aggregation: who saw what, and that the sum is the one the server needs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedaudit.audit.observer.exposure import list_exposures
from fedaudit.fl.aggregators.mean import Mean
from fedaudit.fl.aggregators.median import Median
from fedaudit.fl.aggregators.prototypes import Prototypes
from fedaudit.fl.clients.combining import find_difference
from fedaudit.fl.clients.selection import Chosen, Selection
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import read
from fedaudit.fl.method import RoundMethod
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.feddyn import FedDyn
from fedaudit.fl.methods.rebafl import ReBaFL
from fedaudit.fl.protections.secure_aggregation import SecureAggregation
from fedaudit.fl.recording.recorder import manifest
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.wire.sums import Sums
from tests.fl.worlds import EVERYONE, NormalisedNet, World, run, same


def world(folder: Path | None = None, on: bool = True, clients: tuple[int, ...] = (0, 1, 4)) -> World:
    method = ReBaFL(ReBaFL.Config(rounds=2, local_epochs=1, batch_size=8, lr=0.05))
    return run(
        method, folder=folder, protections=[SecureAggregation()] if on else [], script=[(clients, clients)]
    )


def test_the_server_reads_the_sum_and_no_upload(tmp_path: Path) -> None:
    result = world(tmp_path)
    read_by_server = {a.kind for a in result.artifacts if "server" in a.seen_by}
    assert read_by_server == {Kind.AGGREGATE}
    rows = list_exposures(manifest(tmp_path / "artifacts"))
    assert [(e.kind, e.single_client) for e in rows if e.party == "server"] == [("aggregate", False)]
    hidden = [e for e in rows if e.party.startswith("nobody")]
    assert {e.kind for e in hidden} == {"local_model", "num_examples", "local_prototypes", "proto_counts"}


def test_the_sum_gives_the_next_model_and_the_next_prototypes(tmp_path: Path) -> None:
    result = world(tmp_path)
    [sums] = [a.payload for a in result.artifacts if a.kind == Kind.AGGREGATE and a.round == 1]
    assert int(sums["clients"]) == 3
    mean = sums["local_model/fc.weight"] / sums["num_examples/count"]
    np.testing.assert_allclose(mean, result["fc.weight"].numpy(), atol=1e-6)
    down = {(a.kind, a.round): a.payload for a in result.artifacts if a.channel == "downlink"}
    [first] = [a.payload for a in result.artifacts if a.kind == Kind.AGGREGATE and a.round == 0]
    pooled = first["local_prototypes/features"] / first["proto_counts/counts"][:, None]
    received = down[Kind.GLOBAL_PROTOTYPES, 1]
    assert received["classes"].tolist() == first["local_prototypes/classes"].tolist()
    np.testing.assert_allclose(pooled, received["features"], atol=1e-5)


def test_training_is_the_same_to_the_last_bit() -> None:
    assert same(world(), world(on=False))


def test_the_sum_of_one_upload_is_that_upload_and_the_record_says_so(tmp_path: Path) -> None:
    result = world(tmp_path, clients=(4,))
    seen = [a for a in result.artifacts if "server" in a.seen_by]
    assert {str(a.sender) for a in seen} == {"client/4"} and Kind.LOCAL_PROTOTYPES in {a.kind for a in seen}


def test_the_ledger_lists_what_the_sum_tells_as_released_in_clear(tmp_path: Path) -> None:
    world(tmp_path)
    releases = read(tmp_path / "ledger.jsonl")
    assert {r.mechanism for r in releases} == {"none"}
    assert {r.kind for r in releases} >= {"local_model", "local_prototypes"}


class First(FedAvg):
    """Takes the first model that comes, from some round on."""

    def combine(self, state, deliveries, round):  # type: ignore[no-untyped-def]
        if round < 1:
            return super().combine(state, deliveries, round)
        return state | {"model": next(d.message[Kind.LOCAL_MODEL] for d in deliveries)}


class Largest(FedAvg):
    """Takes the model of the client that says it has most examples."""

    def combine(self, state, deliveries, round):  # type: ignore[no-untyped-def]
        best = max(deliveries, key=lambda d: d.examples)
        return state | {"model": best.message[Kind.LOCAL_MODEL]}


class Notes(FedAvg):
    """Averages, and writes down of whom the largest model came."""

    def combine(self, state, deliveries, round):  # type: ignore[no-untyped-def]
        norms: dict[int, float] = {}
        noted = deliveries.noting(
            lambda d: norms.update({d.client: float(d.message[Kind.LOCAL_MODEL]["fc.weight"].norm())})
        )
        new = super().combine(state, noted, round)
        return new | {"largest": max(norms, key=norms.__getitem__)}


class Clips(FedAvg):
    """Clips each model at the server."""

    def combine(self, state, deliveries, round):  # type: ignore[no-untyped-def]
        mean = deliveries.average()
        for d in deliveries:
            model = d.message[Kind.LOCAL_MODEL]
            scale = min(1.0, 1.0 / float(model["fc.weight"].norm()))
            mean.add(d.client, {k: v * scale for k, v in model.items()}, d.weight("samples"), state["model"])
        return state | {"model": mean.value()}


class Unsent(FedAvg):
    """Weighs by numbers of examples that no client sends."""

    def finish(self, client, trained):  # type: ignore[no-untyped-def]
        reply = super().finish(client, trained)
        del reply.message[Kind.NUM_EXAMPLES]
        return reply


class Keeps(FedAvg):
    """Hides what came outside of its state, and sends the first of it in the next round."""

    def open(self, federation):  # type: ignore[no-untyped-def]
        super().open(federation)
        self.kept: list[torch.Tensor] = []

    def combine(self, state, deliveries, round):  # type: ignore[no-untyped-def]
        noted = deliveries.noting(lambda d: self.kept.append(d.message[Kind.LOCAL_MODEL]["fc.bias"]))
        return super().combine(state, noted, round)

    def broadcast(self, state):  # type: ignore[no-untyped-def]
        model = state["model"]
        return {Kind.GLOBAL_MODEL: model | ({"fc.bias": self.kept[0]} if self.kept else {})}


class Looks(Keeps):
    """Keeps what it is shown elsewhere than in combine(): when it is asked for the time of a client's work."""

    card = replace(FedAvg.card, timed=True)

    def combine(self, state, deliveries, round):  # type: ignore[no-untyped-def]
        return FedAvg.combine(self, state, deliveries, round)

    def estimate_cost(self, client, sent, examples, workload):  # type: ignore[no-untyped-def]
        self.kept.append(sent[Kind.LOCAL_MODEL]["fc.bias"])
        return super().estimate_cost(client, sent, examples, workload)


class Traces(FedAvg):
    """Adds the first upload to a number so large that it is a trace, and sends it in the next round."""

    def start(self, federation):  # type: ignore[no-untyped-def]
        return super().start(federation) | {"trace": torch.zeros(0)}

    def combine(self, state, deliveries, round):  # type: ignore[no-untyped-def]
        biases: list[torch.Tensor] = []
        noted = deliveries.noting(lambda d: biases.append(d.message[Kind.LOCAL_MODEL]["fc.bias"]))
        new = super().combine(state, noted, round)
        return new | {"trace": 1e6 + biases[0].double()}

    def broadcast(self, state):  # type: ignore[no-untyped-def]
        traced = {"fc.bias": (state["trace"] - 1e6).float()} if len(state["trace"]) else {}
        return {Kind.GLOBAL_MODEL: state["model"] | traced}


class Changes(FedAvg):
    """Hides what came in its old state."""

    def start(self, federation):  # type: ignore[no-untyped-def]
        return super().start(federation) | {"kept": {"bias": torch.zeros(8)}}

    def combine(self, state, deliveries, round):  # type: ignore[no-untyped-def]
        noted = deliveries.noting(lambda d: state["kept"]["bias"].copy_(d.message[Kind.LOCAL_MODEL]["fc.bias"]))
        return super().combine(state, noted, round)


class Larger(Selection):
    """Asks clients how many examples they have, and has all but the one with the fewest train."""

    def select(self, choice, answering):  # type: ignore[no-untyped-def]
        sizes = {}
        for k in answering:
            sent = {Kind.NUM_EXAMPLES: {"count": torch.tensor(len(choice.federation.parts[k]))}}
            sizes[k] = int(choice.federation.wire.uplink(choice.round, sent, k, {})[Kind.NUM_EXAMPLES]["count"])
        return Chosen(sorted(sizes, key=sizes.__getitem__)[1:])


class Asks(FedAvg):
    """Its server chooses so."""

    card = replace(FedAvg.card, selection=Larger)


class Alone(FedAvg):
    """Has a loop of its own, in which uploads are read."""

    def round(self, t, state, memory, federation):  # type: ignore[no-untyped-def]
        federation.workers.everywhere("begin", t, self.broadcast(state))
        for k, reply in zip([0, 1], federation.workers.map("train", [(0, {}, {}), (1, {}, {})]), strict=True):
            state = {"model": federation.wire.uplink(t, reply.message, k, {})[Kind.LOCAL_MODEL]}
        return state


def hide(method: type[RoundMethod], rounds: int = 2, **more) -> World:  # type: ignore[no-untyped-def]
    made = method(method.Config(rounds=rounds, local_epochs=1, batch_size=8, lr=0.05))
    return run(made, protections=[SecureAggregation()], script=EVERYONE, **more)


def test_counters_of_batches_are_sums_too() -> None:
    settings = FedAvg.Config(rounds=2, local_epochs=2, batch_size=16, lr=0.05)
    shown = run(FedAvg(settings), make=NormalisedNet, script=EVERYONE)
    hidden = run(FedAvg(settings), make=NormalisedNet, script=EVERYONE, protections=[SecureAggregation()])
    assert same(shown, hidden) and int(shown["norm.num_batches_tracked"]) > 2


@pytest.mark.parametrize(
    ("method", "round", "reason"),
    [
        (
            First,
            1,
            r"another 'model/\S+' of single clients' uploads \(local_model, num_examples\) than of their sums",
        ),
        (Largest, 0, "another 'model/"),
        (Notes, 0, "another 'largest' of"),
        (Clips, 0, "another 'model/"),
        (Changes, 0, "another 'kept/bias' of"),
        (Unsent, 0, r"uploads \(local_model\) than of their sums"),
        (Asks, 0, "reads 4 uploads one by one"),
        (Alone, 0, "reads 2 uploads one by one"),
    ],
)
def test_a_server_that_reads_more_than_sums_is_refused(
    method: type[RoundMethod], round: int, reason: str
) -> None:
    with pytest.raises(UserError, match=reason) as refused:
        hide(method)
    assert str(refused.value).startswith("secure aggregation cannot protect FedAvg: in round " + str(round))


def test_a_rule_that_says_of_itself_that_it_reads_sums_is_asked_too() -> None:
    class Lies(Median):
        reads_single_uploads = False

    with pytest.raises(UserError, match="another 'model/"):
        hide(FedAvg, aggregator=Lies())
    hide(FedAvg, aggregator=Mean())


def test_a_rule_for_prototypes_that_reads_single_ones_is_refused() -> None:
    with pytest.raises(UserError, match="another 'prototypes/"):
        hide(ReBaFL, aggregator=Prototypes(Prototypes.Config(rule="median")))


def test_settings_with_which_a_server_keeps_single_models_are_refused() -> None:
    made = FedDyn(FedDyn.Config(rounds=1, local_epochs=1, eval_model="mean_all_latest"))
    with pytest.raises(UserError, match="another 'latest/"):
        run(made, protections=[SecureAggregation()], script=EVERYONE)


@pytest.mark.parametrize("method", [Keeps, Looks, Traces])
def test_what_a_server_hides_of_single_uploads_is_the_mean_of_all(
    tmp_path: Path, method: type[RoundMethod]
) -> None:
    result = hide(method, folder=tmp_path)
    biases = [a.payload["fc.bias"] for a in result.artifacts if a.kind == Kind.LOCAL_MODEL and a.round == 0]
    [sums] = [a.payload for a in result.artifacts if a.kind == Kind.AGGREGATE and a.round == 0]
    [sent] = [a.payload["fc.bias"] for a in result.artifacts if a.kind == Kind.GLOBAL_MODEL and a.round == 1]
    np.testing.assert_allclose(sent, sums["local_model/fc.bias"] / sums["num_examples/count"], atol=1e-7)
    assert all(abs(sent - b).max() > 1e-4 for b in biases)


def test_what_is_dealt_out_has_the_sums_of_what_was_sent_and_is_alike() -> None:
    def make(rng: np.random.Generator, classes: list[int]) -> dict[Kind, dict[str, torch.Tensor]]:
        counts = torch.tensor(rng.integers(1, 9, len(classes)))
        return {
            Kind.LOCAL_MODEL: {"w": torch.tensor(rng.normal(size=3)), "steps": torch.tensor(7)},
            Kind.NUM_EXAMPLES: {"count": counts.sum()},
            Kind.LABEL_COUNTS: {"counts": torch.tensor(rng.integers(0, 5, 4))},
            Kind.LOCAL_PROTOTYPES: {
                "classes": torch.tensor(classes),
                "features": torch.tensor(rng.normal(size=(len(classes), 2))),
            },
            Kind.PROTO_COUNTS: {"classes": torch.tensor(classes), "counts": counts},
        }

    rng = np.random.default_rng(3)
    sent = [make(rng, classes) for classes in ([0, 2], [2], [2, 3], [0, 1, 2])]
    first, again = Sums(), Sums()
    for message in sent:
        first.add(message)
    dealt = list(first.deal())
    for message in dealt:
        again.add(message)
    one, two = first.value(), again.value()
    assert one.keys() == two.keys() and int(one["local_prototypes/holders"].sum()) == 8
    assert all(torch.allclose(one[k].double(), two[k].double(), atol=1e-5) for k in one)
    assert [m[Kind.PROTO_COUNTS]["classes"].tolist() for m in dealt] == [[0, 1, 2, 3], [0, 2], [2], [2]]
    sizes = [int(m[Kind.NUM_EXAMPLES]["count"]) for m in dealt]
    assert max(sizes) - min(sizes) <= 1
    assert len({tuple(m[Kind.LOCAL_MODEL]["w"].tolist()) for m in dealt}) == 1


def test_uploads_of_other_shapes_have_no_sum() -> None:
    sums = Sums()
    sums.add({Kind.GRADIENT: {"w": torch.zeros(2)}})
    with pytest.raises(UserError, match=r"w of gradient has \[2\] and \[3\]"):
        sums.add({Kind.GRADIENT: {"w": torch.zeros(3)}})


def test_rounding_is_no_difference_and_a_trace_of_one_upload_is() -> None:
    before = {"model": {"w": torch.ones(100)}, "rounds": 3}
    after = {"model": {"w": torch.ones(100) + 0.01 * torch.arange(100)}, "rounds": 3}
    rounded = {"model": {"w": after["model"]["w"] * (1 + 1e-7)}, "rounds": 3}
    traced = {"model": {"w": after["model"]["w"] + 1e-3 * torch.eye(100)[0]}, "rounds": 3}
    assert find_difference(before, after, rounded) == ""
    assert find_difference(before, after, traced) == "model/w"
    assert find_difference(before, after, after | {"rounds": 4}) == "rounds"
    assert find_difference(before, after, after | {"who": 4}) == "who"
