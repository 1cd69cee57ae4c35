"""Engines: which accountant bounds what one observer saw, and whether a second one agrees.

The policy, in one place; what an observer may not be credited with is gone from the releases by then
(audit/accounting/accountant.py, as_observed):

    all Gaussian, or one release, without sampling     exact: closed form
    Gaussian, drawn in a fixed number, replace-one     wor_pld
    everything else                                    pld
    Gaussian, more terms or less delta than pld can    rdp as well
    no engine came to an end                           exact without credit for sampling: still a bound

Two other engines look at the same releases where they can: RDP must not be below, and the interval of
PRV must contain PLD's value. Where they contradict each other, the bound says so.
"""

from dataclasses import replace
from typing import NamedTuple

from fedaudit.audit.accounting.accountant import Accountant, Bound, Numerical, compute_apart
from fedaudit.audit.accounting.accountants import prv, rdp
from fedaudit.audit.accounting.accountants.exact import Exact, closed_form
from fedaudit.audit.accounting.accountants.pld import MOST_TERMS as MOST_OF_PLD
from fedaudit.audit.accounting.accountants.pld import PLD
from fedaudit.audit.accounting.accountants.prv import MOST_TERMS
from fedaudit.audit.accounting.accountants.wor_pld import SIZED, WorPLD
from fedaudit.audit.accounting.child import Exceeded
from fedaudit.audit.accounting.terms import Terms, creditable, drop_sampling

LARGEST_CHECKED = 500.0  # PRV's grid is too coarse above


def choose(counts: Terms, delta: float) -> type[Accountant]:
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
    chosen = choose(counts, delta)
    if chosen is Exact:
        return whole
    engine = chosen(config)
    assert isinstance(engine, Numerical)
    found = replace(engine.cost(counts, delta), engine=engine.card.title)
    if (found.inconclusive or len(counts) > MOST_OF_PLD) and not rdp.explain_refusal(counts, ""):
        other = replace(rdp.RDP(config).cost(counts, delta), engine=rdp.RDP.card.title)
        found = min(found, other, key=lambda b: b.epsilon)
    if found.inconclusive:
        return replace(whole, note=f"{found.note} Sampling is not credited instead.")
    if whole.epsilon <= found.epsilon:
        return whole
    return found


def cross_check(bound: Bound, counts: Terms, delta: float, config: Numerical.Config) -> Bound:
    """The bound with what RDP and PRV say beside it, and with their contradiction where there is one.

    An engine that refuses the terms or runs past its cap says nothing.
    """
    checkable = all(t.mechanism == "gaussian" and t.sampling != SIZED for t in counts)
    checkable = checkable and len(counts) <= MOST_TERMS and delta >= PLD.least_delta
    if not (checkable and 0 < bound.epsilon < LARGEST_CHECKED):
        return bound
    try:
        others = compute_apart(_compute_others, config, counts, delta)
    except Exceeded:
        return bound
    said = [f"RDP {others.renyi.epsilon:.4g}"]
    if others.interval is not None and others.interval.lower is not None:
        said.append(f"PRV {others.interval.lower:.4g} to {others.interval.epsilon:.4g}")
    note = f"{bound.note} Cross-check: {', '.join(said)}.".strip()
    checked = replace(bound, note=note, disagrees=contradiction(bound, others))
    if others.renyi.epsilon < bound.epsilon:
        return replace(checked, epsilon=others.renyi.epsilon, engine=rdp.RDP.card.title)
    return checked


class Others(NamedTuple):
    renyi: Bound
    interval: Bound | None  # None where PRV says nothing


def _compute_others(counts: Terms, delta: float) -> Others:
    try:
        interval = prv.bound(counts, delta)
    except (ArithmeticError, RuntimeError, ValueError):
        interval = None
    return Others(rdp.bound(counts, delta), interval)


def contradiction(bound: Bound, others: Others) -> str:
    """How two engines contradict a bound, as a sentence; empty where they do not."""
    against, slack = [], 1e-3 * bound.epsilon + 1e-3
    if others.renyi.epsilon < bound.epsilon - slack:
        against.append(f"RDP bounds it by {others.renyi.epsilon:.6g}")
    if others.interval is not None and others.interval.lower is not None:
        low, high = others.interval.lower, others.interval.epsilon
        if not low - slack <= bound.epsilon <= high + slack:
            against.append(f"PRV puts it at {low:.6g} to {high:.6g}")
    if not against:
        return ""
    return f"{bound.engine} gives {bound.epsilon:.6g}, while {' and '.join(against)}."
