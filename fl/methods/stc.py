"""STC: clients and server send only the largest changes, as signs, and add what they left out to the next.

Sattler, Wiedemann, Mueller, Samek. Robust and Communication-Efficient Federated Learning from Non-IID Data. IEEE
TNNLS 2020. arXiv:1903.02891, Algorithm 2. With STC_p the ceil(p N) largest of N numbers as sign times mean
magnitude (fl/recording/coded.py), A_k and A the residuals of client and server, which begin at 0:

    client    Delta_k = A_k + w_k - w,     sends STC_p(Delta_k),      A_k <- Delta_k - STC_p(Delta_k)
    server    Delta = A + mean of those,   w <- w + STC_q(Delta),     A <- Delta - STC_q(Delta)

`values: exact` keeps the numbers instead of their signs; with p = q = 1 that is FedAvg up to rounding. A client
downloads all updates since the last round in which it was heard, or the whole model where that is shorter or its
first time; the paper joins those updates into one sum. A residual advances when the upload arrived. Whole-number
arrays of a model stay as they were in the beginning.
"""

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig, RoundMethod
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.recording.coded import Coded, keep_largest, size_of
from fedaudit.fl.runtime.ranges import PositiveShare
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Trained
from fedaudit.fl.wire.protection import Message


class STC(RoundMethod):
    card = replace(
        FedAvg.card,
        title="STC",
        source="arXiv:1903.02891, Alg. 2",
        text="FedAvg in which clients and server send only the largest changes, as plus or minus one magnitude, "
        "and add the rest to what they send next.",
        uplink=(Kind.MODEL_DELTA, Kind.NUM_EXAMPLES),
    )

    @settings
    class Config(LocalConfig):
        share_up: PositiveShare = Field(default=0.01, description="p: of the numbers that a client sends")
        share_down: PositiveShare = Field(default=0.01, description="q: of the numbers that the server sends")
        values: Literal["ternary", "exact"] = Field(
            default="ternary", description="signs and one magnitude for all, or the numbers themselves"
        )

    def start(self, federation: Federation) -> Tree:
        model = federation.initial
        return {
            "model": model,
            "residual": {k: torch.zeros_like(v) for k, v in model.items() if v.is_floating_point()},
            "sizes": torch.zeros(0, dtype=torch.int64),  # bytes of each update so far
            "known": torch.full((len(federation.parts),), -1),  # how many of them a client has; -1: no model yet
        }

    def broadcast(self, state: Tree) -> Message:
        return {}  # to each client what it has missed

    def send_to(self, state: Tree, client: int) -> Message:
        whole, known = size_of(state["model"]), int(state["known"][client])
        missed = whole if known < 0 else int(state["sizes"][known:].sum())
        return {Kind.GLOBAL_MODEL: Coded(state["model"], min(whole, missed))}

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply, c = super().finish(client, trained), self.config
        moved = {k: v - client.start[k].cpu() for k, v in trained.state.items() if v.is_floating_point()}
        kept = client.memory.get("residual", {})
        sent, residual = keep_largest(moved, kept, c.share_up, c.values == "ternary")
        message: Message = {Kind.MODEL_DELTA: sent}
        message |= {kind: p for kind, p in reply.message.items() if kind != Kind.LOCAL_MODEL}
        return replace(reply, message=message, memory={"residual": residual})

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        c, mean, known = self.config, deliveries.average(), state["known"].clone()
        for d in deliveries:
            mean.add(d.client, d.message[Kind.MODEL_DELTA], d.weight(c.weighting), {})
            known[d.client] = len(state["sizes"])
        sent, residual = keep_largest(mean.value(), state["residual"], c.share_down, c.values == "ternary")
        return {
            "model": state["model"] | {k: state["model"][k] + v for k, v in sent.items()},
            "residual": residual,
            "sizes": torch.cat([state["sizes"], torch.tensor([sent.size])]),
            "known": known,
        }
