"""GANDALF, and what it is with one group of clients for all generators, or one group a client."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.families import gan as wgan
from fedaudit.fl.families import generating
from fedaudit.fl.families.augmentation_plan import Solver, targets
from fedaudit.fl.families.balancing import Balancing, Offered, number_clients
from fedaudit.fl.families.grouping import similar
from fedaudit.fl.families.relay import Task
from fedaudit.fl.federation import Federation, Tally
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card
from fedaudit.fl.model import State
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne, AtLeastZero
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.wire.protection import Message
from fedaudit.fl.wire.watched import MeasuredValues

PLUGINS = ("gandalf", "private_fl_gan", "sda_fl")
_SETTLED, _LOOK_BACK = 0.2, 10  # of the losses; visits


class Gandalf(Balancing):
    """GANDALF: generators trained in groups balance the clients' data; groups then train the model in turn.

    GANDALF, Algorithms 1 and 2 (no public identifier at hand). Clients send noised label distributions and
    sizes, then

    1. clients of similar distributions (k-means) pass a WGAN-GP around, generator and critic, cycle by
       cycle, until both losses stay: |now - 10 visits ago| / 10 <= 0.2 (the paper's code);
    2. each client gets the generators that differ most from its own distribution, makes as many images as
       the plan of fl/families/augmentation_plan.py asks for and labels them; they stay with it;
    3. clients of complementary distributions train the model in relays (fl/families/relaying.py), after faults
       of their own (fl/families/relay.py), and the server averages the groups.

    The generators are unconditional, and how their images get labels is the paper's open question. `fedavg`
    labels with a model that the same clients train by FedAvg first; `oracle` with one trained on everybody's
    pooled data, which no federation has: an advantage and a leak, for comparison only; `conditional` trains
    conditional networks instead. `augmentation: real` gives a client other clients' own images, with their
    labels, in place of generated ones (the paper's Fig. 5), and nothing is sent: a leak as well, and an audit of
    such a run takes them for their owners' alone. `none` leaves the relays. Noise is added to all weights handed
    on (fl/families/visit_noise.py has both modes).

    Who sees what: the next client reads generator and critic of its predecessor alone, the server all
    generators, distributions and sizes, and every client the generators it is given. Without augmentation,
    with as many mediators as clients and without noise, this is FedAvg, bit for bit. Mediators hear losses
    through the server here. Phase 2 has everybody answer. Noise mode `accounted` sends no losses and, with
    weighting `uniform`, no sizes, so that nothing spoils its bound.
    """

    card = Card(
        title="GANDALF",
        needs="classes",
        source="GANDALF, Alg. 1 and 2",
        text="Groups of clients hand an image generator round, fill their rare classes with what it "
        "makes, and then train the model one after the other.",
        downlink=(Kind.GLOBAL_MODEL, Kind.GAN_G, Kind.GAN_D, Kind.NOISED_LABEL_DIST, Kind.GROUP_MAP),
        uplink=(Kind.LOCAL_MODEL, Kind.NUM_EXAMPLES, Kind.NOISED_LABEL_DIST, Kind.GAN_G, Kind.LOCAL_LOSS),
        relay=(Kind.RELAY_MODEL, Kind.GAN_G, Kind.GAN_D),
        counts_made=True,
        collects=False,
    )

    @settings
    class Config(Balancing.Config):
        augmentation: Literal["gan", "real", "static", "none"] = Field(
            default="gan",
            description="where additional images come from: generators, other clients as they are, altered "
            "copies, or none",
        )
        groups: AtLeastZero = Field(
            default=2,
            description="M_g: groups of similar clients with a generator each; 0 gives every client its own",
        )
        gan: wgan.GanConfig = Field(default_factory=wgan.GanConfig, description="generators and their training")
        generators: AtLeastZero = Field(
            default=0, description="J: generators that a client is given; 0 means all"
        )
        solver: Solver = Field(
            default="nnls",
            description="how the numbers of images are solved for: without negative ones, or by the "
            "pseudo-inverse",
        )
        labeler: Literal["fedavg", "oracle", "conditional"] = Field(
            default="fedavg",
            description="who labels generated images: a model trained by FedAvg, one trained on everybody's "
            "data, or the generator",
        )
        labeler_rounds: AtLeastOne = Field(default=10, description="rounds of FedAvg that train the labeler")

    # Server and mediators ----------------------------------------------------------------

    def count_rounds_left(self, state: Tree) -> dict[str, int]:
        c, done = self.config, state["done"]
        gans = c.augmentation == "gan"
        labels = 1 if c.labeler == "oracle" else c.labeler_rounds
        labels *= gans and c.labeler != "conditional"
        first = {"gan": c.gan.cycles * gans - done["gan"], "label": labels - done["label"]}
        rest = super().count_rounds_left(state)
        return first | (rest | {"augment": 0} if c.augmentation == "none" else rest)

    def start(self, federation: Federation) -> Tree:
        """As ever; then groups of similar clients and their generators."""
        shape = federation.public.shape
        if self.config.augmentation == "real" and len(shape) != 3:
            raise UserError(
                f"method.augmentation: real lends images, and the data have none: {list(shape)}",
                hint="use a data set of images, or augmentation: none",
            )
        state = super().start(federation)
        members, rng = state["members"], federation.streams.numpy("similar")
        groups = similar(state["mixes"].numpy(), self.config.groups or len(members), rng)
        state |= {
            "similar": [[members[i] for i in g] for g in groups],
            "pairs": {},
            "losses": {},
            "labeler": state["model"],
            "done": state["done"] | {"gan": 0, "label": 0},
        }
        if self.config.augmentation == "gan":
            placed = [[k, g] for g, group in enumerate(state["similar"]) for k in group]
            who, where = torch.tensor(placed, dtype=torch.int64).reshape(-1, 2).T.contiguous()
            neighbours: Message = {Kind.GROUP_MAP: {"client": who, "group": where}}
            federation.wire.broadcast(0, neighbours, members)  # who is next, for those who hand on
            classes = self._count_gan_classes()
            for g in range(len(groups)):
                rng_g = federation.streams.torch("gan", g)
                state["pairs"][str(g)] = _pack_pair(wgan.initial(shape, self.config.gan, rng_g, classes), -1)
        return state

    def run_gan(self, t: int, state: Tree, memory: dict[int, Tree], federation: Federation) -> Tree:
        """One cycle: every group that has not converged passes its pair along its clients once."""
        active = [g for g in range(len(state["similar"])) if not self._reaches_convergence(state, g)]
        relays, tally, entries = self.schedule(t, [state["similar"][g] for g in active], state, federation)
        pairs, losses = dict(state["pairs"]), dict(state["losses"])

        def make_first_message(i: int, task: Task, step: int) -> Message:
            own = pairs[str(active[i])]
            message: Message = {Kind.GAN_G: own["generator"], Kind.GAN_D: own["critic"]}
            if step or own["holder"] < 0:  # from the mediator, who keeps what a cycle starts with
                federation.wire.downlink(t, message, task.client)
            elif own["holder"] != task.client:
                settled = self.list_protected_kinds(message)
                return (
                    federation.wire.relay(t, message, own["holder"], task.client, active[i], settled) or message
                )
            return message

        outcomes = self.pass_around(t, "visit_gan", relays, make_first_message, memory, federation, tally)
        for g, outcome in zip(active, outcomes, strict=True):
            if outcome.contributors:
                made = outcome.content
                pairs[str(g)] = _pack_pair(wgan.GanPair(made[Kind.GAN_G], made[Kind.GAN_D]), outcome.sender)
                both = [[r.stats["critic_loss"], r.stats["generator_loss"]] for r in outcome.replies]
                losses[str(g)] = self._select_recent_losses([*losses.get(str(g), []), *both])
                tally.delivered += 1
                tally.measure(outcome.mean_stats())
        federation.tally = tally
        return self._finish_cycle(state | entries | {"pairs": pairs, "losses": losses})

    def _finish_cycle(self, state: Tree) -> Tree:
        """The state after a cycle; no cycle is left where every group has converged."""
        done = state["done"] | {"gan": state["done"]["gan"] + 1}
        after = state | {"done": done}
        if all(self._reaches_convergence(after, g) for g in range(len(state["similar"]))):
            after["done"] = done | {"gan": self.config.gan.cycles}
        return after

    def _select_recent_losses(self, losses: list[list[float]]) -> list[list[float]]:
        """As many losses of visits, critic's and generator's, as convergence looks back."""
        return losses[-_LOOK_BACK - 1 :]

    def _uses_losses(self) -> bool:
        c = self.config
        return c.gan.least_cycles < c.gan.cycles and not c.noise.clips

    def _reaches_convergence(self, state: Tree, g: int) -> bool:
        found = state["losses"].get(str(g), [])
        if not self._uses_losses() or len(found) <= _LOOK_BACK:
            return False
        change = np.abs(np.subtract(found[-1], found[0])) / _LOOK_BACK
        return bool(state["done"]["gan"] >= self.config.gan.least_cycles and (change <= _SETTLED).all())

    def run_label(self, t: int, state: Tree, memory: dict[int, Tree], federation: Federation) -> Tree:
        """A round of FedAvg for the labeler; or, of the oracle, all of its training."""
        model, done = state["labeler"], state["done"]["label"]
        entries: Tree = {}
        if self.config.labeler == "oracle":
            everyone = np.concatenate([federation.parts[k] for k in state["members"]])
            federation.wire.records.note_pooling(state["members"])
            for i in range(self.config.labeler_rounds):
                [reply] = federation.workers.map("work_on_rows", [("pool", i, model, everyone)])
                model = reply.message[Kind.LOCAL_MODEL]
            federation.tally = Tally(examples=reply.examples, stats=MeasuredValues(reply.stats))
        else:
            alone, sizes = [[k] for k in state["members"]], number_clients(state["sizes"])
            model, entries = self.averaged_round(t, model, alone, sizes, state, memory, federation)
        return state | entries | {"labeler": model, "done": state["done"] | {"label": done + 1}}

    def offers(self, t: int, state: Tree, federation: Federation) -> list[Offered]:
        """The generators, which the last client of each group sends to the server."""
        found = []
        for g, own in sorted(state["pairs"].items(), key=lambda item: int(item[0])):
            up: Message = {Kind.GAN_G: own["generator"]}
            if own["holder"] >= 0 and (
                heard := federation.wire.uplink(t, up, own["holder"], {}, settled=self.list_protected_kinds(up))
            ):
                mix = self._mix_distributions(state, state["similar"][int(g)])
                found.append(Offered(heard[Kind.GAN_G], mix))
        return found

    def run_train(self, t: int, state: Tree, memory: dict[int, Tree], federation: Federation) -> Tree:
        after = super().run_train(t, state, memory, federation)
        if self.config.augmentation == "real":
            federation.wire.records.note_pooling(state["members"])
        return after

    def run_augment(self, t: int, state: Tree, memory: dict[int, Tree], federation: Federation) -> Tree:
        """As ever; then the generators have done their work, and checkpoints need not hold them."""
        if self.config.augmentation == "real":
            memory |= {k: self._draw_lent(k, state["members"], federation) for k in state["members"]}
        after = super().run_augment(t, state, memory, federation)
        return after | {"pairs": {}, "labeler": {}, "losses": {}}

    def _draw_lent(self, client: int, members: list[int], federation: Federation) -> Tree:
        """Random images of others, as many as it lacks or as there are: {"x": uint8 [m, C, H, W], "y": [m]}."""
        train, own = federation.read_examples(), federation.parts[client]
        others = np.setdiff1d(np.concatenate([federation.parts[k] for k in members]), own)
        order = federation.streams.numpy("lent", client).permutation(others)
        counts = np.bincount(train.y[own], minlength=self.classes).astype(np.float64)
        wanted = targets(counts, self.config.share)
        rows = np.concatenate([order[train.y[order] == c][:n] for c, n in enumerate(wanted)])
        images = torch.from_numpy(train.x[rows] * 255).round().to(torch.uint8)
        return {"x": images, "y": torch.from_numpy(train.y[rows])}

    def labeler(self, state: Tree) -> State:
        found: State = {} if self.config.labeler == "conditional" else state["labeler"]
        return found

    def most_offers(self) -> int:
        return int(self.config.generators)

    def plan(self) -> tuple[wgan.GanConfig, float, Solver]:
        return self.config.gan, self.config.share, self.config.solver

    def _mix_distributions(self, state: Tree, group: list[int]) -> NDArray[Any]:
        """[C] what a group's generator was trained on, as reported: its size-weighted distribution."""
        rows = [state["members"].index(k) for k in group]
        weights = np.array([state["sizes"][str(k)] for k in group])
        return np.asarray(weights @ state["mixes"][rows].double().numpy() / weights.sum())

    # Clients -----------------------------------------------------------------------------

    def _count_gan_classes(self) -> int:
        return self.classes if self.config.labeler == "conditional" else 0

    def augment(self, client: Client) -> Reply:
        if self.config.augmentation != "real":
            return super().augment(client)
        joined = self.join(client, turn=1)  # what it was lent is in its memory, and among its examples
        return Reply(message=joined.message, examples=joined.examples, memory=client.memory)

    def visit_gan(self, client: Client) -> Reply:
        """Train generator and critic that were handed on."""
        sent, turn = client.message, int(client.message[Kind.TRAIN_ORDER]["visit"])
        pair = wgan.GanPair(sent[Kind.GAN_G], sent[Kind.GAN_D])
        found = generating.visit(client, pair, self.config.gan, turn, bool(self._count_gan_classes()))
        message = self.hand_on(client, {Kind.GAN_G: found.pair.generator, Kind.GAN_D: found.pair.critic})
        if self._uses_losses():
            losses = [found.critic_loss, found.generator_loss]
            message[Kind.LOCAL_LOSS] = {"loss": torch.tensor(losses)}
        stats = {"critic_loss": found.critic_loss, "generator_loss": found.generator_loss}
        return Reply(message=message, examples=len(client.y), stats=stats)

    def pool(self, everybody: Client) -> Reply:
        """The oracle's training, on everybody's data."""
        return self.finish(everybody, everybody.train(self, {}))


def _pack_pair(pair: wgan.GanPair, holder: int) -> Tree:
    return {"generator": pair.generator, "critic": pair.critic, "holder": holder}


class PrivateFLGAN(Gandalf):
    """Private FL-GAN: one generator, which all clients train one after the other.

    Xin, Yang, Geng, Chen, Wang, Huang. Private FL-GAN: Differential Privacy Synthetic Data Generation Based
    on Federated Learning. ICASSP 2020; as GANDALF compares it (sec. 4): its phase 1 with one group, and
    phases 2 and 3 unchanged, so it is GANDALF with `groups: 1`.

    Left out: the original's noise within each training step (its DP-SGD on the critic).
    """

    card = replace(
        Gandalf.card,
        title="Private FL-GAN",
        source="ICASSP 2020; GANDALF, sec. 4",
        text="All clients hand one image generator round, fill their rare classes with what it makes, "
        "and then train the model one after the other.",
    )

    @settings
    class Config(Gandalf.Config):
        groups: Literal[1] = Field(default=1, description="one generator that all clients train")


class SDAFL(Gandalf):
    """SDA-FL: every client trains a generator of its own and shares it.

    Li, Shao, Mao, Wang, Zhang. Federated Learning with GAN-based Data Synthesis for Non-IID Clients. 2022.
    arXiv:2206.05507; as GANDALF compares it (sec. 4): its phase 1 with every client alone, and phases 2 and 3
    unchanged. Generators cross no client's hands on their way to the server, but each of them was trained
    on the images of a single client, and everybody gets it.

    Left out: the original's pseudo-labels by the server.
    """

    card = replace(
        Gandalf.card,
        title="SDA-FL",
        source="arXiv:2206.05507; GANDALF, sec. 4",
        text="Every client trains an image generator on its own images and gives it to all others, "
        "who fill their rare classes with what it makes.",
    )

    @settings
    class Config(Gandalf.Config):
        groups: Literal[0] = Field(default=0, description="every client trains a generator of its own")
