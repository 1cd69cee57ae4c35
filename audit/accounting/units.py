"""Units: everything that one client, one person or one record is in, of what an observer reads.

A client's data are in what it sent. A record may lie with several clients, or several times with one
(audit/case/holders.py), and its data are in what all of its holders sent:

    noise of each holder's own      one release each, composed
    noise that they make together   one release; the record moves as many terms of the sum
    c copies at one client          a bound per record is that of a group: c times the sensitivity, and a coin
                                    each, so that a binomial number of them is drawn

A person is in all that each of its records is in, whoever holds them: c records at a client are c copies.

The last line is for Gaussian noise (Ganesh. arXiv:2401.10294): where k are drawn a sum moves by k sensitivities
at most, and hockey-stick divergences are jointly convex and grow with the distance. For other noise, and for many
copies, all c count as drawn where one is, with probability 1 - (1 - q)^c. Other sampling is not credited for a
group; of several holders only that of DP-SGD's steps, whose draws are their own.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from fedaudit.audit.accounting.terms import CREDITED
from fedaudit.fl.ledger import EACH, MEMBER, Release
from fedaudit.reports.format import plural

MOST_COPIES = 30  # whose binomial number is composed
Draw: TypeAlias = frozenset[tuple[object, int]]  # what was released under one draw: a release and how often
Group: TypeAlias = frozenset[tuple[int, int]]  # clients that hold a record, with how many copies each


def per_sender(releases: Iterable[Release]) -> dict[str, list[Release]]:
    """Releases by sender. A line whose sender is "client/*" stands for every client, and is added to
    each that is named; it is a group of its own where none is."""
    groups: dict[str, list[Release]] = defaultdict(list)
    everyone: dict[str, list[Release]] = defaultdict(list)
    for release in releases:
        (everyone if release.sender.endswith("/*") else groups)[release.sender].append(release)
    for star, common in everyone.items():
        role = star.removesuffix("*")
        named = [s for s in groups if s.startswith(role)]
        for sender in named:
            groups[sender] += common
        if not named:
            groups[star] += common
    return dict(groups)


def per_record(releases: Sequence[Release], overlaps: Collection[Group]) -> dict[str, list[Release]]:
    """Releases that each record is in which exists more than once, by a name for its holders.

    Of groups whose holders released alike, which cost the same, one is kept.
    """
    named: dict[str, list[Release]] = defaultdict(list)
    common = [r for r in releases if r.sender.endswith("/*")]
    for r in releases:
        if not r.sender.endswith("/*"):
            named[r.sender].append(r)
    cost: dict[str, object] = {s: frozenset(count_draws(own).items()) for s, own in named.items()}
    cost |= {r.sender: r.sender for r in releases if r.shared}  # it matters in which rounds they came together
    first: dict[object, Group] = {}
    for group in sorted(overlaps, key=sorted):
        costs = Counter((cost.get(f"client/{k}"), copies) for k, copies in group)
        first.setdefault(frozenset(costs.items()), group)
    return {_name_group(group): _collect(group, named, common) for group in first.values()}


def _name_group(group: Group) -> str:
    return " + ".join(f"client/{k}" if copies == 1 else f"client/{k} x {copies}" for k, copies in sorted(group))


def describe_holders(name: str, unit: str) -> str:
    """Who holds a record, or a person's, as a phrase, from the name of a group; empty for a record held once."""
    _, copied, times = name.partition(" x ")
    clients = name.count("client/")
    if unit == "person":
        records = [int(part.partition(" x ")[2] or 1) for part in name.split(" + ")]
        return f"with {plural(sum(records), 'record')} at {plural(len(records), 'client')}"
    if clients > 1:
        return f"held by {clients} clients" + (", by some more than once" if copied else "")
    return f"held {times} times by one client" if copied else ""


def _collect(group: Group, named: Mapping[str, Sequence[Release]], common: Sequence[Release]) -> list[Release]:
    """What one record is in: its holders' own lines, and those that stand for every client."""
    own: list[Release] = []
    together: dict[object, list[Release]] = defaultdict(list)
    for k, copies in sorted(group):
        for r in named.get(f"client/{k}", ()):
            moved = as_group(r, copies) if r.unit == "record" else r
            if r.shared:
                together[r.round, r.kind, r.mechanism, r.unit, r.coin].append(moved)
            else:
                own.append(moved)
    own += [_add_up(same) for same in together.values()]
    copies = sum(n for _, n in group)
    own += [as_group(r, copies if r.unit == "record" else len(group)) for r in common]
    return own if len(group) == 1 else [_remove_credit(r) for r in own]


def _remove_credit(release: Release) -> Release:
    """Without credit for a draw that all releases of a round share: each holder has its own."""
    sampled = release.sampling in CREDITED and release.coin != EACH
    return replace(release, sampling="unknown") if sampled else release


def _add_up(same: Sequence[Release]) -> Release:
    """Terms of one noised sum that a record moves at once, as one line."""
    if any(r.sensitivity is None or r.mechanism == "none" for r in same):
        return next(r for r in same if r.sensitivity is None or r.mechanism == "none")
    whole = sum(r.sensitivity or 0.0 for r in same)
    least = min(same, key=lambda r: r.noise_std)
    return replace(least, sensitivity=whole, count=max(r.count for r in same))


def as_group(release: Release, size: int) -> Release:
    """The release as it protects `size` units at once that all are in it."""
    if size == 1 or release.mechanism == "none" or release.sensitivity is None:
        return release
    gaussian = release.mechanism == "gaussian" and not release.shared
    if release.sampling == "poisson" and gaussian and size <= MOST_COPIES:
        return replace(release, copies=size * release.copies)
    moved = replace(release, sensitivity=size * release.sensitivity)
    if release.sampling == "poisson":
        return replace(moved, sample_rate=1 - (1 - release.sample_rate) ** size)
    return moved if release.sampling == "none" else replace(moved, sampling="unknown")


def covers(more: Counter[Draw], less: Counter[Draw]) -> bool:
    """Whether each draw of `less` has one of its own in `more` in which at least as much was released.

    Draws are paired one after the other, so that a pairing may be missed and none is made up.
    """
    left = more - less
    for draw, count in (less - more).items():
        wanted = Counter(dict(draw))
        for other in [other for other in left if wanted <= Counter(dict(other))]:
            taken = min(count, left[other])
            left[other] -= taken
            count -= taken
        if count:
            return False
    return True


def count_draws(group: Sequence[Release]) -> Counter[Draw]:
    """How often one sender made each draw: all that it released under one, whenever that was."""
    draws: dict[object, Counter[object]] = defaultdict(Counter)
    for r in group:
        draws[r.coin or r.round][_read_terms(r)] += 1
    return Counter(frozenset(shared.items()) for shared in draws.values())


def _read_terms(r: Release) -> tuple[object, ...]:
    """All that an accountant may look at."""
    spoils = "" if r.noise_multiplier else r.kind
    return (
        r.mechanism,
        r.noise_std,
        r.sensitivity,
        r.unit,
        r.adjacency,
        r.sampling,
        r.sample_rate,
        r.coin == EACH,
        MEMBER in r.participation_seen_by,
        r.copies,
        r.sender.endswith("/*"),
        r.count,
        spoils,
    )
