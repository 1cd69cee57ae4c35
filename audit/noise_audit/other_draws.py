"""The noise that a play drew, held against the lines of the ledger that stand for it.

A line says how noise was drawn and what it hides. Where it was drawn by another line, what leaves may still have
the law that is stated: noise of 1 on what was divided by the clip, multiplied afterwards. Each draw is held
against its own line, so that the ledger is wrong where its lines together cost less than what was drawn.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from fedaudit.audit.noise_audit.other_lines import SAME, list_savings
from fedaudit.audit.plays.world import CALCULATED, Event, World, iterate_noise
from fedaudit.fl.ledger import Release
from fedaudit.fl.recording.noise import share_of_noise
from fedaudit.fl.runtime.cipher import CIPHER
from fedaudit.reports.format import plural


class OtherDraw(NamedTuple):
    """Noise that was drawn by another line than the ledger has of it, or more often."""

    event: Event
    text: str
    is_dearer: bool  # whether it cost more than the ledger says

    def __str__(self) -> str:
        return f"{self.event.key}: {self.text}"


def find_other_draw(world: World) -> OtherDraw | None:
    """The first that costs more than the ledger says, or else the first of any; None where there is none."""
    found = [*_list_other_draws(world)]
    return next((f for f in found if f.is_dearer), found[0] if found else None)


def describe_generators(lines: Iterable[Release], world: World) -> Iterator[str]:
    """Sentences on noise in the ledger of which no line goes with a draw of the run's own source."""
    noised = (r for r in lines if r.noise_multiplier and r.mechanism in CALCULATED and r.generator != CIPHER)
    heard = {(e.line.round, e.line.sender, e.line.kind) for e in iterate_noise(world) if e.line is not None}
    kinds: dict[bool, set[str]] = {True: set(), False: set()}
    for line in noised:
        kinds[(line.round, line.sender, line.kind) in heard].add(line.kind)
    if unlisted := sorted(kinds[True]):
        yield (
            f"noise on {', '.join(unlisted)} was drawn from the run's source, but no line of the ledger goes "
            "with that draw: its law is declared"
        )
    if own := sorted(kinds[False] - kinds[True]):
        yield f"the noise on {', '.join(own)} is of a generator of the team's own: its law is declared"


def _list_other_draws(world: World) -> Iterator[OtherDraw]:
    """Work that never left its client has no line."""
    entered: dict[tuple[int, str, str], list[Release]] = defaultdict(list)
    for line in world.lines:
        if line.noise_multiplier and line.count:
            entered[line.round, line.sender, line.source].append(line)
    drawn: dict[tuple[int, str, str], list[Event]] = defaultdict(list)
    for event in iterate_noise(world):
        if event.line is not None and event.line.noise_multiplier:
            drawn[event.line.round, event.line.sender, event.line.source].append(event)
    for place, events in drawn.items():
        if place in entered and (other := _compare(events, entered[place])):
            yield other


def _compare(events: Sequence[Event], lines: Sequence[Release]) -> OtherDraw | None:
    """How the draws of one source, round and sender are others than its lines say; None where they are not."""
    left: Counter[tuple[object, ...]] = Counter()
    for line in lines:
        left[_read_law(line)] += line.count
    known, others = set(left), []
    for event in events:
        law = _read_law(event.line)
        left[law] -= 1
        if left[law] < 0:
            others.append(event)
    if not others:
        return None
    first = others[0]
    draws = [replace(e.line, count=1) for e in events if e.line is not None]
    counted = sum(line.count for line in lines)
    if _read_law(first.line) in known:
        if _sum_cost(draws) <= _sum_cost(lines) * (1 + SAME):
            return OtherDraw(first, "it is drawn by another line than the one in the ledger", is_dearer=False)
        text = f"it is drawn {len(draws):,} times by the line in the ledger, which counts {counted:,}"
        return OtherDraw(first, text, is_dearer=True)
    own = f"it is drawn by another line than the one in the ledger ({_describe(first.line)} where that has "
    text = f"{own}{_describe(lines[0])})"
    for event in others:
        if savings := min(([*_list_hidden(line, event.line)] for line in lines), key=len):
            return OtherDraw(event, f"{text}, which says {', '.join(savings)}", is_dearer=True)
    if _sum_cost(draws) > _sum_cost(lines) * (1 + SAME):
        times = f"{plural(len(draws), 'time')} where the ledger counts {counted:,}"
        return OtherDraw(first, f"{text}; that is less noise for what it hides, {times}", is_dearer=True)
    return OtherDraw(first, text, is_dearer=False)


def _list_hidden(line: Release, drawn: Release | None) -> Iterator[str]:
    """What a line claims of whom its noise hides, and how, beyond the one by which it was drawn."""
    if drawn is None:
        return
    is_of_record = line.unit == "record"  # how clients are drawn is no business of whoever noises a message
    alike = replace(
        drawn,
        noise_std=line.noise_std,  # costs are compared, which have it together with what it hides
        sensitivity=line.sensitivity,
        aggregated=line.aggregated,
        observers=line.observers,
        participation_seen_by=line.participation_seen_by,
        generator=line.generator,
        count=line.count,
        coin=line.coin,
        sampling=drawn.sampling if is_of_record else line.sampling,
        sample_rate=drawn.sample_rate if is_of_record else line.sample_rate,
    )
    yield from list_savings(line, alike)


def _sum_cost(lines: Sequence[Release]) -> float:
    """What noise costs, up to a factor: of Gaussian releases the squares add up, of others the losses."""
    total = 0.0
    for line in lines:
        scale, order = share_of_noise(line), 2 if line.mechanism == "gaussian" else 1
        total += line.count * ((line.sensitivity or 0.0) / scale) ** order if scale else math.inf
    return total


def _describe(line: Release | None) -> str:
    if line is None:
        return "none"
    return f"{line.mechanism.replace('_', ' ')} noise of {share_of_noise(line):g} over {line.sensitivity or 0:g}"


def _read_law(line: Release | None) -> tuple[object, ...]:
    """What of a line decides about noise and what it hides."""
    if line is None:
        return ()
    share = f"{share_of_noise(line):.9g}"  # of noise made together, a line has what those who came add up to
    drawn = (line.sampling, line.sample_rate) if line.unit == "record" else ()
    return line.mechanism, share, line.sensitivity, line.unit, line.adjacency, *drawn
