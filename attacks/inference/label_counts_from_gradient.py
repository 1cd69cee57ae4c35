"""Labels of a batch from its gradient: how many examples of each class the batch held.

The gradient of the last layer's bias is the mean of p - onehot(y), so with p known it gives the counts.
Two rules of attacks/label_rules.py:

    bias       counts = B (mean p - gradient), mean p being solved for with auxiliary pictures of each
               class; nearly exact on an untrained model, where p hardly depends on the picture
    row sums   LLG (Wainakh et al., PoPETs 2022, arXiv:2105.09369, Alg. 1), without auxiliary pictures

A batch of one is iDLG (Zhao, Mopuri, Bilen, arXiv:2001.02610, sec. 3.1): the only entry that is
negative. Its gradient, replayed, is the planted leak. The size B of a batch is what the client says or,
for replays, what the auditor chose.

Claim: counts int64 [k, R, C] in the order of RULES, n [k], and as text artifact, origin [k].
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.attack import (
    Attack,
    Card,
    Claim,
    Evidence,
    Goal,
    Knowledge,
    Position,
    ThreatModel,
    Truth,
)
from attacks.head_updates import confusion, head_names
from attacks.label_rules import llg, proportions
from attacks.measures.counts import (
    Condition,
    Counts,
    blind_counts,
    exact_match,
    overlap_evidence,
    spread,
)
from attacks.measures.prototype_trials import group
from attacks.weights import global_model, sent_with
from fl.artifact import Artifact, Kind

RULES = ("bias", "row sums")


class LabelCountsFromGradient(Attack):
    card = Card(
        title="Labels of a batch from its gradient",
        source="arXiv:2001.02610, sec. 3.1; arXiv:2105.09369, Alg. 1",
        goal=Goal.INFERENCE,
        threat=ThreatModel(
            position=Position.SERVER, knows=frozenset({"architecture", "auxiliary_data"})
        ),
        requires=(Kind.GRADIENT,),
        also_reads=(Kind.GLOBAL_MODEL, Kind.NUM_EXAMPLES),
        replays=True,
        learns="how many examples of each class were in a batch",
        does_not_show="which examples those are; nor the labels behind several local steps",
        remedy="send no gradients of single batches: aggregate them securely, or clip and noise them",
    )

    def run(
        self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator
    ) -> Claim:
        found = _readable(view, knowledge)
        outputs: dict[str, NDArray[np.float64]] = {}
        counts = []
        for a, n, start in found:
            weight, bias = head_names(start.payload, knowledge)
            rows = np.asarray(a.payload[weight], np.float64).sum(axis=1)
            by_rows = llg(rows, n)
            by_bias = by_rows
            aux = knowledge.auxiliary
            if bias and aux is not None and knowledge.architecture is not None:
                if start.id not in outputs:
                    model = knowledge.architecture(start.payload)
                    outputs[start.id] = confusion(model, aux.x, aux.y, knowledge.classes)
                drift = -np.asarray(a.payload[bias], np.float64)
                by_bias = spread(np.array([n]), proportions(drift, [outputs[start.id]]))[0]
            counts.append(np.stack([by_bias, by_rows]))
        return {
            "counts": np.stack(counts),
            "n": np.array([n for _, n, _ in found]),
            "artifact": np.array([a.id for a, _, _ in found]),
            "origin": np.array([a.origin for a, _, _ in found]),
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        classes = claim["counts"].shape[2]
        true = np.array(
            [[len(truth.members(str(a), c)) for c in range(classes)] for a in claim["artifact"]]
        )
        prior = np.bincount(truth.auxiliary.y, minlength=classes).astype(np.float64)
        groups: dict[tuple[str, int], list[int]] = defaultdict(list)
        for row, (origin, n) in enumerate(zip(claim["origin"], true.sum(axis=1), strict=True)):
            if n == claim["n"][row]:  # else what is known is the client's data, not the batch
                groups[str(origin), group(str(origin), int(n))].append(row)
        found: list[Evidence] = []
        for (origin, _), rows in sorted(groups.items()):
            blind = blind_counts(true[rows], prior)
            size = float(np.median(true[rows].sum(axis=1)))
            looks = len(groups) * len(RULES)
            for r, rule in enumerate(RULES):
                here: Condition = {"n": size, "origin": origin, "rule": rule}
                said = claim["counts"][rows, r]
                planted: Any = "positive" if origin == "replayed" and size == 1 else "none"
                found.append(
                    exact_match(said, true[rows], blind, here, planted,
                                "batches with all counts right", looks)
                )  # fmt: skip
                share = overlap_evidence(said, true[rows], blind, here, rng, looks)
                found.append(replace(share, control=planted, note="share of a batch placed right"))
            found += _wrong_batch(claim["counts"][rows], true[rows], blind)
        return found

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not _batches(view):
            return "no gradient came with the size of its batch and the model it was taken at"
        if not _readable(view, knowledge):
            return "no gradient holds the last layer, so it says nothing of labels"
        return ""


def _batches(view: Sequence[Artifact]) -> list[tuple[Artifact, int, Artifact]]:
    """Each gradient, the size of its batch, and the model it was taken at."""
    found = []
    for a in view:
        start = global_model(view, a.round)
        if a.kind != Kind.GRADIENT or start is None:
            continue
        said = sent_with(a, Kind.NUM_EXAMPLES, view)
        if a.origin == "replayed":
            found.append((a, max(1, int(a.note["n"])), start))
        elif said is not None:
            found.append((a, max(1, round(float(said.payload["count"]))), start))
    return found


def _readable(
    view: Sequence[Artifact], knowledge: Knowledge
) -> list[tuple[Artifact, int, Artifact]]:
    """Those that hold the last layer."""
    names: dict[str, str] = {}
    found = []
    for a, n, start in _batches(view):
        if start.id not in names:
            names[start.id] = head_names(start.payload, knowledge)[0]
        if names[start.id] in a.payload:
            found.append((a, n, start))
    return found


def _wrong_batch(claimed: Counts, true: Counts, blind: dict[str, Counts]) -> list[Evidence]:
    """Negative control: each claim [k, R, C] against another batch, of other labels."""
    different = (true[:, None] != true).any(axis=2)
    have = np.flatnonzero(different.any(axis=1))
    if not len(have):
        return []
    other = true[different[have].argmax(axis=1)]
    guesses = {name: guess[have] for name, guess in blind.items()}
    note = "claims against the labels of another batch"
    return [
        exact_match(claimed[have, r], other, guesses, {"rule": rule}, "negative", note)
        for r, rule in enumerate(RULES)
    ]
