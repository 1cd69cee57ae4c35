"""Sum difference: what one client sent, from sums of rounds in which others took part.

Secure aggregation shows the server the sum over the clients of a round, and the server knows who they were. What
a client says anew in every round, how many examples it has and of which classes, is the same number each time:
the sums of several rounds are linear equations in the clients' numbers, and one number is known as soon as a
combination of rounds leaves only its client over. Two rounds that differ in one client are the plainest case
(Pasquini, Francati, Ateniese. Eluding Secure Aggregation. CCS 2022, arXiv:2111.07380, on differences of rounds).

Blind adversaries give every client the mean of the sums. The planted leak is the sum over all clients of the
record, and the sums that leave out one of them; the negative control holds claims against another client's
numbers.

Claim: client [k], kind [k] as text, counts int64 [k, C] and for num_examples [k, 1] in the first column, known
bool [k]; rounds [m, clients] who took part.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Knowledge, Truth
from fedaudit.attacks.evaluation.count_evidence import blind_counts, measure_revelations, overlap_evidence
from fedaudit.attacks.evaluation.groups import COUNTED, SIZE, count_facts
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.attacks.people import PeopleCount
from fedaudit.attacks.stats import INDEPENDENT
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

Values = NDArray[np.float64]
SMALL = 5  # examples of a class, of which a count tells of few people
COUNTS = (Kind.PROTO_COUNTS, Kind.LABEL_COUNTS, Kind.NUM_EXAMPLES)  # what does not change from round to round


class SumDifference(Attack):
    card = Card(
        title="One client's numbers from sums of rounds",
        source="arXiv:2111.07380 (rounds that differ); linear algebra over the rounds",
        aim=Aim.ATTRIBUTE,
        needs=(),
        threat=ThreatModel(position=Position.SERVER),
        requires=(Kind.AGGREGATE,),
        rounds="all",
        learns="how many examples a client owns, of which classes, although only sums were read",
        does_not_show="what differences of summed models reveal, which change from round to round",
        control="",  # planted in measure()
        remedy="let the same clients answer in every round, sum over many, and add noise to what is summed",
        effort=Effort(seconds=0.1, grows=("clients",)),
    )

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        found: dict[str, list[Any]] = {n: [] for n in ("client", "kind", "counts", "known")}
        for kind, sums in _sums(view, knowledge).items():
            clients = sorted({k for who, _ in sums for k in who})
            took = np.array([[k in who for k in clients] for who, _ in sums], float)
            counts, known = solve_sums(took, np.stack([v for _, v in sums]))
            found["client"] += clients
            found["kind"] += [kind.value] * len(clients)
            found["counts"] += [np.pad(c, (0, knowledge.classes - len(c))) for c in counts]
            found["known"] += known.tolist()
        return {name: np.array(values) for name, values in found.items()}

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        found: list[Evidence] = []
        kinds = list(dict.fromkeys(claim["kind"].tolist()))
        for kind in kinds:
            rows = claim["kind"] == kind
            true = np.stack([truth.label_counts(int(k)) for k in claim["client"][rows]])
            if kind == Kind.NUM_EXAMPLES:
                true = np.pad(true.sum(axis=1, keepdims=True), ((0, 0), (0, true.shape[1] - 1)))
            said = np.where(claim["known"][rows, None], claim["counts"][rows], -1)
            mean = np.tile(np.rint(true.mean(axis=0)), (len(true), 1))
            alone = int(claim["known"][rows].sum())
            note = f"of {len(true)} clients {alone} stand alone in some combination of rounds"
            found.append(_exact(said, true, mean, kind, "none", note, len(kinds)))
            if kind != Kind.NUM_EXAMPLES:  # graded by what they tell of people, as counts that are sent
                blind = blind_counts(true, np.bincount(truth.auxiliary.y, minlength=true.shape[1]).astype(float))
                told, here = np.maximum(said, 0), {"kind": str(kind)}
                found.append(
                    overlap_evidence(
                        told,
                        true,
                        blind,
                        here,
                        rng,
                        len(kinds),
                        groups=INDEPENDENT,  # a client each
                    )
                )
                found += measure_revelations(told, true, blind, SMALL, here)
            if len(true) > 1:
                left_out = np.vstack([np.ones(len(true)), 1 - np.eye(len(true))])
                planted, known = solve_sums(left_out, left_out @ true)
                planted = np.where(known[:, None], planted, -1)
                text = "the sum over all clients, and the sums without one of them"
                found.append(_exact(planted, true, mean, kind, "positive", text, len(kinds)))
                other = (true[:, None] != true).any(axis=2)
                have = np.flatnonzero(other.any(axis=1))
                if len(have):
                    wrong = true[other[have].argmax(axis=1)]
                    text = "claims against the numbers of another client"
                    found.append(_exact(said[have], wrong, mean[have], kind, "negative", text, len(kinds)))
        return found

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        """Of counts by class that could be taken out of the sums; else of numbers of examples."""
        is_size = claim["kind"] == Kind.NUM_EXAMPLES.value
        if (rows := claim["known"] & ~is_size).any():
            return count_facts(claim["client"][rows], claim["counts"][rows], COUNTED, truth)
        rows = claim["known"] & is_size
        return count_facts(claim["client"][rows], claim["counts"][rows, 0], SIZE, truth)

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not knowledge.heard:
            return "nobody recorded which clients answered in which round"
        if not _sums(view, knowledge):
            return "no sum holds a number that a client repeats from round to round"
        return ""


def solve_sums(took: Values, sums: Values) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Whole numbers [k, D] that explain sums [m, D] of those who took part [m, k]; which are determined [k]."""
    inverse = np.linalg.pinv(took)
    alone = np.isclose(np.diag(inverse @ took), 1, atol=1e-6)
    return np.rint(inverse @ sums).astype(np.int64), np.asarray(alone)


def _sums(view: Sequence[Artifact], knowledge: Knowledge) -> dict[Kind, list[tuple[frozenset[int], Values]]]:
    """For each kind of number: who took part in a round, and the sum [C], or [1] of num_examples."""
    found: dict[Kind, list[tuple[frozenset[int], Values]]] = {}
    for a in view:
        who = knowledge.heard.get(a.round, frozenset())
        if a.kind != Kind.AGGREGATE or len(who) != int(a.payload["clients"]):
            continue
        for kind in COUNTS:
            name = next((n for n in a.payload if n in (f"{kind}/counts", f"{kind}/count")), "")
            if not name:
                continue
            value = np.atleast_1d(np.asarray(a.payload[name], np.float64))
            if f"{kind}/classes" in a.payload:
                whole = np.zeros(knowledge.classes)
                whole[np.asarray(a.payload[f"{kind}/classes"], np.int64)] = value
                value = whole
            found.setdefault(kind, []).append((who, value))
    return found


def _exact(
    said: NDArray[Any], true: NDArray[Any], blind: NDArray[Any], kind: str, control: Any, note: str, looks: int
) -> Evidence:
    """How many clients' numbers are exactly right; one number, or one for each class."""
    measure = "size_known" if kind == Kind.NUM_EXAMPLES else "count_exact_match"
    mean = Baseline(name="the mean client", value=float((blind == true).all(axis=1).mean()))
    return Judge(control=control, looks=looks, condition={"kind": kind}, note=note).judge_hits(
        measure,
        (said == true).all(axis=1),
        groups=INDEPENDENT,  # a client each
        baselines=[mean],
    )
