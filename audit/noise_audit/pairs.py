"""Neighbouring data, and pairs of neighbouring worlds by unit and adjacency.

Of a client: what it sends is far beyond the clip or nothing at all (the other way round where the claim is about
replacing it, and without it where the noise is on the mean); its data are easy, hard, few; its losses rise or
fall. Of a record: it is taken away from everybody who holds it, as it is and where its values are extreme. Data
teach everything or nothing, are few or many, or of one record less.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from fedaudit.audit.case.case import KnownFederation
from fedaudit.audit.case.holders import holders
from fedaudit.audit.noise_audit.neighbours import (
    Record,
    brighten_record,
    make_borrowed_data,
    make_easy_data,
    make_few_examples,
    make_fewer_examples,
    make_hard_data,
    make_many_examples,
    move_record_last,
    remove_record,
    replace_record,
)
from fedaudit.audit.plays import factors
from fedaudit.audit.plays import run as play
from fedaudit.audit.plays.factors import Factor
from fedaudit.audit.plays.world import SAME, Neighbour, Probe, World
from fedaudit.fl.data.partition import Index
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import EACH
from fedaudit.fl.recording.tap import Payload

DIRECTIONS = (play.fill_evenly, play.alternate_signs, play.fill_one_array, play.fill_arrays_alike)
STEPS = 12  # numbers of examples that are left out
LOUD, CLIPPED = play.Sent((play.FAR,)), play.Sent((1.0,))
FOLLOWING = play.Sent((play.FAR,), follows=True)
QUIET = play.Sent((1e-3,))  # which a rule may make as long as others'
GRID = 12  # norms near the clip where one client is tried at a time
SPARE = 12  # records of one client
CROWD = 20  # clients of the largest cohort, spread over all
ECHOES = 5  # messages that are each what the one before moved
SINGLE = 16  # clients whose share of a mean is tried


class Side(NamedTuple):
    """One of two worlds: whose data, what is sent, and which client is not there."""

    neighbour: Neighbour = SAME
    probe: Probe = Probe()
    absent: int | None = None

    @property
    def is_honest(self) -> bool:
        return self.neighbour is SAME and type(self.probe) is Probe


class PlayedCohort(NamedTuple):
    """Where one client is tried: what it sends, who takes part, and what others send."""

    name: str
    sent: play.Sent
    clients: Collection[int]  # the one who is tried, and others
    others: Mapping[int, play.Sent] = {}  # of those who are not in it the messages stay
    drawn: frozenset[int] | None = None  # rounds in which the client takes part, and no others; None: all
    alone: bool = False  # the others take part in all other rounds


@dataclass(frozen=True)
class Pair:
    """Two neighbouring worlds; a line lets clean values move by `factor(line)` times its sensitivity."""

    name: str
    first: Side
    second: Side
    factor: Factor
    touched: frozenset[int] | None = None  # clients whose releases may differ; None: all that were told to
    trained: bool = False  # everybody is trained anew in both worlds
    spare: bool = False  # for where no pair before moved anything
    another_seed: bool = False  # played under another master seed, too
    # round -> what noise on a mean showed to move, once played
    moves: dict[int, Payload] = field(default_factory=dict)
    # one record less, which leaves other draws to others: where it is the last its first world is this one
    last: Side | None = None

    @property
    def is_removed(self) -> bool:
        """Whether the worlds have other numbers of examples, of clients that stay."""
        return self.factor in (factors.allow_removed_record, factors.allow_examples)


class Pairs:
    """The pairs of one federation, of whose `rounds` `honest` is a play.

    Messages of the kinds `trained` have their clip and noise already where they could be replaced.
    """

    def __init__(
        self,
        case: KnownFederation,
        compromised: Collection[int],
        rounds: int,
        honest: World,
        trained: Collection[str] = (),
    ) -> None:
        self.data, self.examples, self.streams = case.data, case.examples, case.streams
        self.parts: list[Index] = [np.asarray(part, np.int64) for part in case.examples.parts.values()]
        everybody = [k for k, part in enumerate(self.parts) if len(part)]
        # a bound says nothing of clients that do not follow the protocol: their data and messages stay
        self.members = [k for k in everybody if k not in compromised] or everybody
        self.rounds, self.trained = max(1, rounds), trained
        self.lines = [r for r in honest.lines if r.noise_multiplier]
        came = Counter(client for _, client, *_ in honest.replies)
        self.target = max(self.members, key=lambda k: (came[k], -k))  # who trained most often
        self.rarest = min(self.members, key=lambda k: (came[k], k))

    def pair_client(self, central: bool) -> Iterator[Pair]:
        """`central`: the observer sees noise on the mean, and no single upload."""
        lines = [r for r in self.lines if r.unit == "client"]
        clips = play.find_clips([r for r in lines if r.kind not in self.trained], central)
        replaced = any(r.adjacency == "replace_one" for r in lines)
        yield from self._pair_central(clips, replaced) if central else self._pair_local(clips, replaced)
        yield from self._pair_data()
        yield from self._pair_masks()

    def _pair_masks(self) -> Iterator[Pair]:
        """Whoever makes noise together is read in a sum alone, whatever the unit is."""
        if any(r.shared for r in self.lines):
            name = "single uploads changed so that their sum stays"
            yield Pair(name, Side(), Side(probe=play.Masks()), factors.allow_client)

    def pair_record(self) -> Iterator[Pair]:
        yield from self._pair_masks()
        lines = [r for r in self.lines if r.unit == "record"]
        # where each is replaced everybody knows how many records there are
        removed = any(r.adjacency != "replace_one" for r in lines)
        replaced = any(r.adjacency == "replace_one" for r in self.lines)
        for record in self._choose_records():
            if removed:
                without = remove_record(record)
                last, factor = Side(move_record_last(record)), factors.allow_removed_record
                yield Pair(without.name, Side(), Side(without), factor, without.touched, True, last=last)
                yield replace(self._pair_bright(record), trained=True, another_seed=True)
            if replaced:
                yield replace(self._pair_replaced(record), trained=True, another_seed=not removed)
        if removed and any(r.coin != EACH for r in lines):
            yield from self._pair_counts()
        for row in self.parts[self.target].tolist()[:SPARE]:  # of others the coins may leave out all steps
            pair = self._pair_bright if removed else self._pair_replaced
            yield replace(pair([(self.target, row)]), spare=True)

    def _pair_bright(self, record: Record) -> Pair:
        """A record of extreme values, or none."""
        bright, without = Side(brighten_record(record)), Side(remove_record(record))
        name, touched = f"{bright.neighbour.name}, or not", without.neighbour.touched
        last = Side(replace(bright.neighbour, parts=move_record_last(record).parts))
        return Pair(name, bright, without, factors.allow_removed_record, touched, last=last)

    def _pair_replaced(self, record: Record) -> Pair:
        """A record of extreme values, or another in its place."""
        bright, other = Side(brighten_record(record)), Side(replace_record(record))
        return Pair(other.neighbour.name, bright, other, factors.allow_replaced_record, other.neighbour.touched)

    def pair_replaced_records(self) -> Iterator[Pair]:
        """Records in each other's place, which leave every draw where it was, whatever the adjacency."""
        for row in self.parts[self.target].tolist()[:SPARE]:
            yield self._pair_replaced([(self.target, row)])

    def _pair_counts(self) -> Iterator[Pair]:
        """One example less of each client, from several numbers of them: counts that are rounded jump somewhere.

        A release of one client depends on its own examples, so that all clients are tried at once; whether it
        does is asked of one client that holds more than all others, and fewer.
        """
        rows, labels = {k: self.parts[k] for k in self.members}, self.data.group(self.data.train)
        for start in range(0, STEPS, len(self.members)):
            left_out = {k: start + number for number, k in enumerate(self.members)}
            first, second = (
                make_fewer_examples(rows, labels, {k: n + more for k, n in left_out.items()}) for more in (0, 1)
            )
            yield Pair(second.name, Side(first), Side(second), factors.allow_examples, second.touched, True)
        for is_most in (True, False):
            left_out = {k: len(own) // 2 if (k != self.target) == is_most else 0 for k, own in rows.items()}
            fewer = left_out | {self.target: left_out[self.target] + 1}
            first, second = (make_fewer_examples(rows, labels, gone) for gone in (left_out, fewer))
            touched = frozenset({self.target})
            yield Pair(second.name, Side(first), Side(second), factors.allow_examples, touched, True)

    def _pair_local(self, clips: Mapping[Kind, float], replaced: bool) -> Iterator[Pair]:
        """Every client's upload is a release of its own: all of them are tried at once."""
        nothing = self._play_everybody(clips, play.NOTHING)
        for direction in DIRECTIONS:
            far = play.Sent((play.FAR,), direction)
            first = self._play_everybody(clips, far)
            second, factor = nothing, factors.allow_client
            if replaced:
                second, factor = self._play_everybody(clips, far.negate()), factors.allow_replaced_client
            name, first_of_all = f"messages far beyond the clip, {direction.__doc__}", direction is DIRECTIONS[0]
            yield Pair(name, first, second, factor, another_seed=first_of_all)
        count = max(1, len(self.members))
        for start in range(0, len(play.NEAR), count * self.rounds):
            norms = {k: self._choose_norms(start + order, count) for order, k in enumerate(self.members)}
            near = Side(probe=play.Messages(clips, norms))
            yield Pair("messages near the clip", near, nothing, factors.allow_client)

    def _play_everybody(self, clips: Mapping[Kind, float], sent: play.Sent) -> Side:
        return Side(probe=play.Messages(clips, dict.fromkeys(self.members, sent)))

    def _choose_norms(self, start: int, step: int) -> play.Sent:
        """Norms near the clip, another one in every round."""
        places = (start + t * step for t in range(self.rounds))
        return play.Sent(tuple(play.NEAR[p % len(play.NEAR)] for p in places), play.alternate_signs)

    def _pair_central(self, clips: Mapping[Kind, float], replaced: bool) -> Iterator[Pair]:
        """The noise is on the mean: one client is tried, in cohorts of one, of half and of all clients."""
        whole = dict.fromkeys((self.target, self.members[-1]))  # the last one may count otherwise
        for target in whole:
            for crowd in self._list_cohorts(target):
                yield self._make_central_pair(target, clips, replaced, crowd)
        for crowd in self._list_turning_points():
            yield self._make_central_pair(self.target, clips, replaced, crowd)
        moves: dict[int, Payload] = {}
        for _ in range(ECHOES):  # powers of a linear rule come to where it is longest
            sent = replace(LOUD, direction=play.repeat_moves(moves))
            alone = PlayedCohort("alone, as the model moved before", sent, [self.target])
            pair = self._make_central_pair(self.target, clips, replaced, alone)
            yield pair
            moves = pair.moves
        step = -(-len(self.members) // SINGLE)
        for target in self.members[::step]:  # a rule may trust any of them more than others
            if target not in whole:
                two = PlayedCohort("with one other client", LOUD, (self.target, target))
                yield self._make_central_pair(target, clips, replaced, two)

    def _list_cohorts(self, target: int) -> Iterator[PlayedCohort]:
        crowd = self._choose_crowd(target)
        alone, some, everybody = [target], {target, *crowd[: len(crowd) // 2]}, crowd
        along, against = (dict.fromkeys(set(crowd) - {target}, sent) for sent in (CLIPPED, CLIPPED.negate()))
        yield PlayedCohort("alone", LOUD, alone)
        yield PlayedCohort("with half of the clients", replace(LOUD, direction=play.alternate_signs), some)
        yield PlayedCohort("with all clients", replace(LOUD, direction=play.fill_one_array), everybody)
        yield PlayedCohort("with all clients", replace(LOUD, direction=play.fill_arrays_alike), everybody)
        yield PlayedCohort("with all others at the clip along it", LOUD, everybody, along)
        yield PlayedCohort("with all others at the clip against it", LOUD, everybody, against)
        yield PlayedCohort("next to nothing, with all others at the clip", QUIET, everybody, against)
        yield PlayedCohort("with half of the others at the clip along it", LOUD, some, along)
        for start in range(0, GRID, self.rounds):
            yield PlayedCohort("alone and near the clip", self._choose_norms(4 * start, 4), alone)

    def _list_turning_points(self) -> Iterator[PlayedCohort]:
        """Two halves that one client tips, and rounds in which it takes no part after others in which it did."""
        crowd = self._choose_crowd(self.target)
        others = [k for k in crowd if k != self.target]
        even = others[: len(others) // 2 * 2]
        divided, at_clip = {self.target, *even}, dict.fromkeys(even, CLIPPED)
        opposed, uneven = (at_clip | dict.fromkeys(even[::2], sent) for sent in (CLIPPED.negate(), QUIET))
        yield PlayedCohort("with others at the clip, half of them against the others", LOUD, divided, opposed)
        yield PlayedCohort("with others at the clip, or half of them next to nothing", LOUD, divided, uneven)
        yield PlayedCohort("next to nothing, with others of whom half are so", QUIET, divided, uneven)
        steady = dict.fromkeys(others, CLIPPED)
        for name, sent in (("along", FOLLOWING), ("against", FOLLOWING.negate())):
            yield PlayedCohort(f"{name} the model's last step, with all others at the clip", sent, crowd, steady)
        for rounds in self._list_first_draw():
            yield PlayedCohort("drawn at first and not again", LOUD, crowd, drawn=rounds)
            yield PlayedCohort("drawn alone at first, and others later", LOUD, crowd, steady, rounds, alone=True)

    def _choose_crowd(self, target: int) -> list[int]:
        step = -(-len(self.members) // CROWD)
        return sorted({target, *self.members[::step]})

    def _list_first_draw(self) -> list[frozenset[int]]:
        """The rounds that share the first draw, where noise on the mean is credited with sampling; else none."""
        lines = [r for r in self.lines if r.sender.endswith("/*") and factors.is_credited(r)]
        first = lines[0] if lines else None
        shared = [r.round for r in lines if r is first or (r.coin and first is not None and r.coin == first.coin)]
        return [frozenset(shared)] if shared and len(shared) < self.rounds else []

    def _make_central_pair(
        self, target: int, clips: Mapping[Kind, float], replaced: bool, tried: PlayedCohort
    ) -> Pair:
        """One client's message against none, or against its opposite."""
        drawn, others = tried.drawn, tried.others
        rest = [k for k in tried.clients if k != target]

        def is_drawn(round: int) -> bool:
            return drawn is None or round in drawn

        def leave(round: int) -> list[int]:
            return [] if tried.alone and is_drawn(round) else rest

        def join(round: int) -> list[int]:
            return [*leave(round), *([target] if is_drawn(round) else [])]

        def send(sent: play.Sent) -> Side:
            return Side(probe=play.Messages(clips, {**others, target: sent}, join))

        if replaced:
            second, factor = send(tried.sent.negate()), factors.allow_replaced_client
        else:
            second, factor = Side(probe=play.Messages(clips, others, leave), absent=target), factors.allow_client
        again = (target, tried.name) == (self.target, "alone")
        name = f"a message of client {target}, {tried.name}"
        allowed = factor if drawn is None else factors.allow_when_drawn(drawn, factor)
        return Pair(name, send(tried.sent), second, allowed, another_seed=again)

    def _pair_data(self) -> Iterator[Pair]:
        """Other data of clients that stay: a replacement of each, whatever the adjacency.

        All clients' data are changed one after the other, that is, at once: what nobody declared and all of them
        together move, one of them moves. A mean is moved by all of them, so there its target is changed alone.
        """
        k, rows = self.target, {k: self.parts[k] for k in self.members}
        own, mixed = {k: rows[k]}, self._mix_others(k)
        for neighbour, trained in (
            (make_hard_data(rows, self.streams), True),
            (make_easy_data(rows), True),
            (make_hard_data(own, self.streams), True),
            (make_easy_data(own), False),
            *[(make_borrowed_data(rows[k], k, mixed), True) for _ in mixed[:1]],
            (make_few_examples(k), False),
            (make_many_examples(k), False),
            (make_many_examples(self.rarest), False),
        ):
            touched = neighbour.touched
            alone = len(touched) == 1
            factor = factors.allow_replaced_client if alone else factors.allow_replaced_clients
            yield Pair(neighbour.name, Side(), Side(neighbour), factor, touched, trained, another_seed=not alone)
        touched = frozenset({k})
        rising, falling = (Side(probe=play.Measurements(k, factor)) for factor in (10.0, 0.1))
        name = f"loss and time of client {k} rising tenfold a round, or falling"
        yield Pair(name, falling, rising, factors.allow_replaced_client, touched, True)
        least, most = (Side(probe=play.Measurements(k, 1.0, start)) for start in (play.CALM / 10, 10.0))
        name = f"loss and time of client {k} the least of all, or the largest"
        yield Pair(name, least, most, factors.allow_replaced_client, touched, True)

    def _mix_others(self, client: int) -> Index:
        """Rows that other clients hold, of each of them in turn."""
        others = [self.parts[k] for k in self.members if k != client]
        longest = max(map(len, others), default=0)
        return np.array([part[i] for i in range(longest) for part in others if i < len(part)], np.int64)

    def _choose_records(self) -> list[list[tuple[int, int]]]:
        """Holders and rows of a few records: of what most clients hold, and of the client heard most."""
        members = set(self.members)
        records = [
            [(client, row) for client, rows in held.items() if client in members for row in rows]
            for held in holders(self.examples, self.data).values()
        ]
        records = [record for record in records if record]
        shared = max(records, key=lambda record: (len({c for c, _ in record}), len(record)))
        own = next(record for record in records if any(c == self.target for c, _ in record))
        return [shared] if shared == own else [shared, own]
