"""FedCurv: FedAvg at lambda 0, Fisher diagonals by hand and by autograd, the penalty's gradient from the sums."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.fedcurv import FedCurv, _square_batches, _square_examples
from fedaudit.fl.model import Net
from fedaudit.fl.runtime.errors import UserError
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues
from tests.fl.worlds import EVERYONE, TinyNet, data, parts, run, same


def make(**settings: Any) -> FedCurv:
    return FedCurv(FedCurv.Config(**(SETTINGS | settings)))


def fedavg() -> FedAvg:
    return FedAvg(FedAvg.Config(**SETTINGS))


def test_lambda_zero_is_fedavg_to_the_last_bit_and_sends_fisher_diagonals_all_the_same(tmp_path: Path) -> None:
    ours = run(make(strength=0.0), folder=tmp_path, **WORLD)
    assert same(ours, run(fedavg(), **WORLD))
    assert any(a.kind == Kind.FISHER and a.sender.index == 0 for a in ours.artifacts)


def test_lambda_above_zero_is_fedavg_in_the_first_round_only() -> None:
    one = SETTINGS | {"rounds": 1}
    assert same(run(FedCurv(FedCurv.Config(**one)), **WORLD), run(FedAvg(FedAvg.Config(**one)), **WORLD))
    assert not same(run(make(), **WORLD), run(fedavg(), **WORLD))


def test_sums_and_gradient_of_the_penalty_by_hand() -> None:
    """F = (2, 3), w_j = (1, 2): u = 5, v = 8; 2 (u w - v) is -16 at 0, u w^2 - 2 v w + sum F w_j^2 is 3 at 1."""
    fisher, models = torch.tensor([2.0, 3.0]), torch.tensor([1.0, 2.0])
    u, v = fisher.sum(), (fisher * models).sum()
    assert (float(u), float(v)) == (5.0, 8.0)
    const = {"u": {"w": u}, "v": {"w": v}}
    zero = torch.tensor(0.0)
    step = make(strength=1.0).correct({"w": zero}, {"w": zero}, {"w": zero}, const)["w"]
    assert float(step) == -16.0
    w = torch.tensor(1.0, requires_grad=True)
    penalty = (fisher * (w - models) ** 2).sum()
    assert float(penalty) == float(u - 2 * v + (fisher * models**2).sum()) == 3.0
    [slope] = torch.autograd.grad(penalty, [w])
    at_one = make(strength=1.0).correct({"w": zero}, {"w": torch.tensor(1.0)}, {"w": zero}, const)["w"]
    assert float(at_one) == float(slope)


class Scale(Net):
    """Logits (w x, 0): at w = 0 the gradient of an example is x (1/2 - y), with y = 1 for class 0."""

    def __init__(self) -> None:
        super().__init__((1,), 2)
        self.head = nn.Linear(1, 2, bias=False)
        nn.init.zeros_(self.head.weight)

    def features(self, x: Tensor) -> Tensor:
        return x


def test_gradients_that_cancel_in_a_batch_do_not_cancel_example_by_example() -> None:
    """Two examples with gradients +1 and -1 of each weight: 0 by batches, 1 by examples."""
    net, x, y = Scale(), torch.tensor([[2.0], [2.0]]), torch.tensor([0, 1])
    weights = {k: p.detach() for k, p in net.named_parameters()}
    by_batch = _square_batches(net, weights, {}, x, y, 2)["head.weight"]
    by_example = _square_examples(net, weights, {}, x, y, "observed")["head.weight"]
    assert by_batch.flatten().tolist() == [0.0, 0.0]
    assert by_example.flatten().tolist() == [1.0, 1.0]
    one_by_one = _square_batches(net, weights, {}, x, y, 1)["head.weight"]
    assert torch.equal(one_by_one, by_example)


def net_and_data() -> tuple[TinyNet, dict[str, Tensor], Tensor, Tensor]:
    torch.manual_seed(0)
    net, d = TinyNet(), data()
    return net, {k: p.detach() for k, p in net.named_parameters()}, torch.from_numpy(d.train.x[:9]), d_labels(d)


def d_labels(d: Any) -> Tensor:
    return torch.from_numpy(d.train.y[:9])


def test_diagonals_are_the_mean_of_squared_gradients_of_single_examples() -> None:
    net, weights, x, y = net_and_data()
    found = _square_examples(net, weights, {}, x, y, "observed")
    expected = {k: torch.zeros_like(w) for k, w in weights.items()}
    for i in range(9):
        grads = torch.autograd.grad(cross_entropy(net(x[i : i + 1]), y[i : i + 1]), list(net.parameters()))
        for k, g in zip(weights, grads, strict=True):
            expected[k] += g**2 / 9
    for k, value in expected.items():
        torch.testing.assert_close(found[k], value, rtol=1e-4, atol=1e-7)


def test_the_heads_bias_shows_labels_that_were_observed_and_none_that_the_model_draws() -> None:
    """F_b is the mean of (p_c - [y = c])^2, and of p_c (1 - p_c) where the model draws labels."""
    net, weights, x, y = net_and_data()
    p = net(x).softmax(1).detach()
    observed = _square_examples(net, weights, {}, x, y, "observed")["head.bias"]
    drawn = _square_examples(net, weights, {}, x, y, "model")["head.bias"]
    truth = nn.functional.one_hot(y, 4)
    torch.testing.assert_close(observed, ((p - truth) ** 2).mean(0), rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(drawn, (p * (1 - p)).mean(0), rtol=1e-4, atol=1e-7)
    other = _square_examples(net, weights, {}, x, y.flip(0), "model")["head.bias"]
    assert torch.equal(drawn, other)


def test_uploads_hold_f_and_f_times_w_and_the_server_sends_their_sums(tmp_path: Path) -> None:
    world = run(make(), folder=tmp_path, script=EVERYONE)
    found = {(a.round, a.kind, str(a.sender)): a.payload for a in world.artifacts}
    for t in (0, 1):
        sums = found[t + 1, Kind.FISHER, "server"]
        senders = [f"client/{k}" for k in (0, 1, 2, 4)]
        for who in senders:
            sent, model = found[t, Kind.FISHER, who], found[t, Kind.LOCAL_MODEL, who]
            for name, w in model.items():
                np.testing.assert_allclose(sent[f"v/{name}"], sent[f"u/{name}"] * w, rtol=1e-6)
        for name, total in sums.items():
            each = np.sum([found[t, Kind.FISHER, who][name].astype(np.float64) for who in senders], axis=0)
            np.testing.assert_allclose(total, each, rtol=1e-6, atol=1e-12)


def test_the_only_client_pays_for_nobody() -> None:
    """Its sums less its own are 0, and so FedCurv is FedAvg whatever lambda is."""
    alone = {"d": data(), "index": [parts(data())[4]], "script": [([0], [0])]}
    assert same(run(make(strength=5.0), **alone), run(fedavg(), **alone))


def test_a_round_without_answers_leaves_no_sums_behind(tmp_path: Path) -> None:
    """Round 1 is empty: round 2 begins without a penalty."""
    world = run(make(), folder=tmp_path, empty_round="skip")
    assert [a.round for a in world.artifacts if a.kind == Kind.FISHER and a.sender.index is None] == [1]


def test_labels_drawn_by_the_model_are_refused_for_batches() -> None:
    with pytest.raises(UserError, match="labels that the model draws for a whole batch"):
        make(per="batch", labels="model")


@pytest.mark.parametrize("settings", [{"per": "batch"}, {"labels": "model"}])
def test_each_departure_changes_the_model(settings: dict[str, Any]) -> None:
    assert not same(run(make(**settings), **WORLD), run(make(), **WORLD))


@pytest.mark.nightly
def test_a_run_that_was_stopped_continues_to_the_same_bits(tmp_path: Path) -> None:
    assert continues(make, tmp_path, **WORLD)
