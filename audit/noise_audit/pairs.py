"""Pairs of neighbouring worlds, by unit and adjacency, and how far each lets a release move.

Of a client: what it sends is far beyond the clip or nothing at all (the other way round where the claim is about
replacing it, and without it where the noise is on the mean); its data are easy, hard, few; its losses rise or
fall. Of a record: it is taken away from everybody who holds it, as it is and where its values are extreme.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from fedaudit.audit.case.holders import holders
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.noise_audit import probes
from fedaudit.audit.noise_audit.probes import SAME, Neighbour, Probe
from fedaudit.audit.noise_audit.world import World
from fedaudit.fl.data.partition import Index
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import EACH, Release
from fedaudit.fl.recording.tap import Payload

Cohort = Callable[[int, tuple[int, ...]], Collection[int]]
Factor = Callable[[Release], float]
DIRECTIONS = (probes.fill_evenly, probes.alternate_signs, probes.fill_one_array, probes.fill_arrays_alike)
STEPS = 12  # numbers of examples that are left out
LOUD, CLIPPED = probes.Sent((probes.FAR,)), probes.Sent((1.0,))
FOLLOWING = probes.Sent((probes.FAR,), follows=True)
QUIET = probes.Sent((1e-3,))  # which a rule may make as long as others'
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
    sent: probes.Sent
    cohort: Cohort
    others: Mapping[int, probes.Sent] = {}  # of those who are not in it the messages stay
    drawn: frozenset[int] | None = None  # rounds in which the client takes part, and no others; None: all


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
    moves: dict[int, Payload] = field(
        default_factory=dict
    )  # round -> what noise on a mean showed to move, once played


class Pairs:
    """The pairs of one case, of which `honest` is a play."""

    def __init__(self, case: SimulatedCase, honest: World) -> None:
        self.case = case
        self.parts: list[Index] = [np.asarray(part, np.int64) for part in case.population.parts]
        everybody = [k for k, part in enumerate(self.parts) if len(part)]
        # a bound says nothing of clients that do not follow the protocol: their data and messages stay
        self.members = [k for k in everybody if k not in case.compromise.clients] or everybody
        self.rounds = max(1, int(case.method.config.rounds))
        self.lines = [r for r in honest.lines if r.noise_multiplier]
        came = Counter(client for _, client, *_ in honest.replies)
        self.target = max(self.members, key=lambda k: (came[k], -k))  # who trained most often
        self.rarest = min(self.members, key=lambda k: (came[k], k))

    def pair_client(self, central: bool) -> Iterator[Pair]:
        """`central`: the observer sees noise on the mean, and no single upload."""
        lines = [r for r in self.lines if r.unit == "client"]
        clips = probes.find_clips(lines, central)
        replaced = any(r.adjacency == "replace_one" for r in lines)
        yield from self._pair_central(clips, replaced) if central else self._pair_local(clips, replaced)
        yield from self._pair_data()
        if any(r.shared for r in lines):
            name = "single uploads changed so that their sum stays"
            yield Pair(name, Side(), Side(probe=probes.Masks()), allow_client)

    def pair_record(self) -> Iterator[Pair]:
        replaced = any(r.adjacency == "replace_one" for r in self.lines)
        for record in self._choose_records():
            bright, without = probes.brighten_record(record), probes.remove_record(record)
            held = frozenset(client for client, _ in record)
            yield Pair(without.name, Side(), Side(without), allow_removed_record, held)
            name = f"{bright.name}, or not"
            yield Pair(name, Side(bright), Side(without), allow_removed_record, held, another_seed=True)
            if replaced:
                other = probes.replace_record(record)
                yield Pair(other.name, Side(bright), Side(other), allow_replaced_record, held)
        if any(r.unit == "record" and r.coin != EACH for r in self.lines):
            yield from self._pair_counts()
        for row in self.parts[self.target].tolist()[:SPARE]:  # of others the coins may leave out all steps
            record = [(self.target, row)]
            bright, without = probes.brighten_record(record), probes.remove_record(record)
            held = frozenset({self.target})
            name = f"{bright.name}, or not"
            yield Pair(name, Side(bright), Side(without), allow_removed_record, held, spare=True)

    def _pair_counts(self) -> Iterator[Pair]:
        """One example less of each client, from several numbers of them: counts that are rounded jump somewhere.

        A release of one client depends on its own examples, so that all clients are tried at once.
        """
        rows, labels = {k: self.parts[k] for k in self.members}, self.case.data.train.y
        for start in range(0, STEPS, len(self.members)):
            left_out = {k: start + number for number, k in enumerate(self.members)}
            first, second = (
                probes.make_fewer_examples(rows, labels, {k: n + more for k, n in left_out.items()})
                for more in (0, 1)
            )
            yield Pair(second.name, Side(first), Side(second), allow_examples, second.touched, True)

    def _pair_local(self, clips: Mapping[Kind, float], replaced: bool) -> Iterator[Pair]:
        """Every client's upload is a release of its own: all of them are tried at once."""
        nothing = self._play_everybody(clips, probes.NOTHING)
        for direction in DIRECTIONS:
            far = probes.Sent((probes.FAR,), direction)
            first = self._play_everybody(clips, far)
            second, factor = nothing, allow_client
            if replaced:
                second, factor = self._play_everybody(clips, far.negate()), allow_replaced_client
            name, first_of_all = f"messages far beyond the clip, {direction.__doc__}", direction is DIRECTIONS[0]
            yield Pair(name, first, second, factor, another_seed=first_of_all)
        count = max(1, len(self.members))
        for start in range(0, len(probes.NEAR), count * self.rounds):
            near = {k: self._choose_norms(start + order, count) for order, k in enumerate(self.members)}
            yield Pair("messages near the clip", Side(probe=probes.Messages(clips, near)), nothing, allow_client)

    def _play_everybody(self, clips: Mapping[Kind, float], sent: probes.Sent) -> Side:
        return Side(probe=probes.Messages(clips, dict.fromkeys(self.members, sent)))

    def _choose_norms(self, start: int, step: int) -> probes.Sent:
        """Norms near the clip, another one in every round."""
        places = (start + t * step for t in range(self.rounds))
        return probes.Sent(tuple(probes.NEAR[p % len(probes.NEAR)] for p in places), probes.alternate_signs)

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
            sent = replace(LOUD, direction=probes.repeat_moves(moves))
            alone = PlayedCohort("alone, as the model moved before", sent, _make_constant_cohort([self.target]))
            pair = self._make_central_pair(self.target, clips, replaced, alone)
            yield pair
            moves = pair.moves
        step = -(-len(self.members) // SINGLE)
        for target in self.members[::step]:  # a rule may trust any of them more than others
            if target not in whole:
                cohort = _make_constant_cohort((self.target, target))
                two = PlayedCohort("with one other client", LOUD, cohort)
                yield self._make_central_pair(target, clips, replaced, two)

    def _list_cohorts(self, target: int) -> Iterator[PlayedCohort]:
        crowd = self._choose_crowd(target)
        half = sorted({target, *crowd[: len(crowd) // 2]})
        alone, some, everybody = (_make_constant_cohort(clients) for clients in ([target], half, crowd))
        along, against = (dict.fromkeys(set(crowd) - {target}, sent) for sent in (CLIPPED, CLIPPED.negate()))
        yield PlayedCohort("alone", LOUD, alone)
        yield PlayedCohort("with half of the clients", replace(LOUD, direction=probes.alternate_signs), some)
        yield PlayedCohort("with all clients", replace(LOUD, direction=probes.fill_one_array), everybody)
        yield PlayedCohort("with all clients", replace(LOUD, direction=probes.fill_arrays_alike), everybody)
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
        divided, half = _make_constant_cohort(sorted({self.target, *even})), even[::2]
        at_clip = dict.fromkeys(even, CLIPPED)
        opposed, uneven = (at_clip | dict.fromkeys(half, sent) for sent in (CLIPPED.negate(), QUIET))
        yield PlayedCohort("with others at the clip, half of them against the others", LOUD, divided, opposed)
        yield PlayedCohort("with others at the clip, or half of them next to nothing", LOUD, divided, uneven)
        yield PlayedCohort("next to nothing, with others of whom half are so", QUIET, divided, uneven)
        everybody, steady = _make_constant_cohort(crowd), dict.fromkeys(others, CLIPPED)
        for name, sent in (("along", FOLLOWING), ("against", FOLLOWING.negate())):
            yield PlayedCohort(
                f"{name} the model's last step, with all others at the clip", sent, everybody, steady
            )
        for rounds in self._list_first_draw():
            yield PlayedCohort("drawn at first and not again", LOUD, everybody, drawn=rounds)
            later = _separate_client(self.target, rounds, everybody)  # without it nobody comes at first
            yield PlayedCohort("drawn alone at first, and others later", LOUD, later, steady, drawn=rounds)

    def _choose_crowd(self, target: int) -> list[int]:
        step = -(-len(self.members) // CROWD)
        return sorted({target, *self.members[::step]})

    def _list_first_draw(self) -> list[frozenset[int]]:
        """The rounds that share the first draw, where noise on the mean is credited with sampling; else none."""
        lines = [r for r in self.lines if r.sender.endswith("/*") and _is_credited(r)]
        first = lines[0] if lines else None
        shared = [r.round for r in lines if r is first or (r.coin and first is not None and r.coin == first.coin)]
        return [frozenset(shared)] if shared and len(shared) < self.rounds else []

    def _make_central_pair(
        self, target: int, clips: Mapping[Kind, float], replaced: bool, tried: PlayedCohort
    ) -> Pair:
        """One client's message against none, or against its opposite."""
        cohort, others = tried.cohort, tried.others
        if tried.drawn is not None:
            cohort = _limit_client(target, tried.drawn, cohort)
        first = Side(probe=probes.Messages(clips, {**others, target: tried.sent}, cohort))
        second = Side(probe=probes.Messages(clips, others, _drop_client(target, cohort)), absent=target)
        factor: Factor = allow_client
        if replaced:
            second = Side(probe=probes.Messages(clips, {**others, target: tried.sent.negate()}, cohort))
            factor = allow_replaced_client
        if tried.drawn is not None:
            factor = _allow_when_drawn(tried.drawn, factor)
        name, again = (
            f"a message of client {target}, {tried.name}",
            (target, tried.name) == (self.target, "alone"),
        )
        return Pair(name, first, second, factor, another_seed=again)

    def _pair_data(self) -> Iterator[Pair]:
        """Other data of clients that stay: a replacement of each, whatever the adjacency.

        All clients' data are changed one after the other, that is, at once: what nobody declared and all of them
        together move, one of them moves. A mean is moved by all of them, so there its target is changed alone.
        """
        k, rows = self.target, {k: self.parts[k] for k in self.members}
        own, mixed = {k: rows[k]}, self._mix_others(k)
        for neighbour, trained in (
            (probes.make_hard_data(rows, self.case.streams), True),
            (probes.make_easy_data(rows), True),
            (probes.make_hard_data(own, self.case.streams), True),
            (probes.make_easy_data(own), False),
            *[(probes.make_borrowed_data(rows[k], k, mixed), True) for _ in mixed[:1]],
            (probes.make_few_examples(k), False),
            (probes.make_many_examples(k), False),
            (probes.make_many_examples(self.rarest), False),
        ):
            touched = neighbour.touched
            alone = len(touched) == 1
            factor = allow_replaced_client if alone else allow_replaced_clients
            yield Pair(neighbour.name, Side(), Side(neighbour), factor, touched, trained, another_seed=not alone)
        touched = frozenset({k})
        rising, falling = (Side(probe=probes.Measurements(k, factor)) for factor in (10.0, 0.1))
        name = f"loss and time of client {k} rising tenfold a round, or falling"
        yield Pair(name, falling, rising, allow_replaced_client, touched, True)
        least, most = (Side(probe=probes.Measurements(k, 1.0, start)) for start in (probes.CALM / 10, 10.0))
        name = f"loss and time of client {k} the least of all, or the largest"
        yield Pair(name, least, most, allow_replaced_client, touched, True)

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
            for held in holders(self.case.examples, self.case.data).values()
        ]
        records = [record for record in records if record]
        shared = max(records, key=lambda record: (len({c for c, _ in record}), len(record)))
        own = next(record for record in records if any(c == self.target for c, _ in record))
        return [shared] if shared == own else [shared, own]


def allow_client(line: Release) -> float:
    """Of one client's message against none, or against another where the line says so."""
    return 1.0 if line.unit == "client" else float("inf")


def allow_replaced_client(line: Release) -> float:
    """Of other data of a client: twice what adding or removing it moves."""
    if line.unit != "client":
        return float("inf")
    return 1.0 if line.adjacency == "replace_one" else 2.0


def allow_replaced_clients(line: Release) -> float:
    """Of other data of all clients; what is made of several moves by more than any of them."""
    return float("inf") if line.sender.endswith("/*") else allow_replaced_client(line)


def allow_removed_record(line: Release) -> float:
    """Of one record less; of a client that stays, it changes the message."""
    return 1.0 if line.unit == "record" else allow_replaced_client(line)


def allow_examples(line: Release) -> float:
    """Of one example less of each client; what is made of several moves by more."""
    return float("inf") if line.sender.endswith("/*") else allow_removed_record(line)


def allow_replaced_record(line: Release) -> float:
    """Of one record in another's place."""
    return 1.0 if line.adjacency == "replace_one" else 2.0


def _allow_when_drawn(rounds: Collection[int], factor: Factor) -> Factor:
    """Of a client that takes part in these rounds alone: credit for sampling says that no other shows it."""
    return lambda line: factor(line) if line.round in rounds or not _is_credited(line) else 0.0


def _is_credited(line: Release) -> bool:
    return line.sampling in ("poisson", "fixed_without_replacement") and line.sample_rate < 1


def _make_constant_cohort(clients: Sequence[int]) -> Cohort:
    return lambda _, __: clients


def _separate_client(target: int, rounds: Collection[int], cohort: Cohort) -> Cohort:
    """The client `target` alone in these rounds, and the others of the cohort in all other rounds."""

    def separate(round: int, answering: tuple[int, ...]) -> Collection[int]:
        others = [k for k in cohort(round, answering) if k != target]
        return [target] if round in rounds else others

    return separate


def _drop_client(target: int, cohort: Cohort) -> Cohort:
    return _limit_client(target, (), cohort)


def _limit_client(target: int, rounds: Collection[int], cohort: Cohort) -> Cohort:
    """The cohort, whose client `target` takes part in these rounds alone."""
    return lambda round, answering: [k for k in cohort(round, answering) if k != target or round in rounds]
