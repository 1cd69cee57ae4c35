"""Hidden records: does an image, a row of a table or a text of the client's stand somewhere in what it sends?

A client's code may write a record into what is called a bias, a row of the last layer, a mean, a metric or a
note, or into the last bits or the signs of weights; nothing of what the numbers are called says so. So all
that a client sends in a round is read (evaluation/payloads.py), whatever its type, container and layout, of a
model also what the client changed in it. A candidate stands there where a place is the record, at any scale,
offset and sign, and no other candidate, member or not, fits it nearly as well. This is asked of every example
of every client, over all rounds that were recorded. A sum of uploads is read as the only message of all its
clients: of an image that one of them wrote a part is left in it, which is compared in the units of what
everybody's examples make of the sum (_mixtures.py).

Images are also held against every stretch of as many numbers by the normalised correlation (Lewis. Fast
normalized cross-correlation. Vision Interface 1995; here of rows): numbers as they are, by their last 2 to 8
bits and by their signs; what few bits count also against the image in as few grey levels. Pieces that stand at
one place in successive rounds are put together. No image of nobody's fits all but exactly (EXACT), so that a
member that does stands there.

An image that is written coarsely fits less well. So it is also asked of each client whether its messages name a
member (evaluation/naming.py): whether one fits some stretch better than all non-members of the same classes, the
class means and the means of the members. That gradients and prototypes resemble such a mean counts for nothing.
The planted leak is the client's own message with one of its images written over some of it; the negative control
takes half of the non-members for members.

Claim: numbers float32 [N], client by client, its rounds of one kind of messages last and in order; client,
begin, end, how many such rounds of how many numbers, rounds, width, the newest artifact, and objects: layout,
which arrays the numbers are of, and spelled, what bytes spell as other numbers [k].
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Examples, Floats, Knowledge, Truth, Unseen
from fedaudit.attacks.evaluation.artifacts import index, message_of
from fedaudit.attacks.evaluation.built import BuiltOnce
from fedaudit.attacks.evaluation.counting import (
    CountedPeople,
    Rows,
    collect_images,
    find_strangers,
    gather_people,
)
from fedaudit.attacks.evaluation.judging import Control, Judge
from fedaudit.attacks.evaluation.naming import average_members, name_nearest
from fedaudit.attacks.evaluation.payloads import Numbers, read_numbers, read_spelled, subtract_arrays
from fedaudit.attacks.evaluation.ranking import Present
from fedaudit.attacks.evaluation.readings import Values
from fedaudit.attacks.evaluation.sources import global_model
from fedaudit.attacks.evaluation.sums import SEVERAL, find_kind, number_of
from fedaudit.attacks.evaluation.trials import average_classes
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.modality.images import fingerprints
from fedaudit.attacks.people import PeopleCount
from fedaudit.attacks.stats import INDEPENDENT
from fedaudit.attacks.summaries._reading import Reader, SentNumbers, fit_together
from fedaudit.attacks.summaries._where import Place, Segment, choose_remedy, find_place
from fedaudit.fl.artifact import Artifact, Channel, Role
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Harm, Position, ThreatModel

RATIO = 4  # non-members for each member
HELD_OUT = 2_000  # of a client, at most: of few that none lies there by chance is not surely known
OTHERS = 500  # held-out people and people of other clients, where so many are held out nowhere
PLANTED = 20  # people of a client whose image is written over its message, at most
READ = (
    *(Kind.LOCAL_MODEL, Kind.UNFROZEN_LAYERS, Kind.MODEL_DELTA, Kind.NORMALIZED_DELTA, Kind.GRADIENT),
    *(Kind.CONTROL_DELTA, Kind.LOCAL_PROTOTYPES, Kind.PROXIES, Kind.MEAN_LOGIT_TABLE),
    *(Kind.FISHER, Kind.PUBLIC_LOGITS, Kind.FEATURES, Kind.SMASHED),
    *(Kind.CONDENSED_IMAGES, Kind.MASHED_BATCH, Kind.SEED_SAMPLES, Kind.GAN_G, Kind.GAN_D),
)


class HiddenImages(Attack):
    card = Card(
        title="Records hidden in numbers",
        source="Lewis, Vision Interface 1995, eq. 2 and 5, over all stretches and readings of a message",
        aim=Aim.EXFILTRATION,
        threat=ThreatModel(position=Position.SERVER),
        requires=(),
        also_reads=(*READ, Kind.GLOBAL_MODEL, Kind.AGGREGATE),
        aids=(Kind.GLOBAL_MODEL,),
        needs=("one scale",),
        learns="one of the records behind a message, which stands among its numbers, texts or bytes",
        does_not_show="records in pieces of unequal length, in pieces in low bits or signs, "
        "at places that move from round to round, enciphered, or in another order in the midst of others",
        control="",  # planted in measure()
        any_numbers=True,
        rounds="all",
        remedy="look for a record in what the client's code writes into its messages; noise and rounding destroy "
        "one that is hidden",
        effort=Effort(seconds=15.0, grows=("parameters", "clients", "pixels")),
    )

    @settings
    class Config:
        members: AtLeastOne = Field(
            default=100, description="images of a client that a message may name, at most"
        )
        rounds: AtLeastOne = Field(default=1000, description="newest rounds whose messages are read, at most")

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        view = index(view)
        rows: dict[tuple[int, str], dict[int, list[_Array]]] = {}  # by client; each sum is of others
        last, spelled = dict[tuple[int, str], str](), dict[tuple[int, str], list[tuple[Kind, Numbers]]]()
        newest = sorted({a.round for a in _messages(view)})[-self.config.rounds :]
        for a in sorted(_messages(view), key=lambda a: (str(a.sender), a.round, a.kind)):
            whose = number_of(a.sender), message_of(a) if a.sender.index is None else ""
            arrays = [*_arrays(a, a.payload), *_arrays(a, _change(a, view), is_change=True)]
            if a.round in newest and arrays:
                last[whose] = a.id
                rows.setdefault(whose, {}).setdefault(a.round, []).extend(arrays)
                spelled.setdefault(whose, []).extend(
                    (find_kind(a), x) for x in read_spelled(read_numbers(a.payload))
                )
        found = [_order(list(each.values())) for each in rows.values()]
        layout, bytes_ = np.empty(len(found), object), np.empty(len(found), object)
        layout[:], bytes_[:] = [of.layout for of in found], [spelled[k] for k in rows]
        ends = np.cumsum([len(of.numbers) for of in found])
        return {
            "client": np.array([client for client, _ in rows]),
            "classes": np.array(knowledge.classes),
            "artifact": np.array([last[k] for k in rows]),
            "begin": np.concatenate([[0], ends[:-1]]).astype(np.int64),
            "end": ends.astype(np.int64),
            "rounds": np.array([of.rounds for of in found]),
            "width": np.array([of.width for of in found]),
            "numbers": np.concatenate([of.numbers for of in found]),
            "layout": layout,
            "spelled": bytes_,
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        questions = list[_Question]()
        for search in self._searches(claim, truth, rng):
            few = min(len(search.members), self.config.members)
            others = search.others.only(np.arange(min(RATIO * few, len(search.others))))
            if len(search.members) and len(others) > 1 and search.members.x[0].size <= search.reader.sent.width:
                questions.append(
                    _Question(search, few, others, average_classes(search.members.y, truth.auxiliary))
                )
        if not questions:
            return []
        fit_together([(q.search.reader, q.images) for q in questions])
        trials = [_ask(q, rng) for q in questions]
        return [
            Judge(note="clients of whom a member stands there").judge_present(
                [t.own.present for t in trials],
                groups=INDEPENDENT,  # a client each
            ),
            Judge(control="positive", note="one of their images written over some").judge_present(
                [t.planted.present for t in trials],
                groups=INDEPENDENT,  # a client each
            ),
            Judge(control="negative", note="half of the non-members for members").judge_present(
                [t.silent.present for t in trials],
                groups=INDEPENDENT,  # a client each
            ),
            _judge([t.own for t in trials], "none", "clients whose messages name a member"),
            _judge([t.planted for t in trials], "positive", "one of their images written over some"),
            _judge([t.silent for t in trials], "negative", "half of the non-members for members"),
        ]

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        """Of every example of every client, whether the record or an affine copy of it is in what it sent.

        Of each kind of messages apart, and of all together where one stands in several kinds together.
        """
        found = dict[Kind | None, CountedPeople]()
        searches = self._searches(claim, truth, rng)
        fit_together([(s.reader, s.candidates) for s in searches if len(s.candidates)])
        for search in searches:
            x, owners, whose, reader = search.people.x, search.owners, search.whose, search.reader
            theirs = {k: owners == k for k in np.unique(owners).tolist()}
            if not len(search.candidates):
                for counted in (_start_count(found, kind) for kind in reader.sent.kinds):
                    for k, mine in theirs.items():
                        counted.hold(k, whose[mine])
                continue
            scores = reader.fit(search.candidates)
            least = reader.find_least(scores[:, len(x) :], len(x))
            stands = reader.tell_kinds(search.candidates, np.max(scores / least, axis=0) >= 1)
            marks, planted = fingerprints(search.candidates[len(x) :]), self._plant(search, theirs, least, rng)
            for kind, is_there in stands.items():
                counted = _start_count(found, kind)
                for mark, is_lucky in zip(marks, is_there[len(x) :].tolist(), strict=True):
                    counted.luck(float(is_lucky), 1, person=mark, clients=theirs)
                for k, mine in theirs.items():
                    counted.test(k, whose[mine], whose[mine & is_there[: len(x)]])
                    if k in planted:
                        counted.plant(k, *planted[k])
        return [people for counted in found.values() for people in counted.people(truth)]

    def _plant(
        self, search: "_Search", theirs: Mapping[int, NDArray[np.bool_]], least: Values, rng: np.random.Generator
    ) -> dict[int, tuple[float, int]]:
        """Client -> how many of its people are found whose image is written over its message, and of how many."""
        x, reader, found = search.people.x, search.reader, dict[int, tuple[float, int]]()
        for k, mine in theirs.items():
            if x[0].size <= reader.sent.width:
                some = x[mine][rng.permutation(int(mine.sum()))[:PLANTED]]
                hits = [
                    (reader.fit_planted(image, image[None], len(theirs), rng) >= least).any() for image in some
                ]
                found[k] = float(sum(hits)), len(some)
        return found

    def choose_remedy(self, claim: Claim, truth: Truth, people: Sequence[PeopleCount]) -> str:
        """By where the images stand: in rows of a layer that reads pixels, in images, or where none belongs."""
        places = set[Place]()
        hit = {(k, row) for some in people for k, hits in some.hit.items() for row in hits}
        for search in self._searches(claim, truth):
            pairs = zip(search.owners.tolist(), search.whose.tolist(), strict=True)
            for image in search.people.x[np.array([pair in hit for pair in pairs], bool)]:
                first = search.reader.find_stretch(image)
                layout = search.reader.sent.layout
                places.add(Place() if first is None else find_place(layout, first, image.size))
        return choose_remedy(places, self.card.remedy)

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not _messages(view):
            return "no client sends numbers that a record could stand in"
        return ""

    @cached_property
    def _searches(self) -> "BuiltOnce[list[_Search]]":
        return BuiltOnce(self._prepare)

    def _prepare(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> "list[_Search]":
        """Client by client."""
        searches = []
        columns = (claim[name].tolist() for name in ("client", "artifact"))
        for own, client, artifact in zip(_collect_messages(claim), *columns, strict=True):
            people, owners, whose = _find_people(truth, claim, client, artifact)
            members = collect_images(truth, client, artifact, int(claim["classes"]))
            members = _sample_images(members, len(members), rng)
            most = max(RATIO * min(len(members), self.config.members), len(people), HELD_OUT)
            unseen = truth.unseen(np.unique(owners).tolist())
            of_their_classes = unseen.images.only(np.isin(unseen.images.y, members.y))
            others = _sample_images(of_their_classes, most, rng)
            if len(others) < OTHERS:  # a copy is a copy: of whoever is not behind a message it is there by chance
                elsewhere = set(claim["client"].tolist()) - {SEVERAL, *owners.tolist()}
                more = find_strangers(truth, elsewhere, people, OTHERS - len(others), rng)
                others = Examples(x=np.concatenate([others.x, more.x]), y=np.concatenate([others.y, more.y]))
            candidates = np.concatenate([people.x, others.x]) if len(people) else people.x
            reader = Reader.from_message(own, client, find_alike(truth, unseen), len(owners), candidates)
            searches.append(_Search(reader, people, owners, whose, members, others))
        return searches


class _Array(NamedTuple):
    """One array of a message."""

    kind: Kind
    name: str
    values: NDArray[Any]
    is_change: bool
    is_summed: bool


class _Search(NamedTuple):
    """One message, or one sum, and whose images are looked for in it."""

    reader: Reader
    people: Examples  # everybody behind it
    owners: Rows  # their clients
    whose: Rows  # their rows of data.train
    members: Examples  # what the client holds, in an order of chance
    others: Examples  # of the same classes, whom nobody trained on, in an order of chance

    @property
    def candidates(self) -> Floats:
        """Everybody, and all others; nobody where the images are too large to stand there."""
        x, reader = self.people.x, self.reader
        return reader.candidates if len(x) and x[0].size <= reader.sent.most else x[:0]


class _Question(NamedTuple):
    """Whether any member stands in a message, and whether the message names one of the first few."""

    search: _Search
    few: int
    others: Examples
    class_means: Floats

    @property
    def parts(self) -> list[Floats]:
        """Members, others, class means, means of the members, and those of the others that stand in for them."""
        members, half = self.search.members, self.others.only(np.arange(len(self.others) // 2))
        return [members.x, self.others.x, self.class_means, average_members(members), average_members(half)]

    @property
    def images(self) -> Floats:
        """All of them, one after the other."""
        return np.concatenate(self.parts)


class _Result(NamedTuple):
    """How surely a member is named, and by chance; and whether one fits all but exactly."""

    named: float
    chance: float
    present: Present


class _Client(NamedTuple):
    """Its own message, the same with an image of its own, and halves of the non-members."""

    own: _Result
    planted: _Result
    silent: _Result


def _start_count(found: dict[Kind | None, CountedPeople], kind: Kind | None) -> CountedPeople:
    means = "the record, or an affine copy of it, is in what was sent"
    return found.setdefault(kind, CountedPeople(means, Harm.RECORD, kind))


def _sample_images(images: Examples, most: int, rng: np.random.Generator) -> Examples:
    rows = rng.permutation(len(images))[:most]
    return Examples(x=images.x[rows], y=images.y[rows])


def _order(messages: Sequence[Sequence["_Array"]]) -> SentNumbers:
    """Messages of successive rounds, those as long as the newest last."""
    sizes = [sum(x.values.size for x in m) for m in messages]
    alike = [m for m, size in zip(messages, sizes, strict=True) if size == sizes[-1]]
    others = [m for m, size in zip(messages, sizes, strict=True) if size != sizes[-1]]
    every = [x for m in (*others, *alike) for x in m]
    ends = np.cumsum([x.values.size for x in every]).tolist()
    segments = [
        Segment(
            kind=x.kind,
            name=x.name,
            shape=x.values.shape,
            begin=end - x.values.size,
            end=end,
            is_change=x.is_change,
            is_summed=x.is_summed,
        )
        for x, end in zip(every, ends, strict=True)
    ]
    numbers = np.concatenate([x.values.astype(np.float32).ravel() for x in every])
    return SentNumbers(numbers, len(alike), sizes[-1], segments)


def _collect_messages(claim: Claim) -> list[SentNumbers]:
    columns = (claim[name] for name in ("begin", "end", "rounds", "width", "layout", "spelled"))
    return [
        SentNumbers(claim["numbers"][i:j], int(n), int(w), layout, spelled)
        for i, j, n, w, layout, spelled in zip(*columns, strict=True)
    ]


def _find_people(truth: Truth, claim: Claim, client: int, artifact: str) -> tuple[Examples, Rows, Rows]:
    """Everybody of that client behind a message, or of all clients in a sum: images, clients and rows."""
    labels = (
        range(int(claim["classes"])) if client == SEVERAL else np.unique(truth.client_examples(client).y).tolist()
    )
    members, owners, rows = gather_people(truth, artifact, labels)
    own = np.full(len(rows), True) if client == SEVERAL else owners == client
    return members.only(own), owners[own], rows[own]


def find_alike(truth: Truth, unseen: Unseen) -> Examples | None:
    """The auditor's own images, where they are like the clients'."""
    return truth.auxiliary if unseen.is_alike else None


def _ask(question: _Question, rng: np.random.Generator) -> _Client:
    reader, members, senders = (
        question.search.reader,
        question.search.members,
        len(np.unique(question.search.owners)),
    )
    x, cuts = question.images, np.cumsum([len(some) for some in question.parts])[:-1]
    few, half = question.few, len(question.others) // 2  # they come in random order
    sent = reader.fit(x)
    written = np.maximum(sent, reader.fit_planted(members.x[0], x, senders, rng))
    least = reader.find_least(sent[:, cuts[0] : cuts[1]], len(members))
    sent, written = ((scores / least).max(axis=0) for scores in (sent, written))
    results = []
    for scores in (sent, written):
        inside, outside, common, means, _ = np.split(scores, cuts)
        results.append(_compare(inside, outside, np.concatenate([common, means]), few))
    _, outside, common, _, silent = np.split(sent, cuts)
    nobody = _compare(outside[:half], outside[half:], np.concatenate([common, silent]), half)
    return _Client(own=results[0], planted=results[1], silent=nobody)


def _compare(members: Values, others: Values, means: Values, few: int) -> _Result:
    """Of how well images fit over the least that counts; `few` of the members are compared with the others."""
    named = name_nearest(-members[None, :few], -others[None], -means[None])
    return _Result(
        named=float(named.hits[0]),
        chance=few / (few + len(others)),
        present=Present(bool((members >= 1).any()), bool((others >= 1).any())),
    )


def _messages(view: Sequence[Artifact]) -> list[Artifact]:
    return [
        a
        for a in view
        if (a.kind in READ or a.kind.open)
        and a.channel == Channel.UPLINK
        and a.sender.role == Role.CLIENT
        and a.origin == "recorded"
    ]


def _arrays(sent: Artifact, payload: Mapping[str, Any], is_change: bool = False) -> list[_Array]:
    is_summed = find_kind(sent) != sent.kind
    return [
        _Array(sent.kind, x.name, x.values, is_change, is_summed) for x in read_numbers(payload) if x.values.size
    ]


def _change(sent: Artifact, view: Sequence[Artifact]) -> Mapping[str, Any]:
    """What a client changed in the model that it received; empty where it sends none or that is not known."""
    start = global_model(view, sent.round, sent) if sent.kind == Kind.LOCAL_MODEL else None
    if start is None or start.round != sent.round:
        return {}
    return subtract_arrays(sent.payload, start.payload)


def _judge(found: Sequence[_Result], control: Control, note: str) -> Evidence:
    hits, chance = np.array([r.named for r in found]), float(np.mean([r.chance for r in found]))
    return Judge(control=control, note=note).judge_hits(
        "named",
        hits,
        groups=INDEPENDENT,  # a client each
        chance=chance,
    )
