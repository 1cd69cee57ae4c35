"""A tiny federation of a language model that learnt its texts by heart; secrets of one and four copies."""

from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples, Knowledge, Unseen
from fedaudit.audit.observer.models import KnownArchitecture
from fedaudit.fl.artifact import SERVER, Artifact, Channel, Party
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.data.tokenizer import Tokenizer
from fedaudit.fl.data.tokens import Canary, Tokens
from fedaudit.fl.kinds import Kind
from fedaudit.fl.model import Net
from fedaudit.fl.models.tiny_gpt import TinyGPT
from fedaudit.fl.tasks.text import Text

WORDS = [a + b for a in "bdfgklmnprst" for b in ("a", "e", "i", "o")]
DIGITS = "0123456789"
PIECES = ("<pad>", "<eos>", *WORDS, "id", ".", "##.", *DIGITS, *("##" + d for d in DIGITS))
TOKENS = Tokens(pieces=PIECES, origin="this test")
LENGTH, CLASSES, TEXTS, CLIENTS = 14, 2, 10, 5
State = dict[str, NDArray[np.float32]]


def make_net(task: str = "lm") -> Net:
    config = TinyGPT.Config(dim=32, layers=1, heads=2, vocabulary=len(PIECES), task=task)  # type: ignore[arg-type]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return TinyGPT((LENGTH,), CLASSES, config)


def write_texts(rng: np.random.Generator, number: int) -> list[str]:
    return [" ".join(rng.choice(WORDS, rng.integers(6, 10), replace=False)) for _ in range(number)]


class LanguageWorld:
    """Clients of ten texts each, two of the first with a secret of its own, four of the second with another."""

    def __init__(self, steps: int = 80) -> None:
        rng = np.random.default_rng(0)
        planted = [
            (f"id {rng.choice(WORDS)}", "".join(rng.choice(list(DIGITS), 6)), c) for c in (1, 1, 4, 4, 0, 0, 0)
        ]
        self.canaries = tuple(Canary(prefix=p, secret=s, copies=c) for p, s, c in planted)
        written = [write_texts(rng, TEXTS) for _ in range(CLIENTS)]
        for client, canary in enumerate(self.canaries):
            for i in range(canary.copies):
                written[client][i] = f"{canary.prefix} {canary.secret}. {written[client][i].split()[0]}"
        tokenizer = Tokenizer(TOKENS)
        self.clients = [
            Examples(x=tokenizer.encode(own, LENGTH), y=np.arange(TEXTS) % CLASSES) for own in written
        ]
        self.auxiliary = Examples(x=tokenizer.encode(write_texts(rng, 50), LENGTH), y=np.arange(50) % CLASSES)
        self.reference = Examples(x=tokenizer.encode(write_texts(rng, 150), LENGTH), y=np.arange(150) % CLASSES)
        start = {k: v.detach().numpy().copy() for k, v in make_net().state_dict().items()}
        everybody = np.concatenate([own.x for own in self.clients])
        self.artifacts = [artifact(Kind.GLOBAL_MODEL, start, None, 0)]
        self.artifacts += [
            artifact(Kind.LOCAL_MODEL, learn(start, own.x, steps), k, 0) for k, own in enumerate(self.clients)
        ]
        self.artifacts.append(artifact(Kind.GLOBAL_MODEL, learn(start, everybody, steps), None, 1))

    @cached_property
    def knowledge(self) -> Knowledge:
        arrays, shape = Arrays(x=self.auxiliary.x, y=self.auxiliary.y), (LENGTH,)
        data = Data(train=arrays, test=arrays, classes=("0", "1"), schema=TOKENS, task=Text())
        return Knowledge(
            classes=CLASSES,
            shape=shape,  # type: ignore[arg-type]
            architecture=KnownArchitecture(make_net, data),
            auxiliary=self.auxiliary,
            schema=TOKENS,
        )

    # the Truth protocol

    def _behind(self, artifact: str) -> Sequence[int]:
        return [int(artifact.split("client-")[1].split(".")[0])] if "client-" in artifact else range(CLIENTS)

    def members(self, artifact: str, label: int) -> NDArray[Any]:
        return np.concatenate([self.clients[k].of_class(label) for k in self._behind(artifact)])

    def find_members(self, artifact: str, label: int) -> Examples:
        found = self.members(artifact, label)
        return Examples(x=found, y=np.full(len(found), label))

    def people(self, artifact: str, label: int) -> dict[int, NDArray[np.int64]]:
        return {k: 1000 * k + np.flatnonzero(self.clients[k].y == label) for k in self._behind(artifact)}

    def find_contributors(self, artifact: str) -> frozenset[int]:
        return frozenset()

    def unseen(self, clients: object) -> Unseen:
        return Unseen(self.reference, "")

    def client_examples(self, client: int) -> Examples:
        return self.clients[client]

    def client_rows(self, client: int) -> NDArray[np.int64]:
        return 1000 * client + np.arange(TEXTS)


def learn(start: State, texts: NDArray[np.int64], steps: int) -> State:
    net = make_net()
    net.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in start.items()})
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    x = torch.from_numpy(texts)
    for _ in range(steps):
        optimiser.zero_grad()
        net.loss(x, x[:, 0]).backward()
        optimiser.step()
    return {k: v.detach().numpy().copy() for k, v in net.state_dict().items()}


def artifact(kind: Kind, state: State, client: int | None, round: int) -> Artifact:
    up = client is not None
    return Artifact(
        id=f"r{round:05}/" + (f"client-{client}.uplink/{kind}" if up else f"server.downlink/{kind}"),
        kind=kind,
        channel=Channel.UPLINK if up else Channel.DOWNLINK,
        round=round,
        sender=Party.client(client) if client is not None else SERVER,
        seen_by=("server",) if up else ("server", "client"),
        payload=state,
    )


@cache
def learnt() -> LanguageWorld:
    return LanguageWorld()


@cache
def untrained() -> LanguageWorld:
    return LanguageWorld(steps=0)
