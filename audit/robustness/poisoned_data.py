"""Poisoned data: which answers of a linear model clients cannot turn by what they train on in one round.

The certificate of CRFL (Xie, Chen, Chen, Li. ICML 2021. arXiv:2106.08283, Theorem 1 and its corollary) is for
models with a convex loss: R clients train on poisoned data in one round and send gamma times what they learnt.
How far that moves the model is carried through later rounds, and set against how surely an image is answered.
Here the model is softmax regression, z an example with a 1 for the bias, |z| <= B, and p the weights of the mean:

1. One example's gradient, (softmax(W z) - y) z', is at most sqrt(2) |z| long, whatever W is. Where a share q / n
   of a batch is moved by at most r and labelled at will, a step of eta leads at most eta sqrt(2) (2 B + r) q / n
   away from where it would have led. On clean data steps bring no two models further apart while eta <= 4 / B^2
   (Hardt, Recht, Singer. ICML 2016. arXiv:1509.01240, sec. 3), so that over tau steps

       |change of what client i sends| <= eta sqrt(2) (gamma (2 B + r) sum of q / n + |gamma - 1| B tau).

2. The mean moves by the sum of p_i times that, of the R clients of which it is largest.
3. Neither later rounds nor a rule that is `nonexpansive` make it more.
4. A logit less another moves by at most sqrt(2) |z| times as much as the weights; less than they lie apart, and
   the answer stays.

Changed from the paper: (a) both trainings draw the same batches and the same noise, so the statement is about the
model at hand, and step 3 credits nothing to the noise of later rounds. The paper's product of
2 Phi(rho / sigma) - 1 bounds laws over trainings, of which its votes see one, and is 1 in double precision at the
authors' settings. (b) Step 4 takes the place of the votes of M noised copies: a linear model answers as the vote
of its noised copies does, and the vote certifies no move of the weights that step 4 does not, so that no error
alpha is left. (c) Step 1 takes the place of L_Z = sqrt(2 + 2 rho + rho^2), which is for inputs of length at most
1 and for weights that stay within rho while clients train. (d) A scaled update is held against an honest one that
nobody scaled; the authors' program scales both.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedaudit.attacks.poisoning.backdoors import Trigger
from fedaudit.audit.robustness.finished_runs import FinishedRun, stamp_test_images
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.data.scale import normalise
from fedaudit.fl.method import LocalConfig, RoundMethod
from fedaudit.fl.model import Net, head_names
from fedaudit.fl.runtime.plugin import is_shipped
from fedaudit.fl.runtime.streams import seed_networks
from fedaudit.fl.training.batches import split_into_batches
from fedaudit.reports.robustness import DataCertificate

LENGTHS = (0.0, 0.5, 1.0, 2.0)  # of what is put into an image: l2, of pixels in [0, 1]; 0 changes labels alone
SOME = 8  # inputs on which a network is compared with one linear layer
Numbers = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class ClientRound:
    """What one client does in a round."""

    weight: float  # in the mean
    batches: Sequence[int]  # the size of each
    longest: float  # of its examples, with a 1 for the bias


@dataclass(frozen=True)
class Poisoning:
    """Who poisons how much in one round, and what for."""

    malicious: int
    share: float  # of each batch
    scale: float  # of what is sent
    trigger: Trigger
    target: int  # the class that triggered images are to be taken for


def bound_drift(clients: Sequence[ClientRound], rate: float, by: Poisoning, length: float) -> float:
    """How far the model can be from itself without poisoned data, as a distance of all weights.

    `length` is that of what is put into an example as the network takes it.
    """

    def bound(client: ClientRound) -> float:
        poisoned = sum(round(by.share * size) / size for size in client.batches)
        learnt = by.scale * poisoned * (2 * client.longest + length)
        return client.weight * (learnt + abs(by.scale - 1) * len(client.batches) * client.longest)

    worst = sorted(map(bound, clients), reverse=True)[: by.malicious]
    return math.sqrt(2) * rate * math.fsum(worst)


def measure_distances(logits: Numbers, sizes: Numbers) -> Numbers:
    """[N] how far all weights together must move before another answer is possible.

    `logits` are [N, C], `sizes` [N] the lengths of what enters the layer.
    """
    ordered = np.sort(np.asarray(logits, dtype=np.float64), axis=1)
    distances: Numbers = (ordered[:, -1] - ordered[:, -2]) / (math.sqrt(2) * sizes)
    return distances


def explain_missing(run: FinishedRun) -> str:
    """Why nothing is certified about a run, as a phrase; empty where something is."""
    case, training = run.case, run.case.training
    for plugin, title in ((case.method, case.card.title), (case.aggregator, case.aggregator.title)):
        if not is_shipped(plugin):  # whose words about itself count below
            return f"{title} is no code of fedaudit, and nobody checked what it says of itself"
    if "images" not in case.data.gives:
        return "a trigger is put into images, and examples are none"
    if not is_linear(case.network.make, case.data):
        return "the network is not one linear layer on the pixels"
    if not is_plain(case.method):
        return f"{case.card.title} as set is more than steps of SGD on the loss and a mean of models"
    if not case.aggregator.nonexpansive:
        return f"{case.aggregator.title} may bring two models further apart"
    if case.protections:
        return "a protection changes what is sent"
    if case.data.augment != "none":
        return "training images are cropped and mirrored"
    clients = describe_clients(run)
    if any(int(r["delivered"]) < len(clients) for r in run.history.records):
        return "some client was not heard in some round"
    largest, rate = 4 / max(c.longest for c in clients) ** 2, find_largest_rate(training)
    if rate > largest:
        return f"steps of {rate:g} are longer than {largest:.2g}, from which on training may bring models apart"
    return ""


def is_linear(make_net: Callable[[], Net], data: Data) -> bool:
    """Whether a network is one linear layer on what it is given, trained by cross-entropy."""
    with seed_networks(0):
        net = make_net()
        names = {name for name, _ in net.named_parameters()}
        if not data.task.has_classes or data.is_text or type(net).loss is not Net.loss:
            return False
        if not names or names != set(head_names(net)) or not isinstance(layer := net.head, nn.Linear):
            return False
        # of any size and sign, and as in training: what is dropped or cut there is not linear
        drawn = 10 * torch.randn(SOME, *data.input_shape, generator=torch.Generator().manual_seed(0))
        x = torch.cat([drawn, normalise(torch.from_numpy(data.test.x), data)])
        with torch.no_grad():
            return all(
                torch.equal(net.features(x), x.flatten(1)) and torch.equal(net(x), layer(x.flatten(1)))
                for _ in map(net.train, (True, False))
            )


def is_plain(method: RoundMethod) -> bool:
    """Whether clients take steps of SGD on the loss of their batches, and the server the mean of their models."""
    beside = ("Config", "open", "estimate_cost", "get_client_models")
    hooks = [h for h in vars(RoundMethod) if not h.startswith("_") and h not in beside]
    changed = [h for h in hooks if getattr(type(method), h) is not getattr(RoundMethod, h)]
    config = method.config
    is_sgd = getattr(config, "optimiser", "sgd") == "sgd"
    is_changed = bool(changed) or not method.selection.is_everybody
    return is_sgd and not is_changed and not (config.momentum or config.weight_decay or config.grad_clip)


def find_largest_rate(training: LocalConfig) -> float:
    """The longest step of any round."""
    return float(training.lr * max(1.0, training.lr_decay ** (training.rounds - 1)))


def describe_clients(run: FinishedRun) -> list[ClientRound]:
    """What each client with data does in a round."""
    training, parts = run.case.training, [part for part in run.case.population.parts if len(part)]
    weights = [float(len(p)) if training.weighting == "samples" else 1.0 for p in parts]
    sizes = measure_sizes(run.case.data.train.x, run.case.data)
    return [
        ClientRound(
            weight=weight / sum(weights),
            batches=training.local_epochs * split_into_batches(len(part), training.batch_size),
            longest=float(sizes[part].max()),
        )
        for weight, part in zip(weights, parts, strict=True)
    ]


def measure_sizes(images: NDArray[Any], data: Data) -> Numbers:
    """[N] the length of each image as the network takes it, with a 1 for a bias whether it has one or not."""
    x = normalise(torch.from_numpy(np.asarray(images, dtype=np.float64)), data).flatten(1)
    sizes: Numbers = (x.square().sum(1) + 1).sqrt().numpy()
    return sizes


def certify_answers(
    runs: Sequence[FinishedRun], poisonings: Sequence[Poisoning], words: Mapping[str, str]
) -> list[DataCertificate]:
    """Of runs of several seeds with nobody malicious: images as they are, and others' with a backdoor's trigger.

    `words` are the other fields.
    """
    clients = [describe_clients(run) for run in runs]
    made: list[DataCertificate] = []
    for by in poisonings:
        lengths = (*LENGTHS, max(measure_trigger(run.case.data.train.x, by.trigger) for run in runs))
        for images, trigger in (("as they are", None), (f"others, with the trigger {by.trigger}", by.trigger)):
            rows = [
                _score(run, by, trigger, [_bound(run, own, by, length) for length in lengths])
                for run, own in zip(runs, clients, strict=True)
            ]
            right, *shares = np.mean(rows, axis=0).tolist()
            made.append(
                DataCertificate(
                    malicious=by.malicious,
                    share=by.share,
                    scale=by.scale,
                    images=images,
                    seeds=len(runs),
                    right=right,
                    certified=list(zip(lengths, shares, strict=True)),
                    **words,
                )
            )
    return made


def _bound(run: FinishedRun, clients: Sequence[ClientRound], by: Poisoning, length: float) -> float:
    """The drift of a run's model by triggers of that length, in pixels."""
    return bound_drift(clients, find_largest_rate(run.case.training), by, length / min(run.case.data.std))


def _score(run: FinishedRun, by: Poisoning, trigger: Trigger | None, drifts: Sequence[float]) -> list[float]:
    """The share of test images answered rightly, then of those that stay so for each drift.

    With a trigger they are the images of other classes than the target.
    """
    x = run.case.data.test.x if trigger is None else stamp_test_images(run.case.data.test.x, trigger)
    chosen = np.ones(len(x), dtype=bool) if trigger is None else run.labels != by.target
    logits = run.model.logits(x)[chosen]
    right = logits.argmax(1) == run.labels[chosen]
    distances = measure_distances(logits, measure_sizes(x, run.case.data)[chosen])
    return [float(right.mean()), *(float((right & (distances > drift)).mean()) for drift in drifts)]


def measure_trigger(images: NDArray[np.float32], trigger: Trigger) -> float:
    """The most that a trigger changes an image by: l2, of pixels in [0, 1]."""
    moved = (stamp_test_images(images, trigger) - images).reshape(len(images), -1)
    return float(np.linalg.norm(moved, axis=1).max())
