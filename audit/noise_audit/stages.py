"""Pairs of neighbouring plays, as one observer sees them, and what they showed.

What a client draws at random, such as who is in a batch, has one law whoever holds which place. So where one
record less leaves draws to others, the two plays are apart by chance alone; the law of what is sent may be as
close as declared. A record in the place of another moves no draw.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from fedaudit.audit.accounting.budget import SEES
from fedaudit.audit.noise_audit.drawn_noise import NoiseOrigin
from fedaudit.audit.noise_audit.pairs import Pair, Pairs, Side
from fedaudit.audit.plays.factors import Factor
from fedaudit.audit.plays.run import RunPlayer
from fedaudit.audit.plays.world import RELATIVE, Key, Listener, World, WorldDifference
from fedaudit.fl.artifact import Party
from fedaudit.fl.ledger import Unit

SERVER = next(iter(SEES))


@dataclass
class PairOutcome:
    """What the pairs of one observer and unit showed."""

    tried: int = 0
    largest: float = 0.0  # distance over what is declared
    failure: WorldDifference | None = None
    pair: str = ""  # that shows it
    is_uncoupled: bool = False  # whether of some records one less leaves draws to others

    def add(self, pair: Pair, listener: Listener) -> None:
        """Keep the worst: what is not declared at all, then what goes furthest beyond."""
        self.tried += 1
        self.largest = max([self.largest, *listener.ratios.values()])
        for difference in [*listener.differences, *_find_others(pair, listener)]:
            if self.failure is None or _rank(difference) > _rank(self.failure):
                self.failure, self.pair = difference, pair.name

    @property
    def has_moved(self) -> bool:
        """Whether a noised release moved by more than numbers are rounded; else nothing was tried."""
        return self.largest > RELATIVE

    @property
    def is_settled(self) -> bool:
        return self.failure is not None and self.failure.ratio is None


@dataclass(frozen=True)
class PlayStage:
    """Where one observer listens to plays of the federation."""

    player: RunPlayer
    observer: str
    origin: NoiseOrigin = field(default_factory=NoiseOrigin)

    def listen(
        self, side: Side, first: World | None = None, factor: Factor = lambda _: 1.0, known: World | None = None
    ) -> Listener:
        """One play, compared with `first`; what does not depend on the change is taken from `known`."""
        listener = Listener(self.observer, side.probe, first, factor, side.absent, self.origin.aside)
        self.player.play(listener, side.neighbour, known)
        return listener

    def compare(self, pair: Pair, honest: World) -> Listener:
        """The second world of a pair, compared with the first."""
        first = self._play_first(pair, honest)
        listener = self.listen(pair.second, first, pair.factor, None if pair.trained else first)
        pair.moves.update(listener.moves)
        return listener

    def _play_first(self, pair: Pair, honest: World) -> World:
        if pair.first.is_honest:
            return honest
        return self.listen(pair.first, known=None if pair.trained else honest).world

    def try_pair(self, pair: Pair, honest: World, outcome: PairOutcome) -> None:
        """Play a pair; what one record less moves counts where chance falls alike in both worlds."""
        listener = self.compare(pair, honest)
        if not listener.differences or not pair.is_removed or _find_others(pair, listener):
            outcome.add(pair, listener)
            return
        drawn = self._find_drawn(pair, honest)
        if steady := [d for d in listener.differences if d.key not in drawn]:
            listener.differences[:] = steady
            outcome.add(pair, listener)
            return
        if pair.last is not None and self._draw_alike(pair, listener.world, honest):
            pair = replace(pair, first=pair.last)
            listener = self.compare(pair, honest)
            if listener.differences:  # nobody got another's draws, and it moves as far
                outcome.add(pair, listener)
                return
        outcome.is_uncoupled = True

    def _draw_alike(self, pair: Pair, second: World, honest: World) -> bool:
        """Whether clients draw as much without the record as with it."""
        first, touched = self._play_first(pair, honest), pair.touched or frozenset()
        return all(first.draws.get(k) == ends for k, ends in second.draws.items() if k[1] in touched)

    def _find_drawn(self, pair: Pair, honest: World) -> set[Key]:
        """What differs where the pair's clients draw otherwise, on the same data."""
        first, touched = self._play_first(pair, honest), pair.touched or frozenset()
        if not any(ends for where, ends in first.draws.items() if where[1] in touched):
            return set()
        redrawn = replace(pair.first.neighbour, touched=touched, redrawn=True)
        other = self.listen(Side(redrawn, pair.first.probe), first, known=first)
        moved = {key for key, ratio in other.ratios.items() if ratio > RELATIVE}
        # a play ends where no line allows a difference, and says nothing of what comes later
        stopped = next((d.key for d in other.differences if d.ratio is None), None)
        events = list(first.events)
        return {*moved, *(events[events.index(stopped) :] if stopped in first.events else ())}

    def list_pairs(self, unit: Unit, honest: World) -> Iterator[Pair]:
        pairs = self._make_pairs(honest)
        central = self.observer != SERVER and any(r.sender.endswith("/*") for r in pairs.lines)
        return pairs.pair_client(central) if unit == "client" else pairs.pair_record()

    def _make_pairs(self, honest: World) -> Pairs:
        case = self.player.case
        return Pairs(case, case.compromise.clients, self.player.rounds, honest, self.origin.trained)

    def try_replaced_records(self, honest: World, outcome: PairOutcome) -> None:
        """Records in each other's place, until one of them moved something."""
        for pair in self._make_pairs(honest).pair_replaced_records():
            listener = self.compare(pair, honest)
            outcome.add(pair, listener)
            if listener.differences or any(ratio > RELATIVE for ratio in listener.ratios.values()):
                return

    def try_another_seed(self, unit: Unit, outcome: PairOutcome) -> None:
        """Some pairs where masks, cohorts, batches and the choices of a method are drawn otherwise."""
        again = replace(self, player=self.player.reseed())
        honest = again.listen(Side()).world
        for pair in again.list_pairs(unit, honest):
            if pair.another_seed:
                named = replace(pair, name=f"{pair.name}, under another master seed")
                again.try_pair(named, honest, outcome)


def _find_others(pair: Pair, listener: Listener) -> list[WorldDifference]:
    """Clients whose releases differ although their data do not."""
    if pair.touched is None:
        return []
    allowed = {str(Party.client(k)) for k in pair.touched}
    keys = [key for key, ratio in listener.ratios.items() if ratio and key.party not in allowed]
    text = f"differs although only data of {', '.join(sorted(allowed))} were changed"
    return [WorldDifference(key, text) for key in keys if key.party.removeprefix("client/").isdecimal()][:1]


def _rank(difference: WorldDifference) -> float:
    return float("inf") if difference.ratio is None else difference.ratio
