"""Row recovery: rows of a table that follow from what a client sent, beside blind adversaries.

A claimed row is right where it equals a row of that client in every column, in any of the ways in which columns
are scaled (raw_rows.py). Blind adversaries claim as many public rows and the public's middle row (table.py); the
negative control holds the same claims against people who were held out.

Luck is what claims hit of held-out people. These are too few to say of one row of many columns that luck did not
find it, so what chance would hit is counted by the bits of each row's columns as well.

The report shows a client's rows beside what was claimed of them, column by column, in raw units.

Claim: row float64 [k, F], client [k]; read int64 [c], the clients whose messages were read, whether or not a row
follows from them; columns, objects [1]: what numbers of a row stand for.
"""

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Attack, Claim, Knowledge, Truth
from fedaudit.attacks.evaluation.counting import CountedPeople
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evaluation.raw_rows import APART, RowFinder, list_readings
from fedaudit.attacks.evidence import Evidence, RowExhibit, RowPair, TextExhibit
from fedaudit.attacks.modality import table
from fedaudit.attacks.modality.images import fingerprints
from fedaudit.attacks.people import PeopleCount
from fedaudit.attacks.stats import INDEPENDENT
from fedaudit.fl.data.columns import Rows
from fedaudit.fl.threats.threat import Harm

NEAR = 1e-3  # of a column's deviation: sums in single precision have few digits left for one person
RARE = 1_000  # to one against a row that is told by its values
HELD_OUT = 500  # people of a client's negative control, at most
PUBLIC, MIDDLE = "public rows", "the public's middle row"
MOST_COMPARED = 200  # claims of a client that are looked through for them


class RowRecovery(Attack):
    """Base class: a subclass has `card` and `run`, and says how it is seen to work."""

    leak: str  # what is planted, in words

    @abstractmethod
    def plant(self, rows: Rows, claim: Claim, rng: np.random.Generator) -> Rows:
        """[k, F] what it claims of a message in which the first of a client's rows [n, F] leaks."""

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        right, planted, negative, random, median, lucky = (list[bool]() for _ in range(6))
        once: dict[str, list[bool]] = {PUBLIC: [], MIDDLE: []}
        clients = list[int]()
        public = _rows(truth.auxiliary.x)
        middle = table.find_middle(public, claim["columns"][0])[None]
        for client in claim["read"].tolist():
            claimed, own = claim["row"][claim["client"] == client], _rows(truth.client_examples(client).x)
            held = _rows(truth.unseen({client}).images.x)[: min(HELD_OUT, len(own))]
            drawn = table.draw_rows(public, max(1, len(claimed)), rng)
            guessed = (match_rows(drawn, own, public) >= 0).tolist()
            is_middle, is_lucky = (bool((match_rows(middle, some, public) >= 0).all()) for some in (own, held))
            k = len(claimed)
            right += (match_rows(claimed, own, public) >= 0).tolist()
            negative += (match_rows(claimed, held, public) >= 0).tolist()
            random += guessed[:k]
            median += [is_middle] * k
            lucky += [is_lucky] * k
            clients += [client] * k
            if len(own) > 1:
                planted.append(bool((match_rows(self.plant(own, claim, rng), own, public) == 0).any()))
                once[PUBLIC].append(guessed[0])
                once[MIDDLE].append(is_middle)
        groups, found = np.array(clients), list[Evidence]()
        if right:
            blind = {PUBLIC: np.array(random), MIDDLE: np.array(median)}
            found.append(Judge().judge_hits("exact_row", np.array(right), blind, groups=groups))
            judge = Judge(control="negative", note="the same rows against held-out people's")
            by_middle = {MIDDLE: np.array(lucky)}
            found.append(judge.judge_hits("exact_row", np.array(negative), by_middle, groups=groups))
        if planted:
            judge = Judge(control="positive", note=self.leak)
            guesses = {name: np.array(hits) for name, hits in once.items()}
            found.append(  # a client each
                judge.judge_hits("exact_row", np.array(planted), guesses, groups=INDEPENDENT)
            )
        return found

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        """Everybody of the clients whose messages were read; hit is whose row was claimed."""
        counted = CountedPeople("equal to a row that follows from what was sent", Harm.RECONSTRUCTION)
        public = _rows(truth.auxiliary.x)
        for client in claim["read"].tolist():
            claimed, people = claim["row"][claim["client"] == client], truth.client_rows(client)
            own, held = _rows(truth.client_examples(client).x), truth.unseen({client})
            hit = np.unique(match_rows(claimed, own, public))
            counted.test(client, people, people[hit[hit >= 0]])
            others = np.concatenate([public, _rows(held.images.x)])
            counted.tell(*tell_rows(claimed, own, hit, public, others, is_alike=held.is_alike))
            lucky = {*match_rows(claimed, _rows(held.images.x), public).tolist()}
            for i, mark in enumerate(fingerprints(held.images.x)):
                counted.luck(float(i in lucky), 1, mark, [client])
        return counted.people(truth)

    def exhibits(self, claim: Claim, truth: Truth) -> list[TextExhibit | RowExhibit]:
        """Of all rows that claims were matched to the nearest, the one in the middle and the farthest."""
        public, shown = _rows(truth.auxiliary.x), list[tuple[float, str, RowPair]]()
        columns, others, rng = claim["columns"][0], list[float](), np.random.default_rng(0)
        for client in np.unique(claim["client"]).tolist():
            claimed = claim["row"][claim["client"] == client][:MOST_COMPARED]
            own = _rows(truth.client_examples(client).x)
            claimed = read_claims(claimed, own, public)
            found = table.compare_rows(claimed, own, columns)
            for i in np.flatnonzero(found.claim >= 0).tolist():
                pair = table.write_pair(f"client {client}", own[i], claimed[found.claim[i]], columns)
                shown.append((float(found.distance[i]), pair.name, pair))
            blind = table.compare_rows(table.draw_rows(public, len(claimed), rng), own, columns)
            others += blind.distance[blind.claim >= 0].tolist()
        if not shown:
            return []
        order = sorted(range(len(shown)), key=lambda i: shown[i][0])
        places = dict.fromkeys((order[0], order[len(order) // 2], order[-1]))
        words = ("nearest", "middle", "farthest")
        named = zip(places, words if len(places) == len(words) else ("nearest", "farthest"), strict=False)
        pairs = [dataclasses.replace(shown[i][2], name=f"{shown[i][1]}, {word}") for i, word in named]
        caption = (
            f"Of {len(shown):,} rows with a claim; each claim is given to one row. As many public rows, given "
            f"out in the same way, are off by {np.mean(others):.3g} over all columns"
        )
        return [RowExhibit(title=self.card.title, caption=caption, pairs=pairs)]


def match_rows(claimed: Rows, rows: Rows, public: Rows) -> NDArray[np.int64]:
    """[k] which of the rows [n, F] each claim [k, F] equals in every column, however they are scaled; or -1."""
    return _match(claimed, rows, public)[0]


def tell_rows(
    claimed: Rows, rows: Rows, hit: NDArray[np.int64], public: Rows, others: Rows, *, is_alike: bool
) -> tuple[int, float]:
    """How many are hit, and by chance would be, of rows [n, F] that equal a claim [k, F] once in RARE by chance.

    By the bits of each row's columns (raw_rows.py), less APART: they are counted column by column; and of a row
    that some of the others [m, F] have as well by their share. Where the others are not like the sender's people,
    the sender's other rows may make a value common, too. Others are left out: of them held-out people say enough.
    """
    if not len(claimed) or not len(rows):
        return 0, 0.0
    beside = [others] if is_alike else [others, None]
    bits = np.min([RowFinder(rows, public, held, near=NEAR).weigh_rows() for held in beside], axis=0)
    near = NEAR * table.find_spread(public)
    same = np.array([_are_same(others, row, near).sum() for row in rows[: len(bits)]])
    bits = np.where(same > 0, np.minimum(bits, np.log2((1 + len(others)) / np.maximum(same, 1))), bits)
    chance = len(claimed) * len(list_readings(rows, public)) * np.exp2(APART - bits)
    rare = np.flatnonzero(chance <= 1 / RARE)
    return len(np.intersect1d(rare, hit)), float(chance[rare].sum())


def read_claims(claimed: Rows, rows: Rows, public: Rows) -> Rows:
    """[k, F] claims in raw units, where they equal a row in some scaling; the others as they are."""
    return _match(claimed, rows, public)[1]


def _match(claimed: Rows, rows: Rows, public: Rows) -> tuple[NDArray[np.int64], Rows]:
    found, read = np.full(len(claimed), -1), claimed.copy()
    if not len(rows):
        return found, read
    near = NEAR * table.find_spread(public)
    for reading in list_readings(rows, public):
        given = claimed * reading.factor + reading.offset
        for i in np.flatnonzero(found < 0):
            equal = np.flatnonzero(_are_same(rows, given[i], near))
            if len(equal):
                found[i], read[i] = equal[0], given[i]
    return found, read


def _are_same(rows: Rows, row: Rows, near: Rows) -> NDArray[np.bool_]:
    """[n] which of the rows equal this one [F], where missing ones are missing."""
    same = (np.abs(rows - row) <= near) | (np.isnan(rows) & np.isnan(row))
    return np.asarray(same.all(axis=1))


def claim_rows(found: Mapping[int, Rows], knowledge: Knowledge) -> Claim:
    """The claim of rows [k, F] of each client whose messages were read, also where it has none."""
    columns = np.empty(1, object)
    columns[0] = table.read_columns(knowledge)
    return {
        "columns": columns,
        "read": np.array([*found], np.int64),
        "client": np.repeat(np.array([*found], np.int64), [len(some) for some in found.values()]),
        "row": np.concatenate([np.zeros((0, knowledge.shape[0])), *found.values()]),
    }


def _rows(x: NDArray[Any]) -> Rows:
    return np.asarray(x, np.float64)
