"""FFA-LoRA: federated adapters of which one factor is frozen, so that averaging them is exact.

Sun, Li, Li, Ding. Improving LoRA in Privacy-preserving Federated Learning. ICLR 2024. arXiv:2403.12313, section
4. A keeps its random start, which everybody knows and nobody sends, and B is trained, sent and averaged. The mean
of B_k A is the product of the mean and A, so that `aggregation_error` is rounding alone.
"""

from dataclasses import replace

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.families.adapters import A
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedlora import FedLoRA
from fedaudit.fl.model import State
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Trained
from fedaudit.fl.wire.protection import Message


class FFALoRA(FedLoRA):
    card = replace(
        FedLoRA.card,
        title="FFA-LoRA",
        source="arXiv:2403.12313",
        text="Clients train one of the two factors of each adapter, B, and send that alone; the other, A, keeps "
        "its random start, which everybody knows.",
    )

    def is_trainable(self, name: str) -> bool:
        return not name.endswith(A)

    def broadcast(self, state: Tree) -> Message:
        return {Kind.GLOBAL_MODEL: drop_a(state["model"])}

    def receive(self, client: Client) -> Client:
        whole = client.initial | client.message[Kind.GLOBAL_MODEL]
        return replace(client, message=client.message | {Kind.GLOBAL_MODEL: whole})

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        return replace(reply, message=reply.message | {Kind.ADAPTER: drop_a(trained.state)})


def drop_a(state: State) -> State:
    """A state without the factors that keep their start."""
    return {name: value for name, value in state.items() if not name.endswith(A)}
