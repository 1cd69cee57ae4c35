"""Answers that poisoned data cannot turn: known answers, the authors' program, hard attackers, refusals."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from scipy.stats import norm
from torch import nn
from typer.testing import CliRunner

from fedaudit.attacks.poisoning.backdoors import Backdoor, stamp_images
from fedaudit.audit.cli.main import app
from fedaudit.audit.robustness.finished_runs import FinishedRun
from fedaudit.audit.robustness.poisoned_data import (
    ClientRound,
    Poisoning,
    bound_drift,
    explain_missing,
    is_linear,
    measure_distances,
    measure_sizes,
)
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.aggregators.mean import Mean
from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.data.scale import normalise
from fedaudit.fl.model import adapt
from fedaudit.fl.models.logreg import LogReg
from fedaudit.fl.threats.adversary import Adversary, Loss, Message
from fedaudit.fl.training.batches import split_into_batches
from fedaudit.reports.result import AuditResult
from tests.audit.robustness.test_matrix import TEXT
from tests.audit.tiny import VERDICTS
from tests.fl.aggregators.test_rules import rule
from tests.fl.test_all_methods import method
from tests.fl.worlds import World, run

ONE = ClientRound(weight=0.5, batches=(4, 2), longest=3.0)
OTHER = ClientRound(weight=0.25, batches=(4,), longest=5.0)


def poisoning(malicious: int = 1, share: float = 0.5, scale: float = 1.0) -> Poisoning:
    return Poisoning(malicious=malicious, share=share, scale=scale, trigger="patch", target=0)


# Known answers ----------------------------------------------------------------------------


def test_how_far_a_model_drifts_is_known_by_hand() -> None:
    # 2 of 4 and 1 of 2: .5 + .5; twice .5 (2 x 3 + 1); and once more what it learns honestly, .5 x 2 x 3
    assert bound_drift([ONE], 0.1, poisoning(scale=2), 1.0) == pytest.approx(math.sqrt(2) * 0.1 * 10)
    # the first: .5 (6 + 1) = 3.5; the second: .25 x .5 (10 + 1) = 1.375
    assert bound_drift([OTHER, ONE], 0.1, poisoning(), 1.0) == pytest.approx(math.sqrt(2) * 0.1 * 3.5)
    assert bound_drift([OTHER, ONE], 0.1, poisoning(2), 1.0) == pytest.approx(math.sqrt(2) * 0.1 * 4.875)


def test_how_far_weights_must_move_is_known_by_hand() -> None:
    found = measure_distances(np.array([[3.0, 1.0, 0.0], [2.0, 2.0, 1.0]]), np.array([2.0, 5.0]))
    assert found.tolist() == pytest.approx([2 / (2 * math.sqrt(2)), 0.0])


def test_nobody_nothing_and_no_scaling_drift_nowhere_and_more_of_anything_drifts_further() -> None:
    assert bound_drift([ONE, OTHER], 0.1, poisoning(0), 1.0) == 0
    assert bound_drift([ONE, OTHER], 0.1, poisoning(share=0), 1.0) == 0
    base = bound_drift([ONE, OTHER], 0.1, poisoning(), 1.0)
    more = [
        bound_drift([ONE, OTHER], 0.1, poisoning(2), 1.0),
        bound_drift([ONE, OTHER], 0.1, poisoning(share=0.75), 1.0),
        bound_drift([ONE, OTHER], 0.1, poisoning(scale=1.5), 1.0),
        bound_drift([ONE, OTHER], 0.2, poisoning(), 1.0),
        bound_drift([ONE, OTHER], 0.1, poisoning(), 1.5),
    ]
    assert all(other > base for other in more)


def test_an_answer_turns_just_beyond_its_distance_and_never_before() -> None:
    rng = np.random.default_rng(4)
    weights, z = rng.standard_normal((5, 7)), rng.standard_normal((20, 7))
    distances = measure_distances(z @ weights.T, np.linalg.norm(z, axis=1))
    for one, distance in zip(z, distances, strict=True):
        second, first = np.argsort(weights @ one)[-2:]
        move = np.zeros_like(weights)
        move[first], move[second] = -one, one
        move *= distance / np.linalg.norm(move)
        assert int(np.argmax((weights + 0.999 * move) @ one)) == first
        assert int(np.argmax((weights + 1.001 * move) @ one)) == second


def test_one_step_can_move_a_model_as_far_as_the_bound_says() -> None:
    # sure of two classes on two sides of a line, near which the example lies; moved across it, and relabelled
    z, moved, sure = np.array([3.0, 1e-3]), np.array([3.0, -1e-3]), np.array([[0.0, 1e6], [0.0, -1e6]])

    def step(example: np.ndarray, label: int) -> np.ndarray:
        logits = sure @ example
        chances = np.exp(logits - logits.max())
        return np.asarray(sure - 0.1 * np.outer(chances / chances.sum() - np.eye(2)[label], example))

    far = float(np.linalg.norm(step(z, 1) - step(moved, 0)))
    alone = [ClientRound(weight=1.0, batches=(1,), longest=float(np.linalg.norm(z)))]
    bound = bound_drift(alone, 0.1, poisoning(share=1.0), float(np.linalg.norm(z - moved)))
    assert 0.999 * bound < far <= bound


# The authors' program ---------------------------------------------------------------------

CLIENTS, ROUNDS, RATE, SIZE = 40, 60, 0.5, 20
SIGMA, RHO, COPIES, ALPHA = 0.03, 6.0, 1000, 0.001


def train_by_algorithm_1(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Softmax regression of CLIENTS in a numpy of its own, clipped and noised but for the last round's noise."""
    rng = np.random.default_rng(1)
    weights, labels = np.zeros((10, x.shape[1])), np.eye(10)[y]
    for t in range(ROUNDS):
        sent = []
        for part in np.array_split(np.arange(len(x)), CLIENTS):
            own = weights.copy()
            for start in range(0, len(part), SIZE):
                batch = part[start : start + SIZE]
                chances = np.exp(x[batch] @ own.T)
                chances /= chances.sum(1, keepdims=True)
                own -= RATE * (chances - labels[batch]).T @ x[batch] / len(batch)
            sent.append(own)
        weights = np.mean(sent, axis=0)
        weights *= min(1.0, RHO / float(np.linalg.norm(weights)))
        if t < ROUNDS - 1:
            weights = weights + SIGMA * rng.standard_normal(weights.shape)
    return weights


def certify_by_votes(weights: np.ndarray, z: np.ndarray, share: float, malicious: int) -> np.ndarray:
    """RAD of each example, as certify_mnist.py of github.com/AI-secure/CRFL (aaad607) computes it."""
    rng = np.random.default_rng(2)
    votes = np.zeros((len(z), 10))
    for _ in range(COPIES):
        noised = weights + SIGMA * rng.standard_normal(weights.shape)
        votes[np.arange(len(z)), (z @ noised.T).argmax(1)] += 1
    ordered = np.sort(votes / COPIES, axis=1)
    slack = math.sqrt(math.log(1 / ALPHA) / 2 / COPIES)
    first = np.maximum(1e-8, ordered[:, -1] - slack)
    second = np.minimum(1 - 1e-8, ordered[:, -2] + slack)
    steps = math.ceil(len(TRAIN[1]) / CLIENTS / SIZE)
    lipschitz = math.sqrt(2 + 2 * RHO + RHO**2)
    moved = 2 * malicious * (steps * lipschitz * RATE * share) ** 2 * malicious / CLIENTS**2
    moved *= (2 * norm.cdf(RHO / SIGMA) - 1) ** ROUNDS
    gap = np.where(first > second, np.sqrt(first) - np.sqrt(second), 0.0)
    radii: np.ndarray = np.sqrt(-np.log(1 - gap**2) * SIGMA**2 / moved)
    return radii


def digits() -> Data:
    found: Data = catalog.load("datasets", "digits")().load()
    return found


def to_unit_length(x: np.ndarray) -> np.ndarray:
    flat = x.reshape(len(x), -1).astype(float)
    return np.asarray(flat / np.linalg.norm(flat, axis=1, keepdims=True))


DIGITS = digits()
TRAIN = to_unit_length(DIGITS.train.x), DIGITS.train.y


def test_whatever_the_authors_program_certifies_of_relabelled_images_is_certified() -> None:
    weights, tests = train_by_algorithm_1(*TRAIN), to_unit_length(DIGITS.test.x)
    parts = np.array_split(np.arange(len(TRAIN[1])), CLIENTS)
    clients = [
        ClientRound(weight=1 / CLIENTS, batches=split_into_batches(len(p), SIZE), longest=1.0) for p in parts
    ]
    distances = measure_distances(tests @ weights.T, np.ones(len(tests)))
    theirs_in_all = ours_in_all = 0
    for malicious, share in ((1, 0.05), (1, 0.1), (3, 0.05)):
        radii = certify_by_votes(weights, tests, share, malicious)
        for length in (0.0, 0.1, 1.0, 3.0):
            theirs = radii >= math.sqrt(length**2 + 2)  # of the label's own sqrt(2)
            ours = distances > bound_drift(clients, RATE, poisoning(malicious, share), length)
            assert not (theirs & ~ours).any()
            theirs_in_all, ours_in_all = theirs_in_all + int(theirs.sum()), ours_in_all + int(ours.sum())
    assert 0 < theirs_in_all < ours_in_all


# Attackers that try hard ------------------------------------------------------------------


class Hard(Adversary):
    """In one round, images moved towards one image, with the label that this one is nearest to being given."""

    card = Backdoor.card
    towards = torch.zeros(64)  # normalised
    label, share, length, scale, attacked = 0, 0.5, 1.0, 1.0, 0

    def loss(self, client: Client, loss: Loss, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if client.round != self.attacked:
            return loss(x, y)
        bad, x, y = round(self.share * len(y)), x.clone(), y.clone()
        step = self.towards.reshape(x.shape[1:]) - x[:bad]
        far = step.flatten(1).norm(dim=1).clamp(min=self.length / client.std[0])
        x[:bad] += step * (self.length / client.std[0] / far)[:, None, None, None]
        y[:bad] = self.label
        return loss(x, y)

    def craft(self, client: Client, reply: Reply, received: Message) -> Reply:
        if client.round != self.attacked:
            return reply
        [sent] = [k for k in reply.message if k in received or "model" in k.value]
        base = next(iter(received.values()))
        made = {k: base[k] + self.scale * (v - base[k]) for k, v in reply.message[sent].items()}
        return Reply(
            message={**reply.message, sent: made}, examples=reply.examples, memory=reply.memory, stats=reply.stats
        )


PARTS = np.array_split(np.arange(len(DIGITS.train.y)), 20)
EPOCHS, BATCH, SLOW, LAST = 1, 16, 0.04, 11  # of twelve rounds


def play(name: str, adversary: Adversary | None = None) -> World:
    """A federation of softmax regressions on digits."""
    everyone = list(range(len(PARTS)))
    settings = {"rounds": LAST + 1, "local_epochs": EPOCHS, "batch_size": BATCH, "lr": SLOW}
    made = rule(name, **({"rho": 1.5, "growth": 0.1, "sigma": 0.02} if name == "crfl" else {}))
    return run(
        method("fedavg", **settings),  # type: ignore[arg-type]
        d=DIGITS,
        index=PARTS,
        script=[(everyone, everyone)],
        make=partial(LogReg, DIGITS.shape, 10),
        aggregator=made,
        adversary=adversary,
    )


def answer(world: World, images: np.ndarray) -> np.ndarray:
    """[N, 10] logits."""
    x = normalise(torch.from_numpy(images), DIGITS).flatten(1)
    return (x @ world["head.weight"].T + world["head.bias"]).numpy()


def find_distance(a: World, b: World) -> float:
    return math.sqrt(sum(float((a.model[k].double() - b.model[k].double()).square().sum()) for k in a.model))


@pytest.mark.parametrize(
    ("name", "malicious", "share", "length", "scale", "attacked"),
    [
        ("crfl", 1, 0.1, 1.0, 1.0, LAST),
        ("mean", 1, 0.25, 0.0, 1.0, LAST),
        *(
            pytest.param(*case, marks=pytest.mark.nightly)
            for case in [
                ("crfl", 2, 0.1, 2.0, 1.0, LAST),
                ("crfl", 1, 0.1, 1.0, 1.25, LAST),
                ("crfl", 1, 0.2, 1.0, 1.0, 6),
                ("mean", 1, 0.1, 1.0, 1.0, LAST),
                ("mean", 3, 0.05, 3.0, 1.0, 6),
            ]
        ),
    ],
)
def test_no_attacker_within_the_bound_turns_a_certified_answer(
    name: str, malicious: int, share: float, length: float, scale: float, attacked: int
) -> None:
    clean, sizes = play(name), measure_sizes(DIGITS.train.x, DIGITS)
    clients = [
        ClientRound(
            weight=len(p) / len(DIGITS.train.y),
            batches=EPOCHS * split_into_batches(len(p), BATCH),
            longest=float(sizes[p].max()),
        )
        for p in PARTS
    ]
    drift = bound_drift(clients, SLOW, poisoning(malicious, share, scale), length / DIGITS.std[0])
    stamped = stamp_images(torch.from_numpy(DIGITS.test.x), "patch").numpy()
    images = np.concatenate([DIGITS.test.x, stamped])
    before = answer(clean, images)
    distances = measure_distances(before, measure_sizes(images, DIGITS))
    certified = distances > drift
    assert 0.2 < certified.mean() < 1
    turned, furthest = 0, 0.0
    for aim in (np.argmin(distances), np.where(certified, distances, np.inf).argmin()):
        hard = Hard(Hard.Config(clients=tuple(range(malicious))))
        hard.towards = normalise(torch.from_numpy(images[[aim]]), DIGITS).flatten()
        hard.label, hard.share, hard.length, hard.scale = int(np.argsort(before[aim])[-2]), share, length, scale
        hard.attacked = attacked
        after = play(name, hard)
        changed = answer(after, images).argmax(1) != before.argmax(1)
        assert not (changed & certified).any()
        turned, furthest = turned + int(changed.sum()), max(furthest, find_distance(clean, after))
    assert turned and 0.03 * drift < furthest < drift


class OwnMean(Mean):
    """A rule of somebody's own, which says what the mean says of itself."""


class OfImages(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x.abs().amax(1, keepdim=True) < 8, x.relu(), x)


# What is refused --------------------------------------------------------------------------


def refuse(tmp_path: Path, delivered: int = 5, **changes: Any) -> str:
    """Why nothing is certified of a finished run of five clients with a few settings changed."""
    plain = yaml.safe_load(TEXT) | {"report": ["json"]}
    del plain["matrix"]
    plain["federation"] |= {"model": "logreg"}
    plain["method"] |= {"lr": 0.1}
    for key, value in changes.items():
        part, _, name = key.partition("__")
        plain[part] = plain[part] | {name: value} if name else value
    (tmp_path / "metrics.jsonl").write_text(f'{{"round": 0, "delivered": {delivered}}}\n')
    return explain_missing(FinishedRun(validate(Config, plain, "c.yaml"), tmp_path))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"aggregator": "crfl"}, ""),
        ({"method__weighting": "uniform"}, ""),
        ({"federation__model": "mlp"}, "not one linear layer"),
        ({"federation__model": {"name": "tests.audit.tiny:Linear", "width": 5}}, "not one linear layer"),
        ({"method__name": "fedprox"}, "FedProx as set is more than"),
        ({"method__name": "scaffold"}, "is more than steps of SGD"),
        ({"method__momentum": 0.9}, "is more than steps of SGD"),
        ({"method__weight_decay": 0.1}, "is more than steps of SGD"),
        ({"method__grad_clip": 1.0}, "is more than steps of SGD"),
        ({"method__optimiser": "adam"}, "is more than steps of SGD"),
        ({"aggregator": "median"}, "may bring two models further apart"),
        ({"aggregator": f"{__name__}:OwnMean"}, "nobody checked what it says of itself"),
        ({"aggregator": "norm_bound"}, "may bring two models further apart"),
        ({"protections": [{"name": "dp_gaussian", "clip_norm": 1.0, "noise_multiplier": 1.0}]}, "a protection"),
        ({"delivered": 4}, "some client was not heard"),
        ({"method__lr": 1.0}, "steps of 1 are longer than"),
        ({"method__lr_decay": 8.0}, "steps of 0.8 are longer than"),
    ],
)
def test_a_run_that_the_theorem_does_not_cover_has_no_certificate(
    changes: dict[str, Any], why: str, tmp_path: Path
) -> None:
    found = refuse(tmp_path, **changes)
    assert why in found if why else not found


def test_a_users_own_linear_model_is_recognised_and_what_looks_like_one_is_not() -> None:
    make = {
        "linear": lambda: adapt(nn.Sequential(nn.Flatten(), nn.Linear(64, 10))),
        "of positive pixels": lambda: adapt(nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(64, 10))),
        "with dropout": lambda: adapt(nn.Sequential(nn.Flatten(), nn.Dropout(0.1), nn.Linear(64, 10))),
        "bounded": lambda: adapt(nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Tanh())),
        "deep": lambda: adapt(nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Linear(64, 10))),
        "linear on what is no image": lambda: adapt(nn.Sequential(nn.Flatten(), OfImages(), nn.Linear(64, 10))),
        "normed": lambda: adapt(nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10))),
    }
    assert [name for name, made in make.items() if is_linear(made, DIGITS)] == ["linear"]


# In an audit ------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_matrix_reports_what_is_certified_and_why_the_rest_is_not(tmp_path: Path) -> None:
    plain = yaml.safe_load(TEXT)
    plain["federation"] |= {"dataset": "tests.audit.robustness.test_certificate:Bright", "model": "logreg"}
    plain["method"] |= {"rounds": 10, "lr": 0.2}
    plain["matrix"] = {
        "adversaries": [{"name": "backdoor", "poisoned": 0.1}],
        "aggregators": ["crfl", "median"],
        "malicious": [1],
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(plain))
    done = CliRunner().invoke(app, ["run", str(tmp_path / "c.yaml"), "--out", str(tmp_path / "out")])
    assert done.exit_code in VERDICTS, done.output
    matrix = AuditResult.model_validate_json((tmp_path / "out" / "audit.json").read_bytes()).robustness
    assert matrix is not None
    assert [(c.rule, c.images.split(",")[0]) for c in matrix.data_certificates] == [
        ("mean", "as they are"),
        ("mean", "others"),
        ("crfl", "as they are"),
        ("crfl", "others"),
    ]
    accuracy = {c.rule: c.accuracy for c in matrix.costs}
    for c in matrix.data_certificates:
        shares = [share for _, share in c.certified[:-1]]
        assert shares == sorted(shares, reverse=True) and 0 < shares[0] <= c.right
        assert c.images != "as they are" or c.right == accuracy[c.rule]
    assert list(matrix.data_uncertified.values()) == [["fedavg-iid, median"]]
    text = (tmp_path / "out" / "report.html").read_text()
    assert "What is certified against poisoned data" in text
    assert "No answer is certified: Coordinate-wise median may bring two models further apart" in text
