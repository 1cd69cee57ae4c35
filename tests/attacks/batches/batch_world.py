"""A tiny federation of split learning: batches of single digits, with the layer that made them, and gradients."""

from dataclasses import replace
from functools import cached_property, partial
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from fedaudit.attacks.attack import BatchTruth, Examples, Knowledge
from fedaudit.attacks.batches._running import train_network
from fedaudit.fl.artifact import SERVER, Artifact, Channel, Party
from fedaudit.fl.kinds import Kind
from tests.attacks.world import CLASSES, SHAPE, Arrays, World

BATCHES = 2  # of each client that sends gradients back


class Layers(nn.Module):
    """A dense layer and ReLU, wide enough to keep what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(64, 96)

    def forward(self, x: Tensor) -> Tensor:
        return self.one(x.flatten(1)).relu()

    def features(self, x: Tensor) -> Tensor:
        return self(x)


class Convolution(nn.Module):
    """A convolution and ReLU that keep every pixel: what they make looks like the image."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(1, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.one(x).relu()

    def features(self, x: Tensor) -> Tensor:
        return self(x)


class Whole(Layers):
    """The same with a last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(96, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))

    def features(self, x: Tensor) -> Tensor:
        return self.one(x.flatten(1)).relu()


class Known:
    """A network of which the first layers are known."""

    def __init__(self, layers: nn.Module) -> None:
        self.layers = layers.eval().requires_grad_(False)

    def first_layers(self, layers: int) -> nn.Module:
        return self.layers

    def module(self) -> nn.Module:
        return self.layers

    def logits(self, images: NDArray[Any]) -> NDArray[Any]:
        device = next(self.layers.parameters()).device
        return self.layers(torch.from_numpy(np.ascontiguousarray(images)).to(device)).detach().cpu().numpy()


def architecture(weights: Arrays, kind: type[nn.Module] = Layers) -> Any:
    """Without weights, as they happen to be drawn."""
    with torch.random.fork_rng(devices=[]):
        layers = kind()
    layers.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in weights.items()}, strict=bool(weights))
    return Known(layers)


def draw_weights(seed: int) -> dict[str, NDArray[Any]]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return {k: v.numpy() for k, v in Layers().state_dict().items()}


class Batches(World):
    """Clients of the digits' world who send their images in batches, and single ones that were replayed."""

    def __init__(self, clients: int = 6, size: int = 12, noise: float = 0.0, labelled: bool = True) -> None:
        super().__init__(sizes=(), clients=clients)
        rng = np.random.default_rng(5)
        start, self.batches = draw_weights(0), dict[str, BatchTruth]()
        layers = architecture(start).layers
        self.artifacts = [_artifact("r00003/server.downlink/global_model", Kind.GLOBAL_MODEL, start, -1)]
        for k in range(clients):
            self._send_batch(
                f"r00003/client-{k}.uplink/smashed",
                k,
                rng.permutation(len(self.clients[k]))[:size],
                layers,
                noise,
                labelled,
                rng,
            )
            for i in range(4):
                row = rng.integers(len(self.clients[k]), size=1)
                self._send_batch(f"replay/activations/{k}.{i}", k, row, layers, 0.0, labelled, rng)

    def _send_batch(
        self, id: str, k: int, rows: Any, layers: Layers, noise: float, labelled: bool, rng: Any
    ) -> None:
        own = self.clients[k].only(rows)
        z = layers(torch.from_numpy(own.x)).numpy()
        payload: dict[str, Any] = {"activations": (z + noise * rng.normal(size=z.shape)).astype(np.float32)}
        if labelled:
            payload["labels"] = own.y
        replayed = id.startswith("replay")
        self.batches[id] = BatchTruth(client=-1 if replayed else k, rows=1000 * k + rows, images=own)
        sent = _artifact(id, Kind.SMASHED, payload, k)
        self.artifacts.append(replace(sent, origin="replayed", note={"n": 1}) if replayed else sent)

    def find_batch(self, artifact: str) -> BatchTruth | None:
        return self.batches.get(artifact)

    @cached_property
    def knowledge(self) -> Knowledge:
        return Knowledge(
            classes=CLASSES,
            shape=SHAPE,
            architecture=architecture,
            auxiliary=self.auxiliary,
            training={"cut": 1.0},
        )


class Convolved(Batches):
    """Clients who send what a convolution makes of their images, as activations or as features of every one.

    The server has never seen it. `noise`: they send numbers that are made of nothing.
    """

    def __init__(self, kind: Kind = Kind.SMASHED, clients: int = 2, size: int = 48, noise: bool = False) -> None:
        super().__init__(clients=0)
        rng, self.artifacts, self.batches = np.random.default_rng(9), [], dict[str, BatchTruth]()
        self.clients = World(sizes=(), clients=clients).clients
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            layers = Convolution()
        for k in range(clients):
            id, rows = f"r00003/client-{k}.uplink/{kind}", rng.permutation(len(self.clients[k]))[:size]
            own = self.clients[k].only(rows)
            with torch.no_grad():
                z = layers(torch.from_numpy(own.x)).numpy()
            if noise:
                z = np.abs(rng.normal(size=z.shape)).astype(np.float32)
            payload = {"activations" if kind is Kind.SMASHED else "features": z, "labels": own.y}
            self.batches[id] = BatchTruth(client=k, rows=1000 * k + rows, images=own)
            self.artifacts.append(_artifact(id, kind, payload, k))

    @cached_property
    def knowledge(self) -> Knowledge:
        return Knowledge(
            classes=CLASSES,
            shape=SHAPE,
            architecture=partial(architecture, kind=Convolution),
            training={"cut": 1.0},
        )


class Described(Batches):
    """Clients of so many images each, who send features, outputs and labels of all.

    Each has a network of its own, which learnt from everybody's images, and nobody else has its layers.
    """

    def __init__(self, owned: int, clients: int = 6) -> None:
        super().__init__(clients=0)
        own = World(sizes=(), clients=clients).clients
        self.clients = [c.only(np.arange(0, len(c), len(c) // owned)[:owned]) for c in own]
        self.artifacts = []
        every = Examples(x=np.concatenate([c.x for c in own]), y=np.concatenate([c.y for c in own]))
        for k, images in enumerate(self.clients):
            net = train_network(self.knowledge, every, 10, 50 + k)
            features = net.module().features(torch.from_numpy(images.x)).numpy()
            payload = {"features": features, "labels": images.y, "logits": net.logits(images.x)}
            self.artifacts.append(_artifact(f"r00003/client-{k}.uplink/features", Kind.FEATURES, payload, k))

    @cached_property
    def knowledge(self) -> Knowledge:
        return Knowledge(
            classes=CLASSES,
            shape=SHAPE,
            architecture=partial(architecture, kind=Whole),
            auxiliary=self.auxiliary,
            training={"lr": 0.3, "batch_size": 32.0},
        )


class Hijacked(Batches):
    """The same, whose server trained the layers and reads them by least squares; it knows no weights."""

    @cached_property
    def knowledge(self) -> Knowledge:
        images = self.auxiliary.x
        z = architecture(draw_weights(0)).layers(torch.from_numpy(images)).numpy()
        fit = np.linalg.lstsq(z, images.reshape(len(images), -1), rcond=1e-3)[0]

        def read(activations: Any) -> Any:
            return np.clip(activations @ fit, 0, 1).reshape(-1, *SHAPE).astype(np.float32)

        return Knowledge(
            classes=CLASSES, shape=SHAPE, auxiliary=self.auxiliary, hijacker=read, training={"cut": 1.0}
        )


class Headed(nn.Module):
    """The last layer of a network of which nothing else matters."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(24, CLASSES)


class SentBack(World):
    """Clients who keep the last layer and their labels; the server has what it passed on and what came back.

    `released`: it knows the last layer that the clients have.
    """

    def __init__(self, clients: int = 6, size: int = 40, released: bool = True) -> None:
        super().__init__(sizes=(), clients=clients)
        rng, weights = np.random.default_rng(8), _draw_head(4)
        self.artifacts, self.batches = [], dict[str, BatchTruth]()
        if released:
            model = _artifact("r00004/server.release/global_model", Kind.GLOBAL_MODEL, weights, -1)
            self.artifacts.append(replace(model, round=4, channel=Channel.RELEASE, seen_by=("public",)))
        layer = {k: torch.from_numpy(v) for k, v in weights.items()}
        for k, batch in product(range(clients), range(BATCHES)):
            rows = np.arange(size) + size * (BATCHES * k + batch)
            own, h = self.reference.only(rows), torch.from_numpy(rng.normal(size=(size, 24)).astype(np.float32))
            logits = linear(h.requires_grad_(), layer["head.weight"], layer["head.bias"])
            [g] = torch.autograd.grad(cross_entropy(logits, torch.from_numpy(own.y)), [h])
            made = {
                "activations": np.zeros((size, 3), np.float32)
            }  # of the first layers, which nobody reads here
            self.artifacts.append(_artifact(f"r00003/client-{k}.uplink.{batch}/smashed", Kind.SMASHED, made, k))
            down = _artifact(f"r00003/server.downlink.client-{k}.{batch}/smashed", Kind.SMASHED, {}, -1)
            passed = {"activations": h.detach().numpy()}
            self.artifacts.append(replace(down, payload=passed, seen_by=(f"client/{k}",)))
            id = f"r00003/client-{k}.uplink.{batch}/smashed_gradient"
            self.artifacts.append(_artifact(id, Kind.SMASHED_GRADIENT, {"gradient": g.numpy()}, k))
            self.batches[id] = BatchTruth(client=k, rows=1000 * k + np.arange(size) + size * batch, images=own)
        every = range(0, BATCHES * size * clients, BATCHES * size)
        self.clients = [self.reference.only(np.arange(BATCHES * size) + first) for first in every]

    def find_batch(self, artifact: str) -> BatchTruth | None:
        return self.batches.get(artifact)

    @cached_property
    def knowledge(self) -> Knowledge:
        return Knowledge(classes=CLASSES, shape=SHAPE, architecture=partial(architecture, kind=Headed))


def _draw_head(seed: int) -> dict[str, NDArray[Any]]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return {k: v.numpy() for k, v in Headed().state_dict().items()}


class Gradients(World):
    """Clients who keep their labels; the server knows the gradient of each example's loss at the cut.

    `knows`: how far the network has learnt its training data, from 0 to 1. Of two classes the second is rare.
    """

    def __init__(self, classes: int = CLASSES, clients: int = 6, size: int = 40, knows: float = 0.0) -> None:
        super().__init__(sizes=(), clients=clients)
        self._classes = classes
        rng = np.random.default_rng(6)
        self.artifacts, self.batches = [], dict[str, BatchTruth]()
        top, prior = rng.normal(size=(classes, 24)), np.full(classes, 1 / classes)
        if classes == 2:
            prior = np.array([0.9, 0.1])
        for k in range(clients):
            own = self.reference.only(np.arange(k * size, (k + 1) * size))
            y = own.y if classes == CLASSES else (own.y == 0).astype(np.int64)
            one = np.eye(classes)[y]
            wrong = rng.uniform(0.2, 1, size=(size, 1))  # how unsure the network is of each example
            p = (1 - knows) * prior + knows * (one * (1 - wrong / 8) + (1 - one) * prior * wrong / 8)
            g = (p - one) @ top * (rng.random((size, 24)) < 0.8)  # not a linear top: some units are off
            id = f"r00003/server.downlink.client-{k}/smashed_gradient"
            self.batches[id] = BatchTruth(
                client=k, rows=1000 * k + np.arange(size), images=Examples(x=own.x, y=y)
            )
            self.clients[k] = Examples(x=own.x, y=y)
            sent = _artifact(id, Kind.SMASHED_GRADIENT, {"gradient": g.astype(np.float32)}, -1)
            self.artifacts.append(replace(sent, seen_by=(f"client/{k}",)))
            for i in range(8):  # what it is the gradient of, and batches before
                unlabelled = {"activations": np.zeros((2, 3), np.float32)}
                self.artifacts.append(
                    _artifact(f"r00003/client-{k}.uplink.{i}/smashed", Kind.SMASHED, unlabelled, k)
                )

    def find_batch(self, artifact: str) -> BatchTruth | None:
        return self.batches.get(artifact)

    @cached_property
    def knowledge(self) -> Knowledge:
        return Knowledge(classes=self._classes, shape=SHAPE)


def _artifact(id: str, kind: Kind, payload: Arrays, client: int) -> Artifact:
    up = client >= 0
    return Artifact(
        id=id,
        kind=kind,
        channel=Channel.UPLINK if up else Channel.DOWNLINK,
        round=3,
        sender=Party.client(client) if up else SERVER,
        seen_by=("server",) if up else ("client",),
        payload=payload,
    )
