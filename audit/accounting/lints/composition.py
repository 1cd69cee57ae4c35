"""Composition: whether everything that was released is counted, once and with fresh noise."""

from collections import Counter, defaultdict
from itertools import zip_longest

from fedaudit.audit.accounting.budget import SEES
from fedaudit.audit.accounting.lint import Flaw, RunRecord, describe
from fedaudit.reports.result import Severity

MISSING = "The stated epsilon does not count all that was released."


def l6_missing_releases(record: RunRecord) -> Flaw | None:
    """Steps or rounds that touched the data are not accounted for."""
    bad = [r for r in record.noised if r.steps > r.count]
    if bad:
        r = bad[0]
        return Flaw(
            what=f"{describe(bad).capitalize()}: {r.steps:,} steps on the data, {r.count:,} of them accounted.",
            remedy="Count every step that reads the data.",
            severity=Severity.HIGH,
            reason=MISSING,
        )
    ran: dict[str, set[int]] = defaultdict(set)  # by phase: each sends kinds of its own
    for t, (answers, phase) in enumerate(zip_longest(record.delivered, record.phases, fillvalue="")):
        if answers:
            ran[str(phase)].add(t)
    for kind in sorted({r.kind for r in record.noised if r.unit == "client"}):
        rounds = {r.round for r in record.noised if r.kind == kind}
        for expected in ran.values():
            missing = sorted(expected - rounds)
            if not missing or len(rounds & expected) < 2:  # released once, it is no composition
                continue
            return Flaw(
                what=f"{kind} is in the ledger for {len(rounds & expected):,} of {len(expected):,} "
                f"rounds in which clients answered; round {missing[0]} is missing.",
                remedy="Restore the ledger; every round's release composes.",
                severity=Severity.HIGH,
                reason=MISSING,
            )
    return None


_NAMED = {"server": "the server", "another client": "another client", "public": "the public"}


def l10_companions(record: RunRecord) -> Flaw | None:
    """Something is sent in clear beside what is noised."""
    kinds: dict[str, str] = {}
    for observer, reads in SEES.items():
        seen = [r for r in record.releases if {o.partition("/")[0] for o in r.observers} & reads]
        # a server that adds the noise itself is no one whom it is meant for
        meant = [r for r in seen if observer != "server" or "server" in r.observers]
        if any(r.noise_multiplier for r in meant):
            for r in seen:
                if not r.noise_multiplier:
                    kinds.setdefault(r.kind, observer)
    if not kinds:
        return None
    named = ", ".join(list(kinds)[:5])
    return Flaw(
        what=f"{named} {'is' if len(kinds) == 1 else 'are'} released without noise to "
        f"{_NAMED[next(iter(kinds.values()))]}, who also gets noised releases; their noise bounds nothing "
        "there.",
        remedy="Noise, withhold or fix the companions: counts, numbers of examples, buffers, losses.",
        severity=Severity.LOW,
        reason="The bound counts what is sent in clear, and says by itself how little is left.",
    )


def l11_reused_noise(record: RunRecord) -> Flaw | None:
    """The same noise is added more than once, so that it can be subtracted."""
    named = [r for r in record.noised if r.stream]
    twice = {name for name, n in Counter(r.stream for r in named).items() if n > 1}
    bad = [r for r in named if r.stream in twice]
    if not bad:
        return None
    return Flaw(
        what=f"{describe(bad).capitalize()}: {len(bad)} releases take their noise from "
        f"{len(twice)} stream{'s' if len(twice) > 1 else ''}, {sorted(twice)[0]!r} first.",
        remedy="Derive the stream of the noise from round, sender and kind.",
        severity=Severity.HIGH,
        reason="Noise that can be subtracted protects nobody.",
    )
