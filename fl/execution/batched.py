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

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from fedaudit.fl.aggregation.aggregator import mean
from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.execution.recorded_steps import CudaRecorder, Step
from fedaudit.fl.execution.site import Site
from fedaudit.fl.execution.stack import Stack, Trains
from fedaudit.fl.federation import Federation
from fedaudit.fl.method import Method, RoundMethod, finish, is_stackable, overrides
from fedaudit.fl.runtime.workers import Workers
from fedaudit.fl.training.batches import has_batch_statistics, split_into_batches
from fedaudit.fl.training.local import Trained, count_epochs, crop_flip
from fedaudit.fl.training.private import train as train_privately

WIDTH = 32  # clients of a stack, at most
WIDTHS, STEPS = (1, 4, 16, WIDTH), 4  # that are timed on a device, and of how many steps
COPIES = 8  # of the weights: their gradients, the optimiser's, and what a step holds besides
SHARE = 0.5  # of the free memory that a stack may take
SMALL = 100_000  # weights and activations of a client up to which its step is twice as fast in a stack on a CPU


class Batched(Workers):
    """One site in this process that trains up to `width` clients at a time.

    By default as many as are measured to train fastest on the first that are to train, of a few steps each.
    """

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
        compromised = self._site.compromise.clients
        for is_compromised, group in groupby(items, key=lambda job: job[0] in compromised):
            jobs = list(group)  # order is kept
            if is_compromised:  # it trains in its own way
                yield from map(self._site.train, jobs)
                continue
            if self._width is None:
                most = choose_width(self._site)
                self._width = measure_width(self._site, [self._site.client(job) for job in jobs[:most]], most)
            for start in range(0, len(jobs), max(1, self._width)):
                clients = [self._site.client(job) for job in jobs[start : start + max(1, self._width)]]
                yield from train_so(self._site, clients, self._width)


def leave_uploads(method: Method, federation: Federation) -> None:
    """Have what clients train stay where they train, where nothing but its mean is read."""
    if takes_means_alone(method, federation):
        federation.workers.everywhere("stay")


def takes_means_alone(method: Method, federation: Federation) -> bool:
    """Whether nothing reads a round's uploads but the mean of them: no code of the method's, no protection.

    Only then may they stay where they were trained.
    """
    hooks = ("run", "round", "combine", "receive", "train", "finish")
    return (
        isinstance(method, RoundMethod)
        and not overrides(method, hooks)
        and not federation.wire.chain.protections
        and federation.compromise.adversary is None
        and type(federation.aggregator) is type(mean())
    )


def plan_width(weights: int, activations: int, free: int, examples: int = 0) -> int:
    """Clients of a stack, of so many numbers of a network and of what it makes of a batch, in `free` bytes.

    `examples` of a batch have gradients of their own, and a copy each of the weights.
    """
    each = 4 * ((COPIES + 3 * examples) * weights + 3 * activations)
    return max(1, min(WIDTH, int(SHARE * free) // max(1, each)))


def measure_width(site: Trains, clients: Sequence[Client], most: int) -> int:
    """As how wide a stack such clients train fastest, at most `most`; 0: one by one, with no step recorded.

    Measured on a device, where a stack of large networks is slower than one after another. Where all of these
    clients together are fastest, more of them are taken to be, too.
    """
    if torch.device(site.device).type == "cpu":
        return most
    few = STEPS * site.method.config.batch_size
    cut = [c.take(torch.arange(min(len(c.y), few), device=c.y.device)) for c in clients]
    took = dict[int, float]()
    for width in sorted({0, *(w for w in WIDTHS if w < len(cut)), len(cut)}):
        some = cut[: max(1, width)]
        for _ in range(2):  # kernels are loaded and chosen in the first
            began = time.perf_counter()
            train_so(site, some, width)
            took[width] = (time.perf_counter() - began) / len(some)
    fastest = min(took, key=took.__getitem__)
    return fastest if fastest < len(cut) else most


def train_so(site: Trains, clients: Sequence[Client], width: int) -> list[Reply]:
    """At most so many clients as a stack; 0: one by one."""
    return train_together(site, clients, min(2, width)) if width else [site.method.train(c) for c in clients]


def choose_width(site: Site) -> int:
    """Clients of this site that may train as one batch: as memory holds, and on a processor as pay."""
    x, _ = site.examples(site.data.train, range(min(2, len(site.data.train))))  # type: ignore[arg-type]
    return find_width(site, x)


def find_width(site: Trains, x: Tensor) -> int:
    """The same of whoever trains on examples like these [n, ...]."""
    if not is_stackable(type(site.method)):
        return 1
    sizes: list[int] = []  # of what each module computes
    hooks = [m.register_forward_hook(lambda *x: sizes.append(_count(x[2]))) for m in site.net.modules()]
    try:
        with torch.no_grad():
            site.net.eval()(x)
    finally:
        for hook in hooks:
            hook.remove()
    each = sum(sizes) * site.method.config.batch_size // max(1, len(x))
    examples = site.method.config.batch_size if site.private is not None else 0
    weights = sum(p.numel() for p in site.net.parameters())
    if torch.device(site.device).type != "cuda":  # whatever memory there is: the last bits are the width's
        return WIDTH if weights * max(1, examples) + each <= SMALL else 1
    free, _ = torch.cuda.mem_get_info(site.device)
    return plan_width(weights, each, free, examples)


def _count(out: Any) -> int:
    return out.numel() if isinstance(out, Tensor) else 0


def train_together(site: Trains, clients: Sequence[Client], fewest: int = 2) -> list[Reply]:
    """Clients side by side; the same draws and steps as one by one.

    All train as the site does, on data and with streams of their own. Fewer than `fewest` train one by one; a
    stack of one has steps that a device records, and is no faster elsewhere.
    """
    method, stacks = site.method, dict[Any, list[int]]()
    if len(clients) < fewest or not is_stackable(type(method)):
        return [method.train(c) for c in clients]
    consts = [method.compute_constants(c) for c in clients]
    for i, (client, const) in enumerate(zip(clients, consts, strict=True)):
        shapes = tuple(tuple(getattr(leaf, "shape", ())) for leaf in tree_flatten(const)[0])
        rate = method.config.lr_decay**client.round  # asynchronous rounds may differ
        stacks.setdefault((rate, shapes), []).append(i)
    replies = dict[int, Reply]()
    for (rate, _), rows in stacks.items():
        stack = _train_stack(site, [clients[i] for i in rows], [consts[i] for i in rows], rate, fewest)
        replies.update(zip(rows, stack, strict=True))
    return [replies[i] for i in range(len(clients))]


def _train_stack(site: Trains, clients: list[Client], consts: list[Any], rate: float, fewest: int) -> list[Reply]:
    """Of clients whose constants are of the same shapes."""
    method, private = site.method, site.private
    try:
        if len(clients) < (fewest if private is None else 2):
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
        return [finish(method, c, t) for c, t in zip(clients, trained, strict=True)]
    except Exception:  # of code that waits for a number, or keeps what it was given  # noqa: BLE001
        return [method.train(c) for c in clients]


def _train(site: Trains, clients: list[Client], const: Any) -> list[Trained]:
    config = site.method.config
    stack = Stack(site, clients, const)
    record = CudaRecorder() if torch.device(site.device).type == "cuda" else None
    step = Step(stack.advance, site.device, record)
    joins = has_batch_statistics(site.net)
    queues = [
        _BatchQueue(
            c, count_epochs(config, len(c.y)), split_into_batches(len(c.y), config.batch_size, joins=joins)
        )
        for c in clients
    ]
    x, y = torch.cat([c.x for c in clients]), torch.cat([c.y for c in clients])
    offsets = torch.tensor([0, *(len(c.y) for c in clients)]).cumsum(0)
    plan = _draw_steps(queues, offsets)
    crops = clients[0].augment == "crop_flip"  # whose draws lie between those of the batches
    for rows, index, last in plan if crops else _move_at_once([*plan], x.device):
        xb, yb = x[index.to(x.device)], y[index.to(x.device)]
        if crops:
            xb = torch.stack([crop_flip(b, queues[i].order) for b, i in zip(xb, rows, strict=True)])
        step(rows, xb, yb, last.to(x.device))
    return stack.finish([q.steps for q in queues], [q.lasts for q in queues])


class _BatchQueue:
    """The batches of one client, drawn as it comes to them."""

    def __init__(self, client: Client, epochs: int, sizes: Sequence[int]) -> None:
        self.order = client.generator("batches")
        self._count, self._epochs, self._sizes = len(client.y), epochs, [*sizes]
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
            self._left = list(torch.split(permutation, self._sizes))[::-1]
            self.lasts = len(self._left)
        self.next = self._left.pop() if self._left else self.next[:0]


class _Planned(NamedTuple):
    """A step of some clients."""

    rows: list[int]
    places: Tensor  # [k, b] among all clients' examples
    last: Tensor  # [k] whether it is of a client's last epoch


def _draw_steps(queues: Sequence[_BatchQueue], offsets: Tensor) -> Iterator[_Planned]:
    while rows := _choose_rows(queues):
        index = torch.stack([queues[i].next for i in rows]) + offsets[rows, None]
        yield _Planned(rows, index, torch.tensor([queues[i].is_last for i in rows]))
        for i in rows:
            queues[i].advance()


def _move_at_once(plan: Sequence[_Planned], device: torch.device) -> list[_Planned]:
    """The same steps with their numbers on the device: two copies, however many steps there are."""
    if not plan:
        return []
    index, last = (
        torch.cat(of).to(device) for of in ([p.places.flatten() for p in plan], [p.last for p in plan])
    )
    indices = torch.split(index, [p.places.numel() for p in plan])
    lasts = torch.split(last, [len(p.rows) for p in plan])
    return [
        _Planned(p.rows, index.view(p.places.shape), last)
        for p, index, last in zip(plan, indices, lasts, strict=True)
    ]


def _choose_rows(queues: Sequence[_BatchQueue]) -> list[int]:
    """The clients of the next step: the most whose next batches are of one size; of equals the largest batch."""
    sizes = Counter(len(q.next) for q in queues if len(q.next))
    if not sizes:
        return []
    size = max(sizes, key=lambda n: (sizes[n], n))
    return [i for i, q in enumerate(queues) if len(q.next) == size]
