"""Balancing: clients add images of their rare classes and then train the model in relays.

The base of GANDALF (sec. 3.3 and 3.4) and of static augmentation. Clients tell the server a noised
label distribution and a size; make images, from generators where the method has some (`offers`) and by
altering their own; tell what they hold then; and train in groups whose distributions together are
nearest to uniform (fl/families/grouping.py, fl/families/relaying.py). What they made stays with them. A run is a
sequence
of
phases, and a round belongs to one; only rounds of training are scored.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.fl.clients.client import Client, Reply, count_of
from fedaudit.fl.families import gan, generating
from fedaudit.fl.families.augmentation_plan import Solver, select_offers
from fedaudit.fl.families.grouping import complementary
from fedaudit.fl.families.relaying import Relaying, noise_stream
from fedaudit.fl.families.visit_noise import line_of, protect
from fedaudit.fl.federation import Federation, Tally
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import EVERYONE
from fedaudit.fl.model import State
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne, AtLeastZero, PositiveShare
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.wire.protection import Message


class Offered(NamedTuple):
    """A generator and what it was trained on, [C], as far as reports tell."""

    generator: State
    mix: NDArray[np.float64]


class Balancing(Relaying):
    """Subclasses say what they offer, and add phases in `left` with a function `run_PHASE` each."""

    @settings
    class Config(Relaying.Config):
        local_epochs: AtLeastZero = Field(default=3, description="E: passes of a client over its data in a visit")
        batch_size: AtLeastOne = Field(default=128, description="B: examples in a batch of local training")
        share: PositiveShare = Field(
            default=0.5,
            description="tau: share of the images that balance asks for which are really added; GANDALF "
            "takes 0.5 and 0.07",
        )

    def offers(self, t: int, state: Tree, federation: Federation) -> list[Offered]:
        """Generators that the server can hand out."""
        return []

    def labeler(self, state: Tree) -> State:
        """The model that labels their images; empty where they come with labels."""
        return {}

    def most_offers(self) -> int:
        """Generators that one client gets; 0: all."""
        return 0

    def plan(self) -> tuple[gan.GanConfig, float, Solver]:
        """Networks of the generators, tau, and how the plan is solved."""
        return gan.GanConfig(), float(self.config.share), "nnls"

    # The phases ---------------------------------------------------------------------------

    def run(self, federation: Federation) -> State:
        saved = federation.restore()
        self.open(federation)
        if saved is None:  # clients join, and say what they hold
            federation.wire.records.mark_milestone(0)
        state: Tree = self.start(federation) if saved is None else saved.state
        memory: dict[int, Tree] = {} if saved is None else saved.memory
        t = 0 if saved is None else saved.round
        while phase := next((p for p, n in self.count_rounds_left(state).items() if n), None):
            if self.count_rounds_left(state)[phase] == 1:
                federation.wire.records.mark_milestone(t)
            state = getattr(self, f"run_{phase}")(t, state, memory, federation)
            federation.tally.notes["phase"] = phase
            model = state["model"] if phase == "train" else {}
            federation.end_round(t, t + 1 + sum(self.count_rounds_left(state).values()), model, state, memory)
            t += 1
        return federation.finish(t, self.card, state["model"], state, memory)

    def count_rounds_left(self, state: Tree) -> dict[str, int]:
        """Rounds left of each phase, at most, in the order of the phases."""
        done = state["done"]
        return {"augment": 1 - done["augment"], "train": self.config.rounds - done["train"]}

    def start(self, federation: Federation) -> Tree:
        """Everybody with data joins: label distributions and sizes to the server."""
        members = federation.members
        state: Tree = {
            "model": federation.initial,
            "clock": 0.0,
            "completed": {},
            "done": {"augment": 0, "train": 0},
        }
        return state | self._collect_counts(0, "join", members, {}, {}, federation)

    def _collect_counts(
        self,
        t: int,
        work: str,
        members: list[int],
        personal: Mapping[int, Message],
        memory: dict[int, Tree],
        federation: Federation,
    ) -> Tree:
        """What the members say of their data now, and the groups for training that follow from it."""
        jobs = [(work, (k, memory.get(k, {}), personal.get(k, {}))) for k in members]
        joined, rows, sizes = list[int](), [], {}
        for k, reply in zip(members, federation.workers.map("work", jobs), strict=True):
            kinds = [Kind.NOISED_LABEL_DIST]
            heard = federation.wire.uplink(t, reply.message, k, {}, settled=self.list_protected_kinds(kinds))
            if heard is None:
                continue  # rejected: it takes no part
            joined.append(k)
            line = line_of(
                kinds[0],
                t,
                k,
                self.config.noise,
                EVERYONE,
                f"{noise_stream(kinds[0], int(work != 'join'))}/{t}/{k}",
            )
            if line is not None:
                federation.wire.accounts.enter(line)
            if reply.memory is not None:
                memory[k] = reply.memory
            rows.append(heard[kinds[0]]["counts"])
            size = heard.get(Kind.NUM_EXAMPLES)
            sizes[str(k)] = 1.0 if size is None else float(size["count"])
        if members and not joined:
            raise UserError(
                "the server rejected what all clients say that they hold, and none is left to train",
                hint="have fewer malicious clients",
            )
        mixes = torch.stack(rows) if rows else torch.zeros(0, self.classes)
        groups = complementary(mixes.numpy(), tuple(sizes.values()), self.config.mediators)
        return {
            "members": joined,
            "mixes": mixes,
            "sizes": sizes,
            "groups": [[joined[i] for i in g] for g in groups],
        }

    def run_augment(self, t: int, state: Tree, memory: dict[int, Tree], federation: Federation) -> Tree:
        """Generators to the server and on to the clients, who say what they hold afterwards."""
        offers = self.offers(t, state, federation)
        given: dict[int, Message] = {}
        for i, k in enumerate(state["members"]):
            if offers:
                most, mixes = self.most_offers() or len(offers), np.stack([o.mix for o in offers])
                chosen = select_offers(state["mixes"][i].double().numpy(), mixes, most)
                given[k] = {
                    Kind.GAN_G: {
                        f"{n}/{p}": v for n, j in enumerate(chosen) for p, v in offers[j].generator.items()
                    },
                    Kind.NOISED_LABEL_DIST: {"counts": torch.from_numpy(mixes[chosen]).float()},
                }
                federation.wire.downlink(t, given[k], k)
        common: Message = {}
        if offers and (labeler := self.labeler(state)):
            common = {Kind.GLOBAL_MODEL: labeler}
            federation.wire.broadcast(t, common, state["members"])
        federation.workers.everywhere("begin", t, common)
        federation.tally = Tally(selected=len(state["members"]))
        sent = self._collect_counts(t, "augment", state["members"], given, memory, federation)
        federation.tally.delivered = len(state["members"])
        added = sum(len(m["y"]) for m in memory.values() if "y" in m)
        federation.tally.notes = {"images_added": added}
        return state | sent | {"done": state["done"] | {"augment": 1}}

    def run_train(self, t: int, state: Tree, memory: dict[int, Tree], federation: Federation) -> Tree:
        sizes, done = number_clients(state["sizes"]), state["done"]
        if not done["train"]:  # a labeler that was trained before is another model
            federation.wire.records.note_restart()
        model, entries = self.averaged_round(t, state["model"], state["groups"], sizes, state, memory, federation)
        return state | entries | {"model": model, "done": done | {"train": done["train"] + 1}}

    # Clients -----------------------------------------------------------------------------

    def receive(self, client: Client) -> Client:
        return generating.join_memory(super().receive(client), client.memory)

    def join(self, client: Client, turn: int = 0) -> Reply:
        """Label distribution, noised, and size."""
        n, kind = len(client.y), Kind.NOISED_LABEL_DIST
        counts = {"counts": (client.counts / n).float().cpu()}
        noise = client.noise(noise_stream(kind, turn))
        line = line_of(kind, client.round, client.index, self.config.noise, EVERYONE)
        message: Message = {kind: protect(kind, counts, {}, self.config.noise, noise, line)}
        if self.config.weighting == "samples":
            message[Kind.NUM_EXAMPLES] = count_of(n)
        return Reply(message=message, examples=n)

    def augment(self, client: Client) -> Reply:
        """Make the images of phase 2 and say what the client holds with them."""
        sent = client.message
        payload = sent.get(Kind.GAN_G, {})
        mixes = sent[Kind.NOISED_LABEL_DIST]["counts"].cpu().double().numpy() if payload else None
        generators = [
            {k.partition("/")[2]: v for k, v in payload.items() if k.startswith(f"{j}/")}
            for j in range(0 if mixes is None else len(mixes))
        ]
        none = np.zeros((0, client.classes))
        offer = generating.Offer(generators, none if mixes is None else mixes, sent.get(Kind.GLOBAL_MODEL, {}))
        more = generating.balance_classes(client, offer, *self.plan())
        joined = self.join(generating.join_memory(client, more), turn=1)
        return Reply(message=joined.message, examples=joined.examples, memory=more)


def number_clients(named: Mapping[str, Any]) -> dict[int, Any]:
    return {int(k): v for k, v in named.items()}
