"""FedPer: some layers are averaged, the others stay with each client.

Which stay is `private`; `phases` names what a client trains, part after part. Four papers differ in both:

    FedPer       private: [head]                                 trained together
    FedRep       private: [head]   phases: [private, shared]     the private part for `head_epochs`, then the rest
    LG-FedAvg    private: [body]                                 from a model of `warm_start` rounds of FedAvg
    FedBABU      private: []       phases: [body]                the head, the same for all, stays as it starts

Arivazhagan, Aggarwal, Singh, Choudhary. Federated Learning with Personalization Layers. 2019. arXiv:1912.00818,
Algorithms 1 and 2; Collins, Hassani, Mokhtari, Shakkottai. Exploiting Shared Representations for Personalized
Federated Learning. ICML 2021. arXiv:2102.07078, Algorithm 1; Liang, Liu, Ziyin, Allen, Auerbach, Brent,
Salakhutdinov, Morency. Think Locally, Act Globally: Federated Learning with Local and Global Representations.
2020. arXiv:2001.01523, Algorithm 1; Oh, Kim, Yun. FedBABU: Toward Enhanced Representation for Federated Image
Classification. ICLR 2022. arXiv:2106.06042, Algorithm 1.

A client sends what is trained and not private; where that is all of the model, the method is FedAvg to the bit.
It starts from the initial model's private part (FedPer's draws its own at random) and remembers what training
made of it. A client that was not heard since a warm start is sent the whole model, once more. Phases have one
rate, and each starts with an empty momentum; FedRep's analysis assumes an exact solution for the head. Left out:
LG-FedAvg's unsupervised and fairness losses.

There is no complete global model where a part is private: what is served is the shared part with the initial
private one, and what the clients use is scored as `client_accuracy` and `personal_accuracy`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import Deliveries, Delivery
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Owned
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import State
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastZero
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import PartTraining, Trained
from fedaudit.fl.wire.protection import Message

PLUGINS = ("fedbabu", "fedper", "fedrep", "lg_fedavg")

PARTS = "head, body, or beginnings of parameter names"


class FedPer(FedAvg):
    """FedPer: the base of the model is averaged, the last layer stays with each client."""

    card = replace(
        FedAvg.card,
        title="FedPer",
        source="arXiv:1912.00818, Alg. 1 and 2",
        text="Clients share and average all layers but the last, which each keeps for itself.",
    )

    @settings
    class Config(FedAvg.Config):
        private: tuple[str, ...] = Field(
            default=("head",), description=f"parts that stay with the client: {PARTS}; none is FedAvg"
        )
        phases: tuple[str, ...] = Field(
            default=(),
            max_length=1,
            description=f"the part that clients train: private, shared, {PARTS}; none trains all together",
        )
        warm_start: AtLeastZero = Field(
            default=0, description="rounds at the start in which nothing is private; 0 parts from the first round"
        )
        head_init: Literal["default", "orthogonal"] = Field(
            default="default", description="how the head starts: at random, or with orthonormal rows"
        )

    def is_private(self, name: str) -> bool:
        """Whether this parameter (or buffer) stays on the client."""
        return any(self._is_in(name, part) for part in self.config.private)

    def is_trainable(self, name: str) -> bool:
        return not self.config.phases or any(self.is_of_phase(name, part) for part in self.config.phases)

    def is_of_phase(self, name: str, part: str) -> bool:
        """Whether clients train this parameter (or buffer) in the phase for a part."""
        if part in ("private", "shared"):
            return self.is_private(name) == (part == "private")
        return self._is_in(name, part)

    def _is_in(self, name: str, part: str) -> bool:
        return (name in self.head) == (part == "head") if part in ("head", "body") else name.startswith(part)

    def select_shared_part(self, state: State) -> State:
        return {k: v for k, v in state.items() if not self.is_private(k)}

    def private(self, state: State) -> State:
        return {k: v for k, v in state.items() if self.is_private(k)}

    # Server ------------------------------------------------------------------------------

    def open(self, federation: Federation) -> None:
        super().open(federation)
        if self.config.head_init == "orthogonal":
            model = dict(federation.initial)
            for name in self.head:
                if model[name].dim() == 2:
                    rows, draws = torch.empty_like(model[name]), federation.streams.torch("fedbabu_head")
                    model[name] = torch.nn.init.orthogonal_(rows, generator=draws)
            federation.begin_with(model)

    def start(self, federation: Federation) -> Tree:
        model = federation.initial
        _require_parts("private", self.config.private, ("head", "body"), model)
        _require_parts("phases", self.config.phases, ("private", "shared", "head", "body"), model)
        if not (shared := self.select_shared_part(model)):
            raise UserError(
                "method.private leaves no parameter to share", hint="leave some part of the model out of it"
            )
        if not any(map(self.is_trainable, shared)):
            raise UserError("method.phases trains no parameter that is shared", hint="add shared to it")
        heard = torch.zeros(len(federation.parts), dtype=torch.bool)  # since the warm start
        return {"model": model, "heard": heard}

    def round(self, t: int, state: Tree, memory: dict[int, Tree], federation: Federation) -> Tree:
        return super().round(t, state | {"warm": t < self.config.warm_start}, memory, federation)

    def broadcast(self, state: Tree) -> Message:
        model = state["model"]
        return {Kind.GLOBAL_MODEL: model if state["warm"] else self.select_shared_part(model)}

    def send_to(self, state: Tree, client: int) -> Message:
        if state["warm"] or not self.config.warm_start or state["heard"][client]:
            return {}
        return {Kind.GLOBAL_MODEL: state["model"]}

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        heard = state["heard"].clone()

        def note(delivery: Delivery) -> None:
            heard[delivery.client] = not state["warm"]

        mean = deliveries.noting(note).average_models(state["model"], self.config.weighting)
        return state | {"model": state["model"] | mean, "heard": heard}

    def get_own_models(self, state: Tree, memory: Mapping[int, Tree]) -> Owned:
        return ((k, state["model"] | m["private"]) for k, m in sorted(memory.items()) if "private" in m)

    # Client ------------------------------------------------------------------------------

    def receive(self, client: Client) -> Client:
        """Complete the shared part that arrived with the client's own part."""
        if self.private(client.start):  # a whole model, during the warm start and once after it
            return client
        own = client.memory.get("private") or self.private(client.initial)
        whole = client.start | {k: v.to(client.x.device) for k, v in own.items()}
        return replace(client, message=client.message | {Kind.GLOBAL_MODEL: whole})

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply, is_warm = super().finish(client, trained), client.round < self.config.warm_start
        shared = trained.state if is_warm else self.select_shared_part(trained.state)
        own = {} if is_warm else self.private(trained.state)
        sent = {k: v for k, v in shared.items() if self.is_trainable(k)}
        message = reply.message | {Kind.LOCAL_MODEL: sent}
        return replace(reply, message=message, memory={"private": own} if own else None)


class FedRep(FedPer):
    """FedRep: clients share a representation and fit their own last layer to it first."""

    card = replace(
        FedAvg.card,
        title="FedRep",
        source="arXiv:2102.07078, Alg. 1",
        text="Clients share and average all layers but the last; each first fits its own last layer, "
        "then improves the shared ones for it.",
    )

    @settings
    class Config(FedPer.Config):
        phases: tuple[str, ...] = Field(
            default=("private", "shared"),
            description=f"parts that clients train, one after the other, each with the rest frozen: private, "
            f"shared, {PARTS}; none trains all together",
        )
        head_epochs: AtLeastZero = Field(
            default=10, description="passes of a phase that trains private parts alone; 0 leaves them as they are"
        )
        local_epochs: AtLeastZero = Field(default=1, description="passes of every other phase in a round")

    def train(self, client: Client) -> Reply:
        parts = [[k for k in client.start if self.is_of_phase(k, part)] for part in self.config.phases]
        phases = [names for names in parts if names]
        if not phases:
            return super().train(client)
        const, state = self.compute_constants(client), client.start
        for i, names in enumerate(phases):
            config = self.config
            if all(map(self.is_private, names)):
                config = replace(config, local_epochs=config.head_epochs)
            stream = "batches" if i == len(phases) - 1 else f"{i or 'head'}_batches"
            trained = client.train(PartTraining(self, config, names.__contains__), const, state, stream=stream)
            state = trained.state
        return self.finish(client, trained)


class LGFedAvg(FedPer):
    """LG-FedAvg: clients keep their own representation and average the last layer."""

    card = replace(
        FedAvg.card,
        title="LG-FedAvg",
        source="arXiv:2001.01523, Alg. 1",
        text="Clients keep their own feature layers and average only the last layer.",
    )

    @settings
    class Config(FedPer.Config):
        private: tuple[str, ...] = Field(
            default=("body",), description=f"parts that stay with the client: {PARTS}; none is FedAvg"
        )


class FedBABU(FedPer):
    """FedBABU: only the body of the model is trained; the head stays at its shared random start.

    Neither gradients nor weight decay move the head, and it is never sent back: it can tell nobody which classes
    a client owns. The paper evaluates after `fine_tune_epochs` on each client's own examples.
    """

    card = replace(
        FedAvg.card,
        title="FedBABU",
        source="arXiv:2106.06042, Alg. 1",
        text="FedAvg on all layers but the last, which keeps its random start and is never sent back; "
        "clients share what images look like, not how classes are told apart.",
    )

    @settings
    class Config(FedPer.Config):
        private: tuple[str, ...] = Field(default=(), description=f"parts that stay with the client: {PARTS}")
        phases: tuple[str, ...] = Field(
            default=("body",), max_length=1, description="the part that clients train and send; none is FedAvg"
        )


def _require_parts(key: str, parts: Sequence[str], names: Sequence[str], model: State) -> None:
    for part in parts:
        if part not in names and not any(k.startswith(part) for k in model):
            raise UserError(
                f"method.{key}: no parameter begins with {part!r}",
                hint=f"write {', '.join(names)}, or a beginning of: {', '.join(model)}",
            )
