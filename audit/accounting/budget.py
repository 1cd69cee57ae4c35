"""Budgets: for each observer and unit, the bound of the worst client or record, from each accountant.

Losses of different clients concern different data, so they are never summed; the largest counts. A record that
several clients hold is in what all of them released, which is composed (audit/accounting/units.py).
"""

import contextlib
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from itertools import islice

from pydantic import Field

from fedaudit.audit.accounting.accountant import (
    NOTHING,
    Accountant,
    Bound,
    Numerical,
    Protected,
    compute_in_turn,
    explain_full_count,
    observe_release,
    seen_as,
)
from fedaudit.audit.accounting.child import Exceeded, call, keep
from fedaudit.audit.accounting.terms import is_amplifiable
from fedaudit.audit.accounting.units import (
    Draw,
    Group,
    count_draws,
    covers,
    describe_holders,
    per_record,
    per_sender,
)
from fedaudit.audit.accounting.verify import DECLARED, Verified
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.ledger import EACH, MEMBER, Adjacency, Release
from fedaudit.fl.runtime.plugin import configure
from fedaudit.reports.record import Record

# What each observer reads: the roles named in Release.observers. The server makes the broadcasts
# and the released model, so it knows what clients and the public get; a client also gets the latter.
SEES = {
    "server": {"server", "client", "public"},
    "another client": {"client", "client/*", "public"},
    "public": {"public"},
}

_NOISE = {
    "gaussian": "Gaussian noise",
    "laplace": "Laplace noise",
    "discrete_laplace": "discrete Laplace noise",
    "randomized_response": "randomised response",
}
_DRAWN = {
    "poisson": "each {} drawn by a coin of its own",
    "fixed_without_replacement": "a fixed number of {}s drawn without replacement",
}
FEW = 3  # costs that are not worth a process of their own for all
COMPARED = 4  # senders that release most, with which every other one is compared
Cost = frozenset[object]  # all that an accountant may look at, of one sender


class SpentBudget(Record):
    """What a ledger costs towards one observer if it is true, by one accountant; infinite: no bound.

    No page shows it: whether it holds is known to `PrivacyBound` (audit/accounting/status.py).
    """

    observer: str
    unit: str
    adjacency: str
    delta: float
    epsilon_upper: float
    accountant: str
    releases: int
    assumes: str
    assumed: list[str] = Field(default_factory=list)  # what it takes to be so that nobody could check, as phrases
    replaced: float | None = None  # of zeroed-out data: the bound where other data are in their place
    uncredited: str = ""  # why the draw of clients is not credited, as a phrase
    kinds: list[str] = Field(default_factory=list)  # whose noise it rests on
    colluders: int = 0
    spoiled_by: list[str] = Field(default_factory=list)  # kinds released without noise
    unbounded: str = ""  # another reason why there is no bound, as a phrase
    note: str = ""
    inconclusive: bool = False  # the accountant ran past its cap: nothing is said
    disagrees: str = ""  # how another accountant contradicts it, as a sentence; empty: none does


@keep()
def budgets(
    releases: Sequence[Release], accountants: Sequence[PluginSpec], delta: float, verified: Verified = DECLARED
) -> list[SpentBudget]:
    """Bounds towards the server, another client and the public, for every unit the noise speaks of, and for each
    person where the data name any.

    They hold if the ledger is true, which others judge (audit/accounting/status.py). Where clients hold records
    together (`verified.overlaps`), what noise for one client leaves of such a record is bounded too: more can be
    lost of it than of a client.
    """
    noised: set[Protected] = {r.unit for r in releases if r.noise_multiplier}
    if noised and any(len(group) > 1 for group in verified.overlaps):
        noised.add("record")
    if noised and verified.persons:
        noised.add("person")
    units: list[Protected] = sorted(noised) or ["client"]
    found = []
    for number, spec in enumerate(accountants):
        cls = catalog.load("accountants", spec.name)
        accountant: Accountant = configure(cls, spec.settings, f"accountants[{number}]")
        known: dict[Cost, Bound] = {}  # observers who read the same share a bound
        for observer in SEES:
            for unit in units:
                read = towards(
                    observer, releases, unit, verified.persons if unit == "person" else verified.overlaps
                )
                made = _compute_budget(accountant, observer, unit, read, delta, known)
                if math.isfinite(made.epsilon_upper):
                    made.assumed = _list_unverified(observer, unit, read[1], verified)
                    made.uncredited = _explain_full_counts(observer, releases, read[0])
                found.append(made)
    return found


def _list_unverified(
    observer: str, unit: Protected, groups: Mapping[str, Sequence[Release]], verified: Verified
) -> list[str]:
    """What a bound takes to be so that nobody could verify."""
    drawn = any(is_amplifiable(r) and r.coin != EACH for group in groups.values() for r in group)
    found = [] if unit == "client" else list(verified.assumed)
    found += [verified.law] if drawn and verified.law else []
    return found + ([verified.cohort] if drawn and verified.cohort and observer == "another client" else [])


def _explain_full_counts(observer: str, releases: Iterable[Release], adjacency: Adjacency) -> str:
    """Why the draw of clients is not credited, as phrases; empty where it is, or where none is drawn."""
    reads = SEES[observer]
    seen = [r for r in releases if is_visible(r.observers, reads)]
    reasons = dict.fromkeys(why for r in seen if (why := explain_full_count(r, reads, adjacency)))
    return "; ".join(reasons)


def _drop_noised_again(lines: Sequence[Release]) -> list[Release]:
    """The lines without noise in the training of what then got noise for its whole client, as it was sent.

    Nobody reads the message in between. Where a client sends a kind several times in a round, each needs both.
    """
    noised = [r for r in lines if r.noise_multiplier]
    whole = Counter((r.round, r.kind, r.sender) for r in noised if r.unit == "client")
    trained = Counter((r.round, r.kind, r.sender) for r in noised if r.unit == "record")
    covered = {place for place, count in trained.items() if whole[place] >= count}
    return [
        r for r in lines if r.unit != "record" or r.coin != EACH or (r.round, r.kind, r.sender) not in covered
    ]


def towards(
    observer: str, releases: Iterable[Release], unit: Protected, overlaps: Collection[Group] = ()
) -> tuple[Adjacency, dict[str, list[Release]]]:
    """What one observer reads of each sender, as it protects `unit`, and the adjacency of that.

    For records, also what it reads of all holders of those in `overlaps`, by a name for the holders; for persons
    only that, of their records in `overlaps`.
    """
    reads = SEES[observer]
    visible = [observe_release(r, reads) for r in releases if is_visible(r.observers, reads)]
    if unit == "client":
        visible = _drop_noised_again(visible)
    adjacency = _find_neighbours(visible, unit)
    groups = per_sender([seen_as(r, unit, adjacency) for r in visible]) if unit != "person" else {}
    if unit != "client" and visible:
        held = per_record(visible, overlaps)
        groups |= {name: [seen_as(r, unit, adjacency) for r in group] for name, group in held.items()}
    return adjacency, groups


def _find_neighbours(visible: Sequence[Release], unit: Protected) -> Adjacency:
    """The neighbours that all of this noise speaks of. A client that noises its own message sends one either way:
    it is zeroed out, not removed."""
    noised = [r for r in visible if r.noise_multiplier]
    if any(r.adjacency == "replace_one" or r.sampling == "fixed_without_replacement" for r in noised):
        return "replace_one"
    own = any(r.unit == "client" and not r.sender.endswith("/*") for r in noised)
    return "zero_out" if unit == "client" and own else "add_or_remove_one"


def is_visible(observers: Collection[str], reads: Collection[str]) -> bool:
    """Whether who reads these roles is among them; "client/3" is one client, who may be the adversary."""
    parties = (party.partition("/") for party in observers)
    return any((f"{role}/*" if index else role) in reads for role, _, index in parties)


def _compute_budget(
    accountant: Accountant,
    observer: str,
    unit: Protected,
    read: tuple[Adjacency, dict[str, list[Release]]],
    delta: float,
    known: dict[Cost, Bound],
) -> SpentBudget:
    adjacency, groups = read
    sender, worst = _find_worst(accountant, groups, delta, known)
    group = groups.get(sender, [])
    if math.isfinite(worst.epsilon):
        cost: Cost = frozenset({"checked", *count_draws(group).items()})
        if cost not in known:
            known[cost] = accountant.cross_check(worst, group, delta)
        worst = known[cost]
    elif worst.spoiled_by:
        worst = replace(
            worst, note=f"{worst.note} {_describe_noised_alone(accountant, groups, delta, known)}".strip()
        )
    return SpentBudget(
        observer=observer,
        unit=unit,
        adjacency=adjacency,
        delta=delta,
        epsilon_upper=round_up(worst.epsilon),
        accountant=worst.engine or accountant.card.title,
        releases=sum(r.count for r in group),
        replaced=_compute_replaced(accountant, adjacency, group, worst, delta, known),
        assumes=_list_assumptions(unit, group, worst, sender),
        kinds=sorted({r.kind for own in groups.values() for r in own if r.noise_multiplier}),
        colluders=max((r.colluders for r in group if r.shares), default=0),
        spoiled_by=list(worst.spoiled_by),
        note=_write_note(worst, sender, delta),
        unbounded=worst.unbounded,
        inconclusive=worst.inconclusive,
        disagrees=worst.disagrees,
    )


def _compute_replaced(
    accountant: Accountant,
    adjacency: Adjacency,
    group: Sequence[Release],
    worst: Bound,
    delta: float,
    known: dict[Cost, Bound],
) -> float | None:
    """What replacing the data costs where the bound is of zeroing them out."""
    if adjacency != "zero_out" or not math.isfinite(worst.epsilon):
        return None
    cost: Cost = frozenset({"replaced", *count_draws(group).items()})
    if cost not in known:
        known[cost] = accountant.epsilon([seen_as(r, "client", "replace_one") for r in group], delta)
    return round_up(known[cost].epsilon)


def _find_worst(
    accountant: Accountant, groups: dict[str, list[Release]], delta: float, known: dict[Cost, Bound]
) -> tuple[str, Bound]:
    """The sender whose releases cost most, and what they cost; "" where no line speaks of anybody."""
    sender, worst = "", NOTHING
    costs = _find_costliest(groups)
    new = {cost: groups[name] for name, cost in costs.items() if cost not in known}
    known.update(zip(new, _compute_bounds(accountant, list(new.values()), delta), strict=True))
    for name, cost in costs.items():
        if not sender or known[cost].epsilon > worst.epsilon:
            sender, worst = name, known[cost]
    return sender, worst


def _compute_bounds(accountant: Accountant, groups: Sequence[Sequence[Release]], delta: float) -> list[Bound]:
    """What each of these costs: many in one process, each alone where one of them goes past a cap."""
    caps = accountant.config
    if len(groups) > FEW and isinstance(caps, Numerical.Config):
        with contextlib.suppress(Exceeded):
            return call(compute_in_turn, caps.seconds * len(groups), caps.gigabytes, accountant, groups, delta)
    return compute_in_turn(accountant, groups, delta)


def _describe_noised_alone(
    accountant: Accountant, groups: dict[str, list[Release]], delta: float, known: dict[Cost, Bound]
) -> str:
    """What would be left of the loss if nothing were released in clear, as a sentence."""
    noised = {name: kept for name, group in groups.items() if (kept := [r for r in group if r.noise_multiplier])}
    if not noised:
        return ""
    epsilon = _find_worst(accountant, noised, delta, known)[1].epsilon
    if not math.isfinite(epsilon):
        return ""
    return f"The noised releases alone would cost {round_up(epsilon):g}, as the ledger declares."


def _find_costliest(groups: dict[str, list[Release]]) -> dict[str, Cost]:
    """One sender of each cost that another one's does not contain, with their costs.

    A bound never falls when a draw is added, or a release to a draw, so the others cannot be the worst. Linear in
    the senders: each is compared with the longest of those that make the same draws, other numbers of them, and
    with a few of those that release most.
    """
    alike: dict[frozenset[object], list[tuple[str, Counter[Draw]]]] = defaultdict(list)
    for name, group in groups.items():
        mine = count_draws(group)
        alike[frozenset(mine)].append((name, mine))
    found: dict[Cost, tuple[str, Counter[Draw]]] = {}
    for same in alike.values():
        same.sort(key=lambda pair: (-pair[1].total(), pair[0]))
        longest = same[0][1]
        for name, mine in same:
            if mine is longest or not mine <= longest:
                found.setdefault(frozenset(mine.items()), (name, mine))
    kept: dict[str, tuple[Cost, Counter[Draw]]] = {}
    for cost, (name, mine) in sorted(found.items(), key=lambda item: (-_count_releases(item[1][1]), item[1][0])):
        if not any(covers(more, mine) for _, more in islice(kept.values(), COMPARED)):
            kept[name] = cost, mine
    return {name: cost for name, (cost, _) in kept.items()}


def _count_releases(draws: Counter[Draw]) -> int:
    return sum(n * sum(times for _, times in draw) for draw, n in draws.items())


def round_up(epsilon: float, digits: int = 3) -> float:
    """Up to so many significant digits: a bound that is rounded down is no bound."""
    return _round_digits(epsilon, digits, ROUND_CEILING)


def round_down(epsilon: float, digits: int = 3) -> float:
    """Down to so many significant digits: a lower bound that is rounded up is none."""
    return _round_digits(epsilon, digits, ROUND_FLOOR)


def _round_digits(epsilon: float, digits: int, rounding: str) -> float:
    if epsilon == 0 or not math.isfinite(epsilon):
        return epsilon
    exact = Decimal(repr(float(epsilon)))
    return float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), rounding))


def highest_tpr(epsilon: float, delta: float, fpr: float) -> float:
    """No membership attack has a higher true-positive rate at that false-positive rate.

    Kairouz, Oh, Viswanath. arXiv:1311.0776, Thm 2.1: both error trade-offs of (epsilon, delta)-DP.
    """
    grown = math.inf if epsilon > 700 else math.exp(epsilon) * fpr + delta
    return max(0.0, min(1.0, grown, 1 - math.exp(-epsilon) * (1 - delta - fpr)))


def _list_assumptions(unit: Protected, group: Sequence[Release], bound: Bound, sender: str) -> str:
    if math.isinf(bound.epsilon):
        return ""
    total = sum(r.count for r in group)
    count = "1 release" if total == 1 else f"all {total:,} releases"
    parts = [f"{count} of one {unit} in the ledger"]
    parts += [held] if (held := describe_holders(sender, unit)) else []
    levels = sorted({f"{_NOISE[r.mechanism]} of multiplier {r.noise_multiplier:.3g}" for r in group})
    parts.append(_join_few(levels))
    parts += _describe_joint_noise(group)
    clips = sorted({r.clipped for r in group if r.clipped})
    parts.append(f"clipped {_join_few(clips)}" if clips else "no clip is recorded in the ledger")
    rates = sorted({(r.sampling, r.sample_rate, MEMBER in r.participation_seen_by) for r in group})
    parts += [
        f"{_DRAWN[how].format(group[0].unit)} with probability {q:.3g}, hidden from the observer"
        f"{' in rounds that it is not drawn for itself' if told else ''}"
        for how, q, told in rates
        if how in _DRAWN and q < 1
    ]
    return "; ".join(parts)


def _describe_joint_noise(group: Sequence[Release]) -> list[str]:
    """Who makes noise together, and how many of them collude with the observer; least first."""
    made = sorted({(r.aggregated, r.colluders) for r in group if r.shares and r.mechanism != "none"})
    return [
        f"noise that {left} honest client{'s make together' if left > 1 else ' makes'}, "
        f"with {colluders or 'no'} colluder{'' if colluders == 1 else 's'}"
        for left, colluders in made[:1]
    ]


def _join_few(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - 3} more" if len(texts) > 3 else ""
    return ", ".join(texts[:3]) + more


def _write_note(bound: Bound, sender: str, delta: float) -> str:
    parts = [text for text in (bound.note, bound.disagrees) if text]
    if bound.lower is not None and math.isfinite(bound.epsilon):
        parts.append(f"No analysis can go below {bound.lower:.3g} here.")
    if math.isfinite(bound.epsilon) and sender:
        ceiling = highest_tpr(bound.epsilon, delta, 0.01)
        if ceiling < 0.9995:
            parts.append(
                f"At 1 % false positives no membership attack can exceed {_format_up(ceiling)} true positives."
            )
        else:
            parts.append("So large a bound excludes no membership attack at 1 % false positives.")
    return " ".join(parts)


def _format_up(fraction: float) -> str:
    return f"{round_up(100 * fraction):g} %"
