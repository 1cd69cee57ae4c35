"""A server that hijacks clients' layers: images come out, an honest server's do not, and detectors tell both."""

from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedaudit.attacks.attack import BatchTruth, Examples, Knowledge
from fedaudit.attacks.batches.hijacked_images import AFTER, HijackedImages, judge_detectors, pair_answers
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.poisoning._pilot import penalise_slope
from fedaudit.attacks.poisoning.feature_hijack import FeatureHijack
from fedaudit.fl.artifact import Artifact, Channel
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.families.cutting import cut_network
from fedaudit.fl.families.drawn_batches import iterate_batches
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.split_learning import SplitfedV1, SplitfedV2, SplitLearning, SplitUShape
from fedaudit.fl.models.cnns import SmallCNN
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.training.batches import split_into_batches
from tests.attacks.world import digits as load_digits
from tests.fl.methods.worlds_of_methods import SETTINGS, continues
from tests.fl.worlds import EVERYONE, World, parts, run, same
from tests.fl.worlds import data as squares

NEVER = 10_000
SPLIT: dict[str, Any] = {"local_epochs": 1, "batch_size": 32, "lr": 0.4, "rounds": 3}
INDEX = [np.arange(600)]


def hijack(**settings: Any) -> FeatureHijack:
    return FeatureHijack(FeatureHijack.Config(**{"pilot_steps": 150, "batch": 16, **settings}))


@cache
def digits() -> Data:
    """1000 digits, of which 600 are one client's and 400 the server's."""
    x, y = load_digits()
    train, test = Arrays(x=x[:1000], y=y[:1000]), Arrays(x=x[1000:1100], y=y[1000:1100])
    return Data(train=train, test=test, classes=tuple("0123456789"), mean=(0.3,), std=(0.4,))


@cache
def train(first: int) -> World:
    """Split learning of one client of digits, hijacked from that round on."""
    return run(
        SplitLearning(SplitLearning.Config(**SPLIT, false_batches=0.2)),
        folder=Path(mkdtemp()) / "run",
        d=digits(),
        index=INDEX,
        script=[([0], [0])],
        make=lambda: SmallCNN((1, 8, 8), 10, SmallCNN.Config()),
        adversary=hijack(first=first),
    )


def own_images() -> torch.Tensor:
    """As a worker hands them to the server."""
    x = (torch.from_numpy(digits().train.x[600:]) - torch.tensor(0.3)) / torch.tensor(0.4)
    return (x * torch.tensor(0.4) + torch.tensor(0.3)).clamp(0, 1)


def read_last_images() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """What the server reads after training of layers that it hijacked and did not, images, and classes' means."""
    sent = []
    x, y = digits().train.x[:200], digits().train.y[:200]
    for first in (0, NEVER):
        net = SmallCNN((1, 8, 8), 10, SmallCNN.Config())
        net.load_state_dict(train(first).model)
        with torch.no_grad():
            sent.append(cut_network(net, 1).body.module((torch.from_numpy(x) - 0.3) / 0.4))
    drawn = hijack().read_answered(torch.cat(sent), own_images(), Streams(5)).numpy()
    rest = digits().train
    means = np.stack([rest.x[600:][rest.y[600:] == c].mean(0) for c in range(10)])[y]
    return drawn[:200], drawn[200:], x, means


def measure_error(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.square(a - b).mean())


def test_images_come_out_nearer_than_the_mean_of_their_class_and_of_an_honest_server_they_do_not() -> None:
    drawn, honest, true, means = read_last_images()
    assert measure_error(drawn, true) < 0.9 * measure_error(means, true)
    assert measure_error(honest, true) > 2 * measure_error(means, true)


class Told:
    """The truth about the batches of `train`."""

    def __init__(self, world: World) -> None:
        self.payloads = {a.id: a.payload for a in world.artifacts}
        self.rows = dict[str, np.ndarray]()
        for t in range(SPLIT["rounds"]):
            ids = [a.id for a in world.artifacts if a.kind == Kind.SMASHED_GRADIENT and a.round == t]
            self.rows |= zip(
                ids,
                (r.numpy() for r in iterate_batches(Streams(5), t, 0, split_into_batches(600, 32), 1)),
                strict=True,
            )

    def find_batch(self, artifact: str) -> BatchTruth:
        rows = self.rows[artifact]
        return BatchTruth(
            client=0, rows=rows, images=Examples(x=digits().train.x[rows], y=digits().train.y[rows])
        )

    def read_upload(self, artifact: str) -> Any:
        return self.payloads[artifact]


def detect(first: int) -> dict[str, Evidence]:
    world = train(first)
    artifacts: list[Artifact] = world.artifacts
    pairs = pair_answers(artifacts)
    claim = {
        name: np.array(ids) for name, ids in zip(("answered", "batch"), zip(*pairs, strict=True), strict=True)
    }
    assert len(claim["answered"]) == SPLIT["rounds"] * 19 - AFTER
    found = judge_detectors(claim, Told(world), np.random.default_rng(0))  # type: ignore[arg-type]
    return {str(e.condition["detector"]): e for e in found}


def test_clients_notice_it_by_gradients_that_do_not_depend_on_labels() -> None:
    hijacked, honest = detect(0), detect(NEVER)
    assert "the server heeds labels" in honest["SplitGuard"].note
    ignoring = hijacked["SplitGuard"].baselines[0].interval
    assert ignoring is not None and hijacked["SplitGuard"].value < ignoring[1]
    assert "nothing shows that the server heeds labels" in hijacked["SplitGuard"].note
    assert (
        "accuses nobody" in honest["Gradients Scrutinizer"].note and not honest["Gradients Scrutinizer"].baselines
    )
    assert hijacked["Gradients Scrutinizer"].value < 0.1 < 0.3 < honest["Gradients Scrutinizer"].value


def test_without_a_server_that_did_it_the_attack_says_so() -> None:
    knowledge = Knowledge(classes=10, shape=(1, 8, 8), training={"cut": 1.0})
    assert "trained nobody's layers" in HijackedImages().not_applicable(train(0).artifacts, knowledge)


# What it computes


def test_the_slope_is_measured_over_a_whole_activation() -> None:
    critic = nn.Sequential(nn.Flatten(), nn.Linear(2, 1, bias=False))
    with torch.no_grad():
        critic[1].weight.copy_(torch.tensor([[3.0, 4.0]]))
    z = torch.zeros(5, 2, 1, 1)
    assert float(penalise_slope(critic, z, z + 1, torch.Generator()).detach()) == pytest.approx(16)


def test_the_decoder_is_of_the_servers_images_and_the_seed_alone_and_reads_its_own_features() -> None:
    own, z = torch.from_numpy(squares().train.x), torch.rand(3, 40, generator=torch.Generator().manual_seed(1))
    once, again, other = (quick().read_answered(z, own, Streams(seed)) for seed in (5, 5, 6))
    assert torch.equal(once, again) and not torch.allclose(once, other)
    pilot = hijack()._fit_pilot(own, z, Streams(5))
    with torch.no_grad():
        error = float((pilot.decoder(pilot.encoder(own)) - own).square().mean())
    assert error < 0.5 * float((own.mean(0) - own).square().mean())


# In a run


def split(cls: Any, **settings: Any) -> Any:
    return cls(cls.Config(**SETTINGS | settings))


SMALL: dict[str, Any] = {"index": parts(squares(), (10, 12, 8, 0, 10)), "script": EVERYONE}


def quick(**settings: Any) -> FeatureHijack:
    return hijack(pilot_steps=3, **settings)


@pytest.mark.parametrize(
    "cls",
    [
        SplitLearning,
        pytest.param(SplitUShape, marks=pytest.mark.nightly),
        pytest.param(SplitfedV2, marks=pytest.mark.nightly),
    ],
)
def test_until_it_begins_the_server_is_honest_to_the_bit_and_then_it_is_not(cls: Any) -> None:
    honest = run(split(cls), **SMALL)
    assert same(run(split(cls), adversary=quick(first=NEVER), **SMALL), honest)
    assert not same(run(split(cls), adversary=quick(first=2), **SMALL), honest)


def test_a_hijacked_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    assert continues(lambda: split(SplitLearning), tmp_path, adversary=quick(), **SMALL)


def test_it_is_refused_where_there_is_no_one_server_and_without_images_of_its_own() -> None:
    with pytest.raises(UserError, match="each trains a copy"):
        run(split(SplitfedV1), adversary=quick(), **SMALL)
    with pytest.raises(UserError, match="clients of FedAvg send none"):
        run(split(FedAvg), adversary=quick(), **SMALL)
    everything = {"index": parts(squares(), (20, 20, 20, 0, 20)), "script": EVERYONE}
    with pytest.raises(UserError, match="it has none"):
        run(split(SplitLearning), adversary=quick(), **everything)


# Batches with false labels


def test_false_batches_move_every_label_and_teach_a_client_nothing(tmp_path: Path) -> None:
    def send(folder: str, share: float) -> tuple[World, list[Any]]:
        world = run(split(SplitLearning, rounds=1, false_batches=share), folder=tmp_path / folder, **SMALL)
        sent = [a for a in world.artifacts if a.kind == Kind.SMASHED and a.channel == Channel.UPLINK]
        return world, [a.payload["labels"] for a in sent]

    (_, true), (half, some), (none, false) = send("a", 0.0), send("b", 0.5), send("c", 1 - 1e-9)
    assert all((a != b).all() for a, b in zip(true, false, strict=True))
    kinds = {
        "true" if (a == b).all() else "false" if (a != b).all() else "mixed"
        for a, b in zip(true, some, strict=True)
    }
    assert kinds == {"true", "false"}
    assert torch.equal(none["conv.weight"], none.initial["conv.weight"])
    assert not torch.equal(half["conv.weight"], half.initial["conv.weight"])


def test_clients_that_keep_their_labels_have_none_to_make_false() -> None:
    with pytest.raises(UserError, match="send no labels"):
        run(split(SplitUShape, false_batches=0.1), **SMALL)
