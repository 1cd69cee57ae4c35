"""Budgets: for each observer and unit, the worst client's bound from each accountant.

Losses of different clients concern different data, so they are never summed; the largest counts.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING, Decimal

from audit import catalog
from audit.accountant import Accountant, Bound, seen_as
from audit.config import PluginSpec
from fl.ledger import Adjacency, Release, Unit
from fl.plugin import configure
from reports.result import Budget

# What each observer reads: the roles named in Release.observers. The server makes the broadcasts
# and the released model, so it knows what clients and the public get; a client also gets the latter.
SEES = {
    "server": {"server", "client", "public"},
    "another client": {"client", "client/*", "public"},
    "public": {"public"},
}

_NOISE = {"gaussian": "Gaussian", "laplace": "Laplace", "discrete_laplace": "discrete Laplace"}


def budgets(
    releases: Sequence[Release], accountants: Sequence[PluginSpec], delta: float
) -> list[Budget]:
    """Bounds towards the server, another client and the public, for every unit the noise speaks of."""
    noised: set[Unit] = {r.unit for r in releases if r.noise_multiplier}
    units = sorted(noised) or ["client"]
    found = []
    for number, spec in enumerate(accountants):
        cls = catalog.load("accountants", spec.name)
        accountant: Accountant = configure(cls, spec.settings, f"accountants[{number}]")
        for observer, reads in SEES.items():
            visible = [r for r in releases if _visible(r, reads)]
            found += [_budget(accountant, observer, unit, visible, delta) for unit in units]
    return found


def _visible(release: Release, reads: set[str]) -> bool:
    """ "client/3" among the observers is one certain client, who may be the adversary."""
    for observer in release.observers:
        role, _, index = observer.partition("/")
        if (f"{role}/*" if index else role) in reads:
            return True
    return False


def _budget(
    accountant: Accountant, observer: str, unit: Unit, visible: Sequence[Release], delta: float
) -> Budget:
    replaced = any(r.adjacency == "replace_one" for r in visible if r.noise_multiplier)
    adjacency: Adjacency = "replace_one" if replaced else "add_or_remove_one"
    if adjacency not in accountant.card.adjacency:
        adjacency = accountant.card.adjacency[0]
    groups = per_sender([seen_as(r, unit, adjacency) for r in visible])
    bounds: dict[frozenset[object], Bound] = {}  # clients with equal releases cost the same
    sender, worst = "", Bound(epsilon=0.0)
    for name, group in groups.items():
        key = frozenset(Counter(_terms(r) for r in group).items())
        if key not in bounds:
            bounds[key] = accountant.epsilon(group, delta)
        if not sender or bounds[key].epsilon > worst.epsilon:
            sender, worst = name, bounds[key]
    group = groups.get(sender, [])
    return Budget(
        observer=observer, unit=unit, adjacency=adjacency, delta=delta,
        epsilon_upper=rounded_up(worst.epsilon), accountant=accountant.card.title,
        releases=len(group), assumes=_assumes(group, worst), spoiled_by=list(worst.spoiled_by),
        note=_note(worst, sender, delta),
    )  # fmt: skip


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


def _terms(r: Release) -> tuple[object, ...]:
    """All that an accountant may look at."""
    spoils = "" if r.noise_multiplier else r.kind
    return (
        r.mechanism, r.noise_std, r.sensitivity, r.unit, r.adjacency, r.sampling, r.sample_rate, spoils,
    )  # fmt: skip


def rounded_up(epsilon: float, digits: int = 3) -> float:
    """Up to so many significant digits: a bound that is rounded down is no bound."""
    if epsilon == 0 or not math.isfinite(epsilon):
        return epsilon
    exact = Decimal(repr(epsilon))
    return float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), ROUND_CEILING))


def highest_tpr(epsilon: float, delta: float, fpr: float) -> float:
    """No membership attack has a higher true-positive rate at that false-positive rate.

    Kairouz, Oh, Viswanath. arXiv:1311.0776, Thm 2.1: both error trade-offs of (epsilon, delta)-DP.
    """
    grown = math.inf if epsilon > 700 else math.exp(epsilon) * fpr + delta
    return max(0.0, min(1.0, grown, 1 - math.exp(-epsilon) * (1 - delta - fpr)))


def _assumes(group: Sequence[Release], bound: Bound) -> str:
    if not group:
        return "every release is in the ledger"
    if math.isinf(bound.epsilon):
        return ""
    count = "1 release" if len(group) == 1 else f"all {len(group):,} releases"
    parts = [f"{count} of one {group[0].unit} in the ledger"]
    levels = sorted({f"{_NOISE[r.mechanism]} noise of multiplier {r.noise_multiplier:.3g}"
                     for r in group})  # fmt: skip
    parts.append(_few(levels))
    clips = sorted({r.clipped for r in group if r.clipped})
    parts.append(f"clipped {_few(clips)}" if clips else "no clip is recorded in the ledger")
    return "; ".join(parts)


def _few(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - 3} more" if len(texts) > 3 else ""
    return ", ".join(texts[:3]) + more


def _note(bound: Bound, sender: str, delta: float) -> str:
    parts = [bound.note] if bound.note else []
    if math.isfinite(bound.epsilon) and sender:
        ceiling = highest_tpr(bound.epsilon, delta, 0.01)
        if ceiling < 0.9995:
            parts.append(
                f"At 1 % false positives no membership attack can exceed {_percent_up(ceiling)} "
                "true positives."
            )
        else:
            parts.append("So large a bound excludes no membership attack at 1 % false positives.")
    return " ".join(parts)


def _percent_up(fraction: float) -> str:
    return f"{rounded_up(100 * fraction):g} %"
