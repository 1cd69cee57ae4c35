"""Membership scores of prototypes: members of each against non-members of the same class.

Same class, because a client that owns two classes would otherwise give away its labels, not its
images. The blind adversary scores the same candidates with another prototype of the class that
none of them is in: above 0.5 it would show that members differ from the non-members as a
population, and not that they are traced.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Claim, Truth
from fedaudit.attacks.evaluation.counting import list_latest
from fedaudit.attacks.evaluation.flagging import Planted, ScoredPeople, count_flagged
from fedaudit.attacks.evaluation.images import ImagePool
from fedaudit.attacks.evaluation.membership import Query, QueryBucket, Sides, gather, halves, name_non_members
from fedaudit.attacks.evaluation.ranking import First, compare_best
from fedaudit.attacks.evaluation.trials import collect_places, describe_place, find_place, hash_images
from fedaudit.attacks.evidence import REPLAYED, UNPROTECTED
from fedaudit.attacks.people import PeopleCount

Floats = NDArray[np.floating[Any]]
Score = Callable[[Claim, int, Floats], Floats]  # claim, row, features [m, D] -> [m]

OTHER = "another prototype of the class"


@dataclass(frozen=True, kw_only=True, eq=False)
class _PrototypeQuery(Query):
    label: int
    members: Floats
    pool: ImagePool  # non-members of the class


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
        self._features: dict[
            tuple[int, int], tuple[ImagePool, Floats]
        ] = {}  # model, pool's id -> those of the pool
        every = (self._make_query(row) for row in range(len(claim["artifact"])))
        self._queries = [q for q in every if q is not None]
        latest = set(list_latest(claim).tolist())
        self._latest = [q for q in self._queries if q.row in latest]

    @cached_property
    def buckets(self) -> list[QueryBucket]:
        """Each sender's latest prototypes, and replayed ones, by origin and number of samples."""
        places = collect_places(self._latest, find_place)
        buckets = (self._judge(places[where]) for where in sorted(places))
        return [b for b in buckets if b is not None]

    def count_people(self) -> list[PeopleCount]:
        """Whom the scores flag, of everybody behind prototypes that clients sent, over all rounds."""
        recorded = [s for q in self._queries if q.origin == "recorded" for s in self._score_people(q)]
        planted = [
            Planted(scored, q.origin == REPLAYED)
            for q in self._queries
            if q.n == 1 and q.origin in (REPLAYED, UNPROTECTED)
            for scored in self._score_people(q)
        ]
        senders = self._claim["sender"][self._claim["origin"] == "recorded"]
        everybody = {*senders.tolist(), *self._claim["senders"].tolist()}
        return count_flagged(recorded, planted, everybody, self._truth)

    def _judge(self, queries: Sequence[_PrototypeQuery]) -> QueryBucket | None:
        """Scores of the prototypes of one place; None where nobody else is left to compare members with."""
        true, silent, wrong = list[Sides](), list[Sides](), list[Sides]()
        firsts, blind_firsts = list[First](), list[First]()
        first_clients, blind_clients = list[int](), list[int]()
        for q in queries:
            rows = q.pool.rows_without(q.image_hashes)
            rows = rows[self._rng.permutation(len(rows))[: max(self._limits[1], q.n)]]
            if len(rows) < 2:
                continue
            kept = self._rng.permutation(q.n)[: self._limits[0]]
            every, others = self._ask(q.row, q, rows)
            firsts.append(compare_best(every, others))
            first_clients.append(q.client)
            true.append(Sides(q.row, every[kept], others[: self._limits[1]]))
            silent.append(Sides(q.row, *halves(others[: self._limits[1]], self._rng)))
            another = self._find_another(q, queries)
            if another is not None:
                every, others = self._ask(another, q, rows)
                blind_firsts.append(compare_best(every, others))
                blind_clients.append(q.client)
                wrong.append(Sides(q.row, every[kept], others[: self._limits[1]]))
        if not true:
            return None
        condition, control = describe_place(queries)
        return QueryBucket(
            trials=queries,
            against=name_non_members(queries),
            condition=condition,
            control=control,
            note=f"{len(true)} {self._what}",
            scores=gather(true),
            silent=gather(silent),
            blind={OTHER: gather(wrong)} if wrong else {},
            firsts=firsts,
            blind_firsts=blind_firsts,
            first_clients=first_clients,
            blind_clients=blind_clients,
        )

    def _score_people(self, query: _PrototypeQuery) -> list[ScoredPeople]:
        """Everybody behind one prototype, client by client, and the people of the class who are not."""
        rows = query.pool.rows_without(query.image_hashes)
        scores, others = self._ask(query.row, query, rows)
        owners = self._truth.people(str(self._claim["artifact"][query.row]), query.label)
        people = np.concatenate([np.zeros(0, np.int64), *owners.values()])
        clients = np.repeat(list(owners), [len(r) for r in owners.values()])
        clients = np.full(len(people), query.client) if query.origin != "recorded" else clients
        names = [(query.label, id(query.pool), int(r)) for r in rows]
        return [
            ScoredPeople(
                client=int(k),
                rows=people[clients == k].tolist(),
                scores=scores[clients == k],
                held_out=names,
                held_out_scores=others,
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
        """Non-members of that class: the clients' own where two are left of them, else the reference's."""
        unseen = self._truth.unseen(clients)
        if (unseen.images.y == label).sum() < 2:
            clients, unseen = frozenset(), self._truth.unseen(())
        if unseen.images is self._truth.reference:
            clients = frozenset()
        if (label, clients) not in self._pools:
            self._pools[label, clients] = ImagePool(unseen.images.of_class(label))
        return self._pools[label, clients], unseen.words

    def _ask(self, row: int, query: _PrototypeQuery, non_members: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """How prototype `row` scores the members of a query and these images of its pool."""
        model, pool = int(self._claim["model"][row]), query.pool
        extractor = self._claim["extractors"][model]
        if (model, id(pool)) not in self._features:  # hundreds of prototypes share a model
            self._features[model, id(pool)] = pool, extractor.features(pool.images)
        features = self._features[model, id(pool)][1][non_members]
        return (
            self._score(self._claim, row, extractor.features(query.members)),
            self._score(self._claim, row, features),
        )

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
