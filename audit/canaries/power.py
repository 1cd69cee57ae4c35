"""Which bounds would notice that noise is missing, at these numbers, and how many canaries the others take.

For Gaussian noise of half the declared spread, every bound of a panel is computed at the mistakes it is
expected to see: scores are N(0, 1) where a canary is out and N(mu, 1) where it is in, with twice the declared
mu. An audit has power where that bound lies above the declared one, so about every second faulty run is found.
Audits of one run (arXiv:2305.08846) are loose by more than that, and f-DP in one run takes thousands of canaries.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedaudit.audit.accounting.accountants.exact import gaussian
from fedaudit.audit.canaries import f_dp, one_run, per_round, residuals, two_point
from fedaudit.audit.canaries.game import Played
from fedaudit.audit.canaries.scores import SHARES, Errors, Guesses

SHORT = 2.0  # times less noise than declared
MOST = 51_200  # canaries that are thought of
Audit = Callable[[int], bool]  # whether so many canaries would refute


class Game(NamedTuple):
    """All of a game that power depends on: many kinds of a run share it."""

    step: float  # mu of one release
    rounds: int
    hidden: bool
    central: bool


def needed(played: Played, canaries: int, delta: float, alpha: float) -> dict[str, int | None]:
    """Audit -> canaries with which it has power, in doublings of those there are; None: more than MOST."""
    game = Game(1 / played.declared.noise_multiplier, played.rounds, played.hidden, played.central)
    return _needed(game, canaries, delta, alpha)


@lru_cache(maxsize=32)
def _needed(game: Game, canaries: int, delta: float, alpha: float) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for name, audit in _audits(game, delta, alpha).items():
        many: int | None = canaries
        while many is not None and not audit(many):
            many = many * 2 if many * 2 <= MOST else None
        found[name] = many
    return found


def sentence(played: Played, canaries: int, delta: float, alpha: float) -> str:
    """The same for people; empty for noise that is not Gaussian."""
    if played.declared.mechanism != "gaussian" or not played.declared.noise_multiplier:
        return ""
    found = needed(played, canaries, delta, alpha)
    now = [name for name, many in found.items() if many == canaries]
    more = [f"{name} {many:,}" for name, many in found.items() if many is not None and many > canaries]
    never = [name for name, many in found.items() if many is None]
    enough = "only the tests below would refute it."
    if now:
        enough = f"these bounds would refute it: {_and(now)}."
    start = f"Were half of the declared noise missing, at {canaries:,} canaries and {played.rounds:,} round"
    parts = [f"{start}{'s' if played.rounds > 1 else ''} {enough}"]
    if more:
        parts.append(f"It would take this many canaries: {_and(more)}.")
    if never:
        parts.append(f"With {MOST:,} canaries it would still not be seen by: {_and(never)}.")
    return " ".join(parts)


def _audits(game: Game, delta: float, alpha: float) -> dict[str, Audit]:
    step, rounds, hidden, central = game
    declared = step * math.sqrt(rounds)
    upper = gaussian(declared, delta)

    def seen(canaries: int) -> float:
        """mu of one canary's whole run, to whom reads what there is to be read."""
        crowd = canaries if hidden and not central else 1
        return SHORT * declared / math.sqrt(crowd)

    def in_one_run(refutes: Callable[[Guesses], bool]) -> Audit:
        return lambda n: any(refutes(_guesses(n // 2, share, seen(n))) for share in SHARES)

    def spread(canaries: int) -> bool:
        values = canaries * rounds
        _, high = residuals.spread_interval(np.full(values, 1 / SHORT), 2 * alpha)
        return high < 1

    def errors(canaries: int, mu: float, trials: int) -> Errors:
        half = canaries * trials // 2
        wrong = round(half * _below(-mu / 2))
        return Errors(false_positives=wrong, false_negatives=wrong, inside=half, outside=half)

    found: dict[str, Audit] = {}
    if not hidden or central:
        found["residuals and replay"] = spread
    if not hidden:
        found["steps, composed"] = lambda n: (
            per_round.mu(errors(n, SHORT * step, rounds), alpha) * math.sqrt(rounds) > declared
        )
        found["two-point game"] = lambda n: two_point.epsilon(errors(n, seen(n), 1), delta, alpha) > upper
    found["f-DP in one run"] = in_one_run(lambda g: f_dp.refuted(g, declared, alpha))
    found["one run"] = in_one_run(lambda g: one_run.p_value(g, upper, delta) <= alpha)
    return found


def _guesses(kept: int, share: float, mu: float) -> Guesses:
    """Expected right guesses, on that share of the canaries: half of them above a threshold, half below."""
    from scipy import optimize

    made = 2 * max(1, round(share * kept / 2))
    tail = min(0.5, made / 2 / kept)

    def excess(t: float) -> float:
        return (_below(mu - t) + _below(-t)) / 2 - tail

    t = float(optimize.brentq(excess, mu / 2 - 40, mu + 40)) if tail < 0.5 else mu / 2
    inside, outside = _below(mu - t), _below(-t)
    right = inside / (inside + outside) if inside + outside > 0 else 1.0
    return Guesses(canaries=kept, made=made, right=round(made * right))


def _below(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


def _and(names: list[str]) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)
