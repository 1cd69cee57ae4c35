"""Members of models against non-members of the same classes, in the same proportions.

The members of an upload are that client's training images, those of the global model are the images of
the clients that were heard for it.
For every member of a class there are equally many non-members of it: a client with two classes
has a model that knows the classes, and against other non-members it would give away its labels,
not its images. A model is asked about its members and those non-members, and about those of a model that it is
compared with; about all candidates it would take long, where models have millions of numbers. Scores of several
models are pooled after each model's were centred and scaled by median and quartiles of all that it was asked
about, which the adversary can do as well.

Replayed uploads memorised their images under wrong labels (`taught`), and non-members are
queried under labels that are wrong in the same way: a right label can be told without memory.

Blind adversaries: for uploads that of another client whose data hold none of the candidates; for the
global model its own weights in random order. Both are 0.5 unless members differ from the non-
members as a population. Another client's upload started from a global model that may know the
members already, and what it tells of them is no merit of the upload.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Claim, Examples, Floats, Truth, Unseen
from fedaudit.attacks.evaluation.counting import list_latest
from fedaudit.attacks.evaluation.flagging import ScoredPeople, count_flagged
from fedaudit.attacks.evaluation.judging import Condition
from fedaudit.attacks.evaluation.membership import (
    Query,
    QueryBucket,
    Scores,
    Sides,
    gather,
    halves,
    name_non_members,
)
from fedaudit.attacks.evaluation.scores import Mask
from fedaudit.attacks.evaluation.targets import BLIND, GLOBAL, RELAYED, UPDATE
from fedaudit.attacks.evaluation.trials import collect_places
from fedaudit.attacks.evidence import REPLAYED, UNPROTECTED, is_replay
from fedaudit.attacks.modality.images import fingerprints
from fedaudit.attacks.people import PeopleCount
from fedaudit.fl.kinds import Kind

if TYPE_CHECKING:
    from fedaudit.fl.runtime.task import Task

WHOLE_CELL = 5  # people of one class at one client, all of whom are tested in any sample
ANOTHER, SHUFFLED = "model of another client", "weights in random order"


@dataclass(frozen=True, kw_only=True, eq=False)
class _ModelQuery(Query):
    members: NDArray[np.int64]  # candidates
    others: NDArray[np.int64]
    people: Mapping[int, tuple[NDArray[np.int64], NDArray[np.int64]]]  # client -> rows, and their candidates

    def halve(self, rng: np.random.Generator) -> "_ModelQuery":
        """Half of the non-members in the place of members."""
        first, second = halves(self.others, rng)
        return replace(self, members=first, others=second)


Place = tuple[str, str, int]  # of a bucket: model, origin, n of a curve
_Tested = tuple[int, _ModelQuery, NDArray[np.int64]]  # a client, a model, non-members
Limits = tuple[int, int, int]  # members of one model, non-members in all, people who are tested


class ModelTrials:
    """Candidates as the models of a claim score them: what is judged, and whom the scores flag."""

    def __init__(self, claim: Claim, truth: Truth, limits: Limits, rng: np.random.Generator) -> None:
        self._claim, self._truth, self._rng = claim, truth, rng
        candidates, self._queries = _make_queries(claim, truth, limits, rng)
        self._marks = fingerprints(candidates.x)
        self._latest = _collect_latest(claim, self._queries)
        self._tested = _collect_tested(claim, self._queries)
        self._blind = {place: _pair_blind(claim, queries) for place, queries in self._latest.items()}
        asked = self._choose_asked(len(candidates))
        self._table = _scale(claim["scorer"][0](candidates, asked), asked) if self._queries else np.zeros((0, 0))

    def _choose_asked(self, candidates: int) -> Mask:
        """[models, candidates] what is read below."""
        asked = np.zeros((len(self._claim["artifact"]), candidates), bool)
        for q in self._queries:
            for some in (q.members, q.others, *(own for _, own in q.people.values())):
                asked[q.row, some] = True
        for row, query in chain.from_iterable(self._blind.values()):
            asked[row, query.members] = asked[row, query.others] = True
        for _, query, others in chain.from_iterable(self._tested.values()):
            asked[query.row, others] = True
        return asked

    @cached_property
    def buckets(self) -> list[QueryBucket]:
        """By model and origin, of each sort each sender's latest: earlier ones are about the same people."""
        return [
            _make_bucket(self._table, queries, self._blind[place], *place, self._rng)
            for place, queries in sorted(self._latest.items(), key=itemgetter(0))
        ]

    def count_people(self) -> list[PeopleCount]:
        """Whom the scores flag, of everybody behind the models of each kind.

        People are planted in uploads, read singly or in the sum of a round. An average of many hides far more
        than one of them, so nothing is known to have been planted in what the server sends.
        """
        sent = self._claim["kind"]
        uploaded = {str(k) for k in sent[self._claim["model"] == UPDATE]}
        counted = []
        for kind, tested in self._tested.items():
            planted = [
                _score_planted_model(self._table[q.row], q)
                for q in self._queries
                if q.origin == REPLAYED and sent[q.row] in (uploaded if kind == Kind.AGGREGATE else {kind})
            ]
            scored = [_score_client(self._table, self._marks, *of) for of in tested]
            counted += count_flagged(scored, planted, self._claim["senders"].tolist(), self._truth, Kind(kind))
        return counted


def _collect_tested(claim: Claim, queries: Sequence[_ModelQuery]) -> dict[str, list[_Tested]]:
    """By kind of message every client with every model that may know its people: its own upload, what all get.

    With each the non-members: those of the model with the fewest people behind it, whose classes are most
    like the client's.
    """
    known: dict[str, dict[int, list[_ModelQuery]]] = {}
    for q in queries:
        if q.origin == "recorded":
            clients = known.setdefault(str(claim["kind"][q.row]), {})
            for client in q.people:
                clients.setdefault(client, []).append(q)
    tested: dict[str, list[_Tested]] = {kind: [] for kind in known}
    for kind, clients in known.items():
        for client, own in sorted(clients.items()):
            others = min(own, key=lambda q: q.n).others
            tested[kind] += [(client, q, others) for q in own]
    return tested


def _collect_latest(claim: Claim, queries: Sequence[_ModelQuery]) -> dict[Place, list[_ModelQuery]]:
    """Queries of each sender's latest models."""
    latest = set(list_latest(claim, claim["model"]).tolist())

    def key(q: _ModelQuery) -> Place:
        return str(claim["model"][q.row]), q.origin, int(claim["n"][q.row])

    return collect_places([q for q in queries if q.row in latest], key)


def _score_client(
    table: Floats, marks: Sequence[bytes], client: int, query: _ModelQuery, others: NDArray[np.int64]
) -> ScoredPeople:
    rows, candidates = query.people[client]
    return ScoredPeople(
        client=client,
        rows=rows.tolist(),
        scores=table[query.row][candidates],
        held_out=[marks[i] for i in others],
        held_out_scores=table[query.row][others],
    )


def _score_planted_model(row: Floats, query: _ModelQuery) -> ScoredPeople:
    return ScoredPeople(
        client=query.client,
        rows=query.members.tolist(),
        scores=row[query.members],
        held_out=query.others.tolist(),
        held_out_scores=row[query.others],
    )


def _make_bucket(
    table: Floats,
    queries: Sequence[_ModelQuery],
    blind: Sequence[tuple[int, _ModelQuery]],
    model: str,
    origin: str,
    n: int,
    rng: np.random.Generator,
) -> QueryBucket:
    """`n`: examples behind each model, where that is a curve."""
    curve: Condition = {"n": n} if n else {}
    note = f"{len(queries)} model{'s' if len(queries) > 1 else ''}"
    # replayed uploads learnt a few images: leaks of several grades, of which an attack has to find one
    planted, name = is_replay(origin), SHUFFLED if model == GLOBAL else ANOTHER
    if planted:
        what = "that memorised wrongly labelled examples, " if origin in (REPLAYED, UNPROTECTED) else ""
        note = f"{note} {what}made by the auditor"
    return QueryBucket(
        trials=queries,
        against=name_non_members(queries),
        condition={**curve, "model": model, "origin": origin},
        control="positive" if planted else "none",
        note=note,
        scores=_score([(table[q.row], q) for q in queries]),
        silent=_score([(table[q.row], q.halve(rng)) for q in queries]),
        blind={name: _score([(table[row], q) for row, q in blind])} if blind else {},
    )


def name_bucket(bucket: QueryBucket) -> str:
    """Of its curve."""
    n = bucket.condition.get("n")
    return f"{bucket.condition['model']}, {bucket.origin}" + (f", n = {n}" if n else "")


def draw_wrong(mark: bytes) -> int:
    """The draw, by its fingerprint, that decides under which wrong label a replayed model learns an example."""
    return int.from_bytes(mark[:8], "little")


def _make_queries(
    claim: Claim, truth: Truth, limits: Limits, rng: np.random.Generator
) -> tuple[Examples, list[_ModelQuery]]:
    """Every candidate once, and who is queried which."""
    candidates = _Candidates(claim["task"][0], int(claim["width"]))
    classes, add = int(claim["classes"]), candidates.add

    pools: dict[int, tuple[Unseen, dict[bytes, int]]] = {}

    def pool(row: int) -> tuple[Unseen, dict[bytes, int]]:
        """Non-members, and where each of those that are kept stands."""
        unseen = truth.unseen(_find_owners(claim, row, truth))
        if not len(unseen.images):
            return unseen, {}
        if id(unseen.images) not in pools:
            kept = rng.permutation(len(unseen.images))[: limits[1]]
            marks = fingerprints(unseen.images.x[kept])
            pools[id(unseen.images)] = unseen, dict(zip(marks, kept.tolist(), strict=True))
        return pools[id(unseen.images)]

    (draws,) = rng.spawn(1)
    tested: dict[tuple[int, int], bool] = {}  # client, row: one draw for all models

    def find_people(
        row: int, own: Sequence[Examples], own_marks: Sequence[Sequence[bytes]]
    ) -> dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Those tested of each client behind a model, and which candidates they are."""
        pairs: dict[int, list[tuple[int, int]]] = {}
        total = sum(map(len, own))
        for label in range(classes):
            start = 0
            for client, rows in _list_people(claim, row, truth, label).items():
                least = min(len(rows), WHOLE_CELL)
                many = max(least, math.ceil(len(rows) * min(1.0, limits[2] / total)))
                kept = set(draws.permutation(len(rows))[:many].tolist())
                for place, person in enumerate(rows.tolist()):
                    if tested.setdefault((client, person), place in kept):
                        at = start + place
                        candidate = add(own[label], at, own_marks[label][at], False)
                        pairs.setdefault(client, []).append((person, candidate))
                start += len(rows)
        return {k: (np.array(some)[:, 0], np.array(some)[:, 1]) for k, some in pairs.items()}

    queries = []
    for row in range(len(claim["artifact"])):
        if claim["origin"][row] == BLIND:
            continue
        unseen, where = pool(row)
        reference = unseen.images
        own = [_behind(claim, row, truth, c) for c in range(classes)]
        own_marks = [fingerprints(m.x) for m in own]
        marks = frozenset(m for some in own_marks for m in some)
        total = sum(map(len, own))
        members, chances = {}, {}
        for label, images in enumerate(own):
            free = [m for m, i in where.items() if reference.y[i] == label and m not in marks]
            share = min(1.0, limits[0] / max(1, total))
            many = min(round(share * len(images)), len(free))
            if many:  # rare classes may round to none
                members[label] = rng.permutation(len(images))[:many]
                chances[label] = [free[i] for i in rng.permutation(len(free))]
        if not members:
            continue
        each = min(len(chances[c]) // len(members[c]) for c in members)
        wrong = claim["origin"][row] in (REPLAYED, UNPROTECTED)
        ins = [add(own[c], int(i), own_marks[c][i], wrong) for c, rows in members.items() for i in rows]
        outs = [add(reference, where[m], m, wrong) for c in members for m in chances[c][: each * len(members[c])]]
        queries.append(
            _ModelQuery(
                row=row,
                origin=str(claim["origin"][row]),
                client=int(claim["sender"][row]),
                n=total,
                image_hashes=marks,
                members=np.unique(ins),
                others=rng.permutation(np.unique(outs)),
                against=unseen.words,
                people=find_people(row, own, own_marks) if claim["origin"][row] == "recorded" else {},
            )
        )
    if not queries:
        return truth.reference.only(np.zeros(0, np.int64)), []
    return Examples.join(candidates.found), queries


class _Candidates:
    """Examples that models are queried about, each once under each of its labels."""

    def __init__(self, task: "Task | None", width: int) -> None:
        self._task, self._width = task, width
        self._numbers: dict[tuple[bytes, bytes], int] = {}  # fingerprint, label -> candidate
        self.found: list[Examples] = []

    def add(self, of: Examples, at: int, mark: bytes, wrong: bool) -> int:
        """The number of one example, under its own label or a `wrong` one."""
        one = of.only(np.array([at]))
        if wrong:
            one = mislabel(one, [mark], self._task, self._width)
        key = mark, one.wanted.tobytes()
        if key not in self._numbers:
            self._numbers[key] = len(self.found)
            self.found.append(one)
        return self._numbers[key]


def mislabel(images: Examples, marks: Sequence[bytes], task: "Task | None", width: int) -> Examples:
    """The same examples, each under a wrong label by its fingerprint."""
    from fedaudit.fl.tasks.classify import Classify

    wrong = (task or Classify()).mislabel(images.wanted, [draw_wrong(m) for m in marks], width)
    if images.labels is None:
        return Examples(x=images.x, y=wrong)
    return Examples(x=images.x, y=images.y, labels=wrong)


def _find_owners(claim: Claim, row: int, truth: Truth) -> frozenset[int]:
    """The clients whose images are members."""
    if claim["model"][row] == RELAYED and claim["origin"][row] == "recorded":
        return frozenset({int(claim["sender"][row])})
    return truth.find_contributors(str(claim["artifact"][row]))


def _behind(claim: Claim, row: int, truth: Truth, label: int) -> Examples:
    """The members; of a relayed model those of the client that handed it on, and not of those before it."""
    if claim["model"][row] == RELAYED and claim["origin"][row] == "recorded":
        own = truth.client_examples(int(claim["sender"][row]))
        return own.only(own.y == label)
    return truth.find_members(str(claim["artifact"][row]), label)


def _list_people(claim: Claim, row: int, truth: Truth, label: int) -> Mapping[int, NDArray[np.int64]]:
    """Who they are: client -> rows, in the order of `_behind`."""
    people = truth.people(str(claim["artifact"][row]), label)
    if claim["model"][row] == RELAYED:
        return {k: rows for k, rows in people.items() if k == int(claim["sender"][row])}
    return people


def _scale(table: Floats, asked: Mask) -> Floats:
    """What each model is asked, around its median, in units of its interquartile range; NaN elsewhere."""
    scaled = np.full(table.shape, np.nan)
    for row, some in enumerate(asked):
        scores = table[row, some]
        if (known := ~np.isnan(scores)).any():
            low, middle, high = np.quantile(scores[known], (0.25, 0.5, 0.75))
            scaled[row, some] = (table[row, some] - middle) / (high - low if high > low else 1.0)
    return scaled


def _score(pairs: Sequence[tuple[Floats, _ModelQuery]]) -> Scores:
    images = np.concatenate([q.members for _, q in pairs]), np.concatenate([q.others for _, q in pairs])
    return gather([Sides(q.row, row[q.members], row[q.others]) for row, q in pairs], images)


def _pair_blind(claim: Claim, queries: Sequence[_ModelQuery]) -> list[tuple[int, _ModelQuery]]:
    """Queries of one bucket, each with the number of a model that cannot know its members, where there is one."""
    if claim["model"][queries[0].row] == GLOBAL:
        return [(int(row), q) for row in np.flatnonzero(claim["origin"] == BLIND)[:1] for q in queries]
    pairs = []
    for number, query in enumerate(queries):
        # another for each where it can be
        turned = (queries[number + i - len(queries)] for i in range(1, len(queries)))
        other = _find_blind(query, turned)
        if other is not None:
            pairs.append((other.row, query))
    return pairs


def _find_blind(query: _ModelQuery, models: Iterable[_ModelQuery]) -> _ModelQuery | None:
    """The first that has seen none of its members: of another client, where there is one."""
    same = None
    for other in models:
        if other.is_apart(query):
            if other.client != query.client:
                return other
            same = other if same is None else same
    return same
