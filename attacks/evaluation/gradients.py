"""Updates as gradients: what an upload tells of the gradient it was made with, and how to imitate it.

One step of gradient descent moves the weights by -rate (g + decay w), so the upload and the broadcast
that it started from give g. Several steps give their average, the first weights standing in for those
along the way. The attacker imitates with the published architecture and cross-entropy; of the loss a
method really used it knows nothing here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Knowledge
from fedaudit.attacks.evaluation import sources as weights
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.decoder import find_device, tensor
from fedaudit.attacks.evaluation.label_rules import llg
from fedaudit.attacks.evaluation.last_layer import head_names
from fedaudit.attacks.evaluation.sources import global_model
from fedaudit.attacks.evaluation.sums import count_clients, find_kind, number_of
from fedaudit.attacks.evidence import is_replay
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.shared_weights import find_shared_names

if TYPE_CHECKING:
    from torch import Tensor, nn

Arrays = Mapping[str, NDArray[Any]]
KINDS = (Kind.GRADIENT, *weights.UPLOADS)
UPLOADS = (*KINDS, *weights.SAID_WITH)


@dataclass(frozen=True, kw_only=True)
class Update:
    """One client's upload, as the mean gradient of its steps at the weights it started from."""

    artifact: str
    kind: Kind
    origin: str
    client: int
    round: int
    batch: int  # examples in a step, as far as is known (at least 1)
    examples: int  # behind the whole upload, as far as is known (at least 1)
    steps: int  # local steps, as far as is known (at least 1)
    rate: float  # learning rate of each; 1 where unknown
    start: Arrays
    gradient: Arrays  # float64, of the uploaded floating parameters
    decay: float = 0.0
    momentum: float = 0.0

    @property
    def alike(self) -> tuple[str, int, int]:
        """Updates alike in these are judged together; recorded ones are one group."""
        return (self.origin, 0, 0) if self.origin == "recorded" else (self.origin, self.batch, self.steps)


def updates(view: Sequence[Artifact], knowledge: Knowledge) -> list[Update]:
    """Every upload whose starting model was seen: replays first, smallest batch and fewest steps first."""
    return sorted(
        iterate_updates(view, knowledge), key=lambda u: (u.origin == "recorded", u.batch, u.steps, u.examples)
    )


def iterate_updates(view: Sequence[Artifact], knowledge: Knowledge) -> Iterator[Update]:
    """The same one after the other, in the order of the view."""
    view = index(view)
    for a in weights.uploads(view, knowledge.training, KINDS):
        if update := read_update(a, view, knowledge):
            yield update


def read_update(a: Artifact, view: Sequence[Artifact], knowledge: Knowledge) -> Update | None:
    """One upload; None where its starting model was not seen, or nothing in it changed."""
    view = index(view)
    start = global_model(view, a.round, a)
    return None if start is None or start.round != a.round else _update(a, start.payload, view, knowledge)


def _update(a: Artifact, start: Arrays, view: Sequence[Artifact], knowledge: Knowledge) -> Update | None:
    known = knowledge.training
    rate = weights.rate(known, a.round) or 1.0
    decay, momentum = known.get("weight_decay", 0.0), known.get("momentum", 0.0)
    batch, examples, steps = _schedule(a, view, known)
    if a.kind == Kind.GRADIENT:
        sent: Arrays = {k: np.asarray(v, np.float64) for k, v in a.payload.items() if k in start}
    else:
        # how far a constant gradient of length 1 would have carried the weights
        reach = rate * sum_velocities(steps, momentum)
        if a.kind in (Kind.NORMALIZED_DELTA, Kind.CONTROL_DELTA):
            reach = weights.length(a, view, known)
        change = weights.compute_change(a, start, view, known)
        sent = {k: -v / reach - decay * np.asarray(start[k], np.float64) for k, v in change.items()}
    sent = {k: v for k, v in sent.items() if np.issubdtype(start[k].dtype, np.floating)}
    if not any(v.any() for v in sent.values()):
        return None
    return Update(
        artifact=a.id,
        kind=find_kind(a),
        origin=a.origin,
        client=number_of(a.sender),
        round=a.round,
        batch=batch,
        examples=examples,
        steps=steps,
        rate=rate,
        start=start,
        gradient=sent,
        decay=decay,
        momentum=momentum,
    )


def _schedule(a: Artifact, view: Sequence[Artifact], known: Mapping[str, float]) -> tuple[int, int, int]:
    """Examples a step, examples in all, and steps: by the auditor's note or by what is public."""
    if is_replay(a.origin):
        batch = int(a.note.get("batch", a.note.get("n", 1)))
        return batch, batch, int(a.note.get("steps", 1))
    size = max(1, int(known.get("batch_size", 1)))
    clients = count_clients(a)  # of a sum, each with about as many examples
    n = weights.read_examples(a, view) or clients * size
    if a.kind == Kind.GRADIENT:
        return n, n, 1
    size *= clients
    return min(n, size), n, max(1, int(known.get("local_epochs", 1)) * -(-n // size))


def sum_velocities(steps: int, momentum: float) -> float:
    """How far a constant gradient of length 1 carries the weights in so many steps at rate 1.

    The velocity of step i is 1 + m + ... + m^(i-1); a client may state billions of steps, so their sum is closed.
    """
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


def labels(update: Update, knowledge: Knowledge, number: int) -> NDArray[np.int64] | None:
    """[number] labels that explain the last layer's gradient best; None where it was not uploaded.

    For one example the only negative row sum (iDLG, arXiv:2001.02610, sec. 3.1); for more LLG's rule.
    """
    weight, _ = head_names(update.start, knowledge)
    one = [g for g in update.gradient.values() if g.ndim == 2 and len(g) == 1][-1:]
    if weight in update.gradient:
        rows = np.asarray(update.gradient[weight]).sum(axis=1)
    elif knowledge.classes == 2 and one:  # a single logit, which is that of class 1
        rows = np.array([-one[0].sum(), one[0].sum()])
    else:
        return None
    counts = llg(rows, number)
    return np.repeat(np.arange(len(counts)), counts)


class Imitation:
    """The attacker's copy of a client: what gradient given images would have led to."""

    def __init__(self, update: Update, knowledge: Knowledge, module: "nn.Module | None" = None) -> None:
        """`module`: what runs the update's first weights, where that is not given images as clients hold them."""
        self.update = update
        self.module: nn.Module = module or knowledge.granted_architecture(update.start).module()
        self.device, self.shared = find_device(self.module), find_shared_names(self.module)
        # parameters of the module, and what they are called in uploads
        self.keys = {
            name: next((k for k in update.start if name == k or name.endswith(f".{k}")), "")
            for name, _ in self.module.named_parameters()
        }
        self.names = [n for n, key in self.keys.items() if key in update.gradient]
        self.weights = {
            n: p.detach().contiguous().requires_grad_(n in self.names) for n, p in self.module.named_parameters()
        }
        self.target = self.read(update)

    @property
    def state(self) -> "dict[str, Tensor]":
        """Its weights and buffers, by name."""
        return {n: w.detach() for n, w in self.weights.items()} | dict(self.module.named_buffers())

    def read(self, update: Update) -> "list[Tensor]":
        """What an update of the same model and parameters says of each of `names`."""
        return [tensor(np.asarray(update.gradient[self.keys[n]]), self.device) for n in self.names]

    def gradient(self, x: "Tensor", y: "Tensor", weights: "Mapping[str, Tensor] | None" = None) -> "list[Tensor]":
        """Of the mean cross-entropy of images [B, C, H, W], differentiable; y int [B] or soft [B, C]."""
        import torch

        used = dict(self.weights if weights is None else weights)
        used |= {n: used[n].detach().requires_grad_() for n in self.names if not used[n].requires_grad}
        queried = [used[n] for n in self.names]
        found = torch.autograd.grad(self._lose(used, x, y), queried, create_graph=True, allow_unused=True)
        return [torch.zeros_like(w) if g is None else g for g, w in zip(found, queried, strict=True)]

    def _lose(self, used: "Mapping[str, Tensor]", x: "Tensor", y: "Tensor") -> "Tensor":
        from torch.nn.functional import cross_entropy

        return cross_entropy(self.shared.call(self.module, used, x), y)

    def gradients(
        self, x: "Tensor", y: "Tensor", weights: "Mapping[str, Tensor] | None" = None
    ) -> "list[Tensor]":
        """The same of several batches [k, B, ...] with the same labels; [k, ...] of each parameter."""
        from torch.func import grad, vmap
        from torch.nn.functional import cross_entropy

        def measure_loss(moved: "dict[str, Tensor]", one: "Tensor") -> "Tensor":
            return cross_entropy(self.shared.call(self.module, {**used, **moved}, one), y)

        used = self.weights if weights is None else weights
        moved = {n: used[n] for n in self.names}
        found = vmap(grad(measure_loss), in_dims=(None, 0))(moved, x)
        return [found[n] for n in self.names]

    def descent(self, x: "Tensor", y: "Tensor", steps: int) -> "list[Tensor]":
        """The mean gradient that an upload after `steps` steps over these images would show."""
        if steps == 1:
            return self.gradient(x, y)
        u = self.update
        velocity: list[Tensor] = []
        moved = {n: self.weights[n] for n in self.names}
        reach = 0.0
        for i in range(steps):
            grads = self.gradient(x, y, {**self.weights, **moved})
            grads = [g + u.decay * moved[n] for g, n in zip(grads, self.names, strict=True)]
            velocity = [u.momentum * v + g for v, g in zip(velocity, grads, strict=True)] if velocity else grads
            moved = {n: moved[n] - u.rate * v for n, v in zip(self.names, velocity, strict=True)}
            reach += u.rate * (1 - u.momentum ** (i + 1)) / (1 - u.momentum)
        return [(self.weights[n] - moved[n]) / reach - u.decay * self.weights[n] for n in self.names]


class Stackable(Imitation):
    """A copy whose gradients torch.func can take of many batches side by side."""

    def __init__(self, update: Update, knowledge: Knowledge) -> None:
        super().__init__(update, knowledge)
        self.weights = {n: w.detach() for n, w in self.weights.items()}

    def gradient(self, x: "Tensor", y: "Tensor", weights: "Mapping[str, Tensor] | None" = None) -> "list[Tensor]":
        """As of one batch; zeros where a parameter is not used."""
        from torch.func import grad

        used = dict(self.weights if weights is None else weights)
        others = {n: w for n, w in used.items() if n not in self.names}
        taken = grad(lambda own: self._lose({**others, **own}, x, y))({n: used[n] for n in self.names})
        return [taken[n] for n in self.names]


def cosine_distance(found: "Sequence[Tensor]", target: "Sequence[Tensor]") -> "Tensor":
    """1 - cosine of the angle between two gradients, all parameters as one vector."""
    import torch

    products = sum((a * b).sum() for a, b in zip(found, target, strict=True))
    lengths = [torch.stack([g.square().sum() for g in both]).sum() for both in (found, target)]
    distance: Tensor = 1 - products / (lengths[0] * lengths[1] + 1e-24).sqrt()
    return distance


def squared_distance(found: "Sequence[Tensor]", target: "Sequence[Tensor]") -> "Tensor":
    """Sum of squared differences over all parameters."""
    import torch

    return torch.stack([(a - b).square().sum() for a, b in zip(found, target, strict=True)]).sum()


def distance_to_multiple(found: "Sequence[Tensor]", target: "Sequence[Tensor]") -> "Tensor":
    """Squared distance to the nearest multiple of the target, of whose length nothing is known."""
    import torch

    along = torch.stack([(a * b).sum() for a, b in zip(found, target, strict=True)]).sum()
    length = torch.stack([b.square().sum() for b in target]).sum()
    factor = (along / length).detach()  # the nearest: moving it changes nothing at first order
    return squared_distance(found, [factor * b for b in target])
