"""What a claim assumes, and whether it holds: each assumption is checked, assumed or contradicted.

Most follow from the numbers: what the cited formula needs, what is stated, how the actual setting differs from
the claimed one. The others are the reviewer's, in the file of claims.
"""

from typing import Literal

from fedaudit.audit.accounting.formulas import classical
from fedaudit.audit.accounting.lints.numbers import MOST_DELTA
from fedaudit.audit.claims.claim import Claim
from fedaudit.audit.claims.setting import Setting
from fedaudit.reports.format import number
from fedaudit.reports.result import ClaimCondition

SAMPLED = {
    "poisson": "Each unit takes part by an independent coin that the observer cannot see",
    "fixed_without_replacement": "A fixed number is drawn anew each time, and the observer cannot see who",
    "shuffle": "Batches are shuffled anew each epoch, and the observer cannot see who is in which",
}


def conditions(claim: Claim) -> list[ClaimCondition]:
    return [*_check_formula(claim), *_check_statements(claim), *_check_settings(claim), *_list_reviewers(claim)]


def _check_formula(claim: Claim) -> list[ClaimCondition]:
    """What the formula that the claim cites needs."""
    found: list[ClaimCondition] = []
    s = claim.setting("claimed") or claim.judged
    delta, promised = claim.delta(s), claim.promise.epsilon
    if claim.theorem == "classical" and s.noise and s.sensitivity and 0 < delta < 1:
        given = classical(s.noise / s.sensitivity, delta)
        if promised is not None:
            found.append(
                _make_condition(
                    "The formula gives the epsilon that is claimed",
                    given <= promised * (1 + 1e-4),
                    f"it gives {given:.5g}, the claim says {promised:g}",
                )
            )
        stated = given if promised is None else promised
        found.append(
            _make_condition(
                "Epsilon is below 1, where the formula is proved", stated < 1, f"epsilon is {stated:.4g}"
            )
        )
    if claim.theorem == "central_limit":
        found.append(_make_condition("The formula is a bound", False, "a central limit errs in both directions"))
    return found


def _check_statements(claim: Claim) -> list[ClaimCondition]:
    found: list[ClaimCondition] = []
    promised = claim.promise
    if claim.units is not None and promised.epsilon is not None:
        because = f"delta is {promised.delta:g}, 1 / {claim.units:,} is {1 / claim.units:.2g}"
        found.append(
            _make_condition("delta is below 1 / the number of units", promised.delta < 1 / claim.units, because)
        )
    if promised.delta:
        because = f"delta is {number(promised.delta)}; at 1 every mechanism is private"
        found.append(
            _make_condition("delta is small enough to promise anything", promised.delta < MOST_DELTA, because)
        )
    found.append(_make_condition("The protected unit is stated", claim.unit != "unstated", f"it is {claim.unit}"))
    because = f"they are {claim.adjacency.replace('_', ' ')}"
    found.append(_make_condition("Neighbouring data sets are stated", claim.adjacency != "unstated", because))
    if (most := max(claim.releases.values())) > 1:
        because = f"{'it counts' if claim.composes else 'the claim speaks of one; there are'} {most:,}"
        found.append(_make_condition("All releases are counted", claim.composes, because))
    return found


def _check_settings(claim: Claim) -> list[ClaimCondition]:
    """What the numbers of the claimed setting take for granted, and where the actual one differs."""
    found: list[ClaimCondition] = []
    claimed, actual = claim.setting("claimed") or claim.judged, claim.judged
    named = {c.text for c in claim.conditions}
    if claimed.sampling != "none":
        same = actual.describe_draw() == claimed.describe_draw()
        now = actual.describe_draw() or "not sampled"
        status: Literal["assumed", "contradicted"] = "assumed" if same else "contradicted"
        because = "the numbers cannot show it" if same else f"what is released is {now}"
        found.append(ClaimCondition(text=SAMPLED[claimed.sampling], status=status, because=because))
    if (bounded := _check_sensitivity(claim, claimed, actual)) and bounded.text not in named:
        found.append(bounded)
    if claimed.tree is not None:
        because = "a second time needs another tree"
        found.append(
            ClaimCondition(text="Each unit is in a tree at most once", status="assumed", because=because)
        )
    if (claimed.tuned is None) != (actual.tuned is None):
        because = f"the best of {(actual.tuned or claimed.tuned).mean:g} runs on average"  # type: ignore[union-attr]
        found.append(
            _make_condition("The choice among several runs is counted", claimed.tuned is not None, because)
        )
    return found


def _check_sensitivity(claim: Claim, claimed: Setting, actual: Setting) -> ClaimCondition | None:
    text = "The sensitivity is enforced"
    if claimed.epsilon is not None or claimed.rho is not None:
        because = "the noise behind it is not computed again"
        return ClaimCondition(text="One release costs what is stated", status="assumed", because=because)
    if claimed.sensitivity is None or not claimed.noise:
        return None
    measured = claim.setting("measured")
    for other, how in ((actual, "what is enforced is"), (measured, "a measurement reached")):
        if other is not None and (other.sensitivity is None or other.sensitivity > claimed.sensitivity):
            reached = "nothing" if other.sensitivity is None else f"{other.sensitivity:.5g}"
            because = f"{how} {reached}, the claim needs {claimed.sensitivity:.5g}"
            return ClaimCondition(text=text, status="contradicted", because=because)
    return ClaimCondition(text=text, status="assumed", because=f"a clip holds it at {claimed.sensitivity:.5g}")


def _list_reviewers(claim: Claim) -> list[ClaimCondition]:
    return [
        ClaimCondition(text=c.text, status=c.status, because=" ".join(c.because.split()))
        for c in claim.conditions
    ]


def _make_condition(text: str, holds: bool, because: str) -> ClaimCondition:
    return ClaimCondition(text=text, status="checked" if holds else "contradicted", because=because)
