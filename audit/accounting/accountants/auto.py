"""Auto: the tightest accountant that is sound for the releases, checked by two others.

The report names the accountant that was chosen. The policy, of releases without what an observer may not be
credited with (audit/accounting/accountant.py, as_observed):

    all Gaussian, or one release, without sampling     exact: closed form
    Gaussian, drawn in a fixed number, replace-one     wor_pld
    everything else                                    pld
    Gaussian, more terms or less delta than pld can    rdp as well
    no engine came to an end                           exact without credit for sampling: still a bound

Two engines of dp-accounting look at the same releases where they can: its RDP must not be below, and its own PLD,
which shares neither our curves nor our composition, must come to the same. Where they contradict each other, the
bound says so.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from pydantic import Field

from fedaudit.audit.accounting.accountant import Accountant, Bound, Card, Numerical, compute_apart
from fedaudit.audit.accounting.accountants import pld, rdp
from fedaudit.audit.accounting.accountants.exact import Exact, closed_form
from fedaudit.audit.accounting.accountants.pld import PLD
from fedaudit.audit.accounting.accountants.wor_pld import SIZED, WorPLD
from fedaudit.audit.accounting.child import Exceeded
from fedaudit.audit.accounting.terms import Terms, creditable, drop_sampling, terms
from fedaudit.fl.ledger import Release
from fedaudit.fl.runtime.settings import settings

LARGEST_CHECKED = 500.0  # the library takes a minute above
MOST_CHECKED = 16  # different terms, for the same reason


def choose_engine(counts: Terms, delta: float) -> type[Accountant]:
    """The tightest sound accountant for these terms."""
    if delta == 0 or not any(t.sampled for t in counts):
        gaussian = all(t.mechanism == "gaussian" for t in counts)
        if delta == 0 or gaussian or sum(counts.values()) <= 1:
            return Exact
    return WorPLD if any(t.sampling == SIZED for t in counts) else PLD


def tightest(counts: Terms, delta: float, config: Numerical.Config) -> Bound:
    """The least bound of the engines that apply; never above the closed form that credits no sampling."""
    counts = creditable(counts)
    whole = Bound(epsilon=closed_form(drop_sampling(counts), delta), engine=Exact.card.title)
    chosen = choose_engine(counts, delta)
    if chosen is Exact:
        return whole
    engine = chosen(config)
    assert isinstance(engine, Numerical)
    found = replace(engine.cost(counts, delta), engine=engine.card.title)
    if (found.inconclusive or len(counts) > pld.MOST_TERMS) and not rdp.explain_refusal(counts):
        other = replace(rdp.RDP(config).cost(counts, delta), engine=rdp.RDP.card.title)
        found = min(found, other, key=lambda b: b.epsilon)
    if found.inconclusive:
        return replace(whole, note=f"{found.note} Sampling is not credited instead.")
    if whole.epsilon <= found.epsilon:
        return whole
    return found


def cross_check(bound: Bound, counts: Terms, delta: float, config: Numerical.Config) -> Bound:
    """The bound with what the library's accountants say beside it, and how they contradict it where they do.

    An engine that refuses the terms or runs past its cap says nothing.
    """
    checkable = not rdp.explain_refusal(counts) and len(counts) <= MOST_CHECKED and delta >= PLD.least_delta
    if not (checkable and 0 < bound.epsilon < LARGEST_CHECKED):
        return bound
    try:
        others = compute_apart(_compute_others, config, counts, delta)
    except Exceeded:
        return bound
    note = f"{bound.note} Cross-check: RDP {others.renyi:.4g}, PLD of dp-accounting {others.pld:.4g}.".strip()
    checked = replace(bound, note=note, disagrees=contradiction(bound, others))
    if others.renyi < bound.epsilon:
        return replace(checked, epsilon=others.renyi, engine=rdp.RDP.card.title)
    return checked


class Others(NamedTuple):
    """epsilon by the library's accountants."""

    renyi: float
    pld: float


def _compute_others(counts: Terms, delta: float) -> Others:
    return Others(rdp.bound(counts, delta).epsilon, pld.library_bound(counts, delta))


def contradiction(bound: Bound, others: Others) -> str:
    """How two engines contradict a bound, as a sentence; empty where they do not."""
    against, slack = [], 1e-3 * bound.epsilon + 1e-3
    if others.renyi < bound.epsilon - slack:
        against.append(f"RDP bounds it by {others.renyi:.6g}")
    if abs(others.pld - bound.epsilon) > slack:
        against.append(f"PLD of dp-accounting puts it at {others.pld:.6g}")
    if not against:
        return ""
    return f"{bound.engine} gives {bound.epsilon:.6g}, while {' and '.join(against)}."


class Auto(Accountant):
    card = Card(
        title="Tightest that applies",
        source="exact, PLD or WOR-PLD",
        adjacency=("add_or_remove_one", "replace_one"),
    )

    @settings
    class Config(Numerical.Config):
        cross_check: bool = Field(
            default=True, description="whether dp-accounting's own RDP and PLD are computed as well, to compare"
        )

    def refuses(self, release: Release) -> str | None:
        return None  # what no engine can credit with sampling is counted in full

    def compose(self, releases: Sequence[Release], delta: float) -> Bound:
        counts = terms(releases)
        return tightest(counts, delta, self.config) if counts else Bound(epsilon=0.0)

    def cross_check(self, bound: Bound, releases: Sequence[Release], delta: float) -> Bound:
        if not self.config.cross_check:
            return bound
        return cross_check(bound, terms(releases), delta, self.config)
