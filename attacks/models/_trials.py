"""Members of models against non-members of the same classes, in the same proportions.

The members of an upload are that client's training images, those of the global model are the images of
the clients that were heard for it.
For every member of a class there are equally many non-members of it: a client with two classes
has a model that knows the classes, and against other non-members it would give away its labels,
not its images. Scores of several models are pooled after each model's were centred and scaled by
median and quartiles of all candidates, which the adversary can do as well.

Replayed uploads memorised their images under wrong labels (`taught`), and non-members are
queried under labels that are wrong in the same way: a right label can be told without memory.

Blind adversaries: for uploads that of another client whose data hold none of the candidates; for the
global model its own weights in random order. Both are 0.5 unless members differ from the non-
members as a population. Another client's upload started from a global model that may know the
members already, and what it tells of them is no merit of the upload.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Claim, Floats, Images, Truth, Unseen
from fedaudit.attacks.evaluation.membership import Scores, clustered, halves
from fedaudit.attacks.evaluation.reidentification import fingerprints
from fedaudit.attacks.evidence import REPLAYED
from fedaudit.attacks.models._targets import BLIND, GLOBAL, RELAYED

ANOTHER, SHUFFLED = "model of another client", "weights in random order"


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """Scores of models of one kind and origin."""

    model: str
    origin: str
    scores: Scores
    non_members: Scores  # half of the non-members in the place of members
    blind: dict[str, Scores]
    models: int
    against: str  # what the non-members are
    n: int = 0  # examples behind each model, where that is a curve

    @property
    def planted(self) -> bool:
        """Replayed uploads learnt a few images: leaks of several grades, of which an attack has to find one."""
        return self.origin.startswith("replayed")

    @property
    def name(self) -> str:
        return f"{self.model}, {self.origin}" + (f", n = {self.n}" if self.n else "")

    @property
    def condition(self) -> Mapping[str, float | str]:
        curve: Mapping[str, float | str] = {"n": self.n} if self.n else {}
        return {**curve, "model": self.model, "origin": self.origin}

    @property
    def note(self) -> str:
        many = f"{self.models} model{'s' if self.models > 1 else ''}"
        if self.planted:
            what = "that memorised wrongly labelled images, " if self.origin == REPLAYED else ""
            return f"{many} {what}made by the auditor"
        return many


@dataclass(frozen=True)
class _Case:
    row: int  # of the claim
    members: NDArray[np.int64]  # candidates
    others: NDArray[np.int64]
    marks: frozenset[bytes]  # everything behind it
    against: str  # what the others are

    def halved(self, rng: np.random.Generator) -> "_Case":
        """Half of the non-members in the place of members."""
        first, second = halves(self.others, rng)
        return replace(self, members=first, others=second)


def buckets(claim: Claim, truth: Truth, limits: tuple[int, int], rng: np.random.Generator) -> list[Bucket]:
    """By model and origin; `limits`: members of one model, and non-members in all."""
    candidates, cases = _cases(claim, truth, limits, rng)
    if not cases:
        return []
    table = _scaled(claim["scorer"][0](candidates))
    groups: dict[tuple[str, str, int], list[_Case]] = defaultdict(list)
    for case in cases:
        key = str(claim["model"][case.row]), str(claim["origin"][case.row]), int(claim["n"][case.row])
        groups[key].append(case)
    return [
        Bucket(
            model=model,
            origin=origin,
            n=n,
            models=len(some),
            against=" or ".join(sorted({c.against for c in some})),
            scores=_scores([(table[c.row], c) for c in some]),
            non_members=_scores([(table[c.row], c.halved(rng)) for c in some]),
            blind=_blind(claim, table, some),
        )
        for (model, origin, n), some in sorted(groups.items())
    ]


def taught(mark: bytes, label: int, classes: int) -> int:
    """The wrong label under which a replayed model learns an image, by its fingerprint."""
    return (label + 1 + int.from_bytes(mark[:8], "little") % (classes - 1)) % classes


def _cases(
    claim: Claim, truth: Truth, limits: tuple[int, int], rng: np.random.Generator
) -> tuple[Images, list[_Case]]:
    """Every candidate once, and who is queried which."""
    x: list[Floats] = []
    y: list[int] = []
    number: dict[tuple[bytes, int], int] = {}  # fingerprint, label -> candidate
    classes = int(claim["classes"])

    def add(image: Floats, mark: bytes, label: int, wrong: bool) -> int:
        queried = taught(mark, label, classes) if wrong else label
        if (mark, queried) not in number:
            number[mark, queried] = len(x)
            x.append(image)
            y.append(queried)
        return number[mark, queried]

    pools: dict[int, tuple[Unseen, dict[bytes, int]]] = {}

    def pool(row: int) -> tuple[Unseen, dict[bytes, int]]:
        """Non-members, and where each of those that are kept stands."""
        unseen = truth.unseen(_whose(claim, row, truth))
        if not len(unseen.images):
            return unseen, {}
        if id(unseen.images) not in pools:
            kept = rng.permutation(len(unseen.images))[: limits[1]]
            marks = fingerprints(unseen.images.x[kept])
            pools[id(unseen.images)] = unseen, dict(zip(marks, kept.tolist(), strict=True))
        return pools[id(unseen.images)]

    cases = []
    for row in range(len(claim["artifact"])):
        if claim["origin"][row] == BLIND:
            continue
        unseen, where = pool(row)
        reference = unseen.images
        own = [_behind(claim, row, truth, c) for c in range(classes)]
        own_marks = [fingerprints(m) for m in own]
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
        wrong = claim["origin"][row] == REPLAYED
        ins = [add(own[c][i], own_marks[c][i], c, wrong) for c, rows in members.items() for i in rows]
        outs = [
            add(reference.x[where[m]], m, c, wrong) for c in members for m in chances[c][: each * len(members[c])]
        ]
        case = _Case(row, np.unique(ins), rng.permutation(np.unique(outs)), marks, unseen.words)
        cases.append(case)
    if not cases:
        return Images(x=truth.reference.x[:0], y=truth.reference.y[:0]), []
    return Images(x=np.stack(x), y=np.array(y, np.int64)), cases


def _whose(claim: Claim, row: int, truth: Truth) -> frozenset[int]:
    """The clients whose images are members."""
    if claim["model"][row] == RELAYED and claim["origin"][row] == "recorded":
        return frozenset({int(claim["sender"][row])})
    return truth.heard(str(claim["artifact"][row]))


def _behind(claim: Claim, row: int, truth: Truth, label: int) -> Floats:
    """The members; of a relayed model those of the client that handed it on, and not of those before it."""
    if claim["model"][row] == RELAYED and claim["origin"][row] == "recorded":
        return truth.client_images(int(claim["sender"][row])).of_class(label)
    return truth.members(str(claim["artifact"][row]), label)


def _scaled(table: Floats) -> Floats:
    """Each model's scores around their median, in units of their interquartile range."""
    low, middle, high = np.quantile(table, (0.25, 0.5, 0.75), axis=1, keepdims=True)
    width = np.where(high > low, high - low, 1.0)
    return np.asarray((table - middle) / width)


def _scores(pairs: Sequence[tuple[Floats, _Case]]) -> Scores:
    ins = [c.members for _, c in pairs]
    outs = [c.others for _, c in pairs]
    return clustered(
        [row[i] for (row, _), i in zip(pairs, ins, strict=True)],
        [row[i] for (row, _), i in zip(pairs, outs, strict=True)],
        (np.concatenate(ins), np.concatenate(outs)),
        [c.row for _, c in pairs],
    )


def _blind(claim: Claim, table: Floats, cases: Sequence[_Case]) -> dict[str, Scores]:
    if claim["model"][cases[0].row] == GLOBAL:
        rows = np.flatnonzero(claim["origin"] == BLIND)
        return {SHUFFLED: _scores([(table[rows[0]], c) for c in cases])} if len(rows) else {}
    pairs = []
    for number, case in enumerate(cases):
        turned = [*cases[number + 1 :], *cases[:number]]  # another for each where it can be
        senders = claim["sender"]
        fits = [c for c in turned if not c.marks & case.marks]
        fits = [c for c in fits if senders[c.row] != senders[case.row]] or fits
        if fits:
            pairs.append((table[fits[0].row], case))
    return {ANOTHER: _scores(pairs)} if pairs else {}
