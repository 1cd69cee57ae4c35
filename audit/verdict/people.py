"""Upper bounds on how many people a harm can reach: the statistics that clear, as rules of a policy demonstrate.

All people of a run are known, so a sample that reads every client bounds how many of these people are exposed; it
says nothing of other clients. The method is that by which a herd is declared free of a disease with an imperfect
test (Rogan, Gladen. Am. J. Epidemiol. 107, 1978, pp. 71-76; Cameron, Baldock. Prev. Vet. Med. 34, 1998, pp.
1-17): the attack is the test, planted leaks show its sensitivity, and held-out people its false alarms ("luck").
A bound covers leaks that are as visible as the planted ones, and no others.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from fedaudit.attacks.people import END, PeopleCount, Share
from fedaudit.attacks.stats import choose_threshold_rank
from fedaudit.fl.runtime.distributions import beta_isf, beta_ppf, betabinom_ppf, binom_cdf, binom_ppf
from fedaudit.fl.threats.threat import Aim

IntArray = NDArray[np.int64]
Floats = NDArray[np.float64]

SAMPLE = 0.03  # of the .05 that may be wrong: the draw of people, or their hits
FLAGGED = 0.04  # of membership: the hits; END is spent on the threshold
LEFT = 0.05  # of what a protection leaves: one share of planted people
LEAST_SEEN = 0.5  # of planted leaks, below which finding nothing means nothing
SETTLES = 0.95  # chance that so many people more settle a question in which nobody is exposed
MOST_HELD_OUT, HELD_OUT_STEP = 2_000, 50  # held-out people that are asked for
_REACH = 7  # standard deviations of a sum over a distribution; beyond lie 3e-12


@dataclass(frozen=True, kw_only=True)
class ExposureBound:
    """At most so many people are exposed by leaks as visible as the planted ones, at 95 % confidence.

    `reason` says why there is no bound, and is empty where there is one.
    """

    at_most: int | None
    people: int
    tested: int
    hits: int
    by: Literal["", "census", "sample", "plants"] = ""  # plants: those that the protections left
    sensitivity: float = 0.0  # lower end
    left: float | None = None  # share of people planted with the protections that can be hit, at most
    more: int | None = None  # people to test besides, for a tolerable bound; None: no number would do
    # where everybody was tested: people whom nobody trained on, for a threshold that would make it tolerable
    held_out: int | None = None
    reason: str = ""


def bound_people(
    hits: float, tested: int, people: int, *, luck: float, sensitivity: float, alpha: float = SAMPLE
) -> int:
    """The largest number of exposed people under which so few hits are not too rare.

    Parameters
    ----------
    hits : people who were hit, of those tested. Ties that count in part are rounded up.
    tested, people : people drawn at random, and all from whom they were drawn.
    luck : chance that an attack hits somebody who is not exposed, at least.
    sensitivity : chance that it hits somebody who is, beyond luck, at least.
    alpha : chance that the bound is too small.

    Returns
    -------
    The largest H with P(X <= hits | H) > alpha, where X = Bin(J, s + (1 - s) b) + Bin(tested - J, b) and J, the
    exposed among those tested, is hypergeometric. Raises ValueError where the numbers contradict each other.
    """
    _check(hits, tested, people)
    if sensitivity <= 0:
        return people  # whoever sees nothing excludes nothing
    most = math.ceil(hits)
    return _search_last(
        people, lambda exposed: _at_most(most, tested, people, exposed, luck, sensitivity) > alpha
    )


def bound_people_below(
    hits: float, tested: int, people: int, *, luck: float, sensitivity: float, alpha: float = SAMPLE
) -> int:
    """The smallest number of exposed people under which so many hits are not too rare; see `bound_people`."""
    _check(hits, tested, people)
    fewer = math.floor(hits) - 1

    def is_too_few(exposed: int) -> bool:
        return 1 - _at_most(fewer, tested, people, exposed, luck, sensitivity) <= alpha

    return _search_last(people, is_too_few) + 1 if is_too_few(0) else 0


def bound_sensitivity(planted: Mapping[int, Share]) -> float:
    """Lower 1 % end of the share of planted people whom an attack hits (Clopper, Pearson), over all clients.

    0 where that end is below half, or where fewer than half are hit at one client: an attack that is blind to one
    client's messages clears a leak in them, however well it works on the others'.
    """
    if any(p.hits < LEAST_SEEN * p.trials for p in planted.values()):
        return 0.0
    end = _lower_end(sum(planted.values(), Share()))
    return end if end >= LEAST_SEEN else 0.0


def bound_luck(luck: Share) -> float:
    """Lower 1 % end of the share of held-out people whom an attack hits; 0 where nobody was held out."""
    return _lower_end(luck)


def bound_left(left: Mapping[int, Share]) -> float:
    """Upper 5 % end of the share of people, planted with the protections, whom an attack still hits."""
    total = sum(left.values(), Share())
    return _upper_end(total.hits, total.trials, LEFT)


def bound_flagged(hits: int, tested: int, people: int, false_alarms: float) -> int:
    """At most so many people beyond `false_alarms` are flagged as members: upper 4 % end of the hits, net.

    The threshold is that of `choose_threshold_rank`, which spends the other 1 %. Raises ValueError where the
    numbers contradict each other.
    """
    _check(hits, tested, people)
    share = _upper_end(hits, tested, FLAGGED)
    return math.floor(people * max(0.0, share - false_alarms) / (1 - false_alarms))


def bound_by_privacy(epsilon: float, delta: float, luck: float) -> float:
    """Share of people who can be hit beyond luck under (epsilon, delta)-differential privacy, at most.

    An attack that hits a share `luck` without somebody's data hits at most e^epsilon luck + delta with them. The
    bound is worth as much as the epsilon: it must be a verified one.
    """
    if luck >= 1:
        return 0.0
    most = min(1.0, math.exp(min(epsilon, 700.0)) * luck + delta)
    return max(0.0, (most - luck) / (1 - luck))


def share_unseen(clients: int) -> float:
    """Share of other clients that may leak where none of so many clients did, at 95 % confidence."""
    return 1.0 if clients < 1 else 1 - 0.05 ** (1 / clients)


def bound_exposure(people: PeopleCount, aim: Aim, *, tolerable: float | None = None) -> ExposureBound:
    """How many people one attack leaves possibly exposed, or why it cannot say so.

    Clients of whom nobody was tested count whole. Where people were not drawn in proportion to their numbers, the
    client that was tested least decides, which is safe wherever the exposed are. Who stands behind a message of
    which every claim names somebody counts whole: nobody tried to claim more of it. An exact copy is in a message
    or is not: for exfiltration a census without a hit leaves nobody. `tolerable` is the share of people that the
    policy tolerates; `more` is counted for it.
    """
    held = {client: count for client, count in people.held.items() if count}
    tested = {client: len(people.tested.get(client, ())) for client in held}
    hits = sum(len(rows) for rows in people.hit.values())
    total, drawn = sum(held.values()), sum(tested.values())
    bare = ExposureBound(at_most=None, people=total, tested=drawn, hits=hits)
    sensitivity = bound_sensitivity(people.planted)
    if reason := _explain_missing(people, tested, sensitivity):
        return replace(bare, reason=reason)
    luck = bound_luck(people.luck)

    def bound(hits: int, tested: int, people_read: int) -> int:
        if people.false_alarms:
            return bound_flagged(hits, tested, people_read, people.false_alarms)
        if aim is Aim.EXFILTRATION and tested == people_read and not hits:
            return 0
        return bound_people(hits, tested, people_read, luck=luck, sensitivity=sensitivity)

    read = {client: count for client, count in held.items() if tested[client]}
    reached = sum(read.values())
    even = min((tested[c] * reached // read[c] for c in read), default=0)  # as if drawn in proportion
    at_most = bound(min(hits, even), even, reached) + total - reached
    by: Literal["census", "sample", "plants"] = "census" if drawn == total else "sample"
    left = bound_left(people.left) if people.left and held.keys() <= people.left.keys() else None
    if left is not None and left * total < at_most:
        at_most, by = math.floor(left * total), "plants"
    unclaimed = sum(people.unclaimed.values())
    at_most = min(total, at_most + unclaimed)
    more = None
    if tolerable is not None and not unclaimed:
        expected = people.luck.hits / people.luck.trials if people.luck.trials else people.false_alarms
        needed = count_needed_people(
            hits, even, total, lambda x, n: bound(x, n, total), most=tolerable * total, luck=expected
        )
        if needed is not None:
            more = sum(max(0, math.ceil(needed * held[c] / total) - tested[c]) for c in held)
    held_out = None
    if tolerable is not None and more is None and by == "census" and people.false_alarms:
        held_out = count_needed_held_out(total, people.false_alarms, tolerable)
        held_out = held_out if held_out and held_out > people.luck.trials else None
    return replace(bare, at_most=at_most, by=by, sensitivity=sensitivity, left=left, more=more, held_out=held_out)


def count_needed_held_out(people: int, false_alarms: float, tolerable: float) -> int | None:
    """How many held-out people must set a threshold, so that a census bounds the flagged by a share `tolerable`.

    So many settle it in 95 of 100 draws of held-out people if nobody is exposed; None where 2,000 would not.
    """
    for number in range(HELD_OUT_STEP, MOST_HELD_OUT + 1, HELD_OUT_STEP):
        rank = choose_threshold_rank(number, false_alarms)
        hits = betabinom_ppf(SETTLES, people, rank, number - rank + 1)
        if bound_flagged(hits, people, people, false_alarms) <= tolerable * people:
            return number
    return None


def count_needed_people(
    hits: int, tested: int, people: int, bound: Callable[[int, int], int], *, most: float, luck: float
) -> int | None:
    """How many people must be tested in all, so that at most `most` are bounded as exposed.

    `bound` says how many that are, of hits among those tested. So many settle it in 95 of 100 samples if nobody
    else is exposed; None where not even a census would.
    """

    def leaves_open(besides: int) -> bool:
        lucky = int(binom_ppf(SETTLES, besides, luck)) if besides else 0
        return bound(min(hits + lucky, tested + besides), tested + besides) > most

    if leaves_open(people - tested):
        return None
    return tested + (_search_last(people - tested, leaves_open) + 1 if leaves_open(0) else 0)


def _explain_missing(people: PeopleCount, tested: Mapping[int, int], sensitivity: float) -> str:
    """Why there is no bound, as a sentence; empty where there is one."""
    if not any(tested.values()):
        return "Nobody was tested."
    unplanted = [c for c in tested if tested[c] and not people.planted.get(c, Share()).trials]
    if unplanted:
        where = f"client {unplanted[0]}" if len(unplanted) == 1 else f"{len(unplanted)} of {len(tested)} clients"
        return f"No leak was planted through the code of {where}."
    if not sensitivity:
        total = sum(people.planted.values(), Share())
        blind = sum(p.hits < LEAST_SEEN * p.trials for p in people.planted.values())
        at = f", and fewer than half at {blind} of {len(people.planted)} clients" if blind else ""
        return f"The attack found {total.hits:,.3g} of {total.trials:,} planted leaks{at}: too few to rely on it."
    return ""


def _check(hits: float, tested: int, people: int) -> None:
    if not 0 <= hits <= tested <= people:
        raise ValueError(f"expected 0 <= hits <= tested <= people, got {hits:g}, {tested}, {people}")


def _lower_end(share: Share) -> float:
    """One-sided Clopper-Pearson limit at 1 %."""
    if share.hits <= 0:
        return 0.0
    return float(beta_ppf(END, share.hits, share.trials - share.hits + 1))


def _upper_end(hits: float, trials: int, alpha: float) -> float:
    return 1.0 if hits >= trials else float(beta_isf(alpha, hits + 1, trials - hits))


def _search_last(most: int, holds: Callable[[int], bool]) -> int:
    """The largest of 0..most at which a condition holds that fails from some number on; 0 where it never does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def _at_most(hits: int, tested: int, people: int, exposed: int, luck: float, sensitivity: float) -> float:
    """P(X <= hits): of the exposed J are tested, of these T seen, and luck hits some of the rest."""
    if hits < 0:
        return 0.0
    drawn, weight = _distribute_drawn(tested, people, exposed)
    reach = _REACH * math.sqrt(float(drawn[-1]) * sensitivity * (1 - sensitivity)) + _REACH
    fewest = max(0, min(hits, math.floor(drawn[0] * sensitivity - reach)))
    most = min(hits, int(drawn[-1]), math.ceil(drawn[-1] * sensitivity + reach))
    seen = np.arange(fewest, most + 1)
    if sensitivity < 1:
        missed = drawn[:, None] - seen
        log = _log_choose(drawn[:, None], np.minimum(seen, drawn[:, None]))
        log += seen * math.log(sensitivity) + np.maximum(missed, 0) * math.log1p(-sensitivity)
        chance = weight @ np.where(missed >= 0, np.exp(log), 0.0)
    else:
        chance = weight @ (drawn[:, None] == seen)
    return float(chance @ binom_cdf(hits - seen, tested - seen, luck))


def _distribute_drawn(tested: int, people: int, exposed: int) -> tuple[IntArray, Floats]:
    """How many of the exposed are among those tested, and how likely each number is."""
    share = exposed / people if people else 0.0
    middle = tested * share
    variance = middle * (1 - share) * (people - tested) / max(1, people - 1)
    reach = _REACH * math.sqrt(variance) + _REACH
    low = max(0, tested + exposed - people, math.floor(middle - reach))
    high = min(tested, exposed, math.ceil(middle + reach))
    drawn = np.arange(low, high + 1)
    log = _log_choose(exposed, drawn) + _log_choose(people - exposed, tested - drawn)
    return drawn, np.exp(log - _log_choose(people, tested))


def _log_choose(things: IntArray | int, chosen: IntArray | int) -> Floats:
    """log of the binomial coefficient; scipy's own distributions take a second for 100,000 people."""
    log: Floats = (
        scipy.special.gammaln(np.add(things, 1.0))
        - scipy.special.gammaln(np.add(chosen, 1.0))
        - scipy.special.gammaln(np.subtract(things, chosen) + 1.0)
    )
    return log
