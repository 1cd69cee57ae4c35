"""Membership scores of prototypes: members of each against non-members of the same class.

Same class, because a client that owns two classes would otherwise give away its labels, not its
images. The baseline scores the same candidates with another prototype of the class that
none of them is in: above 0.5 it would show that members differ from the non-members as a
population, and not that they are traced.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Attack, Claim, Truth
from fedaudit.attacks.evaluation.built import BuiltOnce
from fedaudit.attacks.evaluation.counting import list_latest, split_kinds
from fedaudit.attacks.evaluation.features import extract_each
from fedaudit.attacks.evaluation.flagging import ScoredPeople, count_flagged
from fedaudit.attacks.evaluation.membership import (
    Query,
    QueryBucket,
    Sides,
    curve,
    gather,
    halves,
    name_non_members,
)
from fedaudit.attacks.evaluation.ranking import First, compare_best
from fedaudit.attacks.evaluation.trials import collect_places, describe_place, find_place, hash_images
from fedaudit.attacks.evidence import REPLAYED, Series
from fedaudit.attacks.modality.images import ImagePool
from fedaudit.attacks.people import PeopleCount

Floats = NDArray[np.floating[Any]]
Score = Callable[[Claim, int, Floats], Floats]  # claim, row, features [m, D] -> [m]

OTHER = "another prototype of the class"


@dataclass(frozen=True, kw_only=True, eq=False)
class _PrototypeQuery(Query):
    label: int
    members: Floats
    pool: ImagePool  # non-members of the class


class _Drawn(NamedTuple):
    """Whom a query is judged on, as chance has it, and with which other prototype of the class."""

    query: _PrototypeQuery
    members: NDArray[np.int64]  # places among the query's
    others: NDArray[np.int64]  # rows of the pool
    limit: int  # of the others, but for the question whether the first is a member
    halves: tuple[NDArray[np.int64], NDArray[np.int64]]  # of the others within the limit
    another: int | None  # row

    def choose(self, scores: Floats) -> Sides:
        """Of everybody's: members first, then the pool."""
        every, pool = np.split(scores, [self.query.n])
        return Sides(self.query.row, every[self.members], pool[self.others[: self.limit]])

    def compare(self, scores: Floats) -> First:
        every, pool = np.split(scores, [self.query.n])
        return compare_best(every, pool[self.others])

    def compare_halves(self, scores: Floats) -> Sides:
        return Sides(self.query.row, *(scores[self.query.n :][self.others[half]] for half in self.halves))


class Tracer:
    """Scores of everybody behind the prototypes of a claim.

    The claim has artifact, label, sender, origin, round and model [k], and extractors [models].

    Parameters
    ----------
    limits : members and non-members of one prototype that are judged, at most.
    what : what the prototypes are, in words.
    """

    def __init__(
        self,
        claim: Claim,
        truth: Truth,
        score: Score,
        limits: tuple[int, int],
        rng: np.random.Generator,
        what: str,
    ) -> None:
        self._claim, self._score, self._limits, self._rng = claim, score, limits, rng
        self._truth, self._what = truth, what
        self._pools: dict[tuple[int, frozenset[int]], ImagePool] = {}  # class, clients
        every = (self._make_query(row) for row in range(len(claim["artifact"])))
        self._queries = [q for q in every if q is not None]
        latest = set(list_latest(claim).tolist())
        self._latest = [q for q in self._queries if q.row in latest]

    @cached_property
    def buckets(self) -> list[QueryBucket]:
        """Each sender's latest prototypes, and replayed ones, by origin and number of samples."""
        return [self._judge(queries, drawn) for queries, drawn in self._places if drawn]

    @cached_property
    def _places(self) -> list[tuple[list[_PrototypeQuery], list[_Drawn]]]:
        """Queries of each place, and those whose members can be compared with somebody."""
        places = collect_places(self._latest, find_place)
        return [(places[where], list(self._draw(places[where]))) for where in sorted(places)]

    @cached_property
    def _scores(self) -> dict[tuple[int, int], Floats]:
        """Rows of a prototype and of a query -> scores of its members and then of its whole pool."""
        asked: dict[int, list[tuple[int, _PrototypeQuery]]] = {}  # by model
        blind = [(d.another, d.query) for _, drawn in self._places for d in drawn if d.another is not None]
        for row, query in [*((q.row, q) for q in self._queries), *blind]:
            asked.setdefault(int(self._claim["model"][row]), []).append((row, query))
        scores = {}
        for model, pairs in asked.items():
            extractor = self._claim["extractors"][model]
            pools = {id(q.pool): q.pool.images for _, q in pairs}
            others = {name: extractor.features(images) for name, images in pools.items()}
            members = extract_each(extractor, [q.members for _, q in pairs])
            for (row, query), own in zip(pairs, members, strict=True):
                features = np.concatenate([own, others[id(query.pool)]])
                scores[row, query.row] = self._score(self._claim, row, features)
        return scores

    def count_people(self) -> list[PeopleCount]:
        """Whom the scores flag, of everybody behind prototypes that clients sent, over all rounds."""
        planted = [
            scored for q in self._queries if q.n == 1 and q.origin == REPLAYED for scored in self._score_people(q)
        ]
        found = list[PeopleCount]()
        for kind, rows, senders in split_kinds(self._claim):
            recorded = [s for q in self._queries if rows[q.row] for s in self._score_people(q)]
            everybody = {*self._claim["sender"][rows].tolist(), *senders}
            found += count_flagged(recorded, planted, everybody, self._truth, kind)
        return found

    def _draw(self, queries: Sequence[_PrototypeQuery]) -> Iterator[_Drawn]:
        most = self._limits[1]
        for q in queries:
            rows = q.pool.rows_without(q.image_hashes)
            rows = rows[self._rng.permutation(len(rows))[: max(most, q.n)]]
            if len(rows) >= 2:
                yield _Drawn(
                    query=q,
                    members=self._rng.permutation(q.n)[: self._limits[0]],
                    others=rows,
                    limit=most,
                    halves=halves(np.arange(min(len(rows), most)), self._rng),
                    another=self._find_another(q, queries),
                )

    def _judge(self, queries: Sequence[_PrototypeQuery], drawn: Sequence[_Drawn]) -> QueryBucket:
        """Scores of the prototypes of one place."""
        own = [(d, self._scores[d.query.row, d.query.row]) for d in drawn]
        wrong = [(d, self._scores[d.another, d.query.row]) for d in drawn if d.another is not None]
        condition, control = describe_place(queries)
        return QueryBucket(
            trials=queries,
            against=name_non_members(queries),
            condition=condition,
            control=control,
            note=f"{len(own)} {self._what}",
            scores=gather([d.choose(s) for d, s in own]),
            silent=gather([d.compare_halves(s) for d, s in own]),
            blind={OTHER: gather([d.choose(s) for d, s in wrong])} if wrong else {},
            firsts=[d.compare(s) for d, s in own],
            blind_firsts=[d.compare(s) for d, s in wrong],
            first_clients=[d.query.client for d, _ in own],
            blind_clients=[d.query.client for d, _ in wrong],
        )

    def _score_people(self, query: _PrototypeQuery) -> list[ScoredPeople]:
        """Everybody behind one prototype, client by client, and the people of the class who are not."""
        rows = query.pool.rows_without(query.image_hashes)
        scores, pool = np.split(self._scores[query.row, query.row], [query.n])
        owners = self._truth.people(str(self._claim["artifact"][query.row]), query.label)
        people = np.concatenate([np.zeros(0, np.int64), *owners.values()])
        clients = np.repeat(list(owners), [len(r) for r in owners.values()])
        clients = np.full(len(people), query.client) if query.origin != "recorded" else clients
        marks = query.pool.marks
        return [
            ScoredPeople(
                client=int(k),
                rows=people[clients == k].tolist(),
                scores=scores[clients == k],
                held_out=[marks[r] for r in rows],
                held_out_scores=pool[rows],
            )
            for k in np.unique(clients)
        ]

    def _make_query(self, row: int) -> _PrototypeQuery | None:
        artifact, label = str(self._claim["artifact"][row]), int(self._claim["label"][row])
        members = self._truth.members(artifact, label)
        if not len(members):
            return None
        pool, against = self._find_pool(label, self._truth.find_contributors(artifact))
        return _PrototypeQuery(
            row=row,
            origin=str(self._claim["origin"][row]),
            client=int(self._claim["sender"][row]),
            n=len(members),
            image_hashes=hash_images(members),
            against=against,
            label=label,
            members=members,
            pool=pool,
        )

    def _find_pool(self, label: int, clients: frozenset[int]) -> tuple[ImagePool, str]:
        """Non-members of that class: the clients' own where they held out any, else the reference's."""
        unseen = self._truth.unseen(clients)
        if unseen.images is self._truth.reference:
            clients = frozenset()
        if (label, clients) not in self._pools:
            self._pools[label, clients] = ImagePool(unseen.images.of_class(label))
        return self._pools[label, clients], unseen.words

    def _find_another(self, query: _PrototypeQuery, queries: Sequence[_PrototypeQuery]) -> int | None:
        """The row of a prototype of the class without any of these members.

        Another client's with as many samples, else another client's, else the same client's.
        """
        for some, is_stranger in ((queries, True), (self._latest, True), (queries, False)):
            fits = [
                q.row
                for q in some
                if q.label == query.label and (q.client != query.client or not is_stranger) and q.is_apart(query)
            ]
            if fits:
                return int(self._rng.choice(fits))
        return None


class TracedMembership(Attack):
    """Base class. A subclass writes `score`, and of its Config `members` and `others` are limits."""

    what: ClassVar[str]  # what the prototypes are, in words

    @abstractmethod
    def score(self, claim: Claim, row: int, features: Floats) -> Floats:
        """Of each candidate for prototype `row`; features [m, D] -> [m]."""

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        return self._tracer(claim, truth, rng).count_people()

    def curves(self, claim: Claim, truth: Truth) -> list[Series]:
        return [curve(f"n = {b.samples:g}, {b.origin}", b.scores) for b in self._tracer(claim, truth).buckets]

    @cached_property
    def _tracer(self) -> BuiltOnce[Tracer]:
        limits = self.config.members, self.config.others
        return BuiltOnce(lambda claim, truth, rng: Tracer(claim, truth, self.score, limits, rng, self.what))
