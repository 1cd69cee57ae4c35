"""UnSplit, labels: the label whose gradient by a head of the server's own is nearest to the one that was sent.

Erdogan, Kupcu, Cicek. UnSplit: Data-Oblivious Model Inversion, Model Stealing, and Label Inference Attacks
Against Split Learning. WPES 2022, arXiv:2108.09033, label inference. In the U-shape a client keeps the last layer
and its labels, gets h of the server and sends back g, the gradient of its loss by h. The server tries every label
c on a head s~ of its own and names

    argmin_c  || d/dh CE(s~(h), c) - g ||^2,    then steps  s~  down  CE(s~(h), that label)

with Adam (amsgrad), batch after batch. Its head begins with what it knows of the clients': the layers that were
handed out or are released, which hold the last one as well, or else as it is drawn. A head that is drawn knows
no class by name, so beside it stands one that is drawn and never steps.

The authors' code (ege-erdogan/unsplit, 4d972bf) compares gradients of the last layer's own weights, (p - y) h^T,
in which the label is the one row that points against h: exact by algebra, whatever the head. They do not cross in
the U-shape, and are not read here.

The planted leak: gradients of the true labels by a head drawn anew, of which the attack knows as much as it did
of the clients'.

Claim: distances float64 [k, C] of each example to what each label would give, random_head of the same shape,
batch, row, client, round [k] and artifact [k] as text; replay [1], what plants the leak; source [1].
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Knowledge, Truth
from fedaudit.attacks.batches._running import descend, draw_network
from fedaudit.attacks.batches.gradient_labels import compute_area
from fedaudit.attacks.evaluation.artifacts import Artifacts, index
from fedaudit.attacks.evaluation.batch_readings import find_layers
from fedaudit.attacks.evaluation.counting import CountedPeople
from fedaudit.attacks.evaluation.decoder import tensor
from fedaudit.attacks.evaluation.groups import HELD, count_clients
from fedaudit.attacks.evaluation.judging import Control, Judge
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.modality.images import to_rows
from fedaudit.attacks.people import PeopleCount
from fedaudit.fl.artifact import Artifact, Channel, Role
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Harm, Position, ThreatModel

Floats = NDArray[np.floating[Any]]
Labels = NDArray[np.int64]
RANDOM_HEAD = "a head that is drawn and never steps"
DRAWN = "drawn"
HIT = "the label is right: its gradient is nearest to the one that was sent"


class UnsplitLabels(Attack):
    card = Card(
        title="UnSplit: labels from the gradient that a client sends back",
        source="arXiv:2108.09033, label inference",
        aim=Aim.ATTRIBUTE,
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture"})),
        requires=(Kind.SMASHED_GRADIENT,),
        also_reads=(Kind.SMASHED, Kind.GLOBAL_MODEL),
        aids=(Kind.SMASHED, Kind.GLOBAL_MODEL),
        learns="the label of every example of a batch, though clients keep their labels",
        does_not_show="what a server finds that knows one example's label, nor labels of earlier rounds",
        remedy="release no last layer, and noise the gradients that clients send back",
        effort=Effort(seconds=2, grows=("clients",)),
    )

    @settings
    class Config:
        lr: Amount = Field(default=1e-3, description="step size of the server's own head after each batch")
        batches: AtLeastOne = Field(default=8, description="newest batches of each client to read")

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        seen, lr = index(view), self.config.lr
        sent = _list_pairs(seen, self.config.batches)
        layers, source = find_layers(seen, sent[-1][1])
        known = None if layers is None else layers.payload
        pairs = [(_flatten(h, "activations"), _flatten(g, "gradient")) for h, g in sent]
        head, seed = Heads(knowledge), int(rng.integers(2**62))
        sizes = [len(g) for _, g in pairs]

        def spread(values: Sequence[Any]) -> NDArray[Any]:
            return np.repeat(np.array(values), sizes)

        replay = np.empty(1, object)
        replay[0] = ReplayedLabels(head, [h for h, _ in pairs], known is not None, lr)
        return {
            "distances": np.concatenate(head.measure(pairs, known, seed, lr)),
            "random_head": np.concatenate(head.measure(pairs, None, seed, 0.0)),
            "batch": spread(range(len(sent))),
            "row": np.concatenate([np.arange(n) for n in sizes]),
            "client": spread([g.sender.index for _, g in sent]),
            "round": spread([g.round for _, g in sent]),
            "artifact": spread([g.id for _, g in sent]),
            "replay": replay,
            "source": np.array([DRAWN if known is None else source]),
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        [replay], [source] = claim["replay"], claim["source"].tolist()
        read = list(_read_batches(claim, truth))
        if not read:
            return []
        note = f"AUC of one label against the others, mean over batches; the server's head begins as {source}"
        planted, blind = replay.plant({r.batch: r.y for r in read}, rng)
        silent = [r.y[rng.permutation(len(r.y))] for r in read]
        clients, labels = [r.client for r in read], [r.y for r in read]
        last = {"round": int(claim["round"].max())}
        found = [
            _judge((clients, labels), [r.near for r in read], [r.blind for r in read], last, "none", rng, note),
            _judge((clients, labels), planted, blind, {"origin": "planted"}, "positive", rng, note),
            _judge(
                (clients, silent), [r.near for r in read], None, {}, "negative", rng, "labels in random order"
            ),
        ]
        return [e for e in found if e is not None]

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        """Whose label is right; luck is that of labels in random order. And whose client's classes are."""
        found, lucky, tried = CountedPeople(HIT, Harm.ATTRIBUTE), 0.0, 0
        present: dict[int, NDArray[np.bool_]] = {}
        for r in _read_batches(claim, truth):
            named = r.near.argmin(axis=1)
            said = np.isin(np.arange(r.near.shape[1]), named)
            present[r.client] = said | present.get(r.client, said)
            found.test(r.client, r.rows, r.rows[named == r.y])
            lucky += float((named == rng.permutation(r.y)).sum())
            tried += len(r.y)
        found.luck(lucky, tried)
        of_clients = (
            count_clients(np.array([*present]), np.array([*present.values()]), HELD, truth) if present else []
        )
        return [*found.people(truth), *of_clients]

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not _list_pairs(index(view), 1):
            return "no client sends back a gradient of what the server passed on"
        return ""


@dataclass(frozen=True)
class Heads:
    """The last layer as the server runs it on what it passed on."""

    knowledge: Knowledge

    def measure(
        self, pairs: Sequence[tuple[Floats, Floats]], weights: Mapping[str, Any] | None, seed: int, lr: float
    ) -> list[NDArray[np.float64]]:
        """[b, C] squared distances of each batch's gradients to those of each label; `lr`: of steps in between.

        `weights` None: a head that is drawn with `seed`.
        """
        import torch
        from torch.nn.functional import cross_entropy

        head, moved = self._build(weights, seed)
        optimiser, found = eager(torch.optim.Adam)(moved, lr=lr, amsgrad=True), list[NDArray[np.float64]]()
        for h, g in pairs:
            x = tensor(h, self.knowledge.device).requires_grad_()
            lost = -head(x).log_softmax(1).mean(0)[: self.knowledge.classes]  # were it the label of all, by label
            [each] = torch.autograd.grad(lost, x, torch.eye(len(lost), device=x.device), is_grads_batched=True)
            tried = each.cpu().numpy().astype(np.float64).swapaxes(0, 1)
            found.append(np.square(tried - g[:, None]).sum(axis=2))
            if lr:
                y = torch.from_numpy(found[-1].argmin(axis=1)).to(x.device)
                descend(optimiser, moved, cross_entropy(head(x.detach()), y))
        return found

    def send(self, batches: Iterable[tuple[Floats, Labels]], seed: int) -> list[NDArray[np.float32]]:
        """[b, D] what a client with a head that is drawn so sends of each h [b, D] and its labels [b]."""
        import torch
        from torch.nn.functional import cross_entropy

        (head, _), found = self._build(None, seed), list[NDArray[np.float32]]()
        for h, y in batches:
            x = tensor(h, self.knowledge.device).requires_grad_()
            loss = cross_entropy(head(x), torch.from_numpy(np.asarray(y, np.int64)).to(x.device))
            found.append(np.asarray(torch.autograd.grad(loss, x)[0].cpu().numpy()))
        return found

    def _build(self, weights: Mapping[str, Any] | None, seed: int) -> tuple[Any, list[Any]]:
        """The last layer with these weights, or drawn, and the weights that it may move."""
        if weights is None:
            module = draw_network(self.knowledge, seed).module()
        else:
            module = self.knowledge.granted_architecture(weights).module()
        return module.head, [p.requires_grad_() for p in module.parameters()]


@dataclass(frozen=True)
class ReplayedLabels:
    """The gradients of true labels by a head drawn anew, and what the attack makes of them."""

    heads: Heads
    passed: Sequence[Floats]  # h of each batch
    is_known: bool  # whether the server knows the head that it has to find labels under
    lr: float

    def plant(self, labels: Mapping[int, Labels], rng: np.random.Generator) -> tuple[list[Floats], list[Floats]]:
        """Of each of these batches the attack's distances, and those by a head that is drawn and never steps."""
        own, other = (int(seed) for seed in rng.integers(2**62, size=2))
        passed = [self.passed[i] for i in labels]
        pairs = [*zip(passed, self.heads.send(zip(passed, labels.values(), strict=True), own), strict=True)]
        near = self.heads.measure(pairs, None, own if self.is_known else other, self.lr)
        return list(near), list(self.heads.measure(pairs, None, other, 0.0))


class ReadBatch(NamedTuple):
    """One batch of which the truth is known."""

    batch: int
    client: int
    near: Floats  # [b, C]
    blind: Floats
    y: Labels
    rows: Labels  # of the training data


def _judge(
    batches: tuple[Sequence[int], Sequence[Labels]],
    near: Sequence[Floats],
    blind: Sequence[Floats] | None,
    condition: Mapping[str, int | str],
    control: Control,
    rng: np.random.Generator,
    note: str,
) -> Evidence | None:
    """`batches`: the client and the labels of each."""
    clients = np.array([k for k, y in zip(*batches, strict=True) for c in np.unique(y) if len(np.unique(y)) > 1])
    if not len(clients):
        return None
    others = {"chance": np.full(len(clients), 0.5)}
    if blind is not None:
        others[RANDOM_HEAD] = _score(blind, batches[1])
    judge = Judge(control=control, condition=dict(condition), note=note)
    return judge.judge_values("label_auc", _score(near, batches[1]), others, rng, groups=clients, bounds=(0, 1))


def _score(near: Sequence[Floats], labels: Sequence[Labels]) -> Floats:
    """AUC of each label of each batch against the others: how much nearer it is than the nearest other label."""
    found = []
    for d, y in zip(near, labels, strict=True):
        for c in np.unique(y):
            score = np.delete(d, c, axis=1).min(axis=1) - d[:, c]
            if (y != c).any():
                found.append(compute_area(score[y == c], score[y != c]))
    return np.array(found)


def _list_pairs(view: Artifacts, most: int) -> list[tuple[Artifact, Artifact]]:
    """What the server passed on and the gradient that came back, of each client's newest batches, in order."""
    back, passed = (defaultdict[tuple[str, int], list[Artifact]](list) for _ in range(2))
    for a in view.select(kind=Kind.SMASHED_GRADIENT, channel=Channel.UPLINK, origin="recorded"):
        if a.sender.role == Role.CLIENT:
            back[str(a.sender), a.round].append(a)
    for a in view.select(kind=Kind.SMASHED, channel=Channel.DOWNLINK, origin="recorded"):
        passed[a.seen_by[0] if a.seen_by else "", a.round].append(a)
    newest = {client: max(r for k, r in back if k == client) for client, _ in back}
    found = []
    for client, round in sorted(newest.items()):
        gradients, inputs = back[client, round], passed[client, round]
        if len(gradients) == len(inputs):
            found += list(zip(inputs, gradients, strict=True))[-most:]
    return found


def _flatten(sent: Artifact, name: str) -> NDArray[np.float32]:
    return to_rows(np.asarray(sent.payload[name], np.float32))


def _read_batches(claim: Claim, truth: Truth) -> Iterator[ReadBatch]:
    """Each batch of which somebody told whose examples it is."""
    for batch in np.unique(claim["batch"]).tolist():
        own = claim["batch"] == batch
        true = truth.find_batch(str(claim["artifact"][own][0]))
        if true is not None and len(true.rows) == own.sum():
            near, blind = claim["distances"][own], claim["random_head"][own]
            yield ReadBatch(batch, true.client, near, blind, np.asarray(true.images.y), true.rows)
