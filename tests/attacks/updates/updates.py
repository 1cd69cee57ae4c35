"""Real updates of tiny clients: the digits of tests/attacks/world.py, trained with plain SGD."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from fedaudit.attacks.attack import Examples, Knowledge
from fedaudit.fl.artifact import SERVER, Artifact, Channel, Party
from fedaudit.fl.kinds import Kind
from tests.attacks.world import CLASSES, SHAPE, Architecture, Net, World, weights

TRAINING = {"lr": 0.05, "local_epochs": 3.0, "batch_size": 10.0}
OWNED = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (1, 4), (0, 7), (3, 8), (2, 9), (5, 6)]


class Updates:
    """Ten clients of two classes, 40 images of one and `second` of the other.

    `masked`: the softmax leaves missing classes out. `frozen`: the head is not trained.
    """

    def __init__(self, *, second: int = 20, masked: bool = False, frozen: bool = False) -> None:
        rest = World(sizes=(), clients=10)
        pool = Examples(
            x=np.concatenate([rest.auxiliary.x, *(c.x for c in rest.clients)]),
            y=np.concatenate([rest.auxiliary.y, *(c.y for c in rest.clients)]),
        )
        self.reference = rest.reference
        half = np.arange(len(pool)) % 2 == 0
        self.auxiliary = Examples(x=pool.x[half], y=pool.y[half])
        rng = np.random.default_rng(0)
        self.clients = []
        for a, b in OWNED:
            rows = np.concatenate(
                [rng.permutation(np.flatnonzero(~half & (pool.y == c)))[:n] for c, n in ((a, 40), (b, second))]
            )
            self.clients.append(Examples(x=pool.x[rows], y=pool.y[rows]))
        start = weights(0)
        self.artifacts = [artifact(Kind.GLOBAL_MODEL, start, None)]
        for k, own in enumerate(self.clients):
            self.artifacts += [
                artifact(Kind.LOCAL_MODEL, train(start, own, k, masked, frozen), k),
                artifact(Kind.NUM_EXAMPLES, {"count": np.array(len(own))}, k),
            ]

    @property
    def knowledge(self) -> Knowledge:
        return Knowledge(
            classes=CLASSES, shape=SHAPE, architecture=Architecture(), auxiliary=self.auxiliary, training=TRAINING
        )

    # the Truth protocol

    def members(self, artifact: str, label: int) -> NDArray[np.float32]:
        return self.clients[int(artifact.split("client-")[1].split(".")[0])].of_class(label)

    def label_counts(self, client: int) -> NDArray[np.int64]:
        return np.bincount(self.clients[client].y, minlength=CLASSES)

    def client_examples(self, client: int) -> Examples:
        return self.clients[client]

    def client_rows(self, client: int) -> NDArray[np.int64]:
        return 1000 * client + np.arange(len(self.clients[client]))


def train(
    start: dict[str, NDArray[np.float32]], own: Examples, seed: int, masked: bool, frozen: bool
) -> dict[str, NDArray[np.float32]]:
    """Three epochs of plain SGD."""
    with torch.random.fork_rng(devices=[]):
        net = Net()
    net.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in start.items()})
    x, y = torch.from_numpy(own.x), torch.from_numpy(own.y)
    shift = torch.zeros(CLASSES)
    if masked:
        shift = torch.where(torch.bincount(y, minlength=CLASSES) > 0, 0.0, -torch.inf)
    net.head.requires_grad_(not frozen)
    trained = [p for p in net.parameters() if p.requires_grad]
    order = torch.Generator().manual_seed(seed)
    for _ in range(3):
        for batch in torch.randperm(len(y), generator=order).split(10):
            loss = cross_entropy(net(x[batch]) + shift, y[batch])
            grads = torch.autograd.grad(loss, trained)
            with torch.no_grad():
                for p, g in zip(trained, grads, strict=True):
                    p -= TRAINING["lr"] * g
    return {k: v.detach().numpy().copy() for k, v in net.state_dict().items()}


def artifact(kind: Kind, payload: dict[str, NDArray[np.generic]], client: int | None) -> Artifact:
    up = client is not None
    return Artifact(
        id=f"r00000/client-{client}.uplink/{kind}" if up else f"r00000/server.downlink/{kind}",
        kind=kind,
        channel=Channel.UPLINK if up else Channel.DOWNLINK,
        round=0,
        sender=Party.client(client) if client is not None else SERVER,
        seen_by=("server",) if up else ("server", "client"),
        payload=payload,
    )
