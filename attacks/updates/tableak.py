"""TabLeak: rows of a table, fitted together to the gradient that an update shows.

Vero, Balunovic, Dimitrov, Vechev. TabLeak: Tabular Data Leakage in Federated Learning. ICML 2023,
arXiv:2210.01785, Alg. 1:

    x = argmin 1 - cos(gradient(c(x), y), g),   c(x): numbers as they are, softmax(x / T) of each category

by Adam from several starts; rows of a start are aligned to those of the start with the least loss, and the
median over starts is claimed. How far starts differ at a value, its entropy, is how sure the adversary is of it.
Changed: labels are read off the last layer (label_counts_from_gradient); T falls from 1000 by a fiftieth a step,
to .3 at least; rows are aligned to rows of their label; starts that end ten times as far off as the best have no
part in the median, which of four rows they spoil; values are put on the grids and into the ranges of columns.

Of updates of many steps it takes the mean gradient, and of more rows than `most` it claims nothing. Other
people's rows come near too, once the best is picked: shares of values stand beside those of blind rows, matched
in the same way. The planted leak is one step on one of a client's rows, from the model that was sent out.

Claim: as row_recovery.py; entropy float64 [k, F] of each value, comparable within a column; rule, objects [1].
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Claim, Effort, Knowledge, Truth
from fedaudit.attacks.evaluation import searches
from fedaudit.attacks.evaluation.disguised import loneliest
from fedaudit.attacks.evaluation.gradients import Imitation, Update, cosine_distance
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evaluation.last_layer import head_names
from fedaudit.attacks.evaluation.row_recovery import MIDDLE, PUBLIC, RowRecovery, claim_rows
from fedaudit.attacks.evaluation.update_inversion import CARD
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.modality import table
from fedaudit.attacks.updates.label_counts_from_gradient import count_by_rules
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.data.columns import Columns, Rows
from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Position, ThreatModel

if TYPE_CHECKING:
    from torch import Tensor

Labels = NDArray[np.int64]
Hits = NDArray[np.bool_]
HOT, COOLING, COLD = 1000.0, 0.98, 0.3  # temperatures of categories: the first, times a step, the least
AS_NEAR = 10  # times the least distance, up to which a start has part in the median
ROUNDING = 1e-7  # of a cosine in single precision
NEAR = 0.319  # of a deviation: what TabLeak's authors count as right
SURE = "the half of each column of which starts agree most"


class Tableak(RowRecovery):
    card = replace(
        CARD,
        title="TabLeak",
        source="arXiv:2210.01785, Alg. 1",
        needs=("rows", "classes"),
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture", "auxiliary_data"})),
        control="",  # planted in measure()
        learns="rows of a table that a client trained on, from what its update says of all of them together",
        does_not_show="rows of larger batches, of which a search finds values that other people's rows have too, "
        "and of training by Adam",
        remedy="train on larger batches, sum uploads securely, or clip and noise them with a stated epsilon",
        effort=Effort(seconds=30, grows=("network",), settings=("iterations", "recorded")),
    )
    on_accelerator = searches.Searching.on_accelerator
    leak = "one step on one row, from the model that was sent out"

    @settings
    class Config:
        recorded: AtLeastOne = Field(default=10, description="clients of whom an upload is attacked, at most")
        most: AtLeastOne = Field(default=32, description="rows behind an upload that is attacked, at most")
        iterations: AtLeastOne = Field(default=400, description="steps of Adam on the rows")
        restarts: AtLeastOne = Field(default=5, description="starts, of which the median is claimed")
        lr: Amount = Field(default=0.06, description="step size on the rows")

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        chosen = self._choose(view, knowledge)
        rule = np.empty(1, object)
        rule[0] = Search(self.config, knowledge, chosen[0]) if chosen else None
        ordered = sorted(chosen, key=lambda u: u.client)
        rows = rule[0].invert(ordered, rng) if chosen else []
        found = {u.client: one for u, one in zip(ordered, rows, strict=True)}
        entropies = [np.zeros((0, knowledge.shape[0])), *(entropy for _, entropy in found.values())]
        claim = claim_rows({client: rows for client, (rows, _) in found.items()}, knowledge)
        return {**claim, "entropy": np.concatenate(entropies), "rule": rule}

    def plant(self, rows: Rows, claim: Claim, rng: np.random.Generator) -> Rows:
        search: Search = claim["rule"][0]
        label = rng.integers(search.knowledge.classes, size=1)
        [(found, _)] = search.invert([search.send(rows[:1], label)], rng)
        return found

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        return [*super().measure(claim, truth, rng), *judge_values(claim, truth, rng)]

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not self._choose(view, knowledge):
            return (
                f"no upload is of at most {self.config.most} rows and holds the last layer, "
                "with the model that it started from"
            )
        return ""

    def _choose(self, view: Sequence[Artifact], knowledge: Knowledge) -> list[Update]:
        heads: dict[int, str] = {}

        def applies(update: Update) -> bool:
            if id(update.start) not in heads:
                heads[id(update.start)] = head_names(update.start, knowledge)[0]
            is_small = update.client >= 0 and update.examples <= self.config.most
            return is_small and heads[id(update.start)] in update.gradient

        return loneliest(view, knowledge, applies)[: self.config.recorded]


@dataclass(frozen=True, kw_only=True)
class Fit(searches.Search):
    """For the rows of one update, from inputs [starts, n, width]."""

    update: Update
    labels: Labels  # [n]

    @property
    def kind(self) -> Hashable:
        return len(self.labels), tuple((k, v.shape) for k, v in self.update.gradient.items())


@dataclass(frozen=True)
class Search(searches.Searching[Fit, tuple[Rows, Rows]]):
    """Fits rows to gradients; `start` is an update whose model single rows are planted in."""

    config: Tableak.Config
    knowledge: Knowledge
    start: Update

    @cached_property
    def columns(self) -> Columns:
        return table.read_columns(self.knowledge)

    def send(self, rows: Rows, labels: Labels) -> Update:
        """What a client would have sent of one step on rows [n, F]."""
        import torch

        copy = self._copy(self.start)
        inputs = self._enter(torch.from_numpy(self.columns.model_input(rows)).to(copy.device))
        found = copy.gradient(inputs, torch.from_numpy(labels).to(copy.device))
        sent = {copy.keys[n]: g.detach().cpu().numpy() for n, g in zip(copy.names, found, strict=True)}
        n = len(rows)
        return replace(self.start, gradient=sent, examples=n, batch=n, steps=1)

    def invert(self, updates: Sequence[Update], rng: np.random.Generator) -> list[tuple[Rows, Rows]]:
        """Of each update rows [n, F], and the entropy [n, F] of each of their values."""
        return self.search((self._draw(u, rng) for u in updates), self.knowledge.device)

    def _draw(self, update: Update, rng: np.random.Generator) -> Fit:
        import torch

        counts = count_by_rules(update, *head_names(update.start, self.knowledge), self.knowledge, {})[0]
        labels = np.repeat(np.arange(len(counts)), counts)
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        x = torch.randn((self.config.restarts, len(labels), self.columns.width), generator=generator)
        return Fit(start=[x], update=update, labels=labels)

    def imitate(self, search: Fit, stackable: bool) -> Imitation:
        return self._copy(search.update)

    def read(self, search: Fit, copy: Imitation) -> "list[Tensor]":
        """Labels, the gradient, and the weights at which it was taken."""
        import torch

        own = self._copy(search.update)
        return [torch.from_numpy(search.labels).to(own.device), *own.target, *own.state.values()]

    def list_measures(self, search: Fit, copy: Imitation) -> list[searches.Measure]:
        from torch.func import vmap

        names, end = [*copy.state], len(copy.names)

        def measure(x: "Tensor", temperature: "Tensor", y: "Tensor", *given: "Tensor") -> "tuple[Tensor, Tensor]":
            """What is minimised, and how far each start's gradient is from the update's."""
            target, weights = given[:end], dict(zip(names, given[end:], strict=True))
            found = copy.gradients(self._enter(soften(x, self.columns, temperature)), y, weights)
            apart = vmap(lambda *one: cosine_distance(one, target))(*found)
            return apart.sum(), apart

        return [measure]

    def descend(
        self, variables: "Sequence[Tensor]", measures: Sequence[searches.Measure], stacked: bool
    ) -> "list[Tensor]":
        """Inputs [starts, n, width] that lead to the gradient, and how far each start's is from it [starts]."""
        import torch

        [x], [measure] = variables, measures
        optimiser, temperature = eager(torch.optim.Adam)([x.requires_grad_(True)], lr=self.config.lr), HOT

        def heat() -> Any:
            return torch.full((len(x),), temperature, device=x.device) if stacked else temperature

        for _ in range(self.config.iterations):
            (x.grad,) = torch.autograd.grad(measure(x, heat())[0].sum(), [x])
            optimiser.step()
            temperature = max(COLD, COOLING * temperature)
        return [soften(x, self.columns, temperature).detach(), measure(x, heat())[1].detach()]

    def finish(self, search: Fit, found: "Sequence[Tensor]") -> tuple[Rows, Rows]:
        inputs, apart = found
        return self.pool(inputs.double().numpy(), apart.nan_to_num(np.inf).double().numpy(), search.labels)

    def pool(self, inputs: Rows, apart: Rows, labels: Labels) -> tuple[Rows, Rows]:
        """The same of inputs [starts, n, width] that end so far off [starts], of labels [n] in each start."""
        first = int(apart.argmin())
        aligned = np.stack([one[self._align(one, inputs[first], labels)] for one in inputs])
        good = apart <= AS_NEAR * max(float(apart.min()), ROUNDING)
        rows = self._read(np.median(aligned[good], axis=0))
        return rows, measure_entropy(aligned, self.columns)

    def _copy(self, update: Update) -> Imitation:
        module = self.knowledge.granted_architecture(update.start).module()
        return Imitation(update, self.knowledge, module if self.knowledge.columns is None else module.net)

    def _enter(self, inputs: "Tensor") -> "Tensor":
        """What the network is given: inputs as columns make them, or rows where nobody described these."""
        import torch

        if self.knowledge.columns is not None:
            return inputs
        mean, std = (torch.tensor(v).to(inputs) for v in (self.columns.mean, self.columns.std))
        return inputs * std + mean

    def _read(self, inputs: Rows) -> Rows:
        rows = self.columns.read_input(inputs)
        for i, column in enumerate(self.columns.columns):
            if column.low is not None:
                rows[:, i] = rows[:, i].clip(column.low, column.high)
        return self.columns.snap(rows)

    def _align(self, inputs: Rows, first: Rows, labels: Labels) -> Labels:
        """[n] which of these rows is which of the first's, of the same label."""
        place = np.arange(len(labels))
        rows, wanted = self._read(inputs), self._read(first)
        for label in np.unique(labels):
            (same,) = np.nonzero(labels == label)
            place[same] = same[table.match_rows(rows[same], wanted[same], self.columns)]
        return place


def soften(x: "Tensor", columns: Columns, temperature: "float | Tensor") -> "Tensor":
    """[..., width] inputs of a network: categories are softmax of their part, a flag of a number a sigmoid."""
    import torch

    parts: list[Tensor] = []
    for column, span in zip(columns.columns, columns.spans, strict=True):
        part = x[..., span]
        if column.kind == "category":
            part = (part / temperature).softmax(-1)
        elif column.missing:
            flag = (part[..., 1:] / temperature).sigmoid()
            part = torch.cat([part[..., :1] * (1 - flag), flag], -1)
        parts.append(part)
    return torch.cat(parts, -1)


def measure_entropy(inputs: Rows, columns: Columns) -> Rows:
    """[n, F] entropy of values over starts, of inputs [starts, n, width]: of a mean category, of a normal law."""
    found = np.empty((inputs.shape[1], len(columns)))
    for i, (column, span) in enumerate(zip(columns.columns, columns.spans, strict=True)):
        part = inputs[..., span]
        if column.kind == "category":
            share = part.mean(axis=0).clip(1e-12, 1)
            found[:, i] = -(share * np.log(share)).sum(axis=-1)
        else:
            found[:, i] = np.log(part[..., 0].std(axis=0) + 1e-12)
    return found


@dataclass
class Matched:
    """Values of people to whom claimed rows are matched, and whether guesses of them are near, [rows, F] each."""

    clients: list[int] = field(default_factory=list)
    sure: list[Hits] = field(default_factory=list)
    right: dict[str, list[Hits]] = field(default_factory=lambda: {"": [], PUBLIC: [], MIDDLE: []})

    def judge(self, judge: Judge, rng: np.random.Generator, *, surest: bool = False) -> Evidence:
        """The share of a row's values that are near; `surest`: of those of which the adversary is most sure."""
        right = {name: np.concatenate(some) for name, some in self.right.items()}
        asked = np.concatenate(self.sure) if surest else np.ones_like(right[""])
        some = asked.any(axis=1)
        number = asked[some].sum(axis=1)
        shares = {name: (hits & asked)[some].sum(axis=1) / number for name, hits in right.items()}
        groups = np.array(self.clients)[some]
        own = shares.pop("")
        return judge.judge_values(
            "values_near", own, shares, rng, groups=groups, bounds=(0, 1), is_blind_bounded=True
        )


def judge_values(claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
    """How many values of matched rows are near, beside blind rows that are matched in the same way."""
    columns: Columns = claim["columns"][0]
    public, entropy = np.asarray(truth.auxiliary.x, np.float64), claim["entropy"]
    sure = entropy <= np.median(entropy, axis=0) if len(entropy) else entropy > 0
    middle, own, held = table.find_middle(public, columns), Matched(), Matched()
    for client in claim["read"].tolist():
        mine = claim["client"] == client
        claimed = claim["row"][mine]
        repeated = np.tile(middle, (len(claimed), 1))
        guesses = {"": claimed, PUBLIC: table.draw_rows(public, len(claimed), rng), MIDDLE: repeated}
        people, others = truth.client_examples(client).x, truth.unseen({client}).images.x
        others = others[rng.permutation(len(others))[: len(people)]]
        for matched, x in ((own, people), (held, others)):
            true = np.asarray(x, np.float64)
            found = {name: table.compare_rows(rows, true, columns, NEAR) for name, rows in guesses.items()}
            (given,) = np.nonzero(found[""].claim >= 0)
            matched.clients += [client] * len(given)
            matched.sure.append(sure[mine][found[""].claim[given]])
            for name, one in found.items():
                matched.right[name].append(one.right[given])
    if not own.clients:
        return []
    surest = Judge(condition={"values": SURE})
    evidence = [own.judge(Judge(), rng), own.judge(surest, rng, surest=True)]
    negative = Judge(control="negative", note="the same rows, matched to held-out people's")
    return [*evidence, held.judge(negative, rng)] if held.clients else evidence
