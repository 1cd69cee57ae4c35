"""Clients played for adversaries: what a client's own code would send of images that are the adversary's own.

Implements fedaudit.attacks.attack.Player. A method's code is public, and so are its protections with their
parameters; a client's examples, its secrets and the noise that it drew are not, so every visit draws its own.
A client begins with the weights that the visit names, and with what else the server had sent to it.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedaudit.attacks.attack import Examples, Sent, Visit
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.audit.case.messages import messages
from fedaudit.audit.controls.lab import Lab, find_received_message, train_together
from fedaudit.audit.controls.lab import Visit as LabVisit
from fedaudit.fl.artifact import Artifact, Channel
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card
from fedaudit.fl.runtime.cipher import NoiseGenerator
from fedaudit.fl.runtime.errors import UserError, quote_error
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import to_numpy
from fedaudit.fl.wire.protection import Message

T = TypeVar("T")
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

    def recall(self, key: Hashable, compute: Callable[[], T]) -> T:
        """See fedaudit.attacks.attack.Player."""
        if key not in self._cache:
            self._cache[key] = compute()
        found: T = self._cache[key]
        return found

    def count_plays(self) -> int:
        """How many calls were played, and not answered by an earlier one."""
        return len(self._answers_by_visit)

    def play(
        self,
        visit: Visit,
        holdings: Sequence[Examples],
        seed: int,
        *,
        steps: int | None = None,
        draws: int | None = None,
        noised: bool = True,
        protected: bool = True,
    ) -> list[Sent]:
        """See fedaudit.attacks.attack.Player. Raises UserError where the client's code refuses such images.

        The same visit is played once, whichever attacks ask for it, as long as results fit MOST_BYTES.
        """
        key = _digest(visit, holdings, seed, steps, draws, noised, protected)
        if key not in self._answers_by_visit:
            played = self._play(visit, holdings, seed, steps, draws, noised, protected)
            size = sum(np.asarray(a).nbytes for sent in played for of in sent.values() for a in of.values())
            if size > self._space[0]:
                return played
            self._space[0] -= size
            self._answers_by_visit[key] = played
        return self._answers_by_visit[key]

    def _play(
        self,
        visit: Visit,
        holdings: Sequence[Examples],
        seed: int,
        steps: int | None,
        draws: int | None,
        noised: bool,
        protected: bool,
    ) -> list[Sent]:
        before, world = self._begin(visit), self.lab if protected else self.lab.drop_protections()
        data, most = _join(self.lab.holdings.data, holdings), max(map(len, holdings), default=0)
        if steps is None:
            world = world.holding(data=data, spare=np.zeros(0, np.int64))
        else:
            every = np.arange(len(data.train))
            world = world.alone(0, every, Streams(0), epochs=steps, batch=max(1, most), data=data)
        ends, visits, wires = np.cumsum([len(h) for h in holdings]), list[LabVisit](), list[Lab]()
        like = _stand_in(visit)
        for number, (end, own) in enumerate(zip(ends, holdings, strict=True)):
            key = Streams(seed).key("visit", number)
            noise_seed = key if noised else None
            parts = [np.zeros(0, np.int64)] * visit.client + [np.arange(end - len(own), end)]
            lab = world.holding(parts=parts, streams=PlayStreams(key if draws is None else draws, noise_seed))
            visits.append(LabVisit(lab, like, before))
            wires.append(world.holding(streams=PlayStreams(key, noise_seed)))
        with _explain_failures():
            replies = [r for some in self._split(visits, steps) for r in train_together(some)]
            sent = [
                lab.send(visit.client, visit.round, reply.message, before)
                for lab, reply in zip(wires, replies, strict=True)
            ]
        return [{kind: to_numpy(arrays) for kind, arrays in (of or {}).items()} for of in sent]

    def _split(self, visits: Sequence[LabVisit], steps: int | None) -> Iterator[Sequence[LabVisit]]:
        """Those that train side by side; who does not train gains nothing by company."""
        width = visits[0].lab.width if visits and steps != 0 else 1
        return (visits[i : i + width] for i in range(0, len(visits), width))

    def _begin(self, visit: Visit) -> Message:
        """What the server had sent to that client in that round, with the client's own weights as the model."""
        own = {k: torch.from_numpy(np.array(v)) for k, v in visit.weights.items()}
        model: Message = {Kind.GLOBAL_MODEL: own} if own else {}
        return find_received_message(self._downloads, _stand_in(visit)) | model

    @cached_property
    def _answers_by_visit(self) -> dict[bytes, list[Sent]]:
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
        return index(messages(self.lab.artifacts, kinds, "all"))


def _join(data: Data, holdings: Sequence[Examples]) -> Data:
    """A world of these images alone."""
    x, y = (np.concatenate([getattr(h, name) for h in holdings]) for name in ("x", "wanted"))
    return dataclasses.replace(data, train=Arrays(x=x, y=y))


@contextmanager
def _explain_failures() -> Iterator[None]:
    """What a method's own code raises on images that no client of the run has, as a sentence.

    A message may have been made before its sender had the model: what is played then lacks what the code reads.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        missing = [kind for kind in error.args if isinstance(kind, Kind)] if isinstance(error, KeyError) else []
        raise UserError(
            f"when the client made this, it had been sent nothing of {missing[0].words} that was recorded"
            if missing
            else f"the client's code fails on other images ({type(error).__name__}: {quote_error(error)})",
            hint="what it sends is then not read by playing",
        ) from error


def _stand_in(visit: Visit) -> Artifact:
    """An upload of that client in that round, to look up by it what the client had received."""
    return Artifact(
        id="",
        kind=Kind.LOCAL_MODEL,
        channel=Channel.UPLINK,
        round=visit.round,
        sender=visit.sender,
        seen_by=(),
        payload={},
    )


def _digest(visit: Visit, holdings: Sequence[Examples], *how: int | None) -> bytes:
    """Of all that decides what a visit gives."""
    content = hashlib.sha256(repr((str(visit.sender), visit.round, how, [len(h) for h in holdings])).encode())
    arrays = [visit.weights[name] for name in sorted(visit.weights)]
    for array in (*arrays, *(part for h in holdings for part in (h.x, h.wanted))):
        content.update(np.ascontiguousarray(array).tobytes())
    return content.digest()


def player(lab: Lab | None, card: Card) -> ClientPlayer | None:
    """None where the clients' code, network or first weights are not known."""
    return ClientPlayer(lab, card.downlink) if lab is not None else None
