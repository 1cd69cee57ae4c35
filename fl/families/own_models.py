"""Methods without a global model: every client trains a model of its own, and models never cross the wire.

All start from the initial model, and a client's advances only when its answer was received. `accuracy` is the
mean over the clients' models, each on the whole test set.
"""

from collections.abc import Mapping
from dataclasses import replace

from fedaudit.fl.clients.client import Client
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Owned, RoundMethod
from fedaudit.fl.model import State
from fedaudit.fl.runtime.tree import Tree


class OwnModels(RoundMethod):
    """A method of rounds whose clients remember their model under "own"."""

    def get_model(self, state: Tree) -> State:
        return {}

    def get_client_models(self, state: Tree, memory: Mapping[int, Tree], t: int, federation: Federation) -> Owned:
        return ((k, m["own"]) for k, m in sorted(memory.items()))

    def receive(self, client: Client) -> Client:
        """The client starts from its own model, where others start from a received one."""
        own = client.memory.get("own") or client.initial
        return replace(client, message=client.message | {Kind.GLOBAL_MODEL: own})
