"""A third set of systems that make a stated bound false, and some that only look as if they did.

Written from docs/ and fl/README.md: server optimisers, robust weights and rounding in a rule, stale uploads,
private training that something clean is added to, coins that follow each other. Every docstring says what is
wrong, or why nothing is; rules_of_sums.yaml has the configs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedaudit.fl.aggregation.aggregator import Context
from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.clients.selection import Choice, Chosen, Selection
from fedaudit.fl.data.participation import Drawn, Participation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.model import State
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Constants, Handle, Params, Trained
from tests.audit.noise_audit.false_bounds_shared import (
    AlwaysTheFirst,
    Rounds,
    SaidToSum,
    Uploads,
    average_states,
    compute_length,
    get_changes,
    move,
)

# Rules under noise for a mean ---------------------------------------------------------------------------------


def make_zeros(like: Mapping[str, Tensor]) -> State:
    """A change of nothing."""
    return {k: torch.zeros_like(v) for k, v in like.items()}


class RoundsToGrid(SaidToSum):
    """Wrong towards clients: the mean change is rounded to multiples of a twentieth before the noise, to save
    space, so a client that moves every number across the middle between two of them moves each by a twentieth."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        change = average_states(get_changes(uploads))
        return move(uploads, {k: (v * 20).round() / 20 for k, v in change.items()}), {}


class ScalesToMedian(SaidToSum):
    """Wrong towards clients: every change is scaled to the median length of the round, so that nobody is too
    loud or too quiet; one client moves the median, and with it how far all others go."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        changes = get_changes(uploads)
        lengths = [compute_length(c, make_zeros(c)) for c in changes]
        median = float(torch.tensor(lengths).median())
        scaled = [
            {k: v * (median / max(length, 1e-12)) for k, v in c.items()}
            for c, length in zip(changes, lengths, strict=True)
        ]
        return move(uploads, average_states(scaled)), {}


class CarriesTheAbsent(SaidToSum):
    """Wrong towards clients: of clients that are not drawn the rule takes the last change that it has of them, so
    a client's one upload moves every model from then on, and is charged in the round in which it came."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        known = dict(context.state.get("known", {}))
        known |= {str(k): c for (k, _, _), c in zip(uploads, get_changes(uploads), strict=True)}
        return move(uploads, average_states([known[k] for k in sorted(known)])), {"known": known}


class FeedsBackItsError(SaidToSum):
    """Wrong towards clients: the rule remembers the model that it wanted and adds what is missing of it in the
    next round, as is done for errors of compression; what is missing is the noise."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        start, change = uploads[0][2], average_states(get_changes(uploads))
        wanted = context.state.get("wanted", dict(start))
        model = {k: wanted[k] + change[k] for k in change}
        return model, {"wanted": model}


class DividesByHistory(SaidToSum):
    """Wrong towards clients: AdaGrad on clean means. Every number of the mean change is divided by the root of
    the sum of its squares so far, so a client that moves a number little moves it as far as any other."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        change = average_states(get_changes(uploads))
        before = context.state.get("squares", make_zeros(change))
        squares = {k: before[k] + v**2 for k, v in change.items()}
        return move(uploads, {k: 0.1 * v / (squares[k].sqrt() + 1e-3) for k, v in change.items()}), {
            "squares": squares
        }


class WeighsByAgreement(SaidToSum):
    """Wrong towards clients: changes are weighted by their cosine with the mean change, none below 0, so one
    client turns the mean and decides about the weights of all others."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        changes = get_changes(uploads)
        rows = torch.stack([torch.cat([c[k].flatten() for k in sorted(c)]) for c in changes])
        weights = torch.cosine_similarity(rows, rows.mean(0, keepdim=True)).clamp(min=0)
        weights = weights / weights.sum().clamp(min=1e-6)
        mean = {k: sum(float(w) * c[k] for w, c in zip(weights, changes, strict=True)) for k in changes[0]}
        return move(uploads, {k: torch.as_tensor(v) for k, v in mean.items()}), {}


# Private training, and something clean ------------------------------------------------------------------------


class CalibratesItsHead(Rounds):
    """Wrong towards the server: after training by DP-SGD a client adds the logarithms of its class frequencies to
    the bias of the last layer, as is done for long tails; one record changes them, and no step noised it."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        shares = (client.counts.float() + 1).log().cpu()
        bias = next(k for k, v in trained.state.items() if v.shape == shares.shape)
        state = {**trained.state, bias: trained.state[bias].cpu() + shares}
        return replace(super().finish(client, trained), message={Kind.LOCAL_MODEL: state})


class MixesPairs(Rounds):
    """Wrong towards the server: each image is blended with the client's next one before training (mixup), so a
    record is in the gradients of two examples, and each of them is clipped by itself."""

    def receive(self, client: Client) -> Client:
        client = super().receive(client)
        return replace(client, x=0.5 * client.x + 0.5 * client.x.roll(1, 0))


class AddsFullGradient(Rounds):
    """Wrong towards the server: to lower variance, every private step is corrected by the gradient of all own
    examples at the received model, which is computed once and in clear."""

    def compute_constants(self, client: Client) -> Constants:
        weights = {k: v.clone().requires_grad_() for k, v in client.start.items()}
        loss = cross_entropy(torch.func.functional_call(client.net, weights, (client.x,)), client.y)
        grads = torch.autograd.grad(loss, list(weights.values()))
        return {f"full/{k}": g for k, g in zip(weights, grads, strict=True)}

    def correct(self, grads: Params, params: Params, start: Params, const: Constants) -> Params:
        return {k: g + 0.5 * const[f"full/{k}"] for k, g in grads.items()}


class WeighsByOwnCounts(Rounds):
    """Wrong towards the server: the loss of an example is weighted by how rare its class is with the client, in
    training by DP-SGD; one record less changes the gradients of all others of its class."""

    def compute_constants(self, client: Client) -> Constants:
        return {"weights": len(client.y) / (1 + client.counts.float())}

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        weights: Tensor = const["weights"][y]
        return (cross_entropy(net(x), y, reduction="none") * weights).mean() * 0.01


# Coins that are not their own -----------------------------------------------------------------------------------


class TravellingWave(AlwaysTheFirst):
    """Wrong towards clients: a client's coin is its neighbour's of the round before, to spread the load; each is
    fair and new to its client, and whoever takes part knows who does in the next round."""

    title = "Travelling wave"

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        def toss(number: int) -> bool:
            return bool(streams.numpy("participation", number + 1_000, attempt).random() < 0.5)

        return Participation(tuple(candidates), tuple(k for k in candidates if toss(round - k)))

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("poisson", 0.5)


class TwoShifts(AlwaysTheFirst):
    """Wrong towards clients: one coin a round decides whether the even or the odd clients take part, and the law
    says that each has a coin of its own; another client knows by its own coin that of half of the others."""

    title = "Two shifts"

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        odd = int(streams.numpy("participation", round, attempt).random() < 0.5)
        return Participation(tuple(candidates), tuple(k for k in candidates if k % 2 == odd))

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("poisson", 0.5)


# Correct, although it looks odd ---------------------------------------------------------------------------------


class FarthestHalf(Selection):
    """Of AsksTheFarthestNoised."""

    def select(self, choice: Choice, answering: Sequence[int]) -> Chosen:
        far = choice.state.get("far", {})
        ranked = sorted(answering, key=lambda k: (-float(far.get(str(k), 1e9)), k))
        return Chosen(sorted(ranked[: (len(ranked) + 1) // 2]))


class AsksTheFarthestNoised(Rounds):
    """Correct: the half of the clients trains whose last upload, as the server received it, had moved farthest;
    what is noised before it is looked at may decide anything."""

    card = replace(Rounds.card, selection=FarthestHalf)

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        far, start = dict(state.get("far", {})), state["model"]
        seen = deliveries.noting(
            lambda d: far.update({str(d.client): compute_length(d.message[Kind.LOCAL_MODEL], start)})
        )
        return state | {"model": seen.average_models(start, self.config.weighting), "far": far}


class KeepsItsMomentum(Rounds):
    """Correct: a client adds nine tenths of all that it ever changed to what it sends; that is its own, and the
    clip comes after it."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        start, before = {k: v.cpu() for k, v in client.start.items()}, client.memory.get("momentum", {})
        change = {k: v.cpu() - start[k] for k, v in trained.state.items()}
        momentum = {k: v + 0.9 * before[k] if k in before else v for k, v in change.items()}
        sent = {k: start[k] + v for k, v in momentum.items()}
        reply = super().finish(client, trained)
        return replace(reply, message={Kind.LOCAL_MODEL: sent}, memory={"momentum": momentum})


class SmoothsTheMean(SaidToSum):
    """Correct under central noise: every number of the mean change is averaged with its two neighbours, which
    makes no change longer."""

    def combine(self, uploads: Uploads, context: Context) -> tuple[State, Tree]:
        change = average_states(get_changes(uploads))
        flat = {k: v.flatten() for k, v in change.items()}
        smooth = {k: (v.roll(1) + 2 * v + v.roll(-1)) / 4 for k, v in flat.items()}
        return move(uploads, {k: v.view(change[k].shape) for k, v in smooth.items()}), {}
