"""Data sharing: clients publish some of their images, and everybody trains on a part of these too.

Zhao, Li, Lai, Suda, Civin, Chandra. Federated Learning with Non-IID Data. 2018. arXiv:1806.00582, sec. 4;
as GANDALF compares it (sec. 4). A shared set G of |G| = volume * |D| images, uniform over classes, comes
from the clients: of class c each gives in proportion to what it has. Each client receives a random
`given` of G, uniform over classes, and FedAvg runs on the union. Leaks raw images by design.

Changed: in the original G is public data of the server's. The paper of the comparison does not say how
the server knows who has what; clients here tell it their label counts.
"""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.families.balancing import Balancing
from fedaudit.fl.families.generating import pixels
from fedaudit.fl.families.visit_noise import NoiseConfig, no_noise
from fedaudit.fl.federation import Federation, Tally
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card
from fedaudit.fl.runtime.ranges import Share
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.wire.protection import Message, Payload


class DataSharing(Balancing):
    card = Card(
        title="Data sharing",
        needs="classes",
        source="arXiv:1806.00582, sec. 4; GANDALF, sec. 4",
        text="Clients hand a part of their images to everybody before ordinary federated training.",
        downlink=(Kind.GLOBAL_MODEL, Kind.ALLOCATION, Kind.SEED_SAMPLES),
        uplink=(Kind.LOCAL_MODEL, Kind.LABEL_COUNTS, Kind.SEED_SAMPLES),
        relay=(Kind.RELAY_MODEL,),  # between a client and itself: never sent
        collects=False,
    )

    @settings
    class Config(Balancing.Config):
        noise: NoiseConfig = Field(
            default_factory=no_noise, description="noise on what clients hand on; none by default"
        )
        volume: Share = Field(
            default=0.2, description="size of the shared set over that of all data; 0.2 is the paper's"
        )
        given: Share = Field(
            default=0.2, description="share of the shared set that each client receives; 0.2 is the paper's"
        )

    def count_rounds_left(self, state: Tree) -> dict[str, int]:
        done = state["done"]
        shares = int(self.config.volume * self.config.given > 0)
        return {"share": shares - done["share"], "train": self.config.rounds - done["train"]}

    def start(self, federation: Federation) -> Tree:
        members = federation.members
        sizes = {str(k): float(len(federation.parts[k])) for k in members}
        return {
            "model": federation.initial,
            "clock": 0.0,
            "completed": {},
            "sizes": sizes,
            "members": members,
            "groups": [[k] for k in members],
            "done": {"share": 0, "train": 0},
        }

    def run_share(self, t: int, state: Tree, memory: dict[int, Tree], federation: Federation) -> Tree:
        """Counts and images to the server, a part of all images to everybody."""
        members, wire = state["members"], federation.wire
        federation.workers.everywhere("begin", t, {})
        counts = []
        for k, reply in self._request("count", {k: {} for k in members}, federation):
            heard = wire.uplink(t, reply.message, k, {})
            known = (
                torch.zeros(self.classes, dtype=torch.long)
                if heard is None
                else heard[Kind.LABEL_COUNTS]["counts"]
            )
            counts.append(known.numpy())  # of who was rejected the server counts nothing
        orders: dict[int, Message] = {}
        for k, row in zip(members, quotas(np.stack(counts), self.config.volume), strict=True):
            orders[k] = {Kind.ALLOCATION: {"counts": torch.from_numpy(row)}}
            wire.downlink(t, orders[k], k)
        pool: list[Payload] = []
        for k, reply in self._request("contribute", orders, federation):
            heard = wire.uplink(t, reply.message, k, {})
            if heard is not None:
                pool.append(heard[Kind.SEED_SAMPLES])
        x, y = (torch.cat([p[name] for p in pool]) for name in ("images", "labels"))
        sizes = dict(state["sizes"])
        for k in members:
            rng = federation.streams.torch("shared", k)
            rows = torch.cat(
                [
                    i[torch.randperm(len(i), generator=rng)[: round(self.config.given * len(i))]]
                    for i in (torch.nonzero(y == c)[:, 0] for c in range(self.classes))
                ]
            )
            wire.downlink(t, {Kind.SEED_SAMPLES: {"images": x[rows], "labels": y[rows]}}, k)
            memory[k] = {"x": (x[rows] * 255).round().to(torch.uint8), "y": y[rows]}
            sizes[str(k)] += len(rows)
        federation.tally = Tally(selected=len(members), delivered=len(pool), notes={"images_shared": len(y)})
        return state | {"sizes": sizes, "done": state["done"] | {"share": 1}}

    def _request(
        self, work: str, messages: Mapping[int, Message], federation: Federation
    ) -> list[tuple[int, Reply]]:
        jobs: list[tuple[str, tuple[int, Tree, Message]]] = [
            (work, (k, {}, message)) for k, message in messages.items()
        ]
        return list(zip(messages, federation.workers.map("work", jobs), strict=True))

    def count(self, client: Client) -> Reply:
        counts = {"counts": client.counts.cpu()}
        return Reply(message={Kind.LABEL_COUNTS: counts}, examples=len(client.y))

    def contribute(self, client: Client) -> Reply:
        """As many random images of each class as the server wants."""
        order = torch.randperm(len(client.y), generator=client.generator("shared")).to(client.y.device)
        selected = client.message[Kind.ALLOCATION]["counts"].tolist()
        rows = torch.cat([order[client.y[order] == c][:n] for c, n in enumerate(selected)])
        samples = {"images": pixels(client)[rows].cpu(), "labels": client.y[rows].cpu()}
        return Reply(message={Kind.SEED_SAMPLES: samples}, examples=len(client.y))


def quotas(counts: NDArray[np.int64], volume: float) -> NDArray[np.int64]:
    """[K, C] images that each client gives of each class; counts [K, C].

    A class gives its C-th part of volume * all examples, or all it has, and each client in proportion
    to what it has of it, rounded by largest remainders.
    """
    found, held = np.zeros_like(counts), counts.sum(dtype=np.float64)  # no sum of what clients claim is beyond it
    for c, have in enumerate(counts.T.astype(np.float64)):
        total = min(int(volume * held / counts.shape[1]), int(have.sum()))
        exact = total * have / max(1, have.sum())
        each = np.floor(exact).astype(np.int64)
        most = np.argsort(-(exact - each), kind="stable")[: max(0, total - int(each.sum()))]
        each[most] += 1
        found[:, c] = np.minimum(each, counts[:, c])
    return found
