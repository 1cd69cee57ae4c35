"""Split learning and SplitFed: the first layers are the clients', the others the server's.

Vepakomma, Gupta, Swedish, Raskar. Split learning for health. arXiv:1812.00564. Thapa, Chamikara, Camtepe, Sun.
SplitFed. AAAI 2022, arXiv:2004.12088, Algorithms 1 to 3. fl/families/splitting.py has the exchange. With a the
clients' part and b the server's, in a round

    split_learning  clients in turn; a is handed from each to the next, one b
    split_u_shape   the same, and clients hold the last layer and their labels as well
    splitfed_v1     each client begins with the same a and a copy of b; both are averaged
    splitfed_v2     clients in turn train one b; each begins with the same a, and only a is averaged

So SplitFed v1 is FedAvg, whatever the cut, and split learning of one client is FedAvg of one client, which is
training in one place. In SplitFed one party here averages a and trains b, where the paper has two that are not
to collude. Two departures of the code of SplitFed's authors are settings (`server_optimiser: batch`: its server
makes its optimiser anew for every batch; `weighting: uniform`, where the paper weights by numbers of examples),
and one is left out: activations and labels of test examples cross as well there.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field

from fedaudit.fl.clients.delivery import Deliveries, Delivery, read_sample_count
from fedaudit.fl.families.splitting import Splitting, SplitVisit
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card
from fedaudit.fl.model import State
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.wire.protection import Message

PLUGINS = ("split_learning", "split_u_shape", "splitfed_v1", "splitfed_v2")


class SplitLearning(Splitting):
    """Split learning: clients train one network with the server in turn, each with its first layers."""

    trained_kind = Kind.RELAY_MODEL
    card = Card(
        title="Split learning",
        needs="classes",
        source="arXiv:1812.00564",
        text="Clients run the first layers of the model and the server the others; for every batch the server is "
        "sent what the first layers make of it, with the labels. Clients take turns and hand their layers on.",
        downlink=(Kind.SMASHED_GRADIENT,),
        uplink=(Kind.SMASHED,),
        relay=(Kind.RELAY_MODEL,),
        collects=False,
    )

    @settings
    class Config(Splitting.Config):
        order: Literal["numbers", "random"] = Field(
            default="numbers", description="in which order clients take turns: by their numbers, or drawn anew"
        )

    def start(self, federation: Federation) -> Tree:
        return {"model": federation.initial, "holder": -1}

    def run_visits(
        self, t: int, clients: Sequence[int], selected: Sequence[int], state: Tree, federation: Federation
    ) -> Tree:
        federation.workers.everywhere("begin", t, {})
        a, b = self.pick_client_part(state["model"]), self.pick_server_part(state)
        holder = state["holder"]
        for k in order_turns(self.config.order, t, clients, federation):
            given: Message = {Kind.RELAY_MODEL: a}
            if holder not in (-1, k):  # it still has what it made, and everybody has the first
                given = federation.wire.relay(t, given, holder, k) or given
            for visit in self.carry(t, [SplitVisit(k, given, b)], federation):
                assert visit.reply is not None
                a, b, holder = visit.reply.message[Kind.RELAY_MODEL], visit.weights, k
                federation.wire.records.note_pooling([k])  # its batches have moved the server's part
                self.close(t, visit, {}, federation)
        return self.join_parts(state, a | b) | {"holder": holder}


class SplitUShape(SplitLearning):
    """U-shaped split learning: clients hold the last layer as well, and keep their labels."""

    keeps_head = True
    card = Card(
        title="U-shaped split learning",
        needs="classes",
        source="arXiv:1812.00564, fig. 2",
        text="Clients run the first layers of the model and the last one, and the server those between; labels "
        "stay with the clients. Clients take turns and hand their layers on.",
        downlink=(Kind.SMASHED, Kind.SMASHED_GRADIENT),
        uplink=(Kind.SMASHED, Kind.SMASHED_GRADIENT),
        relay=(Kind.RELAY_MODEL,),
        collects=False,
    )


class SplitfedV1(Splitting):
    """SplitFed v1: each client trains with a copy of the server's part; both parts are averaged."""

    copies_server = True
    card = Card(
        title="SplitFed v1",
        needs="classes",
        source="arXiv:2004.12088, Alg. 1 and 2",
        text="Clients run the first layers of the model and the server the others, with a copy for each client; "
        "after a round both are averaged.",
        downlink=(Kind.GLOBAL_MODEL, Kind.SMASHED_GRADIENT),
        uplink=(Kind.SMASHED, Kind.LOCAL_MODEL, Kind.NUM_EXAMPLES),
        collects=False,
    )

    def run_visits(
        self, t: int, clients: Sequence[int], selected: Sequence[int], state: Tree, federation: Federation
    ) -> Tree:
        model = state["model"]
        given = self._hand_out(t, model, selected, federation)
        b = self.pick_server_part(state)
        visits = self.carry(t, [SplitVisit(k, given, b) for k in clients], federation)
        return self._average(t, visits, model, {v.client: v.weights for v in visits}, state, federation)

    def _hand_out(self, t: int, model: State, selected: Sequence[int], federation: Federation) -> Message:
        message = federation.wire.broadcast(t, {Kind.GLOBAL_MODEL: self.pick_client_part(model)}, selected)
        federation.workers.everywhere("begin", t, message)
        return {}  # what everybody was sent is with the workers

    def _average(
        self,
        t: int,
        visits: Sequence[SplitVisit],
        start: State,
        beside: dict[int, State],
        state: Tree,
        federation: Federation,
    ) -> Tree:
        """The state after clients' parts, each with what the server has `beside` it, became one by the rule."""
        averages = federation.averages(t, state, self.parameters, self.head)
        received: Message = {Kind.GLOBAL_MODEL: self.pick_client_part(start)}
        arrived = list[Delivery]()
        for visit in visits:
            assert visit.reply is not None
            sent = federation.wire.uplink(t, visit.reply.message, visit.client, received)
            if sent is None:
                federation.tally.rejected += 1
                continue
            n = read_sample_count(sent, visit.reply.examples)
            part = sent[Kind.LOCAL_MODEL] | beside[visit.client]
            whole = {k: part[k] for k in start if k in part}
            arrived.append(Delivery(client=visit.client, message={Kind.LOCAL_MODEL: whole}, examples=n))
            self.close(t, visit, sent, federation)
        if not arrived:
            return state
        averaged = {k: start[k] for k in arrived[0].message[Kind.LOCAL_MODEL]}
        mean = Deliveries(arrived, averages).average_models(averaged, self.config.weighting)
        federation.tally.note(averages)
        return {"model": start | mean, **averages.entries()}


class SplitfedV2(SplitfedV1):
    """SplitFed v2: clients train one server's part in turn; only the clients' parts are averaged."""

    copies_server = False
    card = Card(
        title="SplitFed v2",
        needs="classes",
        source="arXiv:2004.12088, sec. 3",
        text="Clients run the first layers of the model and the server the others; clients take turns with one "
        "server's part, and their own parts are averaged after a round.",
        downlink=SplitfedV1.card.downlink,
        uplink=SplitfedV1.card.uplink,
        collects=False,
    )

    @settings
    class Config(Splitting.Config):
        order: Literal["numbers", "random"] = Field(
            default="random", description="in which order clients take turns: by their numbers, or drawn anew"
        )

    def run_visits(
        self, t: int, clients: Sequence[int], selected: Sequence[int], state: Tree, federation: Federation
    ) -> Tree:
        model = state["model"]
        given = self._hand_out(t, model, selected, federation)
        b, visits = self.pick_server_part(state), list[SplitVisit]()
        for k in order_turns(self.config.order, t, clients, federation):
            for visit in self.carry(t, [SplitVisit(k, given, b)], federation):
                b = visit.weights
                federation.wire.records.note_pooling([k])
                visits.append(visit)
        trained = self.join_parts(state, b)
        return trained | self._average(
            t, visits, trained["model"], {v.client: {} for v in visits}, trained, federation
        )


def order_turns(order: str, t: int, clients: Sequence[int], federation: Federation) -> list[int]:
    """The clients of a round in the order of their turns."""
    if order == "numbers":
        return sorted(clients)
    places = torch.randperm(len(clients), generator=federation.streams.torch("turns", t)).tolist()
    return [clients[i] for i in places]
