"""FedDPGAN: the generator is trained by federated averaging instead of being handed round.

Zhang, Shen, Guo, Jia, Wu, Ma. FedDPGAN: Federated Differentially Private Generative Adversarial Networks
Framework for the Detection of COVID-19 Pneumonia. Information Systems Frontiers 2021; as GANDALF compares
it (sec. 4): its phase 1 replaced, phases 2 and 3 unchanged. In each cycle all clients train generator and
critic from the same weights, add noise, and the server averages what arrives, weighted by examples.

No client reads another's weights before they are averaged; the server reads everybody's, and so the
critics as well. Where the averaged pair converges is decided as in GANDALF, of the mean losses.
"""

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field

from fedaudit.fl.aggregation.weighted_mean import WeightedMean
from fedaudit.fl.families import gan as wgan
from fedaudit.fl.families.balancing import Offered
from fedaudit.fl.families.relay import Task
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.gandalf import Gandalf
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.wire.protection import Message

_BOTH = (Kind.GAN_G, Kind.GAN_D)


class FedDPGAN(Gandalf):
    card = replace(
        Gandalf.card,
        title="FedDPGAN",
        source="Information Systems Frontiers 2021; GANDALF, sec. 4",
        text="Clients train one image generator together by federated averaging, fill their rare "
        "classes with what it makes, and then train the model one after the other.",
        uplink=(*Gandalf.card.uplink, Kind.GAN_D),
    )

    @settings
    class Config(Gandalf.Config):
        groups: Literal[1] = Field(default=1, description="one generator that all clients train")

    def run_gan(self, t: int, state: Tree, memory: dict[int, Tree], federation: Federation) -> Tree:
        """One cycle: every client that answers trains the pair, and the server averages."""
        alone = [[k] for k in state["members"]]
        relays, tally, entries = self.schedule(t, alone, state, federation)
        own = state["pairs"]["0"]
        message: Message = {Kind.GAN_G: own["generator"], Kind.GAN_D: own["critic"]}
        selected = sorted(r.tasks[0].client for r in relays if r.tasks)
        federation.wire.broadcast(t, message, selected)

        def make_first_message(g: int, task: Task, step: int) -> Message:  # noqa: ARG001
            if step:
                federation.wire.downlink(t, message, task.client)
            return message

        averages = federation.averages(t, state, ())
        means = {kind: averages.begin(kind.value) for kind in _BOTH}
        losses = WeightedMean()
        for outcome in self.pass_around(t, "visit_gan", relays, make_first_message, memory, federation, tally):
            if not outcome.contributors:
                continue
            received = federation.wire.uplink(
                t, outcome.content, outcome.sender, message, settled=self.list_protected_kinds(outcome.content)
            )
            if received is None:
                tally.rejected += 1
                continue
            size, stats = state["sizes"][str(outcome.sender)], outcome.mean_stats()
            for kind, mean in means.items():
                mean.add(outcome.sender, received[kind], size, message[kind])
            losses.add({k: torch.tensor(v) for k, v in stats.items()}, 1.0)
            tally.heard |= set(outcome.contributors)
            tally.add({}, int(size), stats)
        federation.tally = tally
        pairs, found = state["pairs"], dict(state["losses"])
        if losses.total:
            pair = wgan.GanPair(*(means[kind].value() for kind in _BOTH))
            pairs = {"0": {"generator": pair.generator, "critic": pair.critic, "holder": -1}}
            now = losses.value()
            both = [float(now["critic_loss"]), float(now["generator_loss"])]
            found["0"] = self._select_recent_losses([*found.get("0", []), both])
            entries |= averages.entries()
            tally.note(averages)
        return self._finish_cycle(state | entries | {"pairs": pairs, "losses": found})

    def offers(self, t: int, state: Tree, federation: Federation) -> list[Offered]:
        """The server has the generator already."""
        mix = self._mix_distributions(state, state["members"])
        return [Offered(state["pairs"]["0"]["generator"], mix)] if state["losses"] else []
