"""HeteroFL: slow devices train narrower networks whose outputs are scaled up, and only the classes they hold.

Diao, Ding, Tarokh. HeteroFL: Computation and Communication Efficient Federated Learning for Heterogeneous
Clients. ICLR 2021. arXiv:2010.01264, Algorithm 1.

A client of ratio r trains the first ceil(r units) of every hidden layer (1, 1/2, ... 1/16 by tiers of
capability). Differs from FjORD without sampling in two things: the output of each hidden layer is divided by r
in training (the scaler), and logits of classes that the client has no example of are masked (to -inf; `mask:
zero` as in the authors' code, or `none`). Rows of the last layer of such classes are averaged over the others
only, for which a client says which classes it holds. The paper's static batch normalisation is left out:
networks with normalisation layers are refused. `widths: [1]` with `mask: none` is FedAvg, bit for bit.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.families.layers import layers
from fedaudit.fl.families.narrow import Narrow, Region
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.ranges import PositiveShare
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.training.local import Constants, Handle, Trained


class HeteroFL(Narrow):
    card = replace(
        FedAvg.card,
        title="HeteroFL",
        needs="classes",
        source="arXiv:2010.01264, Alg. 1",
        text="FedAvg in which slow devices train a narrower network, and every client only the outputs of the "
        "classes it holds, which it names.",
        downlink=(Kind.GLOBAL_MODEL, Kind.WIDTH),
        uplink=(Kind.LOCAL_MODEL, Kind.WIDTH, Kind.NUM_EXAMPLES, Kind.CONDENSED_LABELS),
        timed=True,
    )

    @settings
    class Config(Narrow.Config):
        widths: tuple[PositiveShare, ...] = Field(
            default=(0.0625, 0.125, 0.25, 0.5, 1.0),
            min_length=1,
            description="shares of each hidden layer's units, ascending; the last is 1",
        )
        mask: Literal["infinity", "zero", "none"] = Field(
            default="infinity",
            description="logits of classes that a client lacks: -inf, 0 (authors' code), or as they are",
        )

    def compute_constants(self, client: Client) -> Constants:
        return {"present": client.counts > 0}

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        out = net(x)
        if self.config.mask == "none":
            return cross_entropy(out, y)
        value = float("-inf") if self.config.mask == "infinity" else 0.0
        return cross_entropy(out.masked_fill(~const["present"], value), y)

    def train(self, client: Client) -> Reply:
        width = float(client.message[Kind.WIDTH]["width"])
        with scale_outputs(client.net, width):
            trained = client.train(self, self.compute_constants(client))
        return self.finish(client, trained)

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        if self.config.mask == "none":
            return reply
        held = {"labels": torch.nonzero(client.counts)[:, 0].cpu()}
        return replace(reply, message=reply.message | {Kind.CONDENSED_LABELS: held})

    def regions(self) -> list[Region]:
        if self.config.mask == "none":
            return super().regions()
        found = []
        for r in super().regions():
            head = {k: m for k, m in r.mask.items() if k in self.head}
            body = {k: m for k, m in r.mask.items() if k not in head}
            found.append(replace(r, mask=body))
            for c in range(self.classes):
                rows = {k: m & _mask_row(m, c) for k, m in head.items()}
                found.append(Region(f"{r.name}/class{c}", r.width, rows, label=c))
        return found


def _mask_row(like: Tensor, label: int) -> Tensor:
    """True in one row of an array of this shape."""
    rows = torch.arange(len(like)) == label
    return rows.reshape(-1, *(1 for _ in like.shape[1:]))


@contextmanager
def scale_outputs(net: nn.Module, width: float) -> Iterator[None]:
    """Outputs of all layers but the last are divided by the width, while this lasts."""

    def divide(module: nn.Module, given: Any, out: Any) -> Any:  # noqa: ARG001
        return (out[0] / width, *out[1:]) if isinstance(out, tuple) else out / width

    hidden = [owned[0].rpartition(".")[0] for owned in layers(net)[:-1]] if width < 1 else []
    handles = [net.get_submodule(name).register_forward_hook(divide) for name in hidden]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
