"""Missing column: one value of a known person, from a model that was trained on the whole row.

Fredrikson et al., USENIX Security 2014 (Privacy in Pharmacogenetics), algorithm 1; Yeom, Giacomelli, Fredrikson,
Jha, CSF 2018, arXiv:1709.01604, sec. 4. Whoever knows a person's label and all columns but one fills in each
value that the column may have, and takes the one by which the label is likeliest times what public people say:

    argmax over v of  log p(label | row with v) + log q(v | the rest)

A column's values are the levels of a category, or the fifths of public people's numbers, each by its middle. q is
the share among the NEAREST public people by Gower's distance over what is known, smoothed by the shares of all.

Much of that is no leak: what is right of somebody is right by imputation too, and by any model of such data
(Jayaraman and Evans, CCS 2022). So the same people are asked of q alone, and of the same rule with a model that
was trained on public people and never saw the person; a finding is what is right beyond both. The negative
control asks about people who were held out, the planted leak is a model that has learnt people by heart whose
columns and labels were dealt out at random, so that nothing else says anything of them.

Claim: rule, objects [1], and artifact [1] of the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Examples, Knowledge, Truth
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.built import BuiltOnce
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evaluation.scores import measure_fit
from fedaudit.attacks.evaluation.sources import global_model
from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.attacks.modality.table import read_columns
from fedaudit.attacks.models._shadows import lacking
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.data.columns import Column, Columns, Rows
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

NEAREST = 20  # public people
MOST_PUBLIC = 1000  # who are compared with each person
PARTS = 5  # of a number's values
PLANTED = 100  # people of the planted leak, at most
BY_HEART = 10  # times the epochs of the other model
IMPUTED, OTHER = "imputed from public rows", "a model that never saw the person"
Hits = NDArray[np.bool_]


class MissingColumn(Attack):
    card = Card(
        title="A missing value of a known person",
        source="Fredrikson et al., USENIX Security 2014, algorithm 1; Yeom et al., CSF 2018, sec. 4",
        aim=Aim.ATTRIBUTE,
        needs=("rows", "answers"),
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture", "auxiliary_data"})),
        requires=(Kind.GLOBAL_MODEL,),
        learns="one value of a person's row, by whoever knows the rest of it, the label and the model",
        does_not_show="what somebody learns who knows less of a person, or has several models; what the model "
        "says of such people in general, which it says of people it never saw too",
        control="",  # planted in measure()
        uncounted="what is right of one person may be right by imputation, so that shares of many are compared",
        remedy="train with dp_sgd or central_dp for a stated epsilon, with fewer epochs and more regularisation",
        effort=Effort(seconds=4, grows=("network", "auxiliary"), settings=("people", "epochs")),
    )

    @settings
    class Config:
        people: AtLeastOne = Field(default=300, description="people who are asked about, at most")
        epochs: AtLeastOne = Field(default=20, description="epochs of the model that never saw the person")

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        model = _find_model(view)
        assert model is not None, "not_applicable says so"
        rule = np.empty(1, object)
        rule[0] = Imputation(
            {k: model.payload[k] for k in model.payload}, knowledge, self.config.epochs, int(rng.integers(2**40))
        )
        return {"rule": rule, "artifact": np.array([model.id])}

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        asked = self._questions(claim, truth)
        sorts = (
            (Judge(), asked.own, asked.clients),
            (Judge(control="negative", note="people who were held out"), asked.held, asked.held_clients),
            (Judge(control="positive", note="a model that has learnt them by heart"), asked.planted, None),
        )
        found = list[Evidence]()
        for judge, answers, clients in sorts:
            if not len(answers.model):
                continue
            groups = np.arange(len(answers.model)) if clients is None else clients
            if judge.control == "none":
                shares = answers.known.sum(axis=1)
                blind = {IMPUTED: answers.imputed, OTHER: answers.other}
                right = {name: hits[answers.known] for name, hits in blind.items()}
                found.append(
                    judge.judge_hits(
                        "value_known", answers.model[answers.known], right, groups=np.repeat(groups, shares)
                    )
                )
            gain = answers.gain
            interval = judge.bound_mean(gain, rng, groups=groups, bounds=(-1, 1))
            note = "" if interval is not None and interval[0] > 0 else "nothing beyond both"
            zero = [Baseline(name="the better of both", value=0.0)]
            found.append(judge.state("value_beyond", float(gain.mean()), len(gain), interval, zero, note))
        return found

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if len(knowledge.shape) != 1:
            return "the clients' examples are no rows of a table, and have no column to miss"
        if knowledge.task is not None and not knowledge.task.separable:
            return "what a model says of a person depends on who else is asked, so values of one are not compared"
        return lacking(knowledge) or ("" if _find_model(view) else "no global model was recorded")

    @cached_property
    def _questions(self) -> "BuiltOnce[Asked]":
        return BuiltOnce(lambda claim, truth, _: ask(claim, truth, self.config.people))


def _find_model(view: Sequence[Artifact]) -> Artifact | None:
    return global_model(index(view), max((a.round for a in view), default=0))


@dataclass(frozen=True)
class Answers:
    """Whether values are right, bool [people, columns] each, and which are there to be asked about."""

    known: Hits
    model: Hits
    imputed: Hits
    other: Hits

    @property
    def gain(self) -> NDArray[np.float64]:
        """[people] the share that the model gets right beyond that of the better of both others."""
        number = np.maximum(self.known.sum(axis=1), 1)
        model, *others = ((h & self.known).sum(axis=1) / number for h in (self.model, self.imputed, self.other))
        return np.asarray(model - max(others, key=lambda share: float(share.mean())))


@dataclass(frozen=True)
class Asked:
    """Clients' people and held-out ones, and what is right of them."""

    clients: NDArray[np.int64]  # [n]
    own: Answers
    held_clients: NDArray[np.int64]  # [m] in the place of whose people they are asked about
    held: Answers
    planted: Answers


def ask(claim: Claim, truth: Truth, most: int) -> Asked:
    """As many people of each client, and of those held out in their place."""
    rule: Imputation = claim["rule"][0]
    clients = sorted(truth.find_contributors(str(claim["artifact"][0])))
    each, rng = max(1, most // max(1, len(clients))), np.random.default_rng(rule.seed)
    own, held, of, of_held = list[Examples](), list[Examples](), list[int](), list[int]()
    for client in clients:
        images, unseen = truth.client_examples(client), truth.unseen({client}).images
        chosen = np.sort(rng.permutation(len(images))[:each])
        others = unseen.only(np.sort(rng.permutation(len(unseen))[: len(chosen)]))
        own.append(images.only(chosen))
        held.append(others)
        of += [client] * len(chosen)
        of_held += [client] * len(others)
    nobody = truth.auxiliary.only(np.zeros(0, np.int64))
    people, held_out = Examples.join([nobody, *own]), Examples.join([nobody, *held])
    planted = held_out.only(np.sort(rng.permutation(len(held_out))[:PLANTED]))
    dealt = rng.permutation(len(planted))
    labels = None if planted.labels is None else planted.wanted[dealt]
    strange = rng.permuted(planted.x, axis=0)  # whose columns say nothing of each other
    planted = Examples(x=strange, y=planted.y[dealt], labels=labels)
    return Asked(
        np.array(of, np.int64),
        rule.answer(people),
        np.array(of_held, np.int64),
        rule.answer(held_out),
        rule.answer(planted, by_heart=True),
    )


@dataclass(frozen=True)
class Imputation:
    """Fills in values of known people by a model, by public rows, and by a model of these."""

    weights: Mapping[str, NDArray[Any]]
    knowledge: Knowledge
    epochs: int
    seed: int

    @cached_property
    def columns(self) -> Columns:
        return read_columns(self.knowledge)

    @cached_property
    def _public(self) -> Examples:
        some = self.knowledge.granted_auxiliary
        rows = np.random.default_rng(self.seed).permutation(len(some))[:MOST_PUBLIC]
        return some.only(np.sort(rows))

    @cached_property
    def _values(self) -> list[Rows]:
        """Of each column the values that are filled in."""
        columns = zip(self.columns.columns, np.asarray(self._public.x, np.float64).T, strict=True)
        return [list_values(column, public) for column, public in columns]

    def answer(self, people: Examples, *, by_heart: bool = False) -> Answers:
        """What is right of people; `by_heart`: by a model that has learnt them, and not by the recorded one."""
        x = np.asarray(people.x, np.float64)
        shape = len(x), len(self.columns)
        known = ~np.isnan(x)
        model, imputed, other = right = [np.zeros(shape, bool) for _ in range(3)]
        if not len(x):
            return Answers(known, model, imputed, other)
        queries = np.concatenate([_fill(x, c, v) for c, values in enumerate(self._values) for v in values])
        asked = Examples(
            x=queries.astype(people.x.dtype), y=np.tile(people.y, len(queries) // len(x)), labels=None
        )
        if people.labels is not None:
            times = (len(queries) // len(x), *(1,) * (people.labels.ndim - 1))
            asked = Examples(x=asked.x, y=asked.y, labels=np.tile(people.labels, times))
        fits = self._fit(people, asked, self.epochs * BY_HEART) if by_heart else self._fit_recorded(asked)
        others = self._fit(self.knowledge.granted_auxiliary, asked, self.epochs)
        start = 0
        for c, values in enumerate(self._values):
            part = slice(start, start + len(values) * len(x))
            start = part.stop
            fit, blind = (f[part].reshape(len(values), len(x)).T for f in (fits, others))
            prior = np.log(self._impute(people, c))
            true = place_values(x[:, c], values)
            for hits, score in zip(right, (fit + prior, prior, blind + prior), strict=True):
                hits[:, c] = known[:, c] & (score.argmax(axis=1) == true)
        return Answers(known, model, imputed, other)

    def _fit_recorded(self, asked: Examples) -> NDArray[np.float64]:
        answers = self.knowledge.granted_architecture(self.weights).logits(asked.x)
        return measure_fit(self.knowledge.task, answers, asked.wanted)

    def _fit(self, taught: Examples, asked: Examples, epochs: int) -> NDArray[np.float64]:
        """By a model that was trained on these."""
        assert self.knowledge.trainer is not None, "not_applicable says so"
        everybody = [np.arange(len(taught))]
        answers = self.knowledge.trainer(taught, everybody, asked.x, epochs=epochs, seed=self.seed)[0]
        return measure_fit(self.knowledge.task, answers, asked.wanted)

    def _impute(self, people: Examples, column: int) -> Rows:
        """[n, values] how likely each is by public people who are like a person in all else."""
        public, values = np.asarray(self._public.x, np.float64), self._values[column]
        there = ~np.isnan(public[:, column])
        places = place_values(public[there, column], values)
        shares = (np.bincount(places, minlength=len(values)) + 1) / (len(places) + len(values))
        rest, found = [i for i in range(len(self.columns)) if i != column], np.empty((len(people), len(values)))
        for i, (row, label) in enumerate(zip(np.asarray(people.x, np.float64), people.y, strict=True)):
            apart = self.columns.differences(row, public[there])[:, rest].sum(axis=1)
            near = np.argsort(apart + (self._public.y[there] != label), kind="stable")[:NEAREST]
            found[i] = (np.bincount(places[near], minlength=len(values)) + shares) / (len(near) + 1)
        return found


def list_values(column: Column, public: Rows) -> Rows:
    """The values [k] of a column that are filled in: its levels, or the middles of fifths of public numbers."""
    if column.kind == "category":
        return np.arange(len(column.levels), dtype=np.float64)
    numbers = np.unique(public[~np.isnan(public)])
    if len(numbers) <= PARTS:
        return numbers if len(numbers) else np.zeros(1)
    middles = np.nanquantile(public, (np.arange(PARTS) + 1 / 2) / PARTS, method="nearest")
    return np.unique(middles)


def place_values(given: Rows, values: Rows) -> NDArray[np.int64]:
    """[n] which of the values each is nearest to; 0 of NaN."""
    apart = np.nan_to_num(np.abs(given[:, None] - values), nan=0.0)
    return np.asarray(apart.argmin(axis=1), np.int64)


def _fill(x: Rows, column: int, value: float) -> Rows:
    filled = x.copy()
    filled[:, column] = value
    return filled
