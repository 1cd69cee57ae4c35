"""Example numbers: how many examples each client owns, and whose number changed between rounds.

num_examples is sent beside nearly every upload, to weigh it. It is read as it stands, in every round: a number
that changes tells that the client gained or lost examples, and how many. Clients whose number changed are named
in the note; the truth knows what a client owns once, and the claim held against it is the last number heard.

Blind adversaries: every client owns as many as the median one. The planted leak is the true number sent by each;
the negative control holds claims against another client's number.

Claim: count int64, client [k], changes int64 [k]: how often the number changed.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Knowledge, Truth
from fedaudit.attacks.evaluation.assertions import by_client
from fedaudit.attacks.evaluation.groups import SIZE, count_facts
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evaluation.sources import read_count
from fedaudit.attacks.evidence import Assertion, Baseline, Evidence
from fedaudit.attacks.people import PeopleCount
from fedaudit.attacks.stats import INDEPENDENT
from fedaudit.fl.artifact import Artifact, Role
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

NAMED = 20  # clients whose number changed that a note names, at most


class ExampleNumbers(Attack):
    card = Card(
        title="Numbers of examples, and who gained or lost some",
        source="num_examples, as sent",
        aim=Aim.ATTRIBUTE,
        needs=(),
        threat=ThreatModel(position=Position.SERVER),
        requires=(Kind.NUM_EXAMPLES,),
        rounds="all",
        learns="how many examples a client owns, and in which rounds it gained or lost some",
        does_not_show="which examples came or went: for that, compare what else it sent in these rounds",
        control="",  # planted in measure()
        remedy="weigh clients alike, aggregate securely, or send the number with calibrated noise",
        effort=Effort(seconds=0.1, grows=("clients",)),
    )

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        heard: dict[int, list[int]] = {}
        for a in sorted(_numbers(view), key=lambda a: a.round):
            heard.setdefault(a.sender.number, []).append(read_count(a) or 0)
        return {
            "client": np.array(list(heard)),
            "count": np.array([said[-1] for said in heard.values()]),
            "changes": np.array([np.count_nonzero(np.diff(said)) for said in heard.values()]),
        }

    def assertions(self, claim: Claim, classes: Sequence[str]) -> list[Assertion]:
        def describe(row: tuple[int, int]) -> str:
            often = f", a number that changed in {row[1]:,} rounds" if row[1] else ""
            return f"{row[0]:,} examples{often}"

        rows = zip(claim["count"].tolist(), claim["changes"].tolist(), strict=True)
        return by_client(
            claim["client"], rows, describe, "how many examples it owns, and whether some came or went"
        )

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        true = np.array([truth.label_counts(int(k)).sum() for k in claim["client"]])
        changed = [f"client {k}" for k, n in zip(claim["client"], claim["changes"], strict=True) if n]
        more = f" and {len(changed) - NAMED} more" if len(changed) > NAMED else ""
        note = "the number changed between rounds: " + ", ".join(changed[:NAMED]) + more if changed else ""
        found = [_judge_known(claim["count"], true, "none", note or "no number changed between rounds")]
        found.append(_judge_known(true, true, "positive", "the true numbers, as sent"))
        other = np.roll(true, 1)
        if (other != true).any():
            rows, text = other != true, "claims against another client's number"
            found.append(_judge_known(claim["count"][rows], other[rows], "negative", text))
        return found

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        return count_facts(claim["client"], claim["count"], SIZE, truth)

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        return "" if _numbers(view) else "no client says how many examples it has"


def _numbers(view: Sequence[Artifact]) -> list[Artifact]:
    """Those that there could be."""
    sent = [a for a in view if a.kind == Kind.NUM_EXAMPLES and a.sender.role == Role.CLIENT]
    return [a for a in sent if a.sender.index is not None and read_count(a) is not None]


def _judge_known(said: NDArray[np.int64], true: NDArray[np.int64], control: Any, note: str) -> Evidence:
    median = Baseline(name="the median client", value=float((true == int(np.median(true))).mean()))
    return Judge(control=control, note=note).judge_hits(
        "size_known",
        said == true,
        groups=INDEPENDENT,  # a client each
        baselines=[median],
    )
