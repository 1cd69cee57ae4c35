"""What a worker holds of a federation: the model, the data and the method, and what everybody was sent."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from fedaudit.fl.data.dataset import Arrays
from fedaudit.fl.data.partition import Index
from fedaudit.fl.data.scale import normalise
from fedaudit.fl.families.public_data import list_public_rows
from fedaudit.fl.federation import Holdings
from fedaudit.fl.method import RoundMethod
from fedaudit.fl.model import Net, State, head_names
from fedaudit.fl.runtime.transfer import send
from fedaudit.fl.threats.compromise import Compromise
from fedaudit.fl.training.private import PrivateTraining
from fedaudit.fl.wire.protection import Message

T = TypeVar("T")


class SiteMemory:
    """A worker's copy of what client work needs, and what every client has received."""

    def __init__(
        self,
        method: RoundMethod,
        holdings: Holdings,
        net: Net,
        device: str,
        private: PrivateTraining | None = None,
        compromise: Compromise | None = None,
    ) -> None:
        self.method, self.holdings, self.net, self.device = method, holdings, net, device
        self.private = private
        self.compromise = compromise or Compromise()
        self.data, self.classes = holdings.data, len(holdings.data.groups)
        self.groups = self.data.group(self.data.train)  # [N] of all training examples
        self.trained = method.prepare(net, self.classes)  # what clients work with
        self.trained.task = net.task
        self.message: Message = {}
        self.kept: Message = {}
        self.round = 0
        self.model: State = {}
        self.initial: State = {}
        self.before: State = {}
        self.leaves_on = "cpu"

    def names(self, _: None) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the parameters, and of those in the head."""
        return tuple(k for k, _ in self.net.named_parameters()), head_names(self.net)

    def inspect(self, question: Callable[[Net], T] | str) -> T:
        """What a picklable function, or the method's function of that name, says of the network clients train."""
        ask: Callable[[Net], T] = getattr(self.method, question) if isinstance(question, str) else question
        return ask(self.trained)

    def install(self, initial: State) -> None:
        """The model everybody knows before round 0."""
        self.initial = {k: send(v, self.device) for k, v in initial.items()}

    def stay(self) -> None:
        """The server works on this device: what clients train stays here."""
        self.leaves_on = self.device

    def keep(self, message: Message) -> None:
        """What every client was sent before the rounds, and has at hand in all of them."""
        self.kept = self._move_here(message)

    def recall(self, model: State) -> None:
        """The shared model of the round before, for an adversary that remembers it."""
        self.before = {k: send(v, self.device) for k, v in model.items()}

    def begin(self, round: int, message: Message) -> None:
        """A round's broadcast arrives."""
        self.round = round
        self.message = self.kept | self._move_here(message)

    def _move_here(self, message: Message) -> Message:
        return {k: {n: send(v, self.device) for n, v in p.items()} for k, p in message.items()}

    def read_public(self, candidates: int) -> Tensor:
        """[m, ...] normalised examples that everybody has, with so many of each client's among them."""
        rows = list_public_rows(self.holdings.spare, self.holdings.parts, candidates)
        return self.examples(self.data.train, rows)[0]

    def examples(self, arrays: Arrays, index: Index) -> tuple[Tensor, Tensor]:
        """[n, ...] normalised examples of these rows, and [n, ...] their labels."""
        x, y = (send(torch.from_numpy(of[index]), self.device) for of in (arrays.x, arrays.y))
        return normalise(x, self.data), y
