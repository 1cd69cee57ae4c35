"""Clients played for adversaries: what a client's own code would send of images that are the adversary's own.

Implements fedaudit.attacks.attack.Player. A method's code is public, and so are its protections with their
parameters; a client's examples, its secrets and the noise that it drew are not, so every visit draws its own.
Nobody trains: a client is played with the weights that it uploaded, as the auditor's replays are
(audit/controls/prototypes.py), and with what the server had sent to it.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedaudit.attacks.attack import Images, Visit
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evidence import REPLAYED
from fedaudit.audit.case.messages import messages
from fedaudit.audit.controls.lab import Lab, find_received_message
from fedaudit.fl.artifact import Artifact, Channel
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.kinds import UPDATES, Kind
from fedaudit.fl.method import Card
from fedaudit.fl.runtime.cipher import NoiseGenerator
from fedaudit.fl.runtime.errors import UserError, read_message
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import to_numpy
from fedaudit.fl.wire.protection import Message

T = TypeVar("T")
UPLOADS = (*UPDATES, Kind.NORMALIZED_DELTA)
MOST_BYTES = 2**28  # of what played clients sent, kept for other attacks


class SilentNoise(NoiseGenerator):
    """Noise at its mean, which is 0 for every law that protections draw from."""

    def draw_gaussian(self, size: int) -> Tensor:
        return torch.zeros(size, dtype=torch.float64)

    def draw_laplace(self, size: int) -> Tensor:
        return torch.zeros(size, dtype=torch.float64)

    def draw_discrete_laplace(self, size: int, scale: float) -> Tensor:
        return torch.zeros(size, dtype=torch.int64)


class PlayStreams(Streams):
    """Draws of a visit; its noise has a seed of its own, or is silent."""

    def __init__(self, seed: int, noise_seed: int | None) -> None:
        super().__init__(seed)
        self._noise = None if noise_seed is None else Streams(noise_seed)

    def noise(self, name: str, *keys: int | str) -> NoiseGenerator:
        if self._noise is None:
            return SilentNoise(bytes(32))
        return self._noise.noise(name, *keys)


@dataclass(frozen=True)
class ClientPlayer:
    """Plays clients with the code, the settings and the protections of the run."""

    lab: Lab
    downlink: Collection[Kind]  # what the server sends

    def __call__(
        self,
        visit: Visit,
        holdings: Sequence[Images],
        seed: int,
        *,
        draws: int | None = None,
        noised: bool = True,
        protected: bool = True,
    ) -> list[dict[int, NDArray[np.float64]]]:
        """See fedaudit.attacks.attack.Player. Raises UserError where the client's code refuses such images.

        The same visit is played once, whichever attacks ask for it, as long as results fit MOST_BYTES.
        """
        key = _digest(visit, holdings, seed, draws, noised, protected)
        if key not in self._answers_by_visit:
            played = self._play(visit, holdings, seed, draws, noised, protected)
            size = sum(p.nbytes for sent in played for p in sent.values())
            if size > self._space[0]:
                return played
            self._space[0] -= size
            self._answers_by_visit[key] = played
        return self._answers_by_visit[key]

    def recall(self, key: Hashable, compute: Callable[[], T]) -> T:
        """See fedaudit.attacks.attack.Player."""
        if key not in self._cache:
            self._cache[key] = compute()
        found: T = self._cache[key]
        return found

    def count_plays(self) -> int:
        """How many calls were played, and not answered by an earlier one."""
        return len(self._answers_by_visit)

    def train(
        self,
        visit: Visit,
        holdings: Sequence[Images],
        seed: int,
        *,
        protected: bool = True,
        steps: int | None = None,
    ) -> list[Artifact | None]:
        """See fedaudit.attacks.attack.Player."""
        before = self._begin(visit)
        data = _join(self.lab.holdings.data, holdings)
        world = self.lab if protected else self.lab.drop_protections()
        world = world.holding(data=data, spare=np.zeros(0, np.int64))
        ends = np.cumsum([len(h) for h in holdings])
        result = list[Artifact | None]()
        for number, (end, own) in enumerate(zip(ends, holdings, strict=True)):
            rows, key = np.arange(end - len(own), end), Streams(seed).key("train", number)
            streams = PlayStreams(key, key)
            if steps is None:
                lab = world.holding(parts=[rows[:0]] * visit.client + [rows], streams=streams)
            else:
                lab = world.alone(visit.client, rows, streams, epochs=steps, batch=max(1, len(rows)))
            with _explain_failures():
                reply = lab.train(visit.client, visit.round, before)
                sent = lab.send(visit.client, visit.round, reply.message, before)
            result.append(_read_update(visit, sent))
        return result

    def _play(
        self,
        visit: Visit,
        holdings: Sequence[Images],
        seed: int,
        draws: int | None,
        noised: bool,
        protected: bool,
    ) -> list[dict[int, NDArray[np.float64]]]:
        before, lab = self._begin(visit), self._hold(holdings)
        lab = lab if protected else lab.drop_protections()
        ends = np.cumsum([len(h) for h in holdings])
        result = []
        for number, (end, own) in enumerate(zip(ends, holdings, strict=True)):
            key = Streams(seed).key("visit", number)
            noise_seed = key if noised else None
            rows = np.arange(end - len(own), end)
            played = lab.holding(streams=PlayStreams(key if draws is None else draws, noise_seed))
            lab.site.holdings = dataclasses.replace(played.holdings, parts=[rows[:0]] * visit.client + [rows])
            with _explain_failures():
                reply = lab.train(visit.client, visit.round, before)
                wire = lab.holding(streams=PlayStreams(key, noise_seed))
                sent = wire.send(visit.client, visit.round, reply.message, before)
            result.append(_list_prototypes(sent))
        return result

    def _hold(self, holdings: Sequence[Images]) -> Lab:
        """Clients that train no further, in a world of these images alone."""
        data = _join(self.lab.holdings.data, holdings)
        size = len(data.train)
        return self.lab.alone(0, np.arange(size), Streams(0), epochs=0, batch=max(size, 1), data=data)

    def _begin(self, visit: Visit) -> Message:
        """What the server had sent to that client in that round, with the client's own weights as the model."""
        like = Artifact(
            id="",
            kind=Kind.LOCAL_PROTOTYPES,
            channel=Channel.UPLINK,
            round=visit.round,
            sender=visit.sender,
            seen_by=(),
            payload={},
        )
        own = {k: torch.from_numpy(np.array(v)) for k, v in visit.weights.items()}
        return find_received_message(self._downloads, like) | {Kind.GLOBAL_MODEL: own}

    @cached_property
    def _answers_by_visit(self) -> dict[bytes, list[dict[int, NDArray[np.float64]]]]:
        return {}

    @cached_property
    def _cache(self) -> dict[Hashable, Any]:
        return {}

    @cached_property
    def _space(self) -> list[int]:
        """Bytes that more results may take."""
        return [MOST_BYTES]

    @cached_property
    def _downloads(self) -> Sequence[Artifact]:
        """What the server sent besides the model."""
        kinds = set(self.downlink) - {Kind.GLOBAL_MODEL}
        if self.lab.artifacts is None or not kinds:
            return index([])
        return index(messages(self.lab.artifacts, kinds, "latest"))


def _join(data: Data, holdings: Sequence[Images]) -> Data:
    """A world of these images alone."""
    x, y = (np.concatenate([getattr(h, name) for h in holdings]) for name in ("x", "y"))
    return dataclasses.replace(data, train=Arrays(x=x, y=y))


@contextmanager
def _explain_failures() -> Iterator[None]:
    """What a method's own code raises on images that no client of the run has, as a sentence."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"the client's code fails on other images ({type(error).__name__}: {read_message(error)})",
            hint="prototypes are then taken for means of features, and updates are not read by playing",
        ) from error


def _read_update(visit: Visit, sent: Message | None) -> Artifact | None:
    """What a client sends of its model, as the attacks on updates read it."""
    kind = next((k for k in UPLOADS if sent is not None and k in sent), None)
    if sent is None or kind is None:
        return None
    norm = sent.get(Kind.NUM_STEPS, {}).get("norm")
    return Artifact(
        id="",
        kind=kind,
        channel=Channel.UPLINK,
        round=visit.round,
        sender=visit.sender,
        seen_by=(),
        payload=to_numpy(sent[kind]),
        origin=REPLAYED,
        note={} if norm is None else {"norm": float(norm)},
    )


def _digest(visit: Visit, holdings: Sequence[Images], *how: int | None) -> bytes:
    """Of all that decides what a visit gives."""
    content = hashlib.sha256(repr((str(visit.sender), visit.round, how, [len(h) for h in holdings])).encode())
    arrays = [visit.weights[name] for name in sorted(visit.weights)]
    for array in (*arrays, *(part for h in holdings for part in (h.x, h.y))):
        content.update(np.ascontiguousarray(array).tobytes())
    return content.digest()


def _list_prototypes(sent: Message | None) -> dict[int, NDArray[np.float64]]:
    """Class -> the prototype that arrived of it."""
    payload: Mapping[str, Any] = {} if sent is None else sent.get(Kind.LOCAL_PROTOTYPES, {})
    if not payload:
        return {}
    rows = np.asarray(payload["features"].numpy(), np.float64)
    return {int(c): row for c, row in zip(payload["classes"].tolist(), rows, strict=True)}


def player(lab: Lab | None, card: Card) -> ClientPlayer | None:
    """None where the clients' code, network or first weights are not known, or nothing of theirs is played."""
    is_played = bool({Kind.LOCAL_PROTOTYPES, *UPLOADS} & set(card.uplink))
    return ClientPlayer(lab, card.downlink) if lab is not None and is_played else None
