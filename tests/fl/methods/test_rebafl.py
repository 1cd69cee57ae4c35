"""ReBaFL: FedAvg and balanced softmax at its ends, the augmentation by hand, prototypes that pool."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fl.artifact import Artifact, Kind
from fl.errors import UserError
from fl.local import Handle, normalise
from fl.method import Client
from fl.methods.fedavg import FedAvg
from fl.methods.rebafl import PooledPrototypes, ReBaFL, augment, client_prototypes, prior_shift
from fl.streams import Streams
from tests.fl.worlds import EVERYONE, Stopped, TinyNet, close, data, parts, run, same

SAME = {"rounds": 3, "local_epochs": 2, "batch_size": 8, "lr": 0.05, "momentum": 0.5,
        "weight_decay": 0.0}  # fmt: skip
COUNTS = torch.tensor([30, 10, 0, 0])  # V1


def rebafl(**settings: object) -> ReBaFL:
    return ReBaFL(ReBaFL.Config(**(SAME | settings)))  # type: ignore[arg-type]


def avg(**settings: object) -> FedAvg:
    return FedAvg(FedAvg.Config(**(SAME | settings)))  # type: ignore[arg-type]


def a_client(method: ReBaFL, k: int, message: dict[Kind, Any] | None = None) -> Client:
    d, net = data(), TinyNet()
    method.prepare(net, 4)
    index = parts(d)[k]
    x = normalise(torch.from_numpy(d.train.x[index]), d)
    return Client(index=k, round=1, x=x, y=torch.from_numpy(d.train.y[index]), classes=4,
                  message={Kind.GLOBAL_MODEL: net.state_dict()} | (message or {}), memory={}, net=net,
                  streams=Streams(5))  # fmt: skip


def test_epsilon_one_without_augmentation_is_fedavg_to_the_last_bit() -> None:
    assert same(run(rebafl(epsilon=1.0, mu=0.0), reply_loss=0.2), run(avg(), reply_loss=0.2))


@pytest.mark.parametrize("settings", [{"epsilon": 0.01, "mu": 0.0}, {"epsilon": 1.0, "mu": 0.5}])
def test_each_part_alone_is_not_fedavg(settings: dict[str, float]) -> None:
    assert not close(run(rebafl(**settings), script=EVERYONE), run(avg(), script=EVERYONE), 1e-4)


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.3])
def test_equal_counts_are_fedavg_for_every_epsilon(epsilon: float) -> None:
    d = data(n=120)
    by_class = [np.flatnonzero(d.train.y == c) for c in range(4)]
    index = [np.concatenate([c[4 * k : 4 * k + 4] for c in by_class]) for k in range(5)]
    world: dict[str, Any] = {"d": d, "index": index, "script": EVERYONE, "reply_loss": 0.2}
    assert same(run(rebafl(epsilon=epsilon, mu=0.0), **world), run(avg(), **world))


@pytest.mark.parametrize(("epsilon", "value"), [(1.0, 0.514675), (0.01, 0.117315), (0.0, 0.115671)])
def test_the_vector_of_the_specification(epsilon: float, value: float) -> None:
    logits = torch.tensor([[2.0, 1.0, 0.5, -0.5]])
    found = cross_entropy(logits + prior_shift(COUNTS, epsilon), torch.tensor([0]))
    assert float(found) == pytest.approx(value, abs=1e-5)


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 1.0])
def test_the_heads_gradient_is_probability_minus_one_hot_times_feature(epsilon: float) -> None:
    h = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    weight = torch.tensor([[0.3, 0.1, -0.2], [0.0, 0.4, 0.2], [-0.5, 0.2, 0.1], [0.1, 0.1, 0.9]],
                          dtype=torch.float64, requires_grad=True)  # fmt: skip
    shift = prior_shift(COUNTS, epsilon).double()
    loss = cross_entropy((weight @ h + shift)[None], torch.tensor([1]))
    (gradient,) = torch.autograd.grad(loss, weight)
    q = torch.softmax(weight.detach() @ h + shift, 0)
    q[1] -= 1
    torch.testing.assert_close(gradient, q[:, None] * h)


def test_a_missing_class_is_pushed_harder_the_larger_epsilon() -> None:
    z = torch.tensor([0.2, 0.1, 0.4, -0.3])
    pushes = [float(torch.softmax(z + prior_shift(COUNTS, e), 0)[2]) for e in (0.0, 0.01, 0.1, 1.0)]
    assert pushes[0] == 0.0 and pushes == sorted(pushes)
    assert pushes[-1] == pytest.approx(float(torch.softmax(z, 0)[2]))


def test_a_client_of_one_class_moves_only_with_epsilon_above_zero() -> None:
    only = [([0], [0])]
    still = run(rebafl(epsilon=0.0, mu=0.0, rounds=1), script=only)
    assert same(still, still.initial)
    moved = run(rebafl(epsilon=0.01, mu=0.0, rounds=1), script=only)
    assert not same(moved, moved.initial)


TABLE = torch.tensor([[1.0, 0.0], [0.0, 2.0], [5.0, 5.0], [-1.0, 3.0]])
HAVE = torch.tensor([True, True, False, True])


def test_features_are_moved_to_the_cyclic_target_by_hand() -> None:
    h, y = (
        torch.tensor([[1.5, 0.5], [0.0, 1.0], [9.0, 9.0], [2.0, 2.0]]),
        torch.tensor([0, 0, 2, 1]),
    )
    moved, target = augment(h, y, TABLE, HAVE, torch.tensor(0), 1.0, "all")
    # j = 0: target 0 = source; j = 1: to 1; j = 2: source and target without prototype; j = 3: to 3
    assert target.tolist() == [0, 1, 2, 3]
    assert moved.tolist() == [[1.5, 0.5], [-1.0, 3.0], [9.0, 9.0], [1.0, 3.0]]


def test_no_strength_gives_the_targets_prototype_and_source_as_target_changes_nothing() -> None:
    h, y = torch.randn(8, 2, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 2
    moved, target = augment(h, y, TABLE, HAVE, torch.tensor(0), 0.0, "all")
    to = target[torch.tensor([0, 1, 3])]
    assert torch.equal(moved[torch.tensor([0, 1, 3])], TABLE[to])
    unmoved, _ = augment(h, torch.arange(8) % 4, TABLE, HAVE, torch.tensor(0), 1.0, "all")
    assert torch.allclose(unmoved, h)


def test_cycling_over_available_classes_skips_the_others() -> None:
    h, y = torch.zeros(7, 2), torch.zeros(7, dtype=torch.long)
    _, target = augment(h, y, TABLE, HAVE, torch.tensor(0), 1.0, "available")
    assert target.tolist() == [0, 1, 3, 0, 1, 3, 0]


def test_the_residuals_of_a_class_average_to_its_target() -> None:
    """local_override: the mean of h~ over a client's class is the target's prototype."""
    method = rebafl()
    client = a_client(method, 1)
    local = client_prototypes(client, client.start)
    table = torch.zeros(4, 8)
    table[local["classes"]] = local["features"]
    have = torch.zeros(4, dtype=torch.bool)
    have[local["classes"]] = True
    c, to = (int(v) for v in local["classes"][:2])
    h = client.run("features", client.start)[client.y == c]
    moved = torch.stack([
        augment(row[None].repeat(to + 1, 1), torch.full((to + 1,), c), table, have,
                torch.tensor(0), 1.0, "all")[0][to] for row in h
    ])  # fmt: skip
    torch.testing.assert_close(moved.mean(0), table[to], atol=1e-5, rtol=0)


def test_the_augmented_loss_never_reaches_the_extractor() -> None:
    method = rebafl(mu=1.0, epsilon=0.1)
    prototypes = {"classes": torch.arange(4), "features": torch.randn(4, 8)}
    client = a_client(method, 4, {Kind.GLOBAL_PROTOTYPES: prototypes})
    const, net = method.constants(client), client.net
    h = net.features(client.x[:8])
    loss = method._augmented(Handle(net), h.detach(), client.y[:8], const)
    named = dict(net.named_parameters())
    grads = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    reached = {k for k, g in zip(named, grads, strict=True) if g is not None}
    assert reached == {"head.weight", "head.bias"}


def test_pooled_prototypes_are_the_pooled_mean_for_one_extractor() -> None:
    pooled, method = PooledPrototypes(), rebafl()
    clients = [a_client(method, k) for k in (0, 1, 2, 4)]
    state = clients[0].start  # one extractor for all
    for client in clients:
        sent = client_prototypes(client, state)
        pooled.add(sent, client.counts[sent["classes"]])
    features = torch.cat([c.run("features", state) for c in clients])
    labels = torch.cat([c.y for c in clients])
    for c, row in zip(*pooled.value({}).values(), strict=True):
        torch.testing.assert_close(row, features[labels == c].mean(0), atol=1e-5, rtol=0)


def prototypes_down(artifacts: list[Artifact], round: int) -> set[int]:
    found = [a for a in artifacts if a.kind is Kind.GLOBAL_PROTOTYPES and a.round == round]
    return set(found[0].payload["classes"].tolist()) if found else set()


def test_a_class_nobody_reported_loses_its_prototype_unless_remembered(tmp_path: Path) -> None:
    script = [([0, 1, 2, 4], [0, 1, 2, 4]), ([0], [0]), ([0, 1], [0, 1])]  # client 0: one class
    forgets = run(rebafl(), folder=tmp_path / "a", script=script).artifacts
    keeps = run(rebafl(proto_memory=True), folder=tmp_path / "b", script=script).artifacts
    everything = prototypes_down(forgets, 1)
    assert len(everything) == 4 and prototypes_down(keeps, 2) == everything
    assert len(prototypes_down(forgets, 2)) == 1


def test_what_a_client_sends_is_the_mean_feature_and_the_count(tmp_path: Path) -> None:
    world = run(rebafl(rounds=1), folder=tmp_path)
    sent = {a.kind: a.payload for a in world.artifacts if str(a.sender) == "client/1"}
    d, index = data(), parts(data())[1]
    net = TinyNet()
    net.load_state_dict({k: torch.from_numpy(v) for k, v in sent[Kind.LOCAL_MODEL].items()})
    with torch.no_grad():
        h = net.features(normalise(torch.from_numpy(d.train.x[index]), d)).numpy()
    for c, row, n in zip(sent[Kind.LOCAL_PROTOTYPES]["classes"], sent[Kind.LOCAL_PROTOTYPES]["features"],
                         sent[Kind.PROTO_COUNTS]["counts"], strict=True):  # fmt: skip
        mine = h[d.train.y[index] == c]
        assert len(mine) == n
        np.testing.assert_allclose(row, mine.mean(0), atol=1e-5)


def test_clients_below_the_least_number_of_classes_send_no_prototypes(tmp_path: Path) -> None:
    world = run(rebafl(rounds=1, proto_min_classes=2), folder=tmp_path)
    senders = {str(a.sender) for a in world.artifacts if a.kind is Kind.LOCAL_PROTOTYPES}
    assert "client/0" not in senders and "client/1" in senders


def test_a_stopped_run_continues_to_the_same_bits_in_two_processes(tmp_path: Path) -> None:
    whole = run(rebafl(rounds=4))
    with pytest.raises(Stopped):
        run(rebafl(rounds=4), folder=tmp_path, stop_after=1, workers=2)
    assert same(run(rebafl(rounds=4), folder=tmp_path, workers=2), whole)


def test_an_epsilon_above_one_and_a_negative_mu_are_refused() -> None:
    with pytest.raises(UserError, match=r"rebafl.epsilon must be in 0..1, got 1.5"):
        rebafl(epsilon=1.5)
    with pytest.raises(UserError, match=r"rebafl.mu must be >= 0"):
        rebafl(mu=-1.0)
