"""Row recovery: rows of a table that follow from what a client sent, beside blind adversaries.

A claimed row is right where it equals a row of that client in every column, in any of the ways in which columns
are scaled (raw_rows.py). Blind adversaries claim as many public rows, each once, and the public's median; the
negative control holds the same claims against people who were held out.

Claim: row float64 [k, F] and client [k].
"""

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Attack, Claim, Truth
from fedaudit.attacks.evaluation.counting import CountedPeople
from fedaudit.attacks.evaluation.images import fingerprints
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evaluation.raw_rows import list_readings
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.people import PeopleCount
from fedaudit.attacks.stats import INDEPENDENT
from fedaudit.fl.threats.threat import Harm

Rows = NDArray[np.float64]
NEAR = 1e-3  # of a column's deviation: sums in single precision have few digits left for one person
HELD_OUT = 500  # people of a client's negative control, at most
MIDDLE = "the public's median"


class RowRecovery(Attack):
    """Base class: a subclass has `card` and `run`, and says how it is seen to work."""

    leak: str  # what is planted, in words

    @abstractmethod
    def plant(self, rows: Rows, claim: Claim, rng: np.random.Generator) -> Rows:
        """[k, F] what it claims of a message in which the first of a client's rows [n, F] leaks."""

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        right, planted, negative, random, median, lucky = (list[bool]() for _ in range(6))
        clients = list[int]()
        public = np.asarray(truth.auxiliary.x, np.float64)
        for client in np.unique(claim["client"]).tolist():
            claimed, own = claim["row"][claim["client"] == client], _rows(truth.client_images(client).x)
            held = _rows(truth.unseen({client}).images.x)[: min(HELD_OUT, len(own))]
            drawn = public[rng.permutation(len(public))[: len(claimed)]]
            middle = np.tile(np.median(public, axis=0), (len(claimed), 1))
            right += (match_rows(claimed, own, public) >= 0).tolist()
            random += (match_rows(drawn, own, public) >= 0).tolist() + [False] * (len(claimed) - len(drawn))
            median += (match_rows(middle, own, public) >= 0).tolist()
            negative += (match_rows(claimed, held, public) >= 0).tolist()
            lucky += (match_rows(middle, held, public) >= 0).tolist()
            clients += [client] * len(claimed)
            if len(own) > 1:
                planted.append(bool((match_rows(self.plant(own, claim, rng), own, public) == 0).any()))
        groups = np.array(clients)
        blind = {"public rows": np.array(random), MIDDLE: np.array(median)}
        found = [
            Judge().judge_hits("exact_row", np.array(right), blind, groups=groups),
            Judge(control="negative", note="the same rows against held-out people's").judge_hits(
                "exact_row", np.array(negative), {MIDDLE: np.array(lucky)}, groups=groups
            ),
        ]
        if planted:
            judge = Judge(control="positive", note=self.leak)
            once = {
                name: np.array([hits[groups == k][0] for k in np.unique(groups)]) for name, hits in blind.items()
            }
            found.append(
                judge.judge_hits("exact_row", np.array(planted), once, groups=INDEPENDENT)
            )  # a client each
        return found

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        """Everybody of the clients of whom a row was derived."""
        counted = CountedPeople("equal to a row that follows from what was sent", Harm.RECONSTRUCTION)
        public = np.asarray(truth.auxiliary.x, np.float64)
        for client in np.unique(claim["client"]).tolist():
            claimed, people = claim["row"][claim["client"] == client], truth.client_rows(client)
            hit = np.unique(match_rows(claimed, _rows(truth.client_images(client).x), public))
            counted.test(client, people, people[hit[hit >= 0]])
            held = truth.unseen({client}).images
            lucky = {*match_rows(claimed, _rows(held.x), public).tolist()}
            for i, mark in enumerate(fingerprints(held.x)):
                counted.luck(float(i in lucky), 1, mark, [client])
        return counted.people(truth)


def match_rows(claimed: Rows, rows: Rows, public: Rows) -> NDArray[np.int64]:
    """[k] which of the rows [n, F] each claim [k, F] equals in every column, however they are scaled; or -1."""
    found = np.full(len(claimed), -1)
    if not len(rows):
        return found
    spread = public.std(axis=0)
    near = NEAR * np.where(spread > 0, spread, 1.0)
    for reading in list_readings(rows, public):
        given = claimed * reading.factor + reading.offset
        for i in np.flatnonzero(found < 0):
            equal = np.flatnonzero((np.abs(rows - given[i]) <= near).all(axis=1))
            found[i] = equal[0] if len(equal) else -1
    return found


def _rows(x: NDArray[Any]) -> Rows:
    return np.asarray(x, np.float64)
