"""A tiny federation on text: a transformer, clients with a few texts of common words and one name each.

Recorded uploads of several rounds, and texts planted alone. `trained`: the weights that move, by the ends of
their names; empty for all.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples, Knowledge, Unseen
from fedaudit.audit.observer.models import KnownArchitecture
from fedaudit.fl.artifact import SERVER, Artifact, Channel, Party
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.data.tokens import Tokens
from fedaudit.fl.families.adapters import attach
from fedaudit.fl.kinds import MODELS, Kind
from fedaudit.fl.model import Net
from fedaudit.fl.models.tiny_gpt import TinyGPT

COMMON, NAMES, LENGTH, DIM, END = 20, 280, 10, 48, 1
VOCABULARY = 2 + COMMON + NAMES
CLASSES = 2
TOKENS = Tokens(
    pieces=("<pad>", "<eos>", *(f"w{i}" for i in range(COMMON)), *(f"Name{i}" for i in range(NAMES))),
    origin="this test",
)
Weights = Mapping[str, NDArray[Any]]


def write_texts(rng: np.random.Generator, number: int, name: int | None = None) -> NDArray[np.int64]:
    """[number, LENGTH]: five to eight common words with a name among them, and the end."""
    x = np.zeros((number, LENGTH), np.int64)
    for row in x:
        words = 2 + rng.choice(COMMON, rng.integers(5, 9), replace=False)
        words[rng.integers(len(words))] = 2 + COMMON + (rng.integers(NAMES) if name is None else name)
        row[: len(words)] = words
        row[len(words)] = END
    return x


def make_net(
    task: str = "classify", layers: int = 2, tied: bool = False, positions: str = "learned", rank: int = 0
) -> Net:
    """The same weights each time; `rank`: of adapters on q and v, whose B has been trained a little before."""
    settings = {"dim": DIM, "layers": layers, "heads": 2, "task": task, "vocabulary": VOCABULARY, "tied": tied}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net: Net = TinyGPT((LENGTH,), CLASSES, TinyGPT.Config(**settings, positions=positions))
        if rank:
            net = attach(net, rank, 2.0 * rank, ["q", "v"])
            for name, p in net.named_parameters():
                if "lora_B" in name:
                    torch.nn.init.normal_(p, std=0.1)
    return net


class TextWorld:
    """`kind` of uploads; planted texts are one step each, of `rounds` where they make a series."""

    def __init__(
        self,
        clients: int = 6,
        texts: int = 2,
        rounds: int = 1,
        planted: int = 2,
        steps: int = 1,
        rate: float = 0.05,
        optimiser: str = "sgd",
        trained: Sequence[str] = (),
        kind: Kind = Kind.LOCAL_MODEL,
        **net: Any,
    ) -> None:
        rng = np.random.default_rng(0)
        self._net, self._trained, self._rate, self._optimiser = net, tuple(trained), rate, optimiser
        names = rng.permutation(NAMES)
        self.clients = []
        for k in range(clients):
            x = np.concatenate([write_texts(rng, 1, int(names[k * texts + i])) for i in range(texts)])
            self.clients.append(Examples(x=x, y=rng.integers(CLASSES, size=texts)))
        self.auxiliary = Examples(x=write_texts(rng, 300), y=rng.integers(CLASSES, size=300))
        self.reference = Examples(x=write_texts(rng, 60), y=np.arange(60) % CLASSES)
        self.groups: dict[str, Examples] = {}
        self.artifacts: list[Artifact] = []
        start = {k: v.detach().numpy().copy() for k, v in make_net(**net).state_dict().items()}
        for t in range(rounds):
            self._add(Kind.GLOBAL_MODEL, start, None, t)
            sent = [self.descend(start, own, steps) for own in self.clients]
            for k, after in enumerate(sent):
                self._add(kind, self._pack(kind, start, after), k, t)
                for i in range(planted):
                    own = self.clients[k].only(np.array([i % texts]))
                    after = self.descend(start, own, 1)
                    name = f"replay/{k}.{i}/{t}"
                    self.groups[name] = own
                    note: dict[str, float | str] = {"batch": 1, "steps": 1}
                    if rounds > 1:
                        note["series"] = f"{k}.{i}"
                    self._add(kind, self._pack(kind, start, after), k, t, name, note)
            start = {n: np.mean([s[n] for s in sent], axis=0, dtype=np.float32) for n in start}

    def _pack(self, kind: Kind, start: Weights, after: Weights) -> Weights:
        moved = {n: v for n, v in after.items() if self._is_trained(n)}
        return moved if kind in MODELS else {n: v - start[n] for n, v in moved.items()}

    def _is_trained(self, name: str) -> bool:
        return not self._trained or name.endswith(self._trained)

    def descend(self, start: Weights, own: Examples, steps: int) -> dict[str, NDArray[np.float32]]:
        net = make_net(**self._net)
        net.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in start.items()})
        moved = [p for n, p in net.named_parameters() if self._is_trained(n)]
        chosen = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[self._optimiser]
        optimiser = chosen(moved, lr=self._rate)
        for _ in range(steps):
            optimiser.zero_grad()
            net.loss(torch.from_numpy(own.x), torch.from_numpy(own.y)).backward()
            optimiser.step()
        return {k: v.detach().numpy().copy() for k, v in net.state_dict().items()}

    def _add(
        self,
        kind: Kind,
        payload: Weights,
        client: int | None,
        round: int,
        name: str = "",
        note: Mapping[str, float | str] | None = None,
    ) -> None:
        up = client is not None
        who = f"client-{client}.uplink" if up else "server.downlink"
        self.artifacts.append(
            Artifact(
                id=name or f"r{round:05}/{who}/{kind}",
                kind=kind,
                channel=Channel.UPLINK if up else Channel.DOWNLINK,
                round=round,
                sender=Party.client(client) if client is not None else SERVER,
                seen_by=("server",) if up else ("server", "client"),
                payload=payload,
                origin="replayed" if name else "recorded",
                note=note or {},
            )
        )

    @cached_property
    def data(self) -> Data:
        arrays = Arrays(x=self.auxiliary.x, y=self.auxiliary.y)
        return Data(train=arrays, test=arrays, classes=tuple(map(str, range(CLASSES))), schema=TOKENS)

    @cached_property
    def knowledge(self) -> Knowledge:
        shape: Any = (LENGTH,)
        return Knowledge(
            classes=CLASSES,
            shape=shape,
            architecture=KnownArchitecture(lambda: make_net(**self._net), self.data),
            auxiliary=self.auxiliary,
            training={"lr": self._rate, "local_epochs": 1.0, "batch_size": 8.0},
            schema=TOKENS,
        )

    # the Truth protocol

    def _behind(self, artifact: str) -> tuple[int, Examples]:
        if artifact in self.groups:
            return -1, self.groups[artifact]
        client = int(artifact.split("client-")[1].split(".")[0])
        return client, self.clients[client]

    def members(self, artifact: str, label: int) -> NDArray[Any]:
        return self._behind(artifact)[1].of_class(label)

    def find_members(self, artifact: str, label: int) -> Examples:
        found = self.members(artifact, label)
        return Examples(x=found, y=np.full(len(found), label))

    def people(self, artifact: str, label: int) -> dict[int, NDArray[np.int64]]:
        client, own = self._behind(artifact)
        return {client: 1000 * max(client, 0) + np.flatnonzero(own.y == label)}

    def find_contributors(self, artifact: str) -> frozenset[int]:
        return frozenset()

    def unseen(self, clients: object) -> Unseen:
        return Unseen(self.reference, "")

    def label_counts(self, client: int) -> NDArray[np.int64]:
        return np.bincount(self.clients[client].y, minlength=CLASSES)

    def client_examples(self, client: int) -> Examples:
        return self.clients[client]

    def client_rows(self, client: int) -> NDArray[np.int64]:
        return 1000 * client + np.arange(len(self.clients[client]))
