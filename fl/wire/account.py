"""Third step of the wire: every release becomes a line of the ledger, with how its client was really drawn."""

import math
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import NamedTuple

from fedaudit.fl.artifact import SERVER, Role
from fedaudit.fl.data.participation import UNKNOWN, Drawn
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import EVERYONE, FROM_A_DRAW, MEMBER, Release, to_line
from fedaudit.fl.recording import tap
from fedaudit.fl.runtime.durable import Log

SAME_RATE = 1e-9  # of two rates that are sums of the same numbers
SamplingLaw = Callable[[int | None], Drawn]  # of a client, or of None for the likeliest one


class RoundDraw(NamedTuple):
    """Who was drawn to take part in a round, and by which law."""

    round: int
    clients: frozenset[int]
    law: SamplingLaw


class Accounts:
    """The lines of one run; without a `ledger` they are not written.

    `sampling` is the law by which clients come to take part in a round for which no draw was noted: a draw says
    nothing of what is sent in another round. `counts_made` is the card's: clients count examples that they made.
    `members_know`: who takes part in a round is told all who do.
    """

    def __init__(
        self, ledger: Log | None, sampling: SamplingLaw, counts_made: bool = False, members_know: bool = False
    ) -> None:
        self._sampling = sampling
        self._tellers = (SERVER.role.value, *([MEMBER] if members_know else []))
        self._ledger, self._counts_made = ledger, counts_made
        self._last_draw: RoundDraw | None = None
        self._shares: list[Release] = []  # of noise that the round's senders add up to

    @property
    def has_shares(self) -> bool:
        """Whether this round's senders add up their shares of noise."""
        return bool(self._shares)

    def get_law(self, round: int) -> SamplingLaw:
        """By which law clients come to take part in a round."""
        draw = self._find_draw(round)
        return self._sampling if draw is None else draw.law

    def note_draw(self, round: int, answering: Collection[int], law: SamplingLaw) -> None:
        """Note who was drawn to take part in a round, and how: all that the ledger says of sampling."""
        draw, clients = self._find_draw(round), frozenset(answering)
        if draw is not None and draw.clients:  # two draws in one round: neither law holds alone
            clients, law = clients | draw.clients, lambda _: UNKNOWN
        self._last_draw = RoundDraw(round, clients, law)

    def enter(self, release: Release) -> None:
        """Write the line of a release."""
        line = self._drop_sensitivity(self._as_drawn(release))
        tap.current().enter(line)
        if self._ledger is not None:
            self._ledger.add(to_line(line))

    def enter_later(self, release: Release) -> None:
        """Keep the line of a share of noise until the round ends, when it is known what the shares add up to."""
        tap.current().expect(release)
        self._shares.append(release)

    def enter_clear(self, round: int, kind: str, source: str, observers: tuple[str, ...] = EVERYONE) -> None:
        """Write that the server knows something of the clients that no protected message told it."""
        self.enter(
            Release(
                round=round,
                kind=kind,
                sender=f"{Role.CLIENT.value}/*",
                observers=observers,
                mechanism="none",
                source=source,
            )
        )

    def enter_selection(self, round: int) -> None:
        """Write that the server chose the round's clients by what it knows of their data."""
        self.enter_clear(round, "selection", "the method's choice of clients")

    def end_round(self) -> None:
        """Write the lines of noise that senders add up to, at the number that came: fewer make less of it."""
        came = Counter(kind for kind, _ in {(r.kind, r.sender) for r in self._shares})
        for r in self._shares:
            there = min(r.aggregated, came[r.kind])
            left = math.sqrt(there / r.aggregated)
            self.enter(replace(r, aggregated=there, noise_std=r.noise_std * left, shares=came[r.kind]))
        self._shares.clear()

    def _find_draw(self, round: int) -> RoundDraw | None:
        """What was noted of a round."""
        draw = self._last_draw
        return draw if draw is not None and draw.round == round else None

    def _drop_sensitivity(self, release: Release) -> Release:
        """Without a sensitivity where clients count what they made: one record may move that by any number."""
        made = self._counts_made and release.kind == Kind.NUM_EXAMPLES
        if not made or release.unit != "record" or release.mechanism == "none":
            return release
        return replace(release, sensitivity=None, clip_norm=None, clip_of="", clipped="", derived="declared")

    def _as_drawn(self, release: Release) -> Release:
        """The line with how its client was really drawn and who can tell, whatever its maker says of that.

        A rate above the law's stays: it costs more. One that nobody is drawn at is named as not credited. A line
        of one named client is there only because that client took part; the server always knows whom it selected,
        and where it tells members, they know too.
        """
        if release.unit != "client" or release.mechanism == "none":
            return release
        index = release.sender.partition("/")[2]
        named = index.isdecimal()
        client = int(index) if named else None
        law, draw = self.get_law(release.round)(client), self._find_draw(release.round)
        if draw is not None and named and client not in draw.clients:
            law = UNKNOWN
        rate = max(law.rate, release.sample_rate) if law.sampling == release.sampling else law.rate
        seen = EVERYONE if named else release.participation_seen_by
        seen = (*(role for role in self._tellers if role not in seen), *seen)
        first = release.round - release.round % law.period
        coin = f"rounds {first} to {first + law.period - 1}" if law.period > 1 else ""
        counted = release.sample_rate if release.sampling in FROM_A_DRAW else 1.0
        is_drawn = release.sampling == law.sampling and law.rate <= counted * (1 + SAME_RATE)
        is_drawn |= law.sampling == UNKNOWN.sampling  # of which nothing is credited, whatever was counted on
        return replace(
            release,
            sampling=law.sampling,
            sample_rate=rate,
            uncredited_rate=1.0 if is_drawn else counted,
            coin=coin,
            participation_seen_by=seen,
        )
