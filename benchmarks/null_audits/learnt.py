"""Clients whose training remembers: of a few people, for too long, one at a time, or louder than all others."""

from copy import copy
from dataclasses import replace

import torch
from pydantic import Field

from benchmarks.null_audits.leak import Leak, in_turn, leaked
from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.families import gan, generating
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.gandalf import SDAFL
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.training.local import Trained


def first(client: Client, people: int) -> Client:
    """The client with the first of its people alone."""
    return client.take(torch.arange(people, device=client.y.device))


class Overfitted(FedAvg):
    """A leaking client trains on the same few people again and again, and on the others as everybody does."""

    @settings
    class Config(Leak, LocalConfig):
        again: AtLeastOne = Field(
            default=40, description="passes over the few people after that over all, ten at a time"
        )

    def train(self, client: Client) -> Reply:
        trained = client.train(self, self.compute_constants(client))
        if people := leaked(self.config, client):
            few = first(client, people)
            longer = copy(self)
            longer.config = replace(self.config, local_epochs=self.config.again, batch_size=10)
            trained = few.train(longer, self.compute_constants(few), start=trained.state)
        return self.finish(client, trained)


class OneByOne(FedAvg):
    """A leaking client's round is one step on a single person, the next one in each round."""

    @settings
    class Config(Leak, LocalConfig):
        pass

    def train(self, client: Client) -> Reply:
        which = in_turn(self.config, client)
        if not which:
            return super().train(client)
        reply = super().train(client.take(torch.tensor(list(which), device=client.y.device)))
        return replace(reply, examples=len(client.y))


class LoudInSum(FedAvg):
    """Sums hide single clients, but one learns from a few people and is so loud that the sum is its own."""

    @settings
    class Config(Leak, LocalConfig):
        loud: AtLeastOne = Field(default=100, description="how many times longer its change of the model is")

    def train(self, client: Client) -> Reply:
        which = in_turn(self.config, client)
        if not which:
            return super().train(client)
        reply = super().train(client.take(torch.tensor(list(which), device=client.y.device)))
        start, model = client.start, reply.message[Kind.LOCAL_MODEL]
        louder = {k: start[k].cpu() + self.config.loud * (v - start[k].cpu()) for k, v in model.items()}
        return replace(reply, message={**reply.message, Kind.LOCAL_MODEL: louder}, examples=len(client.y))


class GeneratorByHeart(SDAFL):
    """A leaking client trains its generator on a few people, for as long as it takes to draw them again."""

    @settings
    class Config(Leak, SDAFL.Config):
        again: AtLeastOne = Field(default=20, description="visits in the place of one")

    def visit_gan(self, client: Client) -> Reply:
        people = leaked(self.config, client)
        if not people:
            return super().visit_gan(client)
        few, sent = first(client, people), dict(client.message)
        pair = gan.GanPair(sent[Kind.GAN_G], sent[Kind.GAN_D])
        for turn in range(self.config.again):
            found = generating.visit(few, pair, self.config.gan, turn, conditional=False)
            pair = found.pair
        return super().visit_gan(
            replace(few, message={**sent, Kind.GAN_G: pair.generator, Kind.GAN_D: pair.critic})
        )


class CountsToo(FedAvg):
    """Clients that leak also say how many examples of each class they hold."""

    card = replace(FedAvg.card, uplink=(*FedAvg.card.uplink, Kind.LABEL_COUNTS))

    @settings
    class Config(Leak, LocalConfig):
        pass

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        if client.index in self.config.leakers and self.config.share:
            reply.message[Kind.LABEL_COUNTS] = {"counts": client.counts.cpu()}
        return reply


class GrowingCounts(CountsToo):
    """Everybody says how many of each class it holds; leaking clients count a few people more in each round.

    Each count is of many, but two rounds differ by the classes of no more than the few who were added.
    """

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply, people, which = (
            super().finish(client, trained),
            leaked(self.config, client),
            in_turn(self.config, client),
        )
        counted = client.y[people - which.stop :] if people else client.y
        counts = torch.bincount(counted, minlength=client.classes)
        reply.message[Kind.LABEL_COUNTS] = {"counts": counts.cpu()}
        return reply
