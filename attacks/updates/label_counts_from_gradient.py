"""Labels of a batch from its gradient: how many examples of each class the batch held.

The gradient of the last layer's bias is the mean of p - onehot(y), so with p known it gives the counts.
An upload after one local step is such a gradient; after several it is their mean (evaluation/gradients.py).
Two rules of attacks/evaluation/label_rules.py:

    bias       counts = B (mean p - gradient), mean p being solved for with auxiliary images of each
               class; nearly exact on an untrained model, where p hardly depends on the image
    row sums   LLG (Wainakh et al., PoPETs 2022, arXiv:2105.09369, Alg. 1), without auxiliary images

A batch of one is iDLG (Zhao, Mopuri, Bilen, arXiv:2001.02610, sec. 3.1): the only entry that is
negative. Replayed uploads of few steps on a single batch are the planted leaks; recorded ones are
read as if one step had been made on all of the client's examples, which label_counts_from_update does
better.

Evidence is about each client's newest message; people are counted by the mean of all rounds.

Claim: counts int64 [k, R, C] in the order of RULES, n, steps, client, round [k], and as text artifact, origin and
kind [k].
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Knowledge, Truth
from fedaudit.attacks.evaluation.assertions import OF_COUNTS, by_client, format_counts
from fedaudit.attacks.evaluation.count_evidence import (
    Condition,
    Counts,
    blind_counts,
    exact_match,
    overlap_evidence,
    spread,
)
from fedaudit.attacks.evaluation.counting import list_latest
from fedaudit.attacks.evaluation.gradients import UPLOADS, Update, updates
from fedaudit.attacks.evaluation.groups import COUNTED, average_rounds, count_each_kind
from fedaudit.attacks.evaluation.label_rules import llg, proportions
from fedaudit.attacks.evaluation.last_layer import confusion, head_names
from fedaudit.attacks.evaluation.sources import SAID_WITH
from fedaudit.attacks.evidence import Assertion, Evidence, is_replay
from fedaudit.attacks.people import PeopleCount
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

RULES = ("bias", "row sums")
Values = NDArray[np.float64]


class LabelCountsFromGradient(Attack):
    card = Card(
        title="Labels of a batch from its gradient",
        source="arXiv:2001.02610, sec. 3.1; arXiv:2105.09369, Alg. 1",
        aim=Aim.ATTRIBUTE,
        needs=("classes",),
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture", "auxiliary_data"})),
        requires=(Kind.GLOBAL_MODEL,),
        also_reads=(*UPLOADS, Kind.NUM_EXAMPLES, Kind.AGGREGATE),
        aids=(Kind.GLOBAL_MODEL, *SAID_WITH, Kind.NUM_EXAMPLES),
        control="updates",
        rounds="all",
        learns="how many examples of each class were in a batch",
        does_not_show="which examples those are; nor counts of larger batches under another loss than the "
        "plain softmax",
        remedy="aggregate updates securely, or clip and noise them with a stated epsilon",
        effort=Effort(seconds=0.3, grows=("network", "updates", "rounds")),
    )

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        found, outputs = _readable(view, knowledge), dict[int, Values]()
        return {
            "counts": np.stack([count_by_rules(*one, knowledge, outputs) for one in found]),
            "n": np.array([u.examples for u, _, _ in found]),
            "steps": np.array([u.steps for u, _, _ in found]),
            "artifact": np.array([u.artifact for u, _, _ in found]),
            "origin": np.array([u.origin for u, _, _ in found]),
            "round": np.array([u.round for u, _, _ in found]),
            "client": np.array([u.client for u, _, _ in found]),
            "kind": np.array([u.kind.value for u, _, _ in found]),
        }

    def assertions(self, claim: Claim, classes: Sequence[str]) -> list[Assertion]:
        """Of recorded uploads, by the first rule."""
        told, said = _average_recorded(claim)
        return by_client(told["client"], said, lambda n: format_counts(n, classes), OF_COUNTS)

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        classes = claim["counts"].shape[2]
        true = np.array([[len(truth.members(str(a), c)) for c in range(classes)] for a in claim["artifact"]])
        prior = np.bincount(truth.auxiliary.y, minlength=classes).astype(np.float64)
        groups: dict[tuple[str, int, int], list[int]] = defaultdict(list)
        for row in list_latest({**claim, "sender": claim["client"]}).tolist():
            n = true[row].sum()
            if n == claim["n"][row]:  # else the truth is not that of this batch
                real = claim["origin"][row] == "recorded"
                key = (0, 0) if real else (int(claim["steps"][row]), int(n))
                groups[str(claim["origin"][row]), *key].append(row)
        found: list[Evidence] = []
        looks = len(groups) * len(RULES)
        for (origin, steps, n), rows in sorted(groups.items()):
            blind, clients = blind_counts(true[rows], prior), claim["client"][rows]
            planted: Any = "positive" if is_replay(origin) else "none"
            schedule: Condition = {"n": n, "steps": steps} if is_replay(origin) else {}
            for r, rule in enumerate(RULES):
                here: Condition = {**schedule, "origin": origin, "rule": rule}
                said = claim["counts"][rows, r]
                found.append(
                    exact_match(
                        said,
                        true[rows],
                        blind,
                        here,
                        planted,
                        groups=clients,
                        note="batches with all counts right",
                        looks=looks,
                    )
                )
                share = overlap_evidence(said, true[rows], blind, here, rng, looks, groups=clients)
                found.append(replace(share, control=planted, note="share of a batch placed right"))
            found += _wrong_batch(claim["counts"][rows], true[rows], blind, clients, looks)
        return found

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        """By the first rule, of uploads that were recorded, of each kind apart."""
        return count_each_kind(*_average_recorded(claim), COUNTED, truth)

    def choose_remedy(self, claim: Claim, truth: Truth, people: Sequence[PeopleCount]) -> str:
        """Longer training is no remedy where clients trained for long."""
        steps = claim["steps"][claim["origin"] == "recorded"]
        if len(steps) and (steps == 1).all():
            return f"send nothing that was made of a single batch: train for longer; else {self.card.remedy}"
        return self.card.remedy

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not updates(view, knowledge):
            return "no upload was recorded together with the model it started from"
        if not _readable(view, knowledge):
            return "no upload holds the last layer, so none says anything of labels"
        return ""


def count_by_rules(u: Update, weight: str, bias: str, knowledge: Knowledge, outputs: dict[int, Values]) -> Counts:
    """[R, C] examples of each class behind an update, by each of RULES, from its last layer of these names.

    `outputs` keeps what models answer to auxiliary images, by the identity of their weights.
    """
    aux, by_rows = knowledge.auxiliary, llg(u.gradient[weight].sum(axis=1), u.examples)
    by_bias = by_rows
    if u.examples == 1 and bias in u.gradient:  # iDLG, under any softmax
        by_bias = np.eye(len(by_rows), dtype=np.int64)[u.gradient[bias].argmin()]
    elif bias in u.gradient and aux is not None and len(aux):
        if id(u.start) not in outputs:  # many uploads start from one model
            model = knowledge.granted_architecture(u.start)
            outputs[id(u.start)] = confusion(model, aux.x, aux.y, knowledge.classes)
        share = proportions(-np.asarray(u.gradient[bias]), [outputs[id(u.start)]])
        by_bias = spread(np.array([u.examples]), share)[0]
    return np.stack([by_bias, by_rows])


def _readable(view: Sequence[Artifact], knowledge: Knowledge) -> list[tuple[Update, str, str]]:
    """Gradients that hold the last layer, with the names of its weight and bias."""
    names: dict[int, tuple[str, str]] = {}
    found = []
    for u in updates(view, knowledge):
        if id(u.start) not in names:
            names[id(u.start)] = head_names(u.start, knowledge)
        weight, bias = names[id(u.start)]
        if weight in u.gradient:
            found.append((u, weight, bias))
    return found


def _average_recorded(claim: Claim) -> tuple[Claim, Counts]:
    """What recorded uploads say by the first rule, a row for each client and kind."""
    rows = claim["origin"] == "recorded"
    return average_rounds({k: claim[k][rows] for k in ("client", "kind")}, claim["counts"][rows, 0])


def _wrong_batch(
    claimed: Counts, true: Counts, blind: dict[str, Counts], clients: Counts, looks: int
) -> list[Evidence]:
    """Negative control: each claim [k, R, C] against another batch, of other labels."""
    different = (true[:, None] != true).any(axis=2)
    have = np.flatnonzero(different.any(axis=1))
    if not len(have):
        return []
    other = true[different[have].argmax(axis=1)]
    guesses = {name: guess[have] for name, guess in blind.items()}
    note = "claims against the labels of another batch"
    return [
        exact_match(
            claimed[have, r],
            other,
            guesses,
            {"rule": rule},
            "negative",
            groups=clients[have],
            note=note,
            looks=looks,
        )
        for r, rule in enumerate(RULES)
    ]
