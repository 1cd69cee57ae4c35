"""The ledger of a run, held against that of a play of the run as it was, line by line.

A play is made by the run's own code, which enters what it releases. So a line of the run that costs less than
every line of its round, kind and sender in the play, and one that is missing, are not of that run. A line may
cost more.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator

from fedaudit.audit.accounting.accountant import observe_release
from fedaudit.audit.accounting.budget import SEES
from fedaudit.fl.ledger import EACH, FROM_A_DRAW, Release

SAME = 1e-3  # of two numbers that differ because another machine adds up otherwise


def find_other_line(ran: Iterable[Release], played: Iterable[Release]) -> str | None:
    """How the run's ledger is another than the play's, as a sentence; None where it costs as much or more."""
    theirs, ours = _group_lines(played), _group_lines(ran)
    for place, lines in ours.items():
        left = list(theirs.get(place, ()))
        for line in lines:
            match = next((p for p in left if p == line), None) or next(
                (p for p in left if not [*list_savings(line, p)]), None
            )
            if match is not None:
                left.remove(match)
            elif place not in theirs:
                if line.noise_multiplier:
                    return f"{_describe_line(line)} is of something that a play of the run does not release"
            elif savings := [*list_savings(line, (left or theirs[place])[0])]:
                return f"{_describe_line(line)} says {', '.join(savings)}"
        if left:
            return f"there is one line less than {_describe_line(left[0])} in a play of the run"
    missing = next((lines[0] for place, lines in theirs.items() if place not in ours), None)
    return None if missing is None else f"{_describe_line(missing)} is missing"


def list_savings(line: Release, played: Release) -> Iterator[str]:
    """What of a line costs less than in the one that a play entered, as phrases."""
    if line.mechanism not in (played.mechanism, "none"):
        yield f"mechanism {line.mechanism}; it is {played.mechanism}"
    if unseen := set(played.observers) - set(line.observers):
        yield f"that {', '.join(sorted(unseen))} cannot read it"
    if line.mechanism == "none":
        return
    for name in ("unit", "adjacency"):
        if getattr(line, name) != getattr(played, name):
            yield f"{name} {getattr(line, name)}; it is {getattr(played, name)}"
    for observer, roles in SEES.items():
        kept, left = (observe_release(r, roles).noise_std for r in (line, played))
        if kept > left * (1 + SAME):
            yield f"noise {kept:g} towards {observer}; it is {left:g}"
            break
    if line.generator and line.generator != played.generator:
        yield f"noise from {line.generator}; it is from {played.generator or 'a generator that nobody names'}"
    least = math.inf if played.sensitivity is None else played.sensitivity * (1 - SAME)
    if line.noise_std and line.sensitivity is not None and line.sensitivity < least:
        yield f"sensitivity {line.sensitivity:g}; it is {played.sensitivity}"
    if line.count < played.count:
        yield f"{line.count:,} releases; they are {played.count:,}"
    if line.sampling in FROM_A_DRAW and line.sample_rate < 1:
        if line.sampling != played.sampling or line.sample_rate < played.sample_rate * (1 - SAME):
            yield (
                f"that it is drawn at rate {line.sample_rate:g} ({line.sampling.replace('_', ' ')}); it is at "
                f"{played.sample_rate:g} ({played.sampling.replace('_', ' ')})"
            )
        if line.coin != played.coin and (line.coin == EACH or played.coin not in ("", EACH)):
            yield "that it has a draw of its own"
    if told := set(played.participation_seen_by) - set(line.participation_seen_by):
        yield f"that {', '.join(sorted(told))} cannot tell who took part"


def _group_lines(lines: Iterable[Release]) -> dict[tuple[int, str, str], list[Release]]:
    groups: dict[tuple[int, str, str], list[Release]] = defaultdict(list)
    for line in lines:
        groups[line.round, line.kind, line.sender].append(line)
    return groups


def _describe_line(line: Release) -> str:
    return f"the line of {line.kind} by {line.sender} in round {line.round}"
