"""Split models: one part of the model is averaged, the other stays with each client.

The base of FedPer, FedRep and LG-FedAvg. Messages in both directions hold the shared part only. The
private part starts as in the initial model and then lives in the client's memory. Where every
parameter is shared, the method is FedAvg, bit for bit.

There is no complete global model: what is served is the shared part with the initial private part,
and what the clients use is scored as `client_accuracy` and `personal_accuracy`.
"""

from collections.abc import Mapping
from dataclasses import replace

from pydantic import Field

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig, Owned, RoundMethod
from fedaudit.fl.model import State
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Trained
from fedaudit.fl.wire.protection import Message


class SplitMethod(RoundMethod):
    """A method of rounds whose clients keep the parameters named by `config.private`."""

    @settings
    class Config(LocalConfig):
        # "head", "body", or beginnings of parameter names; none: everything is shared
        private: tuple[str, ...] = Field(
            default=("head",),
            description="parts that stay with the client: head, body, or beginnings of parameter names; "
            "none is FedAvg",
        )

    def is_private(self, name: str) -> bool:
        """Whether this parameter (or buffer) stays on the client."""
        return any(
            (name in self.head) == (part == "head") if part in ("head", "body") else name.startswith(part)
            for part in self.config.private
        )

    def select_shared_part(self, state: State) -> State:
        return {k: v for k, v in state.items() if not self.is_private(k)}

    def private(self, state: State) -> State:
        return {k: v for k, v in state.items() if self.is_private(k)}

    # Server ------------------------------------------------------------------------------

    def start(self, federation: Federation) -> Tree:
        model = federation.initial
        for part in self.config.private:
            if part not in ("head", "body") and not any(k.startswith(part) for k in model):
                raise UserError(
                    f"method.private: no parameter begins with {part!r}",
                    hint=f"write head, body, or a beginning of: {', '.join(model)}",
                )
        if not self.select_shared_part(model):
            raise UserError(
                "method.private leaves no parameter to share", hint="leave some part of the model out of it"
            )
        return {"model": model}

    def broadcast(self, state: Tree) -> Message:
        return {Kind.GLOBAL_MODEL: self.select_shared_part(state["model"])}

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        return state | {
            "model": state["model"] | deliveries.average_models(state["model"], self.config.weighting)
        }

    def get_client_models(self, state: Tree, memory: Mapping[int, Tree], t: int, federation: Federation) -> Owned:
        if not self.private(state["model"]):
            return iter(())
        return ((k, state["model"] | m["private"]) for k, m in sorted(memory.items()))

    # Client ------------------------------------------------------------------------------

    def receive(self, client: Client) -> Client:
        """Complete the shared part that arrived with the client's own part."""
        own = client.memory.get("private") or self.private(client.initial)
        whole = client.start | {k: v.to(client.x.device) for k, v in own.items()}
        return replace(client, message=client.message | {Kind.GLOBAL_MODEL: whole})

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        message = reply.message | {Kind.LOCAL_MODEL: self.select_shared_part(trained.state)}
        return replace(reply, message=message, memory={"private": self.private(trained.state)})
