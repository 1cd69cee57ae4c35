"""Tiny federations whose clients send a few numbers: lists, losses, choices, sums and running means."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedaudit.attacks.attack import Examples, Knowledge, PublicExamples
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from tests.attacks.updates.updates import artifact, train
from tests.attacks.world import CLASSES, SHAPE, Architecture, Extractor, World, weights

Arrays = Mapping[str, NDArray[Any]]


def later(a: Artifact, round: int) -> Artifact:
    """The same in another round."""
    return replace(a, id=a.id.replace("r00000", f"r{round:05d}"), round=round)


@cache
def world() -> World:
    return World(sizes=(), clients=6)


def numbers() -> list[Artifact]:
    """What each client says it owns, in two rounds."""
    said = [artifact(Kind.NUM_EXAMPLES, {"count": np.array(len(c))}, k) for k, c in enumerate(world().clients)]
    return [*said, *(later(a, 1) for a in said)]


def sums(rounds: Sequence[Sequence[int]], kind: Kind = Kind.LABEL_COUNTS) -> tuple[list[Artifact], Knowledge]:
    """Sums of the clients' counts over rounds, and an adversary that knows who took part."""
    made = []
    for r, who in enumerate(rounds):
        total = np.sum([world().label_counts(k) for k in who], axis=0)
        if kind == Kind.NUM_EXAMPLES:
            total = total.sum()
        name = f"{kind}/{kind.counted}"
        payload = {"clients": np.array(len(who)), name: total.astype(np.float32)}
        if kind == Kind.PROTO_COUNTS:
            listed = np.flatnonzero(total)
            payload |= {name: payload[name][listed], f"{kind}/classes": listed}
        made.append(later(artifact(Kind.AGGREGATE, payload, 0), r))
    heard = {r: frozenset(who) for r, who in enumerate(rounds)}
    return made, replace(world().knowledge, heard=heard)


@cache
def models() -> list[dict[str, NDArray[np.float32]]]:
    """Two networks: one has learnt the even digits, the other the odd ones."""
    aux = world().auxiliary
    found = []
    for parity in (0, 1):
        own = Examples(x=aux.x[aux.y % 2 == parity], y=aux.y[aux.y % 2 == parity])
        now = weights(0)
        for turn in range(4):
            now = train(now, own, turn, False, False)
        found.append(now)
    return found


def losses() -> list[Artifact]:
    """Every client's loss of a broadcast model, not trained yet: every class has a loss of its own."""
    start = weights(0)
    model = Architecture()(start)
    said = [artifact(Kind.GLOBAL_MODEL, start, None)]
    for k, own in enumerate(world().clients):
        logits = torch.from_numpy(model.logits(own.x))
        loss = nn.functional.cross_entropy(logits, torch.from_numpy(own.y))
        said.append(artifact(Kind.LOCAL_LOSS, {"loss": loss.numpy()}, k))
    return said


def choices() -> list[Artifact]:
    """Which of two broadcast models has the least loss for each client."""
    both = {f"{j}/{name}": v for j, m in enumerate(models()) for name, v in m.items()}
    said = [artifact(Kind.GLOBAL_MODEL, both, None)]
    for k, own in enumerate(world().clients):
        y = torch.from_numpy(own.y)
        each = [
            nn.functional.cross_entropy(torch.from_numpy(Architecture()(m).logits(own.x)), y) for m in models()
        ]
        said.append(artifact(Kind.CLUSTER_ID, {"cluster": torch.stack(each).argmin().numpy()}, k))
    return said


class Normalised(nn.Module):
    """A network that keeps running means of what its second layer reads."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(SHAPE[0], 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.out = nn.Linear(16 * SHAPE[1] * SHAPE[2], CLASSES)

    def features(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x)).relu().flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.features(x))


class NormalisedArchitecture:
    def __call__(self, weights: Arrays) -> Extractor:
        return Extractor(loaded(weights))  # type: ignore[arg-type]


def loaded(weights: Arrays) -> Any:
    with torch.random.fork_rng(devices=[]):
        net = Normalised()
    net.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in weights.items()})
    return net


class Buffers(World):
    """Clients of `owned` images each, by turns, that send their model after one pass, weights as they were."""

    def __init__(self, *owned: int) -> None:
        super().__init__(sizes=(), clients=6)
        each = zip(self.clients, itertools.cycle(owned), strict=False)
        self.clients = [Examples(x=c.x[:n], y=c.y[:n]) for c, n in each]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            start = {k: v.numpy().copy() for k, v in Normalised().state_dict().items()}
        self.artifacts = [artifact(Kind.GLOBAL_MODEL, start, None)]
        for k, own in enumerate(self.clients):
            net = loaded(start).train()
            with torch.no_grad():
                net(torch.from_numpy(own.x))
            after = {n: v.numpy().copy() for n, v in net.state_dict().items()}
            self.artifacts += [
                artifact(Kind.LOCAL_MODEL, after, k),
                artifact(Kind.NUM_EXAMPLES, {"count": np.array(len(own))}, k),
            ]

    @property
    def knowledge(self) -> Knowledge:  # type: ignore[override]
        return replace(
            world().knowledge,
            architecture=NormalisedArchitecture(),
            training={"lr": 0.1, "local_epochs": 1.0, "batch_size": 100.0},
        )


@cache
def diagonals() -> list[Artifact]:
    """Each client's model, and the diagonal of its Fisher information there, example by example."""
    said = []
    for a in (a for a in world().artifacts if a.kind == Kind.LOCAL_MODEL):
        own, net = world().clients[a.sender.index or 0], Architecture()(a.payload).module()
        params = dict(net.requires_grad_(True).named_parameters())
        u = {name: torch.zeros_like(p) for name, p in params.items()}
        for x, y in zip(torch.from_numpy(own.x), torch.from_numpy(own.y), strict=True):
            loss = nn.functional.cross_entropy(net(x[None]), y[None])
            for name, g in zip(u, torch.autograd.grad(loss, list(params.values())), strict=True):
                u[name] += g.square() / len(own)
        payload = {f"u/{k}": v.numpy() for k, v in u.items()}
        payload |= {f"v/{k}": v.numpy() * a.payload[k] for k, v in u.items()}
        said += [artifact(Kind.LOCAL_MODEL, dict(a.payload), a.sender.index)]
        said += [artifact(Kind.FISHER, payload, a.sender.index)]
    return said


CANDIDATES = 10  # of each client's own, among the public images


@cache
def public() -> PublicExamples:
    """A hundred auxiliary images, and some of each client's own."""
    first, own = world().auxiliary, [c.only(np.arange(CANDIDATES)) for c in world().clients]
    x = np.concatenate([first.x[:100], *(c.x for c in own)])
    y = np.concatenate([first.y[:100], *(c.y for c in own)])
    return PublicExamples(x=x, y=y, candidates=np.arange(len(y)) >= 100)


def asked() -> Knowledge:
    """What an adversary knows who has the public images."""
    return replace(world().knowledge, public=public())


@cache
def answers() -> list[Artifact]:
    """What each client's model, never trained, makes of the public images."""
    said = []
    for a in (a for a in world().artifacts if a.kind == Kind.LOCAL_MODEL):
        logits = Architecture()(a.payload).logits(public().x)
        said.append(
            artifact(Kind.PUBLIC_LOGITS, {"index": np.arange(len(public())), "logits": logits}, a.sender.index)
        )
    return said


@cache
def leaning() -> list[Artifact]:
    """The same, of models that expect the classes that their client owns."""
    counts = [world().label_counts(a.sender.index or 0) for a in answers()]
    lean = [(3 * c / c.max()).astype(np.float32) for c in counts]
    return [
        replace(a, payload={**a.payload, "logits": 0.1 * a.payload["logits"] + more})
        for a, more in zip(answers(), lean, strict=True)
    ]


class Flat(nn.Module):
    """A network whose first layer reads pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(SHAPE[1] * SHAPE[2], 64)
        self.head = nn.Linear(64, CLASSES)

    def features(self, x: Tensor) -> Tensor:
        return self.first(x.flatten(1)).relu()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


class FlatArchitecture:
    def __call__(self, weights: Arrays) -> Extractor:
        with torch.random.fork_rng(devices=[]):
            net = Flat()
        net.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in weights.items()})
        return Extractor(net)  # type: ignore[arg-type]


class Steep(World):
    """Clients that send the diagonals of such a network, each of so many images."""

    def __init__(self, owned: int) -> None:
        super().__init__(sizes=(), clients=6)
        self.clients = [Examples(x=c.x[:owned], y=c.y[:owned]) for c in self.clients]
        self.artifacts = []
        for k, own in enumerate(self.clients):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(k)
                net = Flat()
            params = dict(net.named_parameters())
            u = {name: np.zeros(p.shape) for name, p in params.items()}
            for x, y in zip(torch.from_numpy(own.x), torch.from_numpy(own.y), strict=True):
                loss = nn.functional.cross_entropy(net(x[None]), y[None])
                for name, g in zip(u, torch.autograd.grad(loss, list(params.values())), strict=True):
                    u[name] += g.double().numpy() ** 2 / len(own)
            model = {name: p.detach().numpy() for name, p in params.items()}
            sent = {f"u/{name}": v.astype(np.float32) for name, v in u.items()}
            self.artifacts += [artifact(Kind.LOCAL_MODEL, model, k), artifact(Kind.FISHER, sent, k)]

    @property
    def knowledge(self) -> Knowledge:  # type: ignore[override]
        return replace(world().knowledge, architecture=FlatArchitecture())


@cache
def steep(owned: int) -> Steep:
    return Steep(owned)
