"""The shared local loop: batches, momentum, clipping, hooks, memory layout and augmentation."""

from itertools import chain, product

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.data.scale import normalise
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import Net, State, initialise, state_of
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.training.layout import channels_last
from fedaudit.fl.training.local import Constants, Handle, Params, Trained, bind, crop_flip, snapshot, train


class LeNet(Net):
    """Two convolutions (the first with one input channel), pooling, two linear layers."""

    def __init__(self) -> None:
        super().__init__((1, 28, 28), 10)
        self.first, self.second = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc, self.head = nn.Linear(16 * 25, 32), nn.Linear(32, 10)

    def features(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(self.first(x).relu(), 2)
        x = nn.functional.max_pool2d(self.second(x).relu(), 2)
        return self.fc(x.flatten(1)).relu()


class Line(Net):
    """[b, 1] -> [b, 1]: weights w and b that a test can follow by hand."""

    def __init__(self) -> None:
        super().__init__((1,), 1)
        self.head = nn.Linear(1, 1)

    def features(self, x: Tensor) -> Tensor:
        return x


class Slope(FedAvg):
    """loss = slope * (w + b), so that the gradient is (slope, slope) everywhere."""

    slope = 1.0

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        return self.slope * net(torch.ones(1, 1)).sum()


class Watch(FedAvg):
    """Notes every batch it sees."""

    def __init__(self, config: FedAvg.Config) -> None:
        super().__init__(config)
        self.batches: list[list[int]] = []

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        self.batches.append(x.flatten().long().tolist())
        return net(x).square().mean()


ZERO: State = {"head.weight": torch.zeros(1, 1), "head.bias": torch.zeros(1)}


def config(**settings: object) -> FedAvg.Config:
    base = {"local_epochs": 1, "batch_size": 4, "lr": 0.1}
    return FedAvg.Config(**(base | settings))  # type: ignore[arg-type]


def on_line(method: FedAvg, start: State = ZERO, n: int = 10, seed: int = 0, scale: float = 1.0) -> Trained:
    x = torch.arange(float(n))[:, None]
    order = torch.Generator().manual_seed(seed)
    return train(method, Line(), start, x, torch.zeros(n).long(), {}, order, scale=scale)


def weights(trained: Trained) -> list[float]:
    return [float(trained.state["head.weight"]), float(trained.state["head.bias"])]


# Batches ------------------------------------------------------------------------------------


def test_every_epoch_visits_everything_once_and_keeps_the_last_partial_batch() -> None:
    method = Watch(config(local_epochs=2))
    trained = on_line(method, n=10)
    assert [len(b) for b in method.batches] == [4, 4, 2, 4, 4, 2] and trained.steps == 6
    first, second = list(chain(*method.batches[:3])), list(chain(*method.batches[3:]))
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second and first != sorted(first)  # a fresh random order each time


def test_a_batch_larger_than_the_data_is_one_batch_of_all() -> None:
    method = Watch(config(batch_size=1000))
    assert on_line(method, n=3).steps == 1
    assert sorted(method.batches[0]) == [0, 1, 2]


def test_the_order_is_the_generators() -> None:
    runs = []
    for seed in (1, 1, 2):
        method = Watch(config())
        on_line(method, seed=seed)
        runs.append(method.batches)
    assert runs[0] == runs[1] != runs[2]


def test_the_reported_loss_is_the_mean_over_the_last_epochs_batches() -> None:
    method = Slope(config(local_epochs=2, batch_size=5, lr=1.0))
    trained = on_line(method, n=10)
    # after step s, w + b = -2 s; the second epoch sees steps 2 and 3
    assert trained.loss == (-4 - 6) / 2


def test_no_epochs_change_nothing() -> None:
    start = {"head.weight": torch.tensor([[0.3]]), "head.bias": torch.tensor([-2.0])}
    trained = on_line(Slope(config(local_epochs=0)), start)
    assert trained.steps == 0 and trained.loss == 0.0
    assert all(torch.equal(trained.state[k], start[k]) for k in start)


# Steps --------------------------------------------------------------------------------------


def test_steps_by_hand() -> None:
    # lr 0.5 halved by scale, gradient (1, 1), one step
    assert weights(on_line(Slope(config(batch_size=99, lr=0.5)), scale=0.5)) == [-0.25, -0.25]
    # two steps with momentum 0.5: 0.5 * 1, then 0.5 * (0.5 + 1)
    two = Slope(config(batch_size=5, lr=0.5, momentum=0.5))
    assert weights(on_line(two)) == [-1.25, -1.25]
    # weight decay 0.5 on w = 4, b = -2: 0.1 * (1 + 2) and 0.1 * (1 - 1)
    start = {"head.weight": torch.tensor([[4.0]]), "head.bias": torch.tensor([-2.0])}
    decayed = on_line(Slope(config(batch_size=99, weight_decay=0.5)), start)
    assert weights(decayed) == pytest.approx([3.7, -2.0])


def test_momentum_starts_empty_in_every_round() -> None:
    def rounds(momentum: float, epochs: int) -> list[float]:
        method = Slope(config(batch_size=99, momentum=momentum, local_epochs=epochs))
        return weights(on_line(method, on_line(method).state))

    assert rounds(0.9, epochs=1) == rounds(0.0, epochs=1)  # one step a round: nothing to remember
    assert rounds(0.9, epochs=2) != rounds(0.0, epochs=2)


def test_gradients_are_clipped_to_the_norm_over_all_parameters() -> None:
    method = Slope(config(batch_size=99, lr=1.0, grad_clip=2.0))
    method.slope = -30.0  # a gradient of norm 30 * sqrt(2)
    assert weights(on_line(method)) == pytest.approx([2**0.5, 2**0.5], rel=1e-6)


def test_a_gradient_within_the_limit_is_left_as_it_is() -> None:
    free, limited = Slope(config(grad_clip=0.0)), Slope(config(grad_clip=1.5))
    assert weights(on_line(free)) == weights(on_line(limited))


def test_clipping_comes_before_the_correction() -> None:
    class Corrected(Slope):
        slope = 30.0

        def correct(self, grads: Params, params: Params, start: Params, const: Constants) -> Params:
            assert float(torch.stack([g.norm() for g in grads.values()]).norm()) < 1 + 1e-5
            return {k: torch.full_like(g, -7.0) for k, g in grads.items()}

    assert weights(on_line(Corrected(config(batch_size=99, lr=1.0, grad_clip=1.0)))) == [7.0, 7.0]


def test_the_correction_sees_the_rounds_first_model_and_the_present_one() -> None:
    seen: list[tuple[float, float]] = []

    class Corrected(Slope):
        def correct(self, grads: Params, params: Params, start: Params, const: Constants) -> Params:
            seen.append((float(start["head.bias"]), float(params["head.bias"])))
            return grads

    on_line(Corrected(config(batch_size=5, lr=1.0)), {**ZERO, "head.bias": torch.tensor([3.0])})
    assert seen == [(3.0, 3.0), (3.0, 2.0)]


def test_a_parameter_that_is_not_trained_stays() -> None:
    class Frozen(Slope):
        def is_trainable(self, name: str) -> bool:
            return name != "head.bias"

    assert weights(on_line(Frozen(config(batch_size=99)))) == pytest.approx([-0.1, 0.0])


def test_a_parameter_the_loss_does_not_use_only_decays() -> None:
    class Half(FedAvg):
        def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
            return net.head_weight().sum()

    start = {"head.weight": torch.zeros(1, 1), "head.bias": torch.tensor([4.0])}
    trained = on_line(Half(config(batch_size=99, weight_decay=0.5)), start)
    assert weights(trained) == pytest.approx([-0.1, 3.8])


def test_the_start_is_not_changed_and_the_result_is_a_copy() -> None:
    start, net = {k: v.clone() for k, v in ZERO.items()}, Line()
    order = torch.Generator().manual_seed(0)
    x = torch.ones(2, 1)
    trained = train(Slope(config()), net, start, x, torch.zeros(2).long(), {}, order)
    assert all(torch.equal(start[k], ZERO[k]) for k in ZERO)
    kept = float(trained.state["head.bias"])
    bind(net, {"head.bias": torch.tensor([9.0])})
    assert float(trained.state["head.bias"]) == kept


# The handle ---------------------------------------------------------------------------------


def test_a_handle_at_other_weights_is_the_model_with_those_weights() -> None:
    net, other = initialise(LeNet, Streams(1)), initialise(LeNet, Streams(2))
    x = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    handle = Handle(net)
    assert torch.equal(handle(x), net(x)) and handle.head_weight() is net.head.weight
    there = handle.replace_weights(state_of(other))
    torch.testing.assert_close(there(x), other(x))
    torch.testing.assert_close(there.features(x), other.features(x))
    torch.testing.assert_close(there.head(other.features(x)), other(x))
    assert torch.equal(there.head_weight(), other.head.weight)
    for weights, model in ((handle.weights, net), (there.weights, other)):  # what a method's loss reads
        expected = dict(model.named_parameters())
        assert all(torch.equal(weights[k], v) for k, v in expected.items()) and expected.keys() <= weights.keys()
    assert torch.equal(handle(x), net(x))  # the bound weights are where they were


# Memory layout ------------------------------------------------------------------------------


def test_channels_last_agrees_with_the_ordinary_layout() -> None:
    rng = torch.Generator().manual_seed(3)
    x, y = torch.rand(24, 1, 28, 28, generator=rng), torch.randint(0, 10, (24,), generator=rng)
    start = state_of(initialise(LeNet, Streams(1)))
    method = FedAvg(config(local_epochs=2, batch_size=8, lr=0.05, momentum=0.5))
    found = []
    for net in (LeNet(), channels_last(LeNet())):
        assert isinstance(net, Net)
        order = torch.Generator().manual_seed(4)
        found.append(train(method, net, start, x, y, {}, order))
    ordinary, last = found
    for name, value in ordinary.state.items():
        torch.testing.assert_close(last.state[name], value, rtol=0, atol=1e-5)
        assert last.state[name].is_contiguous()
    assert last.loss == pytest.approx(ordinary.loss, abs=1e-5)


def test_channels_last_is_kept_when_weights_are_loaded() -> None:
    net = channels_last(LeNet())
    bind(net, state_of(initialise(LeNet, Streams(1))))  # type: ignore[arg-type]
    strides = [m.weight.stride() for m in net.modules() if isinstance(m, nn.Conv2d)]
    assert strides == [(25, 1, 5, 1), (150, 1, 30, 6)]  # also with one input channel


def test_a_snapshot_is_exact_whatever_the_layout() -> None:
    state = state_of(initialise(LeNet, Streams(1)))
    net = channels_last(LeNet())
    assert isinstance(net, Net)
    bind(net, state)
    assert all(torch.equal(v, state[k]) and v.is_contiguous() for k, v in snapshot(net).items())


# Augmentation and normalisation -------------------------------------------------------------


def test_crop_flip_gives_windows_of_the_padded_image_mirrored_or_not() -> None:
    x = torch.rand(60, 3, 6, 5, generator=torch.Generator().manual_seed(0)) + 0.1
    out = crop_flip(x, torch.Generator().manual_seed(1))
    assert out.shape == x.shape
    padded, found = nn.functional.pad(x, (4, 4, 4, 4)), set()
    for i in range(len(x)):
        windows = {
            (top, left, flip): padded[i, :, top : top + 6, left : left + 5].flip([2] if flip else [])
            for top, left, flip in product(range(9), range(9), (False, True))
        }
        matches = [k for k, w in windows.items() if torch.equal(w, out[i])]
        assert matches, f"image {i} is no window"
        found.add(matches[0])
    assert len(found) > 30  # each image by itself
    assert {f for *_, f in found} == {False, True}
    assert {t for t, *_ in found} == {left for _, left, _ in found} == set(range(9))


def test_crop_flip_is_decided_by_its_generator() -> None:
    x = torch.rand(8, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    a, b, c = (crop_flip(x, torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert torch.equal(a, b) and not torch.equal(a, c)


def test_augmentation_is_off_unless_asked_for() -> None:
    rng = torch.Generator().manual_seed(3)
    x, y = torch.rand(8, 1, 28, 28, generator=rng), torch.zeros(8).long()
    seen: list[Tensor] = []

    class Noting(FedAvg):
        def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
            seen.append(x)
            return super().loss(net, x, y, const)

    for augment in ("none", "crop_flip"):
        start, order = state_of(LeNet()), torch.Generator().manual_seed(0)
        train(Noting(config(batch_size=8)), LeNet(), start, x, y, {}, order, augment)
    plain, augmented = seen
    assert sorted(plain.sum((1, 2, 3)).tolist()) == sorted(x.sum((1, 2, 3)).tolist())
    assert augmented.shape == x.shape and not torch.equal(plain, augmented)


def test_images_are_normalised_by_channel_and_tokens_pass() -> None:
    arrays = Arrays(x=np.zeros((1, 2, 1, 1), np.float32), y=np.zeros(1, np.int64))
    data = Data(train=arrays, test=arrays, classes=("a",), mean=(0.5, 0.25), std=(0.5, 2.0))
    x = torch.tensor([1.0, 0.25]).reshape(1, 2, 1, 1)
    assert normalise(x, data).flatten().tolist() == [1.0, 0.0]
    tokens = torch.tensor([[3, 1, 4]])
    assert normalise(tokens, data) is tokens
