"""Prototype linkage: which of the clients that sent a class owns this image of it?

The adversary queries every prototype of the class how much likelier it is with the image among its
samples than without, by the likelihood ratio of membership/prototype_membership.py (Sankararaman et
al., Nature Genetics 2009), each with its own client's model, and names the client of the largest.
With the same prior odds for all clients that is the most probable one. Different from membership,
where one prototype is queried and constants do not matter: prototypes of different n are compared, so
the normalisation of the two Gaussians is added; and one sample (n = 1), whose density is a point, is
given a deviation of PRECISION of the class's, far above rounding.

A trial is one training image, or for the negative control one that nobody trained on, and one
client of the class. Every prototype is the subject of equally many negative trials, so whatever is
guessed without looking is right in one of m, m being the clients that sent the class.

Claim: as in prototype_membership.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks import stats
from fedaudit.attacks.attack import Claim, Effort, Knowledge, Truth
from fedaudit.attacks.evaluation.built import BuiltOnce
from fedaudit.attacks.evaluation.counting import CountedPeople
from fedaudit.attacks.evaluation.features import extract_each
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evaluation.ranking import rank_among
from fedaudit.attacks.evaluation.sources import prototypes
from fedaudit.attacks.evaluation.trials import Pools, Trial, collect_places, find_place
from fedaudit.attacks.evidence import REPLAYED, Baseline, Evidence, Series, is_replay
from fedaudit.attacks.modality.images import ImagePool, fingerprints
from fedaudit.attacks.people import PeopleCount
from fedaudit.attacks.prototypes.prototype_membership import (
    PrototypeMembership,
    compare_message,
    log_likelihood_ratio,
)
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Harm

Floats = NDArray[np.floating[Any]]
PRECISION = 1e-3  # of the class's standard deviation, the least that a prototype is blurred by
LINKED = "given to the client that holds it, among those that sent its class"
CHANCE, LARGEST = "chance", "client with most of the class"


@dataclass(frozen=True, kw_only=True, eq=False)
class _Linked(Trial):
    """Images queried one prototype, beside those of other clients."""

    hits: Floats  # [k] the right client was named, ties in part
    largest: float  # the client with most samples of the class is the right one, ties in part
    clients: int  # among which one was named
    non_members: Floats  # [j] the right client was named for images that nobody has


class _Query(NamedTuple):
    """Images that a prototype is asked about, beside those of other clients."""

    row: int
    rows: Sequence[int]  # of the claim: the prototype itself and those it is compared with
    images: Floats  # members first
    members: int


class PrototypeLinkage(PrototypeMembership):
    card = replace(
        PrototypeMembership.card,
        title="Linkage of examples to clients by prototypes",
        needs=("numbers", "classes"),
        aim=Aim.LINKAGE,
        # a sum is of no single client
        also_reads=tuple(k for k in PrototypeMembership.card.also_reads if k is not Kind.AGGREGATE),
        learns="which client owns a given example",
        does_not_show="linkage under auxiliary data unlike the clients', nor by whoever does not know "
        "that one of the clients owns the example",
        effort=Effort(seconds=4, grows=("network", "replays", "rounds"), examples=500),
    )

    @settings
    class Config(PrototypeMembership.Config):
        members: AtLeastOne = Field(default=20, description="images of each prototype that are queried, at most")

    def score(self, claim: Claim, row: int, features: Floats) -> Floats:
        """The whole log-likelihood ratio of prototype `row`; features [m, D] -> [m]."""
        q, n = claim["population"][row], int(claim["n"][row])
        if (law := claim["law"][row]) is not None:
            return compare_message(law, claim, q, features)
        spread, n = claim["spread"][q], n if n > 0 else self.config.assumed_samples
        noise = max(float(claim["noise_std"]), PRECISION * float(spread.mean()) ** 0.5)
        out, within = spread / n + noise**2, spread * (n - 1) / n**2 + noise**2
        return 0.5 * float(np.log(out / within).sum()) + log_likelihood_ratio(
            features, claim["prototype"][row], claim["mean"][q], claim["axes"][q], spread, n, noise
        )

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        queried = collect_places(self._linked(claim, truth, rng), find_place)
        found = [_judge_place(queried[key], len(queried), rng) for key in sorted(queried)]
        every = [t for trials in queried.values() for t in trials]
        non_members = np.concatenate([t.non_members for t in every]) if every else np.zeros(0)
        if len(non_members):
            each = [len(t.non_members) for t in every]
            share = np.repeat([1 / t.clients for t in every], each)
            groups = np.repeat(np.arange(len(every)), each)  # one prototype may be likeliest for every image
            judge = Judge(
                control="negative", note="an example that was never trained on in the place of the client's"
            )
            found.append(
                judge.state(
                    "linkage_rank1",
                    float(non_members.mean()),
                    len(non_members),
                    stats.bound_share(non_members, groups, judge.alpha),
                    [Baseline(name=CHANCE, value=float(share.mean()))],
                )
            )
        return found

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        """Whose image is given to the client that holds it, of all whose class several clients sent.

        What each client sent in all rounds counts by the prototype that fits an image best. Luck is how often
        held-out people are given to the client of whose people they are, or whose place they take: of people of
        nobody's, in parts, by how many each client has.
        """
        found = CountedPeople(LINKED, Harm.LINKAGE)
        recorded = claim["origin"] == "recorded"
        for label in np.unique(claim["label"][recorded]).tolist():
            rows = np.flatnonzero(recorded & (claim["label"] == label))
            self._count_class(claim, truth, label, rows, found)
        for t in self._linked(claim, truth, rng):
            if t.n == 1 and t.origin == REPLAYED:
                found.plant(t.client, float(t.hits.sum()), len(t.hits))
        for client in {*claim["senders"].tolist(), *claim["sender"][recorded].tolist()}:
            found.hold_at_least(client, len(truth.client_examples(client)))
        return found.people(truth)

    def curves(self, claim: Claim, truth: Truth) -> list[Series]:
        return []  # an image has one owner: there is nothing to threshold

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        senders = defaultdict(set)
        for source in prototypes(view):
            for p in source.prototypes:
                senders[p.label].add(p.sender)
        if senders and all(len(s) < 2 for s in senders.values()):
            return "no class was sent by two clients, so its label alone names the client"
        return super().not_applicable(view, knowledge)

    @cached_property
    def _linked(self) -> BuiltOnce[list[_Linked]]:
        return BuiltOnce(self._link)

    def _count_class(
        self, claim: Claim, truth: Truth, label: int, rows: NDArray[np.int64], found: CountedPeople
    ) -> None:
        """Everybody of one class, whose prototypes of all rounds are `rows` of the claim."""
        sender, clients = claim["sender"][rows], np.unique(claim["sender"][rows])
        people = {
            (client, row): image
            for artifact in claim["artifact"][rows].tolist()
            for client, some in truth.people(artifact, label).items()
            for row, image in zip(some.tolist(), truth.client_examples(client).of_class(label), strict=True)
            if client in clients
        }
        if len(clients) < 2 or not people:
            return
        members = np.stack(list(people.values()))
        known, unseen = set(fingerprints(members)), {k: truth.unseen([k]).images for k in clients.tolist()}
        of_class = {id(images): ImagePool(images.of_class(label)).without(known) for images in unseen.values()}
        others = np.concatenate([*of_class.values()])
        scores = self._scores(claim, rows.tolist(), np.concatenate([members, others]))  # [rows, m + j]
        best = np.stack([scores[sender == k].max(axis=0) for k in clients])
        given = clients[best.argmax(axis=0)]
        for k in clients.tolist():
            own = [row for client, row in people if client == k]
            hit = [
                row for (client, row), to in zip(people, given[: len(people)], strict=True) if client == k == to
            ]
            found.test(k, own, hit)
        lucky, held = iter(given[len(people) :].tolist()), Counter(client for client, _ in people)
        for name, images in of_class.items():
            stands_for = [k for k in unseen if id(unseen[k]) == name and held[k]]
            parts = {k: held[k] / sum(held[j] for j in stands_for) for k in stands_for}
            for mark in fingerprints(images):
                to = next(lucky)
                for k, part in parts.items():
                    found.luck(part * (k == to), part, person=mark, clients=[k])

    def _link(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[_Linked]:
        """A trial for each prototype of a class that other clients sent too."""
        members, marks = [], []
        for artifact, label in zip(claim["artifact"], claim["label"], strict=True):
            members.append(truth.members(str(artifact), int(label)))
            marks.append(set(fingerprints(members[-1])))
        pools = Pools(truth)
        queries = list[_Query]()
        for row, own in enumerate(members):
            if not len(own):
                continue
            rows = self._candidates(claim, row, [len(m) for m in members], marks, rng)
            if len(rows) < 2:
                continue
            pool = pools.without(int(claim["label"][row]), set.union(*(marks[r] for r in rows)))
            take = rng.permutation(len(own))[: self.config.members]
            non_members = pool.shuffle(rng)[: self.config.members]
            queries.append(_Query(row, rows, np.concatenate([own[take], non_members]), len(take)))
        found = []
        for query, scores in zip(queries, self._score_queries(claim, queries), strict=True):
            row, sizes = query.row, claim["n"][query.rows]
            hits = rank_among(-scores[0], -scores[1:]).rank1
            found.append(
                _Linked(
                    row=row,
                    origin=str(claim["origin"][row]),
                    client=int(claim["sender"][row]),
                    n=len(members[row]),
                    image_hashes=frozenset(marks[row]),
                    hits=hits[: query.members],
                    non_members=hits[query.members :],
                    clients=len(query.rows),
                    largest=float(sizes[0] == sizes.max()) / int((sizes == sizes.max()).sum()),
                )
            )
        return found

    def _score_queries(self, claim: Claim, queries: Sequence[_Query]) -> list[Floats]:
        """[rows, images] of each query."""
        scores: list[Floats] = [np.zeros((len(q.rows), len(q.images))) for q in queries]
        asked: dict[int, list[tuple[int, int]]] = defaultdict(list)  # model -> query, place among its rows
        for i, query in enumerate(queries):
            for place, row in enumerate(query.rows):
                asked[int(claim["model"][row])].append((i, place))
        for model, places in asked.items():
            features = extract_each(claim["extractors"][model], [queries[i].images for i, _ in places])
            for (i, place), own in zip(places, features, strict=True):
                scores[i][place] = self.score(claim, queries[i].rows[place], own)
        return scores

    def _candidates(
        self, claim: Claim, row: int, sizes: Sequence[int], marks: Sequence[set[bytes]], rng: np.random.Generator
    ) -> list[int]:
        """The prototype itself and one of every other client of the class, of the same kind.

        Replayed prototypes are compared at one n, since their sizes are the auditor's choice.
        """
        alike = (claim["label"] == claim["label"][row]) & (claim["origin"] == claim["origin"][row])
        if is_replay(str(claim["origin"][row])):
            alike &= np.array(sizes) == sizes[row]
        chosen = [row]
        for sender in np.unique(claim["sender"][alike]):
            theirs = np.flatnonzero(alike & (claim["sender"] == sender))
            free = [r for r in theirs.tolist() if not marks[r] & marks[row]]
            if sender != claim["sender"][row] and free:
                chosen.append(int(rng.choice(free)))
        return chosen

    def _scores(self, claim: Claim, rows: Sequence[int], images: Floats) -> Floats:
        """[rows, images], each prototype with its own client's model."""
        extractors = claim["extractors"]
        found = [self.score(claim, r, extractors[claim["model"][r]].features(images)) for r in rows]
        return np.stack(found)


def _judge_place(trials: Sequence[_Linked], looks: int, rng: np.random.Generator) -> Evidence:
    origin = trials[0].origin
    hits = np.concatenate([t.hits for t in trials])
    each = [len(t.hits) for t in trials]
    weight = np.array(each) / sum(each)
    chance = float(weight @ [1 / t.clients for t in trials])
    baselines = [Baseline(name=CHANCE, value=chance)]
    if origin == "recorded":  # replays of one bucket are equally large
        largest = float(weight @ [t.largest for t in trials])
        baselines.append(Baseline(name=LARGEST, value=largest))
    samples = float(np.median([t.n for t in trials]))
    clients = np.median([t.clients for t in trials])
    judge = Judge(
        looks=looks,
        control="positive" if is_replay(origin) and samples == 1 else "none",
        condition={"n": samples, "origin": origin},
        note=f"{len(trials)} prototypes, each among those of {clients:g} clients of its class",
    )
    groups = np.repeat(np.arange(len(each)), each)
    interval = stats.mean_interval(hits, rng, alpha=judge.alpha, groups=groups, bounds=(0, 1))
    return judge.state("linkage_rank1", float(hits.mean()), len(hits), interval, baselines)
