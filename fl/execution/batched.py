"""Many clients as one batch: stacked weights, one vmapped step for all of them.

A step of a small network keeps a GPU busy for microseconds, while launching it costs a millisecond
of the host; stacking K clients launches once for all K. On a CPU the opposite holds (activations of
many clients fall out of cache) but for the smallest networks: rounds use the pool there, and the auditor's
replays, which come by the hundred, are stacked where they are small enough (`choose_width`).

Clients hold unequally many examples, so their last batches differ: each step takes as many clients as
possible whose next batches are of one size. Statistics of normalisation are stacked like weights.
Under DP-SGD the gradients of all clients' examples are computed at once, and each client clips, noises and
steps by itself. Methods with a train() of their own, compromised clients and code that torch cannot stack are
trained one by one.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap
from torch.utils._pytree import tree_flatten, tree_map

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.execution.site import Site
from fedaudit.fl.method import is_stackable
from fedaudit.fl.model import State
from fedaudit.fl.runtime.workers import Workers
from fedaudit.fl.training.local import Handle, Params, Trained, crop_flip
from fedaudit.fl.training.private import train as train_privately

WIDTH = 32  # clients of a stack, at most
COPIES = 8  # of the weights: their gradients, the optimiser's, and what a step holds besides
SHARE = 0.5  # of the free memory that a stack may take
SMALL = 100_000  # weights and activations of a client up to which its step is twice as fast in a stack on a CPU


class Batched(Workers):
    """One site in this process that trains up to `width` clients at a time; as memory allows by default."""

    count = 1

    def __init__(self, make_site: Callable[[], Site], width: int | None = None) -> None:
        super().__init__()
        self._site, self._width = make_site(), width

    def everywhere(self, name: str, *args: Any) -> None:
        getattr(self._site, name)(*args)

    def map(self, name: str, items: Iterable[Any]) -> Iterator[Any]:
        if name != "train" or not is_stackable(type(self._site.method)):
            yield from map(getattr(self._site, name), items)
            return
        bad = self._site.compromise.clients
        for alone, group in groupby(items, key=lambda job: job[0] in bad):
            jobs = list(group)  # order is kept
            if alone:  # a compromised client trains in its own way
                yield from map(self._site.train, jobs)
                continue
            self._width = self._width or choose_width(self._site)
            for start in range(0, len(jobs), self._width):
                clients = [self._site.client(job) for job in jobs[start : start + self._width]]
                yield from train_together(self._site, clients)


def plan_width(weights: int, activations: int, free: int, examples: int = 0) -> int:
    """Clients of a stack, of so many numbers of a network and of what it makes of a batch, in `free` bytes.

    `examples` of a batch have gradients of their own, and a copy each of the weights.
    """
    each = 4 * ((COPIES + 3 * examples) * weights + 3 * activations)
    return max(1, min(WIDTH, int(SHARE * free) // max(1, each)))


def choose_width(site: Site) -> int:
    """Clients of this site that train as one batch, at most: as many as pay, and as memory holds."""
    if not is_stackable(type(site.method)):
        return 1
    made: list[int] = []
    hooks = [m.register_forward_hook(lambda *x: made.append(_count(x[2]))) for m in site.net.modules()]
    x, _ = site.examples(site.data.train, range(min(2, len(site.data.train))))  # type: ignore[arg-type]
    try:
        with torch.no_grad():
            site.net.eval()(x)
    finally:
        for hook in hooks:
            hook.remove()
    each = sum(made) * site.method.config.batch_size // max(1, len(x))
    examples = site.method.config.batch_size if site.private is not None else 0
    weights = sum(p.numel() for p in site.net.parameters())
    if torch.device(site.device).type != "cuda":  # whatever memory there is: the last bits are the width's
        return WIDTH if weights * max(1, examples) + each <= SMALL else 1
    free, _ = torch.cuda.mem_get_info(site.device)
    return plan_width(weights, each, free, examples)


def _count(out: Any) -> int:
    return out.numel() if isinstance(out, Tensor) else 0


def train_together(site: Site, clients: Sequence[Client]) -> list[Reply]:
    """Clients side by side; the same draws and steps as one by one.

    All train as the site does, on data and with streams of their own.
    """
    method, stacks = site.method, dict[Any, list[int]]()
    if len(clients) < 2 or not is_stackable(type(method)):
        return [method.train(c) for c in clients]
    consts = [method.compute_constants(c) for c in clients]
    for i, (client, const) in enumerate(zip(clients, consts, strict=True)):
        shapes = tuple(tuple(getattr(leaf, "shape", ())) for leaf in tree_flatten(const)[0])
        rate = method.config.lr_decay**client.round  # asynchronous rounds may differ
        stacks.setdefault((rate, shapes), []).append(i)
    replies = dict[int, Reply]()
    for (rate, _), rows in stacks.items():
        stack = _train_stack(site, [clients[i] for i in rows], [consts[i] for i in rows], rate)
        replies.update(zip(rows, stack, strict=True))
    return [replies[i] for i in range(len(clients))]


def _train_stack(site: Site, clients: list[Client], consts: list[Any], rate: float) -> list[Reply]:
    """Of clients whose constants are of the same shapes."""
    method, private = site.method, site.private
    try:
        if len(clients) < 2:
            trained = [clients[0].train(method, consts[0])]
        elif private is not None:
            pairs = zip(clients, consts, strict=True)
            trainees = [c.prepare_privately(private, method, const) for c, const in pairs]
            trained = train_privately(method, private, clients[0].net, trainees, rate)
        else:
            const = tree_map(
                lambda *leaves: torch.stack([v.to(site.device) for v in leaves]), consts[0], *consts[1:]
            )
            trained = _train(site, clients, const)
        return [method.finish(c, t) for c, t in zip(clients, trained, strict=True)]
    except Exception:  # of code that waits for a number, or keeps what it was given  # noqa: BLE001
        return [method.train(c) for c in clients]


def _train(site: Site, clients: list[Client], const: Any) -> list[Trained]:
    method, config = site.method, site.method.config
    stack = _Stack(site, clients, const)
    record = _Recorder() if torch.device(site.device).type == "cuda" else None
    step = Step(stack.advance, site.device, record)
    queues = [_Queue(c, method.count_epochs(len(c.y)), config.batch_size) for c in clients]
    x, y = torch.cat([c.x for c in clients]), torch.cat([c.y for c in clients])
    offsets = torch.tensor([0, *(len(c.y) for c in clients)]).cumsum(0)
    while rows := _choose_rows(queues):
        index = (torch.stack([queues[i].next for i in rows]) + offsets[rows, None]).to(x.device)
        xb = x[index]
        if clients[0].augment == "crop_flip":
            xb = torch.stack([crop_flip(b, queues[i].order) for b, i in zip(xb, rows, strict=True)])
        step(rows, xb, y[index], torch.tensor([queues[i].is_last for i in rows]).to(x.device))
        for i in rows:
            queues[i].advance()
    return stack.finish([q.steps for q in queues], [q.lasts for q in queues])


class _Stack:
    """The weights of clients, a row each, and what moves them."""

    def __init__(self, site: Site, clients: list[Client], const: Any) -> None:
        method, config, net = site.method, site.method.config, site.net
        net.train()
        start = {k: v.to(site.device) for k, v in clients[0].start.items()}
        trainable = [k for k, _ in net.named_parameters() if method.is_trainable(k)]
        moving = [k for k, _ in net.named_buffers() if k in start]  # statistics of normalisation
        moving += [k for k in start if k not in (*trainable, *moving) and _is_own(k, clients)]
        fixed = {k: v for k, v in start.items() if k not in (*trainable, *moving)}
        self._params, self._buffers = (
            {k: torch.stack([c.start[k].to(site.device) for c in clients]) for k in names}
            for names in (trainable, moving)
        )
        self._anchor = {k: v.clone() for k, v in self._params.items()}
        self._const, self._fixed, self._net, self._method = const, fixed, net, method
        self._rate = config.lr * config.lr_decay ** clients[0].round
        self._losses = torch.zeros(len(clients), device=site.device)  # summed over the last epoch
        self._optimiser = _Stepper(config, self._params, self._rate, torch.zeros_like(self._losses))

        def loss(p: Params, b: Params, x: Tensor, y: Tensor, c: Any) -> tuple[Tensor, Params]:
            own = {k: v.clone() for k, v in b.items()}  # which the network changes in place
            return method.loss(Handle(net, {**fixed, **own, **p}), x, y, c), own

        self._compute_losses = vmap(loss, randomness="different")
        self._correct = vmap(method.correct)

    def advance(self, rows: Tensor, x: Tensor, y: Tensor, last: Tensor) -> None:
        """A step of these rows with a batch each; `last` says whether it is of a client's last epoch."""
        everything = [self._params, self._buffers, self._anchor, self._const]
        own, statistics, first, const = _take_rows(everything, rows, len(self._losses))
        grads, values, moved = self._differentiate(own, statistics, x, y, const)
        if (limit := self._method.config.grad_clip) > 0:
            grads = vmap(partial(_clip, limit))(grads)
        grads = self._correct(grads, own, first, const)
        own = self._optimiser.step(own, {k: g.detach() for k, g in grads.items()}, rows)
        own |= self._method.after_step(own, const, self._rate)
        for whole, some in ((self._params, own), (self._buffers, moved)):
            for k, v in some.items():
                whole[k][rows] = v.detach()
        self._losses[rows] += values * last

    def _differentiate(self, own: Params, *rest: Any) -> tuple[Params, Tensor, Params]:
        """Gradients, losses and statistics of each row: a loss depends on the weights of its own row alone.

        Not by torch.func.grad, which loads torch.compile's front end, a second and a half in each process.
        """
        leaves = {k: p.detach().requires_grad_() for k, p in own.items()}
        losses, moved = self._compute_losses(leaves, *rest)
        grads = torch.autograd.grad(
            losses.sum(), list(leaves.values()), allow_unused=True, materialize_grads=True
        )
        return dict(zip(leaves, grads, strict=True)), losses.detach(), moved

    def finish(self, steps: Sequence[int], lasts: Sequence[int]) -> list[Trained]:
        """What each client has after so many steps, so many of them in its last epoch."""
        moved = {**self._params, **self._buffers}
        return [
            Trained({k: _take_row(moved, self._fixed, k, i) for k in self._net.state_dict()}, n, total / m)
            for i, (n, m, total) in enumerate(zip(steps, lasts, self._losses.tolist(), strict=True))
        ]


Replay = Callable[[], None]


class Step:
    """A step of some rows with a batch each, which is repeated from a recording from its second time on.

    A step of small networks is some hundred kernels, and the host takes longer to launch them than they run. The
    first step of the same rows and shapes runs as it stands, which also prepares libraries. `record` takes a step
    and what it reads, and returns what repeats it on the same tensors; None, or a step that cannot be recorded
    because it waits for the device: every step runs as it stands.
    """

    def __init__(
        self,
        advance: Callable[..., None],
        device: str,
        record: Callable[[Callable[..., None], Sequence[Tensor]], Replay] | None,
    ) -> None:
        self._advance, self._device, self._record = advance, device, record
        self._met: set[Any] = set()
        self._recordings: dict[Any, tuple[Sequence[Tensor], Replay]] = {}  # with what they read

    def __call__(self, rows: Sequence[int], *batch: Tensor) -> None:
        """The step of these rows."""
        kind, here = (tuple(rows), *(b.shape for b in batch)), torch.tensor(rows).to(self._device)
        if kind in self._met and kind not in self._recordings and self._record is not None:
            read = [here, *(b.clone() for b in batch)]
            try:
                self._recordings[kind] = read, self._record(self._advance, read)
            except RuntimeError:  # CUDA's, which then has run nothing of the step
                self._record = None
        self._met.add(kind)
        if kind not in self._recordings:
            self._advance(here, *batch)
            return
        places, replay = self._recordings[kind]
        for place, given in zip(places[1:], batch, strict=True):
            place.copy_(given)
        replay()


class _Recorder:
    """Records what CUDA is given. Recordings share memory: they run one after the other, and what a step leaves
    lies outside of it."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, step: Callable[..., None], read: Sequence[Tensor]) -> Replay:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            step(*read)
        return graph.replay


class _Queue:
    """The batches of one client, drawn as it comes to them."""

    def __init__(self, client: Client, epochs: int, size: int) -> None:
        self.order, self._count, self._epochs, self._size = (
            client.generator("batches"),
            len(client.y),
            epochs,
            size,
        )
        self._left: list[Tensor] = []
        self.steps, self.lasts = -1, 1  # taken, and those of the last epoch
        self.next = torch.zeros(0, dtype=torch.int64)
        self.advance()

    @property
    def is_last(self) -> bool:
        """Whether the next batch is of the last epoch."""
        return self._epochs == 0

    def advance(self) -> None:
        """To the next batch; an empty one after the last."""
        self.steps += 1
        if not self._left and self._epochs and self._count:
            self._epochs -= 1
            permutation = torch.randperm(self._count, generator=self.order)
            self._left = list(torch.split(permutation, self._size))[::-1]
            self.lasts = len(self._left)
        self.next = self._left.pop() if self._left else self.next[:0]


def _choose_rows(queues: Sequence[_Queue]) -> list[int]:
    """The clients of the next step: the most whose next batches are of one size; of equals the largest batch."""
    sizes = Counter(len(q.next) for q in queues if len(q.next))
    if not sizes:
        return []
    size = max(sizes, key=lambda n: (sizes[n], n))
    return [i for i, q in enumerate(queues) if len(q.next) == size]


class _Stepper:
    """torch's optimisers, as stepper() makes them, on rows of stacked weights, each with steps of its own."""

    def __init__(self, config: Any, params: Params, rate: float, steps: Tensor) -> None:
        self._kind, self._rate = getattr(config, "optimiser", "sgd"), rate
        self._decay, self._momentum = config.weight_decay, config.momentum
        slots = 2 if self._kind != "sgd" else int(bool(config.momentum))
        self._state = {k: [torch.zeros_like(p) for _ in range(slots)] for k, p in params.items()}
        self._steps = steps  # that each row has taken

    def step(self, params: Params, grads: Params, rows: Tensor) -> Params:
        """The weights of these rows after a step."""
        self._steps[rows] += 1
        return {k: self._move(k, p, grads[k], rows) for k, p in params.items()}

    def _move(self, name: str, p: Tensor, g: Tensor, rows: Tensor) -> Tensor:
        if self._kind == "adamw":
            p = p * (1 - self._rate * self._decay)
        elif self._decay:
            g = g + self._decay * p
        if self._kind == "sgd":
            if self._momentum:
                (velocity,) = self._state[name]
                g = velocity[rows] = self._momentum * velocity[rows] + g
            return p - self._rate * g
        mean, square = self._state[name]
        mean[rows] = m = 0.9 * mean[rows] + 0.1 * g
        square[rows] = v = 0.999 * square[rows] + 0.001 * g.square()
        count = self._steps[rows].reshape(-1, *[1] * (p.dim() - 1))
        return p - self._rate / (1 - 0.9**count) * m / (v.sqrt() / (1 - 0.999**count).sqrt() + 1e-8)


def _take_rows(trees: Any, rows: Tensor, of: int) -> Any:
    """These rows of every tensor; all of them as they are."""
    return trees if len(rows) == of else tree_map(lambda v: v[rows], trees)


def _take_row(params: Params, fixed: State, name: str, i: int) -> Tensor:
    return (params[name][i] if name in params else fixed[name]).detach().cpu().clone().contiguous()


def _is_own(name: str, clients: Sequence[Client]) -> bool:
    """Whether clients began with different weights of that name."""
    first, *others = (c.start[name] for c in clients)
    return any(other is not first and not torch.equal(other, first) for other in others)


def _clip(limit: float, grads: Params) -> Params:
    """Scale to a norm of at most `limit`, as torch.nn.utils.clip_grad_norm_ does."""
    norm = torch.stack([g.square().sum() for g in grads.values()]).sum().sqrt()
    factor = (limit / (norm + 1e-6)).clamp(max=1.0)
    return {k: g * factor for k, g in grads.items()}
