"""ReBaFL: FedAvg and BSM-FedAvg with its parts off, the vectors on paper, and prototypes by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedaudit.fl.clients.client import Client
from fedaudit.fl.data.scale import normalise
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.class_softmax import BSMFedAvg
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.rebafl import ReBaFL, augment, prior_shift
from fedaudit.fl.model import State
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.training.local import Constants, Handle
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues, direct, logit_gradient
from tests.fl.worlds import EVERYONE, TinyNet, World, close, data, parts, run, same

V1 = [2.0, 1.0, 0.5, -0.5]  # logits; label 0
V1_COUNTS = torch.tensor([30, 10, 0, 0])


def rebafl(**settings: Any) -> ReBaFL:
    return ReBaFL(ReBaFL.Config(**(SETTINGS | settings)))


def fedavg(**settings: Any) -> FedAvg:
    return FedAvg(FedAvg.Config(**(SETTINGS | settings)))


def balanced(classes: int = 4, each: int = 3) -> dict[str, Any]:
    """A world whose clients hold every class equally often, but different numbers of examples."""
    d = data(n=120)
    by_class = [list(np.flatnonzero(d.train.y == c)) for c in range(classes)]
    index = [
        np.array([by_class[c].pop() for c in range(classes) for _ in range(each * (1 + k % 2))]) for k in range(5)
    ]
    return {"d": d, "index": index, **WORLD}


# Identities and their converses -----------------------------------------------------------


def test_epsilon_one_and_mu_zero_are_fedavg_to_the_last_bit() -> None:
    assert same(run(rebafl(epsilon=1.0, mu=0.0), **WORLD), run(fedavg(), **WORLD))


@pytest.mark.parametrize("on", [{"epsilon": 0.5, "mu": 0.0}, {"epsilon": 1.0, "mu": 0.5}])
def test_each_of_the_two_parts_makes_it_another_method(on: dict[str, float]) -> None:
    assert not close(run(rebafl(**on), **WORLD), run(fedavg(), **WORLD), tolerance=1e-4)


def test_epsilon_and_mu_zero_are_bsm_fedavg_to_the_last_bit() -> None:
    bsm = run(BSMFedAvg(BSMFedAvg.Config(**SETTINGS)), **WORLD)
    assert same(run(rebafl(epsilon=0.0, mu=0.0), **WORLD), bsm)
    assert not close(run(rebafl(epsilon=0.01, mu=0.0), **WORLD), bsm, tolerance=1e-4)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_equal_counts_over_all_classes_are_fedavg_for_every_epsilon(epsilon: float) -> None:
    world = balanced()
    assert same(run(rebafl(epsilon=epsilon, mu=0.0), **world), run(fedavg(), **world))


def test_without_prototypes_the_first_round_is_fedavg_for_every_mu() -> None:
    one = {"rounds": 1}
    assert same(run(rebafl(epsilon=1.0, mu=5.0, **one)), run(fedavg(**one)))


# Relaxed balanced softmax -----------------------------------------------------------------


def relaxed(epsilon: float) -> tuple[float, list[float]]:
    method, const = rebafl(epsilon=epsilon, mu=0.0), {"shift": prior_shift(V1_COUNTS, epsilon)}
    return logit_gradient(lambda z: method.loss(direct(), z, torch.tensor([0]), const), V1)


@pytest.mark.parametrize(
    ("epsilon", "value", "probabilities"),
    [
        (1.0, 0.514675, [0.597695, 0.219880, 0.133364, 0.049062]),
        (0.01, 0.117315, [0.889305, 0.109784, 0.000666, 0.000245]),
        (0.0, 0.115671, [0.890768, 0.109232, 0.0, 0.0]),
    ],
)
def test_the_loss_and_its_gradient_are_the_ones_on_paper(
    epsilon: float, value: float, probabilities: list[float]
) -> None:
    found, slope = relaxed(epsilon)
    assert found == pytest.approx(value, abs=1e-5)
    assert slope == pytest.approx([probabilities[0] - 1, *probabilities[1:]], abs=1e-5)


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 1.0])
def test_the_gradient_of_the_last_layer_is_residual_times_feature(epsilon: float) -> None:
    """d loss / d W_c = (q_c - [c = y]) h, by finite differences in double precision."""
    h = torch.tensor([[0.3, -1.2, 0.7]], dtype=torch.float64)
    w = torch.arange(12, dtype=torch.float64).reshape(4, 3) / 7 - 0.8
    method, const = rebafl(epsilon=epsilon, mu=0.0), {"shift": prior_shift(V1_COUNTS, epsilon)}
    y = torch.tensor([1])

    def loss(w: Tensor) -> Tensor:
        return method.loss(direct(), h @ w.T, y, const)

    q = torch.softmax(h @ w.T + const["shift"], 1)[0]
    expected = (q - torch.eye(4, dtype=torch.float64)[1])[:, None] * h
    for i in range(12):
        step = torch.zeros(12, dtype=torch.float64)
        step[i] = 1e-6
        slope = (loss(w + step.reshape(4, 3)) - loss(w - step.reshape(4, 3))) / 2e-6
        assert float(slope) == pytest.approx(float(expected.flatten()[i]), abs=1e-8)


def test_a_missing_class_is_pushed_harder_the_larger_epsilon_is() -> None:
    pushes = [relaxed(e)[1][2] for e in (0.0, 1e-3, 0.01, 0.1, 0.5, 1.0)]
    assert pushes == sorted(pushes) and len(set(pushes)) == 6
    assert pushes[0] == 0.0 and pushes[-1] == pytest.approx(0.133364, abs=1e-6)


def test_a_client_of_one_class_moves_only_where_epsilon_is_positive() -> None:
    only = [([0], [0])]  # client 0 has one class
    still = run(rebafl(epsilon=0.0, weight_decay=0.0, mu=1.0), script=only)
    assert same(still.model, still.initial)
    moved = run(rebafl(epsilon=0.01, weight_decay=0.0, mu=1.0), script=only)
    assert not any(torch.equal(moved[k], moved.initial[k]) for k in moved.model)


def test_label_smoothing_is_that_of_torch() -> None:
    method, const = rebafl(epsilon=1.0, mu=0.0, label_smoothing=0.2), {"shift": torch.zeros(4)}
    y = torch.tensor([0])
    found = logit_gradient(lambda z: method.loss(direct(), z, y, const), V1)
    torchs = logit_gradient(lambda z: cross_entropy(z, y, label_smoothing=0.2), V1)
    assert found == torchs


# Feature augmentation ---------------------------------------------------------------------

TABLE = torch.tensor([[1.0, 0.0], [0.0, 2.0], [9.0, 9.0], [-3.0, 1.0]])  # row 2 is not in Q
HAVE = torch.tensor([True, True, False, True])
H = torch.tensor([[1.5, 0.5], [0.25, 2.0], [4.0, 4.0], [-1.0, 1.0], [7.0, 7.0]])
Y = torch.tensor([0, 0, 1, 1, 2])
FIRST = torch.tensor(0)


def test_features_move_by_hand() -> None:
    """Targets 0, 1, 2, 3, 0. Row 2 aims at a class without prototype, row 4 starts at one: both stay."""
    moved, label = augment(H, Y, TABLE, HAVE, FIRST, 0.5, "all")
    by_hand = [[1.25, 0.25], [-0.375, 3.0], [4.0, 4.0], [-3.5, 0.5], [7.0, 7.0]]
    assert moved.tolist() == by_hand
    assert label.tolist() == [0, 1, 1, 3, 2]


def test_targets_run_over_available_classes_or_start_elsewhere_on_request() -> None:
    zero, have = torch.zeros(5, dtype=torch.int64), HAVE
    for offset, cycle, targets in [
        (0, "all", [0, 1, 0, 3, 0]),  # position 2 stays where it is, in class 0
        (1, "all", [1, 0, 3, 0, 1]),
        (0, "available", [0, 1, 3, 0, 1]),
        (2, "available", [3, 0, 1, 3, 0]),
    ]:
        _, label = augment(H, zero, TABLE, have, torch.tensor(offset), 1.0, cycle)
        assert label.tolist() == targets


def test_a_feature_moved_to_its_own_class_stays() -> None:
    moved, label = augment(H[:2], torch.tensor([0, 1]), TABLE, HAVE, FIRST, 1.0, "all")
    assert torch.equal(moved, H[:2]) and label.tolist() == [0, 1]


def test_without_residual_the_feature_is_the_prototype() -> None:
    moved, label = augment(H[:2], torch.tensor([3, 3]), TABLE, HAVE, FIRST, 0.0, "all")
    assert torch.equal(moved, TABLE[:2]) and label.tolist() == [0, 1]


def heads() -> tuple[TinyNet, Tensor, Tensor, Constants]:
    torch.manual_seed(1)
    net, x, y = TinyNet(), torch.rand(6, 1, 6, 6), torch.tensor([0, 1, 2, 3, 0, 1])
    const = {
        "shift": torch.zeros(4),
        "table": torch.randn(4, 8),
        "offset": torch.tensor(0),
        "have": torch.tensor([True, True, True, False]),
    }
    return net, x, y, const


def test_the_augmented_loss_by_hand() -> None:
    """Every moved feature with its new label, under the prior of the new labels."""
    net, x, y, const = heads()
    epsilon, table = 0.1, const["table"]
    rows = []
    with torch.no_grad():
        for j, (h, c) in enumerate(zip(net.features(x), y.tolist(), strict=True)):
            t = j % 4
            usable = t != 3 and c != 3
            rows.append((table[t] + 0.7 * (h - table[c]) if usable else h, t if usable else c))
        counts = torch.tensor([sum(t == c for _, t in rows) for c in range(4)]).double()
        prior = (1 - epsilon) * counts / 6 + epsilon / 4
        losses = []
        for h, t in rows:
            z = net.head(h).double()
            losses.append(-torch.log(prior[t] * z[t].exp() / (prior * z.exp()).sum()))
    by_hand = float(torch.stack(losses).mean())
    method = rebafl(epsilon=epsilon, mu=2.0, strength=0.7)
    method.prepare(net, 4)
    plain = rebafl(epsilon=epsilon, mu=0.0)
    both, without = (m.loss(Handle(net), x, y, const).detach() for m in (method, plain))
    assert float(both - without) == pytest.approx(2.0 * by_hand, rel=1e-5)


def test_the_augmented_loss_trains_the_head_alone() -> None:
    net, x, y, const = heads()
    grads = []
    for mu in (0.0, 5.0):
        method = rebafl(mu=mu)
        method.prepare(net, 4)
        loss = method.loss(Handle(net), x, y, const)
        names, params = zip(*net.named_parameters(), strict=True)
        grads.append(dict(zip(names, torch.autograd.grad(loss, params), strict=True)))
    for name, g in grads[0].items():
        assert torch.equal(g, grads[1][name]) == (not name.startswith("head"))


class Watched(ReBaFL):
    """Notes what each client trains with: (round, client) -> constants, features at the start, labels."""

    Config = ReBaFL.Config

    def compute_constants(self, client: Client) -> Constants:
        const = super().compute_constants(client)
        features = client.run("features", client.start)
        self.seen[client.round, client.index] = (const, features, client.y)
        return const

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.seen: dict[tuple[int, int], tuple[Constants, Tensor, Tensor]] = {}


def watched(**settings: Any) -> dict[tuple[int, int], tuple[Constants, Tensor, Tensor]]:
    method = Watched(Watched.Config(**(SETTINGS | settings)))
    run(method, script=EVERYONE)
    return method.seen


def test_a_class_moved_to_another_has_that_classes_prototype_as_its_mean() -> None:
    const, h, y = watched()[1, 1]
    assert const["have"].all() and len(y.unique()) == 3
    for source in y.unique().tolist():
        rows = h[y == source]
        for target in range(4):
            moved = [
                augment(
                    r[None],
                    torch.tensor([source]),
                    const["table"],
                    const["have"],
                    torch.tensor(target),
                    1.0,
                    "all",
                )[0]
                for r in rows
            ]
            mean = torch.cat(moved).mean(0)
            torch.testing.assert_close(mean, const["table"][target], rtol=0, atol=1e-5)


def test_owned_classes_use_local_prototypes_unless_told_otherwise() -> None:
    for source, local in (("local_override", True), ("global_only", False)):
        const, h, y = watched(proto_source=source)[1, 1]
        own = torch.stack([h[y == c].mean(0) for c in y.unique()])
        assert torch.allclose(const["table"][y.unique()], own, atol=1e-5) == local


def test_clients_of_one_class_do_not_augment_unless_told_otherwise() -> None:
    for fewest, usable in ((2, False), (1, True)):
        const, _, y = watched(aug_min_classes=fewest)[1, 0]
        assert len(y.unique()) == 1 and bool(const["have"].any()) == usable


def test_small_batches_start_elsewhere_for_each_client_and_round() -> None:
    seen = watched(batch_size=3)
    assert [int(seen[t, k][0]["offset"]) for t, k in [(0, 0), (0, 2), (1, 2)]] == [0, 2, 5]
    for settings in ({"batch_size": 4}, {"batch_size": 3, "cycle_offset": False}):
        assert not any(int(const["offset"]) for const, _, _ in watched(**settings).values())


# Prototypes -------------------------------------------------------------------------------


def sent(world: World, kind: Kind, round: int) -> list[dict[str, np.ndarray]]:
    return [dict(a.payload) for a in world.artifacts if a.kind is kind and a.round == round]


def pooled_means(state: State, clients: tuple[int, ...]) -> Tensor:
    """[4, D] mean features of each class over some clients' examples under one model."""
    d, index = data(), parts(data())
    rows = np.concatenate([index[k] for k in clients])
    net = TinyNet()
    net.load_state_dict(state)
    with torch.no_grad():
        h = net.features(normalise(torch.from_numpy(d.train.x[rows]), d))
    y = torch.from_numpy(d.train.y[rows])
    return torch.stack([h[y == c].mean(0) for c in range(4)])


def test_global_prototypes_are_means_over_all_examples_if_extractors_agree(tmp_path: Path) -> None:
    world = run(rebafl(local_epochs=0), folder=tmp_path, script=EVERYONE)
    (received,) = sent(world, Kind.GLOBAL_PROTOTYPES, 1)
    expected = pooled_means(world.initial, (0, 1, 2, 4))
    assert received["classes"].tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(received["features"], expected, rtol=0, atol=1e-6)


def test_prototypes_are_weighted_by_class_counts_and_taken_after_training(tmp_path: Path) -> None:
    world = run(rebafl(), folder=tmp_path, script=EVERYONE)
    local = sent(world, Kind.LOCAL_PROTOTYPES, 0)
    counts = sent(world, Kind.PROTO_COUNTS, 0)
    assert [c["counts"].sum() for c in counts] == [7, 20, 11, 30]
    (received,) = sent(world, Kind.GLOBAL_PROTOTYPES, 1)
    for row, c in zip(received["features"], received["classes"], strict=True):
        total, n = np.zeros(8), 0
        for p, m in zip(local, counts, strict=True):
            for i in np.flatnonzero(p["classes"] == c):
                total, n = total + m["counts"][i] * p["features"][i], n + m["counts"][i]
        np.testing.assert_allclose(row, total / n, rtol=0, atol=1e-6)
    trained = {k: torch.from_numpy(v) for k, v in sent(world, Kind.LOCAL_MODEL, 0)[3].items()}
    own = pooled_means(trained, (4,))[local[3]["classes"]]
    np.testing.assert_allclose(local[3]["features"], own, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("memory", "classes"), [(False, [0]), (True, [0, 1, 2, 3])])
def test_a_class_nobody_reported_loses_its_prototype_unless_kept(
    memory: bool, classes: list[int], tmp_path: Path
) -> None:
    script = [([0, 1, 2, 4], [0, 1, 2, 4]), ([0], [0]), ([0], [0])]
    world = run(rebafl(proto_memory=memory), folder=tmp_path, script=script)
    assert not sent(world, Kind.GLOBAL_PROTOTYPES, 0)
    before, after = (sent(world, Kind.GLOBAL_PROTOTYPES, t)[0] for t in (1, 2))
    assert before["classes"].tolist() == [0, 1, 2, 3]
    assert after["classes"].tolist() == classes
    if memory:
        np.testing.assert_array_equal(before["features"][1:], after["features"][1:])
        assert (before["features"][0] != after["features"][0]).all()


def test_clients_of_few_classes_may_keep_their_prototypes(tmp_path: Path) -> None:
    world = run(rebafl(proto_min_classes=2), folder=tmp_path, script=EVERYONE)
    assert len(sent(world, Kind.LOCAL_MODEL, 0)) == 4
    assert len(sent(world, Kind.LOCAL_PROTOTYPES, 0)) == len(sent(world, Kind.PROTO_COUNTS, 0)) == 3


# The run ----------------------------------------------------------------------------------


def test_a_run_that_was_stopped_continues_to_the_same_bits(tmp_path: Path) -> None:
    assert continues(rebafl, tmp_path, **WORLD)


def test_two_processes_agree_with_one() -> None:
    assert same(run(rebafl(), script=EVERYONE), run(rebafl(), script=EVERYONE, workers=2))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"epsilon": 1.5}, r"epsilon must be <= 1, got 1\.5"),
        ({"epsilon": -0.1}, r"epsilon must be >= 0, got -0\.1"),
        ({"mu": -1.0}, "mu must be >= 0, got -1"),
        ({"label_smoothing": 2.0}, "label_smoothing must be <= 1, got 2"),
        ({"label_smoothing": 0.1, "epsilon": 0.0}, "asks for masked classes"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        rebafl(**settings)
