"""Lone values: cells of tables of counts in which one person is alone, what attacks on them share.

A subclass lists the cells of a message: of which value, from where to where, and how many people it says are in
each. A cell of one is claimed: somebody has a value there, and whoever knows enough to pick the person learns it.
The blind adversary claims the cells of a table of as many public people; the negative control holds
the claims against as many people who were held out. The planted leak is a table of the client's own people.

Claim: client, value (which column) int64 [k], low, high [k], people int64 [k] of all cells, each once.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Attack, Claim, Examples, Knowledge, Truth
from fedaudit.attacks.evaluation.counting import CountedPeople
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.modality.images import fingerprints
from fedaudit.attacks.people import PeopleCount
from fedaudit.attacks.stats import INDEPENDENT
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.threats.threat import Harm

Values = NDArray[np.float64]
Payload = Mapping[str, NDArray[Any]]
PUBLIC = "cells of one in a table of public people"


class Cell(NamedTuple):
    """Of one value, what lies from `low` up to `high`, which is in it; and how many people are."""

    value: int
    low: float
    high: float
    people: int


class LoneValues(Attack):
    """Base class: a subclass has `card`, lists cells, and says what they are cells of."""

    found_in: str  # as the end of "no message holds"

    @abstractmethod
    def list_cells(self, payload: Payload, width: int) -> list[Cell]:
        """All cells of a message; examples have so many columns."""

    @abstractmethod
    def summarise(self, people: Examples, public: Examples) -> Payload:
        """What a client sends of its people."""

    @abstractmethod
    def read_values(self, people: Examples) -> Values:
        """[n, values] of people; NaN where somebody is in no cell."""

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        found: dict[tuple[int, Cell], None] = {}
        for a in sorted(self._select_sent(view), key=lambda a: a.id):
            found |= {(a.sender.number, cell): None for cell in self.list_cells(a.payload, knowledge.shape[0])}
        return {"client": np.array([client for client, _ in found], np.int64), **_write([c for _, c in found])}

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        right, blind, lucky, blind_lucky, planted, guesses = (list[bool]() for _ in range(6))
        whose, guessed_of = list[int](), list[int]()
        for client in np.unique(claim["client"]).tolist():
            mine = claim["client"] == client
            own = self.read_values(truth.client_examples(client))
            held, public = (
                some.only(rng.permutation(len(some))[: len(own)])
                for some in (truth.unseen({client}).images, truth.auxiliary)
            )
            held_values = self.read_values(held)
            said = mine & (claim["people"] == 1)
            right += (count_inside(claim, said, own) == 1).tolist()
            lucky += (count_inside(claim, said, held_values) == 1).tolist()
            whose += [client] * int(said.sum())
            guess = self._claim_cells(self.summarise(public, truth.auxiliary), public.x.shape[1])
            one = guess["people"] == 1
            guessed = (count_inside(guess, one, own) == 1).tolist()
            blind += guessed
            blind_lucky += (count_inside(guess, one, held_values) == 1).tolist()
            guessed_of += [client] * len(guessed)
            planted.append(self._plant(truth.client_examples(client), truth.auxiliary))
            guesses.append(bool(guessed) and all(guessed))
        if not right:
            return []
        groups = {"": np.array(whose), PUBLIC: np.array(guessed_of)}
        judge = Judge(control="negative", note="the same cells of as many held-out people")
        found = [
            Judge().judge_hits("lone_value", np.array(right), _name(blind), groups=groups),
            judge.judge_hits("lone_value", np.array(lucky), _name(blind_lucky), groups=groups),
        ]
        judge = Judge(control="positive", note="a table of the client's own people: clients of whom all is right")
        found.append(
            judge.judge_hits("lone_value", np.array(planted), _name(guesses), groups=INDEPENDENT)  # a client each
        )
        return found

    def _plant(self, people: Examples, public: Examples) -> bool:
        """Whether what a client sends of its people gives away somebody who is alone, and nobody else."""
        claim = self._claim_cells(self.summarise(people, public), people.x.shape[1])
        inside = count_inside(claim, claim["people"] >= 0, self.read_values(people))
        return bool((inside == claim["people"]).all() and (inside == 1).any())

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        """Everybody of the clients whose tables were read; hit is who is alone in a cell that says one."""
        counted = CountedPeople("alone in a cell of a table of counts", Harm.ATTRIBUTE)
        for client in np.unique(claim["client"]).tolist():
            mine = (claim["client"] == client) & (claim["people"] == 1)
            images, people = truth.client_examples(client), truth.client_rows(client)
            counted.test(client, people, people[find_alone(claim, mine, self.read_values(images))])
            held = truth.unseen({client}).images
            held = held.only(np.arange(min(len(held), len(images))))
            lucky = find_alone(claim, mine, self.read_values(held))
            for is_alone, mark in zip(lucky.tolist(), fingerprints(held.x), strict=True):
                counted.luck(float(is_alone), 1, mark, [client])
        return counted.people(truth)

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not any(self.list_cells(a.payload, knowledge.shape[0]) for a in self._select_sent(view)):
            return f"no client's messages hold {self.found_in}"
        return ""

    def _select_sent(self, view: Sequence[Artifact]) -> list[Artifact]:
        return [a for a in view if a.from_client and a.sender.index is not None and self.card.pick_read([a.kind])]

    def _claim_cells(self, payload: Payload, width: int) -> Claim:
        return _write(self.list_cells(payload, width))


def _write(cells: Sequence[Cell]) -> Claim:
    return {
        "value": np.array([c.value for c in cells], np.int64),
        "low": np.array([c.low for c in cells]),
        "high": np.array([c.high for c in cells]),
        "people": np.array([c.people for c in cells], np.int64),
    }


def _name(guesses: list[bool]) -> dict[str, NDArray[np.bool_]]:
    return {PUBLIC: np.array(guesses)} if guesses else {}


def count_inside(claim: Claim, mine: NDArray[np.bool_], values: Values) -> NDArray[np.int64]:
    """[cells] how many of these people [n, values] are in each cell."""
    return np.asarray(_inside(claim, mine, values).sum(axis=1), np.int64)


def find_alone(claim: Claim, mine: NDArray[np.bool_], values: Values) -> NDArray[np.bool_]:
    """[n] who of these people is alone in some cell."""
    inside = _inside(claim, mine, values)
    return np.asarray(inside[inside.sum(axis=1) == 1].any(axis=0))


def _inside(claim: Claim, mine: NDArray[np.bool_], values: Values) -> NDArray[np.bool_]:
    column = values[:, claim["value"][mine]].T
    low, high = claim["low"][mine, None], claim["high"][mine, None]
    return np.asarray((column >= low) & (column < high))
