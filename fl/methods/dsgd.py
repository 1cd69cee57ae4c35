"""DSGD: in each round every client sends the step of one batch, and may keep momentum from round to round.

Distributed SGD as studies of malicious clients run it (Karimireddy, He, Jaggi. ICML 2021. arXiv:2012.10333,
Algorithm 1; ByzFL). With the gradient g_k of a batch drawn from the client's own examples,

    m_k <- worker_momentum * m_k + (1 - worker_momentum) * g_k,    w <- w - lr * rule(m_1 .. m_K)

The momentum is the client's: it stays there while others change the model, and rules see differences between
clients that hold from round to round. Sends what FedAvg sends. Changed: a batch is drawn anew in each round,
without replacement within it, where the papers' code goes through the examples in passes; `local_epochs` are
steps with it.
"""

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.method import LocalConfig, RoundMethod
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.runtime.ranges import AtLeastOne, BelowOne
from fedaudit.fl.runtime.settings import settings


class DSGD(RoundMethod):
    card = replace(
        FedAvg.card,
        title="DSGD",
        source="arXiv:2012.10333, Alg. 1",
        text="In every round each client sends the step that one batch of its examples suggests, smoothed over "
        "its earlier rounds; the server puts the steps together.",
    )

    @settings
    class Config(LocalConfig):
        local_epochs: AtLeastOne = Field(default=1, description="steps on the batch of a round")
        batch_size: AtLeastOne = Field(default=32, description="B: examples of a client in a round")
        weighting: Literal["samples", "uniform"] = Field(
            default="uniform",
            description="how the server weights clients: by their numbers of examples, or all alike",
        )
        worker_momentum: BelowOne = Field(
            default=0.0, description="beta: momentum that a client keeps between rounds; 0 keeps none"
        )

    def train(self, client: Client) -> Reply:
        drawn = torch.randperm(len(client.y), generator=client.generator("batch"))[: self.config.batch_size]
        drawn = drawn.to(client.y.device)
        batch = client.take(drawn)
        trained = batch.train(self, self.compute_constants(batch))
        beta, sent, kept = self.config.worker_momentum, dict(trained.state), {}
        if beta:
            before = client.memory.get("step", {})
            for name, _ in client.net.named_parameters():
                base = client.start[name].cpu()
                step = (1 - beta) * (trained.state[name] - base)
                kept[name] = step + beta * before[name].to(step) if before else step
                sent[name] = base + kept[name]
        reply = self.finish(client, replace(trained, state=sent))
        return replace(reply, memory={"step": kept}) if beta else reply
