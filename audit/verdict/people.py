"""How many people an attack hit because their data were in: at least L, and by a complete panel at most U.

H = people of this run whom an attack hits because their data were in = hits less lucky hits. Everything else is
fixed, so that what is uncertain is luck: how many of n members are hit by chance follows a beta-binomial law,
after y of z held-out people were. No limit lies below what anybody hits, so U is never smaller than L. U says
nothing of leaks that other attacks see, of another draw of the run, or of other clients. How bad it is follows
from the lower limit alone.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import scipy
from numpy.typing import NDArray

from fedaudit.attacks.people import END, GroupCount, PeopleCount, Share
from fedaudit.attacks.stats import FALSE_ALARMS
from fedaudit.fl.runtime.distributions import beta_ppf, betabinom_ppf, binom_cdf, binom_ppf
from fedaudit.fl.threats.threat import Harm
from fedaudit.reports.questions import count_allowed
from fedaudit.reports.result import Severity

MEDIUM = 3  # times the tolerable share, up to which it is of medium severity
HIGH = 0.5  # of all, up to which it is high
SLACK = 1e-9  # of a number, so that a limit that is met exactly is not exceeded by rounding
IntArray = NDArray[np.int64]
Floats = NDArray[np.float64]

ALPHA = 0.05  # chance that U is too small
DRAWN, LUCKY = 0.03, 0.02  # of it, where only some were tested: for the draw and the hits, and for luck
PANEL, OTHERS = 0.04, 0.01  # chance that some L of a reader is too large: shared by the panel, and by all others
UNLIKE = (
    "its held-out people are not of the clients' own distribution (give some: truth/heldout, or setting "
    "federation.holdout.own)"
)
GROUP = 4  # times the tolerable share of everybody may be hit in a group
LEAST_OF_GROUP = 3  # people who may be: of a hundred groups some have lucky hits
ALONE = 200  # people of a baseline that stands by itself; fewer are pooled with those held out
LEAST_HELD_OUT = 300  # people, below which luck alone keeps most clean audits from a limit
LEAST_SEEN = 0.5  # of planted people, below which an attack is blind
SETTLES = 0.95  # chance that so many people more settle a question in which nobody is exposed
MOST_HELD_OUT, HELD_OUT_STEP = 2_000, 50  # held-out people that are asked for
_REACH = 7  # standard deviations of a sum over a distribution; beyond lie 3e-12


@dataclass(frozen=True, kw_only=True)
class GroupBound:
    """Of one group of people: so many an attack hit at least, and at most, because their data were in."""

    name: str
    people: int
    at_least: int
    at_most: int


@dataclass(frozen=True, kw_only=True)
class PeopleBound:
    """Of one attack: so many people it hit at least, and at most, because their data were in.

    `reason` says why it limits nothing, and is empty where it does; who was hit counts all the same.
    """

    at_least: int
    at_most: int | None
    people: int
    tested: int
    hits: int
    net: float = 0.0  # hits less those by luck, of everybody if those who were not tested are like the others
    luck: float | None = None  # share of held-out people it hits; None: nobody was scored
    groups: tuple[GroupBound, ...] = ()
    more: int | None = None  # people to test besides, for a tolerable limit; None: no number would do
    # where everybody was tested: people whom nobody trained on, for a threshold that would make it tolerable
    held_out: int | None = None
    reason: str = ""


def count_allowed_in_group(people: int, tolerable: float) -> int:
    """How many people of a group may be hit: four times the tolerable share, and a few by luck in any group.

    Nobody, where nobody is tolerable.
    """
    return max(LEAST_OF_GROUP, count_allowed(people, min(1.0, GROUP * tolerable))) if tolerable else 0


def bound_below(hits: float, tested: int, luck: Share, alpha: float) -> int:
    """L: the fewest people who were hit because their data were in, wrong with a chance of `alpha`.

    `luck`: how many held-out people were at or above the threshold that members had to exceed.
    """
    _check(hits, tested, tested)
    if not tested:
        return 0
    lucky = betabinom_ppf(1 - alpha, tested, luck.hits + 1, max(luck.trials - luck.hits, 1e-9))
    return max(0, math.floor(hits) - lucky)


def bound_above(hits: float, tested: int, people: int, luck: Share, sensitivity: float = 1.0) -> int:
    """U: the most people who are hit because their data were in, wrong with a chance of `ALPHA`.

    Parameters
    ----------
    hits : people who were hit, of those tested. Ties that count in part are rounded up.
    tested, people : people drawn at random, and all from whom they were drawn.
    luck : held-out people.
    sensitivity : chance that another draw of the run shows somebody who is exposed; 1: this run alone is meant.

    Returns
    -------
    Of a census: the hits less the lucky ones. Else the largest H with P(X <= hits | H) > `DRAWN`, where
    X = Bin(J, s + (1 - s) b) + Bin(tested - J, b) and J, the exposed among those tested, is hypergeometric.
    Raises ValueError where the numbers contradict each other.
    """
    _check(hits, tested, people)
    most = math.ceil(hits)
    if sensitivity >= 1 and tested == people:
        lucky = betabinom_ppf(ALPHA, tested, max(luck.hits, 1e-9), luck.trials - luck.hits + 1) if tested else 0
        return max(0, most - lucky)
    rate = float(beta_ppf(LUCKY, luck.hits, luck.trials - luck.hits + 1)) if luck.hits > 0 else 0.0
    return _search_last(
        people, lambda exposed: _at_most(most, tested, people, exposed, rate, sensitivity) > DRAWN
    )


def bound_sensitivity(planted: Share) -> float:
    """Lower 1 % end of the share of planted people whom an attack hits (Clopper, Pearson); 0 below half."""
    if planted.hits <= 0:
        return 0.0
    end = float(beta_ppf(END, planted.hits, planted.trials - planted.hits + 1))
    return end if end >= LEAST_SEEN else 0.0


def list_baselines(luck: Share, controls: Sequence[Share] = ()) -> list[Share]:
    """Held-out people, and each negative control of `ALONE` people or more; smaller ones are pooled with them.

    L takes the unluckiest of these, and U the luckiest: no control silences an attack.
    """
    pooled = sum((c for c in controls if c.trials < ALONE), luck)
    return [pooled, *(c for c in controls if c.trials >= ALONE)]


def share_alpha(*, is_panel: bool, looks: int, place: int = 0) -> float:
    """How likely L of one attack on one kind may be too large: in one of 20 audits any of one reader's is.

    Parameters
    ----------
    looks : of the panel, or of all other attacks that there are, as fixed by what is sent and not by what ran.
    place : of an attack of the owner's own, counted from 1; 0: it comes with fedaudit.
    """
    if is_panel:
        return PANEL / max(1, looks)
    return (OTHERS / (place * (place + 1)) if place else OTHERS) / (2 * max(1, looks))


def bound_by_privacy(epsilon: float, delta: float, luck: float) -> float:
    """Share of people who can be hit beyond luck under (epsilon, delta)-differential privacy, at most.

    An attack that hits a share `luck` without somebody's data hits at most e^epsilon luck + delta with them, and
    spares at least e^-epsilon (1 - delta - luck). The bound is worth as much as the epsilon: it must be verified.
    """
    if luck >= 1:
        return 0.0
    raised = min(epsilon, 700.0)
    most = min(1.0, math.exp(raised) * luck + delta, 1 - math.exp(-raised) * (1 - delta - luck))
    return max(0.0, (most - luck) / (1 - luck))


def find_luck(harm: Harm, clients: int) -> float:
    """The luck of a harm: the chance to hit somebody without their data.

    One in a hundred is flagged or named by chance, and one in ten at the lower threshold; a fact about a
    client is a bit, which half of all guesses tell; a message is of each client alike.
    """
    if harm in (Harm.ATTRIBUTE, Harm.CLIENT_FACT):
        return 0.5
    if harm is Harm.LINKAGE:
        return 1 / max(1, clients)
    return FALSE_ALARMS.get(harm, FALSE_ALARMS[Harm.MEMBERSHIP])


def share_unseen(clients: int) -> float:
    """Share of other clients that may leak where none of so many clients did, at 95 % confidence."""
    return 1.0 if clients < 1 else 1 - 0.05 ** (1 / clients)


def bound_people(people: PeopleCount, *, alpha: float, tolerable: float | None = None) -> PeopleBound:
    """How many people one attack hit at least and at most, or why it cannot say the latter.

    Clients of whom nobody was tested count whole. Where people were not drawn in proportion to their numbers, the
    client that was tested least decides, which is safe wherever the exposed are. Who stands behind a message of
    which every claim names somebody counts whole: nobody tried to claim more of it. `alpha` is that of the lower
    limits, half of it for everybody and half shared by the groups; `tolerable` is the share of people that the
    policy tolerates; `more` is counted for it. Where held-out people are of another distribution, members may
    score higher whatever was learnt of them, and nothing is known either way. Where the values of each row say
    how likely a claim is right by chance, that counts as well: held-out people are too few to say so of one row.
    """
    held = {client: count for client, count in people.held.items() if count}
    tested = {client: len(people.tested.get(client, ())) for client in held}
    hits = sum(len(rows) for rows in people.hit.values())
    total, drawn = sum(held.values()), sum(tested.values())
    told = _bound_by_values(people, total, alpha / 2)
    if not people.is_alike:
        return PeopleBound(at_least=told, at_most=None, people=total, tested=drawn, hits=hits, reason=UNLIKE)
    baselines = list_baselines(people.luck, people.controls)
    at_least = max(told, min(bound_below(hits, drawn, b, alpha / 2) for b in baselines))
    groups = tuple(_bound_group(g, baselines, alpha / (2 * len(people.groups))) for g in people.groups)
    bare = PeopleBound(at_least=at_least, at_most=None, people=total, tested=drawn, hits=hits, groups=groups)
    if not drawn:
        return replace(bare, reason="nobody was tested")
    if not people.luck.trials:
        return replace(bare, reason="no held-out person was scored, so that its luck is not known")
    rate = people.luck.hits / people.luck.trials
    bare = replace(bare, net=max(at_least, total / drawn * (hits - drawn * rate)), luck=rate)
    bare = replace(bare, reason=_explain_blindness(people))

    def bound(hits: int, tested: int, people_read: int) -> int:
        return max(bound_above(hits, tested, people_read, b) for b in baselines)

    read = {client: count for client, count in held.items() if tested[client]}
    reached = sum(read.values())
    even = min((tested[c] * reached // read[c] for c in read), default=0)  # as if drawn in proportion
    unclaimed = sum(people.unclaimed.values())
    at_most = min(total, bound(min(hits, even), even, reached) + total - reached + unclaimed)
    bounded = replace(bare, at_most=max(at_least, at_most))
    if tolerable is None or unclaimed:
        return bounded
    allowed = count_allowed(total, tolerable)
    needed = count_needed_people(hits, even, total, lambda x, n: bound(x, n, total), most=allowed, luck=rate)
    if needed is not None:
        more = sum(max(0, math.ceil(needed * held[c] / total) - tested[c]) for c in held)
        return replace(bounded, more=more)
    held_out = count_needed_held_out(total, rate, allowed) if drawn == total else None
    return replace(bounded, held_out=held_out if held_out and held_out > people.luck.trials else None)


def _bound_by_values(people: PeopleCount, total: int, alpha: float) -> int:
    """Those told by their values less whom luck hits of such, wrong with a chance of `alpha`."""
    if not people.told or not people.by_chance:
        return people.told
    return max(0, people.told - int(binom_ppf(1 - alpha, total, min(1.0, people.by_chance / total))))


def _bound_group(group: GroupCount, everybody: Sequence[Share], alpha: float) -> GroupBound:
    """Of a group by its own luck: a class that always scores high accuses nobody of being exposed.

    Where nobody held out is of the group, nothing is known from below; from above, luck is that of everybody.
    """
    own = list_baselines(group.luck) if group.luck.trials else []
    at_least = min((bound_below(group.hits, group.tested, b, alpha) for b in own), default=0)
    at_most = max(bound_above(group.hits, group.tested, group.tested, b) for b in own or everybody)
    return GroupBound(name=group.name, people=group.tested, at_least=at_least, at_most=max(at_least, at_most))


def count_needed_held_out(people: int, rate: float, most: int) -> int | None:
    """How many held-out people must set a threshold of that rate, so that a census limits the flagged by `most`.

    So many settle it in 95 of 100 draws of held-out people if nobody is exposed; None where 2,000 would not.
    """
    for number in range(HELD_OUT_STEP, MOST_HELD_OUT + 1, HELD_OUT_STEP):
        rank = math.ceil(rate * number)
        hits = betabinom_ppf(SETTLES, people, max(rank, 1e-9), number - rank + 1)
        if bound_above(hits, people, people, Share(hits=rank, trials=number)) <= most:
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


def _explain_blindness(people: PeopleCount) -> str:
    """Where an attack missed people who were planted for it, in words; empty where it was not seen to."""
    total = sum(people.planted.values(), Share())
    blind = sum(_misses_most(p) for p in people.planted.values())
    if not total.trials or (not blind and bound_sensitivity(total)):
        return ""
    at = f", and fewer than half at {blind} of {len(people.planted)} clients" if blind else ""
    return f"it is blind here: it found {total.hits:,.3g} of {total.trials:,.3g} planted people{at}"


def _misses_most(planted: Share) -> bool:
    """Whether fewer than half of such people are hit, by the upper 1 % end: of a few people chance takes some."""
    return float(beta_ppf(1 - END, planted.hits + 1, planted.trials - planted.hits)) < LEAST_SEEN


def _check(hits: float, tested: int, people: int) -> None:
    if not 0 <= hits <= tested <= people:
        raise ValueError(f"expected 0 <= hits <= tested <= people, got {hits:g}, {tested}, {people}")


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


def rate(at_least: float, total: float, tolerable: float, *, is_mild: bool = False) -> Severity:
    """Severity where at least so many of all are hit, and a share of all is tolerable.

    Where nobody is tolerable, somebody is critical. What is mild is of medium severity at most.
    """
    if at_least <= 0:
        return Severity.NONE
    if at_least <= tolerable * total + SLACK:
        return Severity.LOW
    if is_mild or (tolerable > 0 and at_least <= MEDIUM * tolerable * total + SLACK):
        return Severity.MEDIUM
    if tolerable > 0 and at_least <= HIGH * total + SLACK:
        return Severity.HIGH
    return Severity.CRITICAL


class Group(Protocol):
    """A group of people, of whom so many are hit at least."""

    @property
    def people(self) -> int: ...

    @property
    def at_least(self) -> int: ...


def rate_people(
    at_least: int, people: int, groups: Iterable[Group], tolerable: float, *, is_mild: bool = False
) -> Severity:
    """Severity of what is done to everybody, or to the group of which more than is tolerable of one are hit."""
    rated = [rate(at_least, people, tolerable, is_mild=is_mild)]
    for g in groups:
        if g.at_least > (allowed := count_allowed_in_group(g.people, tolerable)):
            rated.append(rate(g.at_least, g.people, allowed / g.people, is_mild=is_mild))
    return max(rated, key=lambda s: s.rank)
