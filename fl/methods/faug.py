"""FAug: the server trains an image generator on a few images that clients give it.

Jeong, Oh, Kim, Park, Bennis, Kim. Communication-Efficient On-Device Machine Learning: Federated
Distillation and Augmentation under Non-IID Private Data. 2018. arXiv:1811.11479, federated augmentation.
Before the rounds each client sends `seeds` images of each of its scarce classes, and as many of `decoys`
others, so that the server cannot tell which are scarce. The server enlarges what it got, trains a
conditional generator on it (fl/families/gan.py) and hands that to everybody; each client fills its classes up,
share = 1 to the size of its largest,

    floor(share * (max n - n_c)) images of class c,

and what it made stays with it. Then FedAvg. No seeds: FedAvg, bit for bit.

Raw images leave the device by design. Decoys hide which classes are scarce, not the images; and a
class of fewer than `seeds` images sends all it has, which gives it away. Clients without scarce classes
send decoys all the same.

Changed: the paper enlarges by an image search and does not say what is scarce. Here seeds are turned and
shifted, `enlarged` images of each class; and a class is scarce below `scarce` times the client's
largest. The generator, a WGAN-GP, is trained for all of gan.cycles times gan.local without asking whether
it has converged. A class that nobody sent cannot be made, and the server says which can.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.fl.clients.client import Client, Reply, count_of
from fedaudit.fl.families import augmentation_plan as plans
from fedaudit.fl.families import gan as wgan
from fedaudit.fl.families.balancing import Balancing
from fedaudit.fl.families.generating import join_memory, pixels
from fedaudit.fl.families.visit_noise import NoiseConfig, no_noise
from fedaudit.fl.federation import Federation, Tally
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card
from fedaudit.fl.runtime.ranges import AtLeastOne, AtLeastZero, PositiveShare, Share
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.wire.protection import Message


class FAug(Balancing):
    card = Card(
        title="FAug",
        needs="classes",
        source="arXiv:1811.11479",
        text="Clients give the server some images of their rare classes; it trains an image generator "
        "on them, with which everybody fills up rare classes before ordinary federated training.",
        downlink=(Kind.GLOBAL_MODEL, Kind.GAN_G, Kind.ALLOCATION),
        uplink=(Kind.LOCAL_MODEL, Kind.NUM_EXAMPLES, Kind.SEED_SAMPLES),
        relay=(Kind.RELAY_MODEL,),  # between a client and itself: never sent
        counts_made=True,
        collects=False,
    )

    @settings
    class Config(Balancing.Config):
        share: PositiveShare = Field(
            default=1.0, description="share of the gap to its largest class that a client fills up"
        )
        noise: NoiseConfig = Field(
            default_factory=no_noise, description="noise on what clients hand on; none by default"
        )
        seeds: AtLeastZero = Field(default=5, description="images of a class that a client sends; 0 is FedAvg")
        scarce: Share = Field(
            default=0.5,
            description="a class below this share of the client's largest is scarce; 0 calls none scarce, 1 "
            "all others",
        )
        decoys: AtLeastZero = Field(default=1, description="classes sent besides that are not scarce")
        enlarged: AtLeastOne = Field(
            default=100, description="images of each class that the server makes of the seeds"
        )
        gan: wgan.GanConfig = Field(
            default_factory=wgan.GanConfig, description="the generator that the server trains"
        )

    # Server ------------------------------------------------------------------------------

    def count_rounds_left(self, state: Tree) -> dict[str, int]:
        done = state["done"]
        return {"seed": int(self.config.seeds > 0) - done["seed"], "train": self.config.rounds - done["train"]}

    def start(self, federation: Federation) -> Tree:
        members = federation.members
        federation.workers.everywhere("begin", 0, {})
        sizes = {str(k): _read_size(heard) for k, heard, _ in self._ask("count", 0, members, federation)}
        return {
            "model": federation.initial,
            "clock": 0.0,
            "completed": {},
            "sizes": sizes,
            "members": members,
            "groups": [[k] for k in members],
            "done": {"seed": 0, "train": 0},
        }

    def run_seed(self, t: int, state: Tree, memory: dict[int, Tree], federation: Federation) -> Tree:
        """Images to the server, a generator of such to everybody."""
        members, sizes = state["members"], dict(state["sizes"])
        federation.workers.everywhere("begin", t, {})
        selected = self._ask("contribute", t, members, federation)
        seeds = [heard[Kind.SEED_SAMPLES] for _, heard, _ in selected if heard]
        if seeds:
            x, y = (torch.cat([s[name] for s in seeds]) for name in ("images", "labels"))
            [made] = federation.workers.map("work_on_examples", [("generator", t, {}, x, y)])
            present = (torch.bincount(y, minlength=self.classes) > 0).long()
            message = made.message | {Kind.ALLOCATION: {"present": present}}
            federation.wire.broadcast(t, message, members)
            federation.workers.everywhere("begin", t, message)
            for k, heard, reply in self._ask("fill", t, members, federation):
                sizes[str(k)], memory[k] = _read_size(heard), reply.memory or {}
        federation.tally = Tally(
            selected=len(members),
            delivered=len(seeds),
            notes={
                "images_shared": sum(len(s["labels"]) for s in seeds),
                "images_added": sum(len(m["y"]) for m in memory.values()),
            },
        )
        return state | {"sizes": sizes, "done": state["done"] | {"seed": 1}}

    def _ask(
        self, work: str, t: int, members: Sequence[int], federation: Federation
    ) -> Iterator[tuple[int, Message, Reply]]:
        """What members answer: client, what the server reads of it, all of it."""
        jobs: list[tuple[str, tuple[int, Tree, Message]]] = [(work, (k, {}, {})) for k in members]
        for k, reply in zip(members, federation.workers.map("work", jobs), strict=True):
            heard = federation.wire.uplink(t, reply.message, k, {}) if reply.message else {}
            if heard is not None:
                yield k, heard, reply

    def generator(self, server: Client) -> Reply:
        """A conditional generator, trained on seeds [n, C, H, W] in [0, 1] and copies of them."""
        config, rng = self.config.gan, server.generator("gan")
        x, y = enlarge_classes(server.x.clamp(0, 1), server.y, self.config.enlarged, rng)
        pair = wgan.initial(tuple(x.shape[1:]), config, rng, server.classes)
        whole = replace(config, local=config.cycles * config.local)
        found = wgan.train(pair, 2 * x - 1, y, whole, rng, server.classes)
        return Reply(message={Kind.GAN_G: found.pair.generator}, examples=len(y))

    # Clients -----------------------------------------------------------------------------

    def count(self, client: Client) -> Reply:
        n = len(client.y)
        message = {Kind.NUM_EXAMPLES: count_of(n)} if self.config.weighting == "samples" else {}
        return Reply(message=message, examples=n)

    def contribute(self, client: Client) -> Reply:
        """Random images of scarce classes and of decoys, class by class."""
        rng, counts = client.generator("seeds"), client.counts.tolist()
        rare = scarce(counts, self.config.scarce)
        others = torch.tensor([c for c, n in enumerate(counts) if n and c not in rare])
        decoys = others[torch.randperm(len(others), generator=rng)[: self.config.decoys]].tolist()
        order = torch.randperm(len(client.y), generator=rng).to(client.y.device)
        rows = [order[client.y[order] == c][: self.config.seeds] for c in sorted([*rare, *decoys])]
        message: Message = {}
        if rows:
            sent = torch.cat(rows)
            samples = {"images": pixels(client)[sent].cpu(), "labels": client.y[sent].cpu()}
            message[Kind.SEED_SAMPLES] = samples
        return Reply(message=message, examples=len(client.y))

    def fill(self, client: Client) -> Reply:
        """Make the images that are missing, and tell how many examples there are now."""
        counts = client.counts.cpu()
        target = torch.tensor(plans.targets(counts.double().numpy(), self.config.share))
        present = client.message[Kind.ALLOCATION]["present"].cpu()
        y = torch.arange(client.classes).repeat_interleave(target * present)
        generator = {k: v.cpu() for k, v in client.message[Kind.GAN_G].items()}
        x = wgan.sample(
            generator,
            tuple(client.x.shape[1:]),
            len(y),
            self.config.gan,
            client.generator("latent"),
            y,
            client.classes,
        )
        made: Tree = {"x": (x * 255).round().to(torch.uint8), "y": y}
        return replace(self.count(join_memory(client, made)), memory=made)


def _read_size(heard: Message) -> float:
    claimed = heard.get(Kind.NUM_EXAMPLES)
    return 1.0 if claimed is None else float(claimed["count"])


def scarce(counts: Sequence[int], below: float) -> list[int]:
    """Classes that are there, with fewer than `below` times the examples of the largest; counts [C]."""
    return [c for c, n in enumerate(counts) if 0 < n < below * max(counts)]


def enlarge_classes(x: Tensor, y: Tensor, most: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Images [n, C, H, W] and labels, with altered copies up to `most` of each class that is there."""
    images, labels = [x], [y]
    for c in sorted(set(y.tolist())):
        rows = torch.nonzero(y == c)[:, 0]
        extra = max(0, most - len(rows))
        again = rows.repeat(-(-extra // len(rows)))[:extra]
        images.append(plans.alter_images(x[again], rng))
        labels.append(y[again])
    return torch.cat(images), torch.cat(labels)
