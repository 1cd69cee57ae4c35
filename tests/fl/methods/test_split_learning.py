"""Split learning, U-shape and SplitFed: FedAvg where they must be, the numbers of a line, and what crosses."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedaudit.attacks.poisoning.backdoors import Backdoor
from fedaudit.fl.artifact import Artifact, Channel
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.families.cutting import cut_network
from fedaudit.fl.families.distance_correlation import distance_correlation
from fedaudit.fl.families.drawn_batches import iterate_batches
from fedaudit.fl.families.splitting import Splitting
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import RoundMethod
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.split_learning import SplitfedV1, SplitfedV2, SplitLearning, SplitUShape
from fedaudit.fl.model import Net, state_of
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues
from tests.fl.worlds import EVERYONE, TinyNet, World, close, data, parts, run, same

EVERY = pytest.mark.parametrize("cls", [SplitLearning, SplitUShape, SplitfedV1, SplitfedV2])
ALONE = {"index": [np.arange(30)], "script": [([0], [0])]}


class Dense(Net):
    """Three dense layers: whoever runs them, the operations are the same."""

    def __init__(self) -> None:
        super().__init__((), 0)
        self.one, self.two, self.head = nn.Linear(36, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def features(self, x: Tensor) -> Tensor:
        return self.two(self.one(x.flatten(1)).relu()).relu()


class Line(Net):
    """s = b a x, cut between a and b."""

    def __init__(self) -> None:
        super().__init__((), 0)
        self.a, self.head = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
        with torch.no_grad():
            self.a.weight.fill_(0.5)
            self.head.weight.fill_(3.0)

    def features(self, x: Tensor) -> Tensor:
        return self.a(x.flatten(1))


def make(cls: type[RoundMethod], **settings: Any) -> Any:
    return cls(cls.Config(**(SETTINGS | {"rounds": 2} | settings)))


def sent(world: World, kind: Kind, channel: Channel = Channel.UPLINK) -> list[Artifact]:
    return [a for a in world.artifacts if a.kind == kind and a.channel == channel]


# Identities


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("cut", [1, 2])
def test_splitfed_v1_is_fedavg_to_the_last_bit_wherever_it_is_cut(cut: int, weighting: str) -> None:
    world = {"make": Dense, **WORLD}
    split, whole = make(SplitfedV1, cut=cut, weighting=weighting), make(FedAvg, weighting=weighting)
    assert same(run(split, **world), run(whole, **world))


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("cls", "cut"), [(SplitLearning, 1), (SplitLearning, 2), (SplitUShape, 1), (SplitfedV1, 2), (SplitfedV2, 1)]
)
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_with_one_client_it_is_training_in_one_place(cls: type[Splitting], cut: int, optimiser: str) -> None:
    world = {"make": Dense, **ALONE}
    alone = make(FedAvg, optimiser=optimiser, lr_decay=0.9)
    assert same(run(make(cls, cut=cut, optimiser=optimiser, lr_decay=0.9), **world), run(alone, **world))


@pytest.mark.parametrize("cls", [SplitLearning, SplitUShape, SplitfedV1])
def test_with_one_client_convolutions_agree_to_rounding(cls: type[Splitting]) -> None:
    assert close(run(make(cls), **ALONE), run(make(FedAvg), **ALONE), 1e-6)


@pytest.mark.parametrize("cls", [SplitLearning, SplitUShape, SplitfedV2])
def test_with_several_clients_it_is_not_fedavg_and_neither_is_the_other(cls: type[Splitting]) -> None:
    whole = run(make(FedAvg), **WORLD)
    assert not close(run(make(cls), **WORLD), whole, 1e-3)


def test_an_optimiser_made_anew_for_every_batch_has_no_momentum_at_the_server() -> None:
    once, anew = (make(SplitLearning, server_optimiser=s) for s in ("visit", "batch"))
    assert not same(run(once, **ALONE), run(anew, **ALONE))
    plain = {"momentum": 0.0}
    once, anew = (make(SplitLearning, server_optimiser=s, **plain) for s in ("visit", "batch"))
    assert same(run(once, **ALONE), run(anew, **ALONE))


# The numbers of a line: f = a x, s = b z, L = (s - y)^2 / 2, a = .5, b = 3, eta = .1, data (2, 1) and (1, 0)


def on_a_line(
    cls: type[Splitting], order: tuple[int, int], folder: Path
) -> tuple[World, list[tuple[float, float]]]:
    """The world, and the messages of each batch: z and the gradient by it."""

    class Squared(cls):  # type: ignore[misc,valid-type]
        def loss(self, net: Any, x: Tensor, y: Tensor, const: Any) -> Tensor:
            return ((net(x)[:, 0] - y) ** 2 / 2).mean()

    x, y = np.array([2.0, 1.0], np.float32).reshape(2, 1, 1, 1), np.array([1, 0])
    d = Data(
        train=Arrays(x=x, y=y),
        test=Arrays(x=x, y=np.zeros(2, np.int64)),
        classes=("a", "b"),
        mean=(0.0,),
        std=(1.0,),
    )
    config = {"rounds": 1, "local_epochs": 1, "batch_size": 1, "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}
    more = {} if cls is SplitfedV1 else {"order": "numbers"}
    method = Squared(cls.Config(**config, weighting="uniform", **more))
    world = run(
        method,
        folder=folder,
        make=Line,
        d=d,
        index=[np.array([k]) for k in order],
        script=[([0, 1], [0, 1])],
        initial=state_of(Line()),
    )
    up = [float(a.payload["activations"].item()) for a in sent(world, Kind.SMASHED)]
    down = [float(a.payload["gradient"].item()) for a in sent(world, Kind.SMASHED_GRADIENT, Channel.DOWNLINK)]
    return world, list(zip(up, down, strict=True))


@pytest.mark.parametrize(
    ("cls", "order", "a", "b"),
    [
        (SplitfedV1, (0, 1), -0.325, 2.8625),
        (SplitfedV2, (0, 1), -0.296, 2.73),
        (SplitfedV2, (1, 0), -0.2880625, 2.7325),
        (SplitLearning, (0, 1), -0.1512, 2.6628),
        (SplitLearning, (1, 0), 0.4638875, 2.932075),
    ],
)
def test_two_clients_on_a_line_end_where_they_do_by_hand(
    cls: type[Splitting], order: tuple[int, int], a: float, b: float, tmp_path: Path
) -> None:
    world, messages = on_a_line(cls, order, tmp_path)
    assert world["a.weight"].item() == pytest.approx(a, abs=1e-6)
    assert world["head.weight"].item() == pytest.approx(b, abs=1e-6)
    first = {0: (1.0, 6.0), 1: (0.5, 4.5)}  # of each example, where its client is the first
    assert messages[0] == pytest.approx(first[order[0]])
    if cls is SplitfedV1:
        assert messages[1] == pytest.approx(first[order[1]])


# What crosses


@pytest.mark.sample(2)
@EVERY
def test_a_visit_has_as_many_messages_each_way_as_batches(cls: type[Splitting], tmp_path: Path) -> None:
    world = run(make(cls, rounds=1), folder=tmp_path, script=EVERYONE)
    n = {0: 7, 1: 20, 2: 11, 4: 30}
    for k, size in n.items():
        up = [a for a in sent(world, Kind.SMASHED) if a.sender.index == k]
        down = sent(world, Kind.SMASHED_GRADIENT, Channel.DOWNLINK)
        assert len(up) == 2 * -(-size // 8) == sum(a.seen_by == (f"client/{k}",) for a in down)
    labels = {"labels" in a.payload for a in sent(world, Kind.SMASHED)}
    assert labels == {cls is not SplitUShape}


@pytest.mark.sample(2)
@EVERY
def test_the_first_batch_is_what_the_first_layers_make_of_the_rows_that_were_drawn(
    cls: type[Splitting], tmp_path: Path
) -> None:
    world, d = run(make(cls, rounds=1), folder=tmp_path, script=EVERYONE), data()
    first = next(a for a in sent(world, Kind.SMASHED) if a.sender.index == 1)
    rows = parts(d)[1][next(iterate_batches(Streams(5), 0, 1, [8, 8, 4], 2)).numpy()]
    net = TinyNet()
    if cls in (SplitfedV1, SplitfedV2):  # in the others client 0 has trained the layers before
        net.load_state_dict(world.initial)
        x = (torch.from_numpy(d.train.x[rows]) - 0.4) / 0.25
        made = cut_network(net, 1).body.module(x).detach().numpy()
        assert np.allclose(first.payload["activations"], made, atol=1e-6)
    if "labels" in first.payload:
        assert first.payload["labels"].tolist() == d.train.y[rows].tolist()


def test_layers_are_handed_on_from_client_to_client_and_the_server_sees_none(tmp_path: Path) -> None:
    world = run(make(SplitLearning, rounds=2), folder=tmp_path, script=EVERYONE)
    handed = sent(world, Kind.RELAY_MODEL, Channel.RELAY)
    path = [(a.sender.index, a.seen_by) for a in handed]
    one = [(0, ("client/1",)), (1, ("client/2",)), (2, ("client/4",))]
    assert path == [*one, (4, ("client/0",)), *one]
    assert all(a.payload.keys() == {"conv.weight", "conv.bias"} for a in handed)


@pytest.mark.sample(2)
@EVERY
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(cls: type[Splitting], tmp_path: Path) -> None:
    assert continues(lambda: make(cls), tmp_path, **WORLD)


# NoPeek


def test_distance_correlation_has_the_values_of_the_literature() -> None:
    x = torch.tensor([[0.0], [1.0], [2.0]])
    assert float(distance_correlation(x, 3 * x)) == pytest.approx(1.0, abs=1e-6)
    assert float(distance_correlation(x, torch.tensor([[0.0], [1.0], [0.0]]))) == pytest.approx(
        0.562341, abs=1e-6
    )
    assert float(distance_correlation(x, torch.ones(3, 1))) == 0.0


def test_distance_correlation_has_a_finite_slope_where_rows_are_equal_or_all_is_constant() -> None:
    x, z = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[1.0], [1.0], [4.0]], requires_grad=True)
    for of in (z, 0 * z):
        [slope] = torch.autograd.grad(distance_correlation(x, of), [z], retain_graph=True)
        assert bool(torch.isfinite(slope).all())


@pytest.mark.sample(1)
@pytest.mark.parametrize("cls", [SplitLearning, SplitUShape])
def test_nopeek_makes_activations_depend_less_on_images_and_none_of_it_changes_nothing(
    cls: type[Splitting], tmp_path: Path
) -> None:
    d, settings = data(), {"rounds": 8, "momentum": 0.0, "weight_decay": 0.0}

    def dependence(weight: float) -> float:
        world = run(make(cls, nopeek=weight, **settings), make=Dense, **ALONE)
        net = Dense()
        net.load_state_dict(world.model)
        x = (torch.from_numpy(d.train.x[:30]) - 0.4) / 0.25
        return float(distance_correlation(x, cut_network(net, 1).body.module(x)).detach())

    assert dependence(10.0) < dependence(0.0) - 0.02


# Refusals


def test_a_cut_that_leaves_the_server_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="clients can hold 1 to 2 of the 3 layers"):
        run(make(SplitLearning, cut=3), **ALONE)
    with pytest.raises(UserError, match="1 to 1 of the 3 layers"):
        run(make(SplitUShape, cut=2), **ALONE)


def test_dropout_and_branches_are_refused() -> None:
    class Dropping(Dense):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5)

    class Branching(Dense):
        def features(self, x: Tensor) -> Tensor:
            return super().features(x if x.sum() > 0 else -x)

    for make_net, words in ((Dropping, "dropout"), (Branching, "cannot be cut")):
        with pytest.raises(UserError, match=words):
            run(make(SplitLearning), make=make_net, **ALONE)


def test_an_adversary_that_changes_the_loss_is_refused_for_it_is_the_server_s() -> None:
    with pytest.raises(UserError, match="the server computes it"):
        run(make(SplitLearning), adversary=Backdoor(), **ALONE)


def test_a_visit_whose_message_is_not_finite_leaves_the_server_as_it_was(tmp_path: Path) -> None:
    d = data()
    d.train.x[parts(d)[1]] = np.nan
    without = [([0, 2, 4], [0, 2, 4])]
    spoiled = run(make(SplitLearning, rounds=1), folder=tmp_path, d=d, script=EVERYONE)
    assert same(spoiled, run(make(SplitLearning, rounds=1), d=d, script=without))
    assert spoiled.history[0]["rejected"] == 1
    assert all(a.sender.index != 1 for a in sent(spoiled, Kind.SMASHED))
