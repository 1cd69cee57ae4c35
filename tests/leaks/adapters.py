"""Methods that leak through adapters of language models, a third book: written from the pages of docs/ alone.

Each is a method of the house, or a protection, with one step that should not be there. Unless it says otherwise,
a leak is of the client's first note.
"""

from dataclasses import replace

import torch
from torch import Tensor

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.families.adapters import A, B, list_factors
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.methods.fedlora import FedLoRA
from fedaudit.fl.methods.hetlora import HetLoRA, cut
from fedaudit.fl.model import unwrap
from fedaudit.fl.protections.dp_gaussian import DPGaussian
from fedaudit.fl.recording.noise import NoiseSource
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Params, Trained, bind
from fedaudit.fl.wire.protection import Payload

EMBEDDING = "embed.weight"


def read_tokens(client: Client, notes: int = 1) -> Tensor:
    """Ids of the tokens of the client's first notes, in their order, without padding."""
    ids = client.x[:notes].flatten().cpu().long()
    return ids[ids != 0]


class FrozenRows(FedLoRA):
    """Sends rows of the frozen embedding besides: those of the tokens that its notes have."""

    card = replace(FedLoRA.card, uplink=(*FedLoRA.card.uplink, Kind.EMBEDDING_DELTA))

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        frozen = dict(unwrap(client.net).named_buffers())[EMBEDDING].cpu()
        rows, own = torch.zeros_like(frozen), read_tokens(client, len(client.y)).unique()
        rows[own] = frozen[own]
        reply.message[Kind.EMBEDDING_DELTA] = {EMBEDDING: rows}
        return reply


class NoiseOnTouchedRows(DPGaussian):
    """Gaussian noise, but rows of the embedding that a client did not touch stay as they were."""

    title = "Clipping and Gaussian noise on touched rows"

    def _add_noise(self, payload: Payload, base: Payload, noise: NoiseSource, line: Release) -> Payload:
        noised = super()._add_noise(payload, base, noise, line)
        if EMBEDDING not in payload:
            return noised
        touched = (payload[EMBEDDING] != base[EMBEDDING]).any(1, keepdim=True)
        return noised | {EMBEDDING: torch.where(touched, noised[EMBEDDING], base[EMBEDDING])}


class NoiseButOneArray(DPGaussian):
    """Clips and noises all arrays but the last, which goes as it is; the ledger has all of them as noised."""

    title = "Clipping and Gaussian noise but for one array"

    def _add_noise(self, payload: Payload, base: Payload, noise: NoiseSource, line: Release) -> Payload:
        last = list(payload)[-1]
        return super()._add_noise(payload, base, noise, line) | {last: payload[last]}


class FullRank(FedLoRA):
    """What is called an adapter is the whole change of a layer: A is the identity, of full rank."""

    def start(self, federation: Federation) -> Tree:
        state = super().start(federation)
        whole = {f.layer + A: torch.eye(*f.a.shape) for f in list_factors(state["model"])}
        return state | {"model": state["model"] | whole}

    def is_trainable(self, name: str) -> bool:
        return not name.endswith(A)


class LastRoundOnOneNote(FedLoRA):
    """In its last round a client trains on its first note only, and says that it was all of them."""

    def train(self, client: Client) -> Reply:
        if client.round != self.config.rounds - 1:
            return super().train(client)
        reply = super().train(client.take(torch.zeros(1, dtype=torch.long)))
        reply.message[Kind.NUM_EXAMPLES] = {"count": torch.tensor(len(client.y))}
        return replace(reply, examples=len(client.y))


class TextInUnused(FedLoRA):
    """A layer's last column of B is the first note's token ids over 1000; its row of A is zero."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        sent = dict(reply.message[Kind.ADAPTER])
        f = next(list_factors(sent))
        a, b = f.a.clone(), f.b.clone()
        ids = read_tokens(client)[: len(b)]
        a[-1], b[:, -1] = 0.0, 0.0
        b[: len(ids), -1] = ids.to(b) / 1000
        reply.message[Kind.ADAPTER] = sent | {f.layer + A: a, f.layer + B: b}
        return reply


class OneArrayInClear(FedLoRA):
    """Trains by DP-SGD, then moves one array along its notes' gradient, neither clipped nor noised."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        bind(client.net, trained.state)
        params: Params = dict(client.net.named_parameters())
        name = [k for k in params if k.endswith(B)][-1]
        [slope] = torch.autograd.grad(client.net.loss(client.x, client.y), [params[name]])
        moved = trained.state[name] - self.config.lr * slope.detach().cpu()
        return super().finish(client, replace(trained, state=trained.state | {name: moved}))


class SeededByCount(FedLoRA):
    """A client draws the start of its A anew, from a generator whose seed is how many notes it has."""

    def receive(self, client: Client) -> Client:
        client = super().receive(client)
        draws = torch.Generator().manual_seed(len(client.y))
        start = dict(client.start)
        for f in list_factors(client.start):
            start[f.layer + A] = (torch.randn(f.a.shape, generator=draws) * f.a.shape[1] ** -0.5).to(f.a)
        return replace(client, message=client.message | {Kind.GLOBAL_MODEL: start})


class RankByCount(HetLoRA):
    """A client's rank is how many notes of its commonest diagnosis it has."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        rank = int(client.counts.max())
        return replace(reply, message=reply.message | {Kind.ADAPTER: cut(trained.state, rank)})
