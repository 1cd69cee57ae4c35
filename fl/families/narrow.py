"""Methods whose clients train as wide a part of the model as their device can: FjORD's and HeteroFL's rounds.

Each client is sent the part of its width, trains it and sends it back; the server averages every number over the
clients that hold it, band by band between one width and the next, each band by the federation's aggregator. Where
all widths are 1 the rounds are FedAvg's, bit for bit. A client's width is that of its tier: of clients ordered by
capability, which the simulated clock knows and the server is granted, the slowest share has the smallest width.
Bytes and simulated time are those of the part.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from pydantic import Field

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import Deliveries, Delivery
from fedaudit.fl.clients.time_model import Workload
from fedaudit.fl.families.widths import Masks, Widths, tiers
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig, RoundMethod
from fedaudit.fl.model import Net, State
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import PositiveShare
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Trained, count_epochs
from fedaudit.fl.wire.protection import Message


class Narrow(RoundMethod):
    """A method of rounds with the setting `widths`."""

    @settings
    class Config(LocalConfig):
        widths: tuple[PositiveShare, ...] = Field(
            default=(0.25, 0.5, 0.75, 1.0),
            min_length=1,
            description="shares of each hidden layer's units, ascending; the last is 1",
        )

        def __post_init__(self) -> None:
            if list(self.widths) != sorted(set(self.widths)) or self.widths[-1] != 1:
                raise UserError(
                    f"method.widths must ascend to 1, got {list(self.widths)}",
                    hint="FjORD's baseline in FreezeFL has [0.25, 0.5, 0.75, 1]",
                )

    def prepare(self, net: Net, classes: int) -> Net:
        self.slices = Widths.from_shares(net, self.config.widths)
        return super().prepare(net, classes)

    def open(self, federation: Federation) -> None:
        super().open(federation)
        [self.slices] = federation.workers.map(
            "inspect", [partial(Widths.from_shares, shares=self.config.widths)]
        )

    def start(self, federation: Federation) -> Tree:
        times = federation.clock.model
        kappa: Sequence[float] = [1.0] * len(federation.parts) if times is None else times.capability.tolist()
        return {"model": federation.initial, "tiers": tiers(kappa, len(self.config.widths))}

    def broadcast(self, state: Tree) -> Message:
        return {}  # to each client its part

    def send_to(self, state: Tree, client: int) -> Message:
        tier = int(state["tiers"][client])
        return {Kind.GLOBAL_MODEL: self.slices.cut(state["model"], tier), Kind.WIDTH: self._describe_tier(tier)}

    def _describe_tier(self, tier: int) -> dict[str, torch.Tensor]:
        width, values = self.config.widths[tier], self.slices.values(tier)
        return {"width": torch.tensor(width, dtype=torch.float64), "values": torch.tensor(values)}

    def tier(self, message: Message) -> int:
        """The place of a message's width among the widths."""
        width = float(message[Kind.WIDTH]["width"])
        return min(range(len(self.config.widths)), key=lambda i: abs(self.config.widths[i] - width))

    def estimate_cost(self, client: int, sent: Message, examples: int, workload: Workload) -> float:
        return count_epochs(self.config, examples) * workload.at_width(float(sent[Kind.WIDTH]["width"]))

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply, width = super().finish(client, trained), client.message[Kind.WIDTH]
        mine = self.slices.cut(trained.state, self.tier(client.message))
        here = {k: v.cpu() for k, v in width.items()}
        return replace(reply, message=reply.message | {Kind.LOCAL_MODEL: mine, Kind.WIDTH: here})

    def regions(self) -> list["Region"]:
        """Disjoint parts of the model; each is averaged over the clients that hold all of it."""
        return [Region(f"width{i}", i, self.slices.band(i)) for i in range(len(self.slices.shares))]

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        before: State = state["model"]
        regions = [r for r in self.regions() if r.inside]
        means = [deliveries.average(r.name) for r in regions]
        for d in deliveries:
            sent, weight, tier = (
                d.message[Kind.LOCAL_MODEL],
                d.weight(self.config.weighting),
                self.tier(d.message),
            )
            for region, mean in zip(regions, means, strict=True):
                if region.width <= tier and (region.label is None or region.label in _list_classes(d)):
                    part = {k: sent[k][m] for k, m in region.inside.items()}
                    mean.add(d.client, part, weight, {k: before[k][m] for k, m in region.inside.items()})
        model = {k: v.clone() for k, v in before.items()}
        for region, mean in zip(regions, means, strict=True):
            for k, v in (mean.value() if mean.total else {}).items():
                model[k][region.inside[k]] = v
        return state | {"model": model}


@dataclass(frozen=True)
class Region:
    """Numbers that the same clients hold: those of this width and wider, who hold the label, if it is of one."""

    name: str
    width: int  # place among the widths
    mask: Masks
    label: int | None = None

    @property
    def inside(self) -> Masks:
        """Without the arrays that have nothing in it."""
        return {k: m for k, m in self.mask.items() if bool(m.any())}


def _list_classes(delivery: Delivery) -> list[int]:
    """Classes that a client says it holds."""
    found: list[int] = delivery.message[Kind.CONDENSED_LABELS]["labels"].tolist()
    return found
