"""Newton means: how many people of each class a site holds, and their means, from a regression's first step.

Federated logistic regression by Newton's method sends the gradient g and the Hessian H of the summed loss. It
begins with weights 0, where every probability is 1/2: H = X'X / 4 and g = X'(1/2 - y). With a constant column c,
n = 4 H_cc, n_1 = n / 2 - g_c, and the sums of column k over all people and over the positive ones are 4 H_ck and
2 H_ck - g_k: exact, by the definition of the two. A class of one person is that person's row.

Reads any square, symmetric array beside a vector of its length in one message, whatever they are called, with the
constant first or last; where both give whole numbers, as columns of such do, the means nearer to those of
public people are taken. Later steps, averages over people and noise leave no whole numbers there, and nothing is
claimed. Blind adversaries claim the means of public people by class, and counts in the public's proportion; the
negative control holds the claims against as many held-out people of each class; the planted leak is g and H of a
client's own people.

Claim: client [k], counts int64 [k, 2], means float64 [k, 2, F], NaN of a class of nobody.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Examples, Knowledge, Truth
from fedaudit.attacks.evaluation.assertions import by_client
from fedaudit.attacks.evaluation.count_evidence import blind_counts, exact_match
from fedaudit.attacks.evaluation.groups import COUNTED, count_facts
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evaluation.raw_rows import list_readings
from fedaudit.attacks.evaluation.row_recovery import NEAR
from fedaudit.attacks.evaluation.sources import NO_AUXILIARY
from fedaudit.attacks.evidence import Assertion, Evidence
from fedaudit.attacks.modality.table import find_spread
from fedaudit.attacks.people import PeopleCount
from fedaudit.attacks.stats import INDEPENDENT
from fedaudit.attacks.summaries._row_statistics import Payload, list_payloads
from fedaudit.attacks.summaries.hidden_images import READ
from fedaudit.attacks.summaries.sums_rows import is_of_products
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.data.columns import Rows
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

Sums = tuple[NDArray[np.int64], Rows]  # people of each class [2], means of their columns [2, F]
WHOLE = 64  # times the precision of a sum, within which it is a whole number
FEWEST = 2  # people; an average over people looks like one person
PUBLIC = "public people's means"


class NewtonMeans(Attack):
    card = Card(
        title="Means by class from the first Newton step",
        source="definition: gradient and Hessian of the logistic loss at weights 0",
        aim=Aim.ATTRIBUTE,
        needs=("rows", "classes"),
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"auxiliary_data"})),
        requires=(),
        also_reads=READ,
        any_numbers=True,
        rounds="all",
        learns="how many people of each of two classes a client holds, and the mean of every column of them",
        does_not_show="what later steps, averages over people, and steps from other weights than 0 give away",
        control="",  # planted in measure()
        remedy="begin with public weights other than 0, sum securely, or add calibrated noise to both",
        effort=Effort(seconds=0.5, grows=("clients",)),
    )

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        width, public = knowledge.shape[0], knowledge.granted_auxiliary
        found = {k: _read_first(sent, public) for k, sent in list_payloads(view, self.card).items()}
        known = {client: sums for client, sums in found.items() if sums is not None}
        return {
            "client": np.array([*known], np.int64),
            "counts": np.array([counts for counts, _ in known.values()], np.int64).reshape(-1, 2),
            "means": np.array([means for _, means in known.values()]).reshape(-1, 2, width),
        }

    def assertions(self, claim: Claim, classes: Sequence[str]) -> list[Assertion]:
        def describe(row: list[int]) -> str:
            return ", ".join(f"{n:,} of {name}" for n, name in zip(row, classes, strict=False))

        return by_client(
            claim["client"], claim["counts"].tolist(), describe, "how many people of each class it holds"
        )

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        right, negative, planted, by_public, lucky = (list[bool]() for _ in range(5))
        public, clients, apart = truth.auxiliary, claim["client"].tolist(), list[float]()
        true = np.array([truth.label_counts(k) for k in clients], np.int64).reshape(-1, 2)
        if not clients:
            return []
        blind = _mean_by_class(public)
        for client, claimed, counts in zip(clients, claim["means"], true, strict=True):
            own, unseen = truth.client_examples(client), truth.unseen({client}).images
            held = unseen.only(_draw(unseen.y, counts, rng))
            sent = _read_first([summarise(own)], public)
            apart.append(measure_distance(blind, _mean_by_class(own), public))
            right.append(are_means(claimed, own, public))
            by_public.append(are_means(blind, own, public))
            negative.append(are_means(claimed, held, public))
            lucky.append(are_means(blind, held, public))
            planted.append(sent is not None and are_means(sent[1], own, public))
        note = f"public people's are off by {np.mean(apart):.2f} deviations of a column"
        judged = (
            (Judge(note=note), right, by_public),
            (Judge(control="negative", note="the same means, of held-out people"), negative, lucky),
            (
                Judge(control="positive", note="gradient and Hessian of the client's own people"),
                planted,
                by_public,
            ),
        )
        found = [
            judge.judge_hits("class_means_known", np.array(hits), {PUBLIC: np.array(guesses)}, groups=INDEPENDENT)
            for judge, hits, guesses in judged
        ]
        guesses = blind_counts(true, np.bincount(public.y, minlength=2).astype(float))
        found.append(exact_match(claim["counts"], true, guesses, {}, groups=INDEPENDENT))
        return found

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        """Who stands in a small class of which the number, and so the mean, is known; and clients."""
        return count_facts(claim["client"], claim["counts"], COUNTED, truth) if len(claim["client"]) else []

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if knowledge.classes != 2:
            return f"a logistic regression has two classes, and these data have {knowledge.classes}"
        if not len(knowledge.granted_auxiliary):
            return NO_AUXILIARY
        sent = list_payloads(view, self.card).values()
        if not any(_read_first(some, knowledge.granted_auxiliary) for some in sent):
            return "no client's messages hold the gradient and the Hessian of a first Newton step"
        return ""


def summarise(people: Examples) -> Payload:
    """Gradient and Hessian of the summed logistic loss at weights 0, [F + 1] and square; the constant first."""
    x = np.hstack([np.ones((len(people), 1)), np.asarray(people.x, np.float64)])
    return {"hessian": x.T @ x / 4, "gradient": x.T @ (1 / 2 - people.y)}


def _read_first(sent: Sequence[Payload], public: Examples) -> Sums | None:
    """Of the first message that has it."""
    like = np.asarray(public.x, np.float64).mean(axis=0)

    def measure(sums: Sums) -> float:
        counts, means = sums
        return measure_distance(np.average(np.nan_to_num(means), axis=0, weights=counts), like, public)

    found = ([*_list_sums(payload, len(like))] for payload in sent)
    return next((min(some, key=measure) for some in found if some), None)


def _list_sums(payload: Payload, width: int) -> Iterator[Sums]:
    for hessian in payload.values():
        if not is_of_products(hessian, width) or len(hessian) != width + 1:
            continue
        for gradient in payload.values():
            g = np.asarray(gradient).squeeze()
            if g.dtype.kind == "f" and g.shape == (width + 1,) and np.isfinite(g).all():
                eps = float(max(np.finfo(hessian.dtype).eps, np.finfo(g.dtype).eps))
                found = (split_sums(np.asarray(hessian, float), np.asarray(g, float), c, eps) for c in (0, width))
                yield from (sums for sums in found if sums is not None)


def split_sums(hessian: Rows, gradient: NDArray[Any], constant: int, eps: float) -> Sums | None:
    """Counts and means by class, with the constant column at a place; None where there are no whole numbers."""
    n = 4 * hessian[constant, constant]
    ones = n / 2 - gradient[constant]
    if not (np.isclose([n, ones], np.rint([n, ones]), rtol=0, atol=WHOLE * eps * max(n, 1))).all():
        return None
    n, ones = np.rint(n), np.rint(ones)
    if n < FEWEST or not 0 <= ones <= n:
        return None
    everybody = 4 * np.delete(hessian[constant], constant)
    positive = everybody / 2 - np.delete(gradient, constant)
    counts = np.array([n - ones, ones])
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.stack([everybody - positive, positive]) / counts[:, None]
    return counts.astype(np.int64), np.where(counts[:, None] > 0, means, np.nan)


def measure_distance(a: Rows, b: Rows, public: Examples) -> float:
    """How many of the public's deviations means [..., F] are apart, over all columns; NaN counts as nothing."""
    apart = np.abs(a - b) / find_spread(np.asarray(public.x, np.float64))
    return float(apart[~np.isnan(apart)].mean()) if not np.isnan(apart).all() else 0.0


def are_means(claimed: Rows, people: Examples, public: Examples) -> bool:
    """Whether the means of every column by class are right, as they are or in a scaling by public people."""
    true, near = _mean_by_class(people), NEAR * find_spread(np.asarray(public.x, np.float64))
    nobody = np.zeros((0, public.x.shape[1]))
    readings = list_readings(nobody, np.asarray(public.x, np.float64))
    given = (claimed * r.factor + r.offset for r in readings)
    known = ~np.isnan(true)
    return any(bool(((np.abs(one - true) <= near) | ~known).all()) for one in given) and bool(known.any())


def _mean_by_class(people: Examples) -> Rows:
    x, nobody = np.asarray(people.x, np.float64), np.full(people.x.shape[1], np.nan)
    groups = [x[people.y == label] for label in range(2)]
    return np.stack([some.mean(axis=0) if len(some) else nobody for some in groups])


def _draw(labels: NDArray[np.int64], counts: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """As many rows of each label, or all there are."""
    rows = [rng.permutation(np.flatnonzero(labels == label))[:n] for label, n in enumerate(counts.tolist())]
    return np.sort(np.concatenate(rows))
