"""Astraea: clients even out the classes of the whole federation, then train in complementary groups.

Duan, Liu, Chen, Liang, Tan, Qiao. Self-Balancing Federated Learning With Global Imbalanced Data in Mobile
Systems. IEEE TPDS 2021 (arXiv:1907.01132). Clients send label counts; with G_c their sum, m and s mean
and deviation over the classes and z_c = (G_c - m) / s, the server asks all of them

    z_c < -theta_add     for G* / G_c times as many images of class c, G* = m - theta_add s
    z_c > theta_drop     to keep G* / G_c of theirs,                     G* = m + theta_drop s

Additional images are altered copies. Groups and training are those of fl/families/relaying.py; the original
groups by counts as well. Changed: the paper gives no rule for the ratios, so a class is brought to the threshold;
no client makes more than ten times as many images as it holds, whatever others claim to hold; copies are turned
and shifted, and mirrored where images may be, but not zoomed. A federation whose classes are even, with a
mediator for every client, is FedAvg, bit for bit.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.families.augmentation_plan import alter_images
from fedaudit.fl.families.balancing import Balancing
from fedaudit.fl.families.generating import MOST, pixels
from fedaudit.fl.families.grouping import complementary
from fedaudit.fl.families.visit_noise import NoiseConfig, no_noise
from fedaudit.fl.federation import Federation, Tally
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.wire.protection import Message


class Astraea(Balancing):
    card = Card(
        title="Astraea",
        needs="classes",
        source="arXiv:1907.01132",
        text="The server learns how many images of each class there are, has clients add or drop some "
        "to even that out, and groups of clients train the model one after the other.",
        downlink=(Kind.GLOBAL_MODEL, Kind.ALLOCATION),
        uplink=(Kind.LOCAL_MODEL, Kind.LABEL_COUNTS),
        relay=(Kind.RELAY_MODEL,),
        collects=False,
    )

    @settings
    class Config(Balancing.Config):
        noise: NoiseConfig = Field(
            default_factory=no_noise, description="noise on what clients hand on; none by default"
        )
        theta_add: float = Field(
            default=1.0,
            ge=0,
            description="standard deviations below the mean count from which a class is filled up; .inf "
            "fills none",
        )
        theta_drop: float = Field(
            default=1.0,
            ge=0,
            description="standard deviations above the mean count from which a class is thinned out; .inf "
            "thins none",
        )

    def count_rounds_left(self, state: Tree) -> dict[str, int]:
        done = state["done"]
        return {"rebalance": 1 - done["rebalance"], "train": self.config.rounds - done["train"]}

    def start(self, federation: Federation) -> Tree:
        members = federation.members
        federation.workers.everywhere("begin", 0, {})
        jobs: list[tuple[str, tuple[int, Tree, Message]]] = [("count", (k, {}, {})) for k in members]
        counts = []
        for k, reply in zip(members, federation.workers.map("work", jobs), strict=True):
            heard = federation.wire.uplink(0, reply.message, k, {})
            known = (
                torch.zeros(self.classes, dtype=torch.long)
                if heard is None
                else heard[Kind.LABEL_COUNTS]["counts"]
            )
            counts.append(known.numpy())  # of who was rejected the server counts nothing
        factors = ratios(np.sum(counts, 0, dtype=np.float64), self.config.theta_add, self.config.theta_drop)
        after = np.stack([resize_counts(row, factors) for row in counts])
        sizes = {str(k): float(n) for k, n in zip(members, after.sum(1), strict=True)}
        mixes = after / np.maximum(after.sum(1, keepdims=True), 1)
        groups = complementary(mixes, tuple(sizes.values()), self.config.mediators)
        even = bool((factors == 1).all())
        return {
            "model": federation.initial,
            "clock": 0.0,
            "completed": {},
            "members": members,
            "sizes": sizes,
            "groups": [[members[i] for i in g] for g in groups],
            "ratios": torch.from_numpy(factors),
            "done": {"rebalance": int(even), "train": 0},
        }

    def run_rebalance(self, t: int, state: Tree, memory: dict[int, Tree], federation: Federation) -> Tree:
        """Everybody adds and drops what the ratios ask for."""
        members = state["members"]
        message: Message = {Kind.ALLOCATION: {"ratios": state["ratios"]}}
        federation.wire.broadcast(t, message, members)
        federation.workers.everywhere("begin", t, message)
        jobs: list[tuple[str, tuple[int, Tree, Message]]] = [("rebalance", (k, {}, {})) for k in members]
        for k, reply in zip(members, federation.workers.map("work", jobs), strict=True):
            memory[k] = reply.memory or {}
        federation.tally = Tally(selected=len(members), delivered=len(members))
        return state | {"done": state["done"] | {"rebalance": 1}}

    def receive(self, client: Client) -> Client:
        """The images kept, and those that were added."""
        kept = client.memory.get("kept")
        if kept is not None:
            client = client.take(kept.to(client.y.device))
        return super().receive(client)

    def count(self, client: Client) -> Reply:
        counts = {"counts": client.counts.cpu()}
        return Reply(message={Kind.LABEL_COUNTS: counts}, examples=len(client.y))

    def rebalance(self, client: Client) -> Reply:
        """Which images stay, and altered copies of some; nothing leaves the client."""
        rng, x = client.generator("rebalance"), pixels(client).cpu()
        factors = client.message[Kind.ALLOCATION]["ratios"].cpu().numpy()
        targets, y = resize_counts(client.counts.tolist(), factors).astype(np.int64), client.y.cpu()
        kept, more, classes = [], [x[:0]], []
        for c, n in enumerate(targets.tolist()):
            rows = torch.nonzero(y == c)[:, 0]
            order = rows[torch.randperm(len(rows), generator=rng)]
            kept.append(order[:n])
            if extra := max(0, n - len(rows)):
                again = order.repeat(-(-extra // len(rows)))[:extra]
                more.append(alter_images(x[again], rng, mirror=client.augment == "crop_flip"))
                classes += [c] * extra
        memory: dict[str, Any] = {
            "kept": torch.cat(kept).sort().values,
            "x": (torch.cat(more) * 255).round().to(torch.uint8),
            "y": torch.tensor(classes, dtype=torch.int64),
        }
        return Reply(message={}, examples=int(targets.sum()), memory=memory)


def ratios(totals: NDArray[np.generic], add: float, drop: float) -> NDArray[np.float64]:
    """[C] by how much every client multiplies its counts, from the federation's totals [C]."""
    have = totals.astype(np.float64)
    mean, deviation = have.mean(), have.std()
    low, high = mean - add * deviation, mean + drop * deviation
    target = np.clip(have, low, high) if deviation > 0 else have
    return np.where(have > 0, target / np.maximum(have, 1), 1.0)


def resize_counts(counts: Sequence[int] | NDArray[np.int64], factors: NDArray[np.float64]) -> NDArray[np.float64]:
    """[C] counts after the ratios, to the nearest whole number; a class that is there stays.

    Where more than MOST times as many as there are would be added, as many fewer are of every class.
    """
    have = np.asarray(counts, np.float64)  # no sum of what clients claim is beyond it
    wanted = np.where(have > 0, np.maximum(1, np.rint(have * factors)), 0)
    added = np.maximum(wanted - have, 0)
    fewer = min(1.0, MOST * have.sum() / max(1.0, added.sum()))
    return np.where(added > 0, have + np.floor(fewer * added), wanted)
