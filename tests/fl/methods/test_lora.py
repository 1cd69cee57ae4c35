"""Federated adapters: the vector of two clients, one client alone, what crosses the wire, and exact stacking."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from fedaudit.fl.aggregators.median import Median
from fedaudit.fl.artifact import SERVER, Artifact, Channel
from fedaudit.fl.clients.delivery import Delivery
from fedaudit.fl.families.adapters import FOLDED, A, B, attach, compute_products
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.fedlora import FedLoRA
from fedaudit.fl.methods.ffa_lora import FFALoRA
from fedaudit.fl.methods.flora import FLoRA
from fedaudit.fl.methods.hetlora import HetLoRA, cut
from fedaudit.fl.model import Net, State, initialise, state_of
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from tests.fl.methods.worlds_of_methods import SETTINGS, continues
from tests.fl.worlds import TinyNet, World, adapted, as_delivered, data, run, same

LAYER = "fc"
ALL = [FedLoRA, FFALoRA, FLoRA, HetLoRA]
ALONE = [([1], [1])]


def made(cls: Any, **settings: Any) -> Any:
    return cls(cls.Config(**(SETTINGS | {"weight_decay": 0.0} | settings)))


def pair(a: float, b: float, **more: torch.Tensor) -> State:
    return {LAYER + A: torch.tensor([[float(a)]]), LAYER + B: torch.tensor([[float(b)]]), **more}


def combine(method: Any, *sent: State, start: State, weights: tuple[int, ...] = (1, 1)) -> Any:
    method.scale, method.streams = 1.0, Streams(1)
    deliveries = [
        Delivery(client=k, message={Kind.ADAPTER: s}, examples=n)
        for k, (s, n) in enumerate(zip(sent, weights, strict=True))
    ]
    state = {"model": start, "ranks": torch.tensor([1] * len(sent))}
    return method.combine(state, as_delivered(deliveries), 0)


def product(state: State) -> float:
    return float(compute_products(state)[LAYER])


# Client 1 has B 1 and A 2, client 2 has B 3 and A 4: products 2 and 12, mean 7
ONE, TWO = pair(a=2, b=1), pair(a=4, b=3)


def test_fedlora_averages_the_factors_apart_and_says_how_far_off_that_is() -> None:
    new = combine(made(FedLoRA), ONE, TWO, start=pair(0, 0))
    assert product(new["model"]) == 6 and new["aggregation_error"] == 1


def test_flora_gives_the_mean_of_the_products_and_new_adapters() -> None:
    start = pair(0, 0, **{LAYER + FOLDED: torch.tensor([[0.5]])})
    new = combine(made(FLoRA), ONE, TWO, start=start)
    assert new["model"][LAYER + FOLDED].item() == 7.5 and new["aggregation_error"] == 0
    assert new["model"][LAYER + B].item() == 0 and new["model"][LAYER + A].item() != 0


def test_ffa_lora_with_one_a_for_all_is_exact() -> None:
    sent = [{LAYER + B: torch.tensor([[b]])} for b in (1.0, 3.0)]
    new = combine(made(FFALoRA), *sent, start=pair(2, 0))
    assert product(new["model"]) == 4 and new["aggregation_error"] == 0  # the mean of 2 and 6


def test_hetlora_weighs_clients_by_the_length_of_their_products() -> None:
    new = combine(made(HetLoRA, ranks=(1,)), ONE, TWO, start=pair(0, 0))
    a, b = (2 * 2 + 12 * 4) / 14, (2 * 1 + 12 * 3) / 14
    assert product(new["model"]) == pytest.approx(a * b)


def test_the_stack_of_the_paper_is_the_mean_of_products() -> None:
    torch.manual_seed(3)
    a, b = torch.randn(3, 2, 5), torch.randn(3, 4, 2)
    shares = torch.tensor([0.5, 0.3, 0.2])
    stacked = torch.cat(list(shares[:, None, None] * b), 1) @ torch.cat(list(a), 0)
    start = {LAYER + A: a[0], LAYER + B: b[0], LAYER + FOLDED: torch.zeros(4, 5)}
    sent = [{LAYER + A: a[k], LAYER + B: b[k]} for k in range(3)]
    new = combine(made(FLoRA), *sent, start=start, weights=(5, 3, 2))
    torch.testing.assert_close(new["model"][LAYER + FOLDED], stacked)


def function(world: World, folds: bool, x: torch.Tensor) -> torch.Tensor:
    net = adapted(folds)
    net.load_state_dict(world.model)
    with torch.no_grad():
        return net.eval()(x)


@pytest.mark.parametrize("cls", [FedLoRA, FLoRA, HetLoRA])
def test_one_client_in_one_round_gives_the_function_of_local_lora(cls: Any) -> None:
    more = {"ranks": (8,)} if cls is HetLoRA else {}
    world = run(made(cls, rounds=1, **more), script=ALONE)
    local = run(made(FedAvg, rounds=1), script=ALONE, make=adapted)
    x = torch.from_numpy(data().test.x)
    torch.testing.assert_close(
        function(world, cls.card.folds_adapters, x), function(local, False, x), atol=1e-5, rtol=0
    )
    assert not torch.allclose(function(local, False, x), adapted().eval()(x).detach(), atol=1e-3)
    assert world.history[0]["aggregation_error"] < 1e-6


def test_fedlora_is_fedavg_of_the_adapted_model_to_the_bit() -> None:
    assert same(run(made(FedLoRA)), run(made(FedAvg), make=adapted))


def test_clients_that_differ_make_an_error_and_those_with_a_fixed_factor_none() -> None:
    errors = {cls: [line["aggregation_error"] for line in run(made(cls)).history] for cls in ALL}
    assert max(errors[FedLoRA]) > 1e-4 and max(errors[HetLoRA]) > 1e-4
    assert max(errors[FFALoRA]) < 1e-6 and max(errors[FLoRA]) < 1e-6


def uploads(folder: Path) -> list[Artifact]:
    world = run(made_for_wire(folder.name), folder=folder)
    return [a for a in world.artifacts if a.channel is Channel.UPLINK and a.kind is Kind.ADAPTER]


def made_for_wire(name: str) -> Any:
    return made({c.__name__: c for c in ALL}[name])


@pytest.mark.parametrize("cls", ALL)
def test_no_base_crosses_the_wire_in_any_direction(cls: Any, tmp_path: Path) -> None:
    folder = tmp_path / cls.__name__
    folder.mkdir()
    assert uploads(folder)
    allowed = set(adapted(cls.card.folds_adapters).state_dict())
    everything = run(made(cls), folder=tmp_path / "again").artifacts
    for a in everything:
        if a.kind in (Kind.ADAPTER, Kind.GLOBAL_MODEL):
            assert set(a.payload) <= allowed and "conv.weight" not in a.payload


def test_ffa_lora_sends_no_a_either_way_and_a_never_moves(tmp_path: Path) -> None:
    world = run(made(FFALoRA), folder=tmp_path)
    sent = [a for a in world.artifacts if a.channel is not Channel.RELEASE and a.kind is not Kind.NUM_EXAMPLES]
    assert sent and not any(name.endswith(A) for a in sent for name in a.payload)
    assert torch.equal(world[LAYER + A], world.initial[LAYER + A])
    assert not torch.equal(world[LAYER + B], world.initial[LAYER + B])


def test_ffa_lora_clients_do_not_train_a_themselves_either() -> None:
    class OnlyB(FedAvg):
        """Local training of B and the head alone."""

        def is_trainable(self, name: str) -> bool:
            return not name.endswith(A)

    ours, local = (
        run(made(FFALoRA, rounds=1), script=ALONE),
        run(made(OnlyB, rounds=1), script=ALONE, make=adapted),
    )
    assert torch.equal(ours[LAYER + B], local[LAYER + B])
    assert not torch.equal(ours[LAYER + B], run(made(FedAvg, rounds=1), script=ALONE, make=adapted)[LAYER + B])


def test_flora_sends_no_folded_change_up_and_begins_each_round_with_others(tmp_path: Path) -> None:
    world = run(made(FLoRA), folder=tmp_path)
    up = [a for a in world.artifacts if a.kind is Kind.ADAPTER]
    assert up and not any(name.endswith(FOLDED) for a in up for name in a.payload)
    down = {a.round: a.payload for a in world.artifacts if a.channel is Channel.DOWNLINK and a.sender == SERVER}
    assert not (down[0][LAYER + A] == down[2][LAYER + A]).any() and not down[2][LAYER + B].any()
    assert down[2][LAYER + FOLDED].any()


def test_hetlora_clients_get_and_send_the_ranks_they_are_set(tmp_path: Path) -> None:
    world = run(made(HetLoRA, ranks=(2, 4)), folder=tmp_path)
    up = [a for a in world.artifacts if a.kind is Kind.ADAPTER]
    for a in up:
        rank = (2, 4)[a.sender.index % 2]  # type: ignore[operator]
        assert a.payload[LAYER + A][:rank].any(1).all() and not a.payload[LAYER + A][rank:].any()
        assert not a.payload[LAYER + B][:, rank:].any()
    assert {a.sender.index for a in up} >= {0, 1, 2}


def test_a_tail_that_shrank_is_cut_off_and_one_that_counts_nothing_is_not(tmp_path: Path) -> None:
    cutting = {"rounds": 4, "ranks": (8,), "keep": 0.5, "tail_weight": 0.5}
    world = run(made(HetLoRA, **cutting), folder=tmp_path / "a", script=ALONE)
    ranks = [8] + [int(a.payload[LAYER + A].any(1).sum()) for a in world.artifacts if a.kind is Kind.ADAPTER]
    assert ranks[-1] < 8 and all(new in (old, old // 2) for old, new in pairwise(ranks))
    down = {a.round: a.payload[LAYER + A] for a in world.artifacts if a.channel is Channel.DOWNLINK}
    assert [int(down[t].any(1).sum()) for t in range(4)] == ranks[:-1]
    free = run(made(HetLoRA, **(cutting | {"keep": 1.0})), script=ALONE)
    assert free[LAYER + A].any(1).all()


def test_a_rule_of_the_server_works_on_the_products_of_flora() -> None:
    start = pair(0, 0, **{LAYER + FOLDED: torch.zeros(1, 1)})
    method, sent = made(FLoRA), [ONE, TWO, pair(a=100, b=100)]
    method.scale, method.streams = 1.0, Streams(1)
    deliveries = [Delivery(client=k, message={Kind.ADAPTER: s}, examples=1) for k, s in enumerate(sent)]
    new = method.combine({"model": start}, as_delivered(deliveries, Median()), 0)
    assert new["model"][LAYER + FOLDED].item() == 12


def test_a_run_that_was_stopped_continues_with_the_same_adapters(tmp_path: Path) -> None:
    assert continues(lambda: made(FLoRA), tmp_path)


def test_a_model_without_adapters_and_ranks_above_theirs_are_refused() -> None:
    with pytest.raises(UserError, match="the model has none") as error:
        run(made(FedLoRA), make=TinyNet)
    assert error.value.key == "federation.adapters"
    with pytest.raises(UserError, match="adapters have rank 8"):
        run(made(HetLoRA, ranks=(9,)))


def test_cutting_keeps_the_product_of_what_is_left() -> None:
    state = state_of(attach(initialise(TinyNet, Streams(1)), 4, 8.0, ["fc"]))
    state[LAYER + B] = torch.randn_like(state[LAYER + B])
    shorter = cut(state, 2)
    torch.testing.assert_close(
        compute_products(shorter)[LAYER], (state[LAYER + B][:, :2].double() @ state[LAYER + A][:2].double())
    )
    assert isinstance(adapted(), Net)
