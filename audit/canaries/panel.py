"""The panel: every audit that a game allows, with one failure rate for all of them together.

Half of alpha goes to the residual tests and half to the lower bounds, in equal parts, before anything is
looked at. So a correct run is refuted with probability alpha at most, whichever bound is the largest.
Tests by replay and of the ledger are certain and cost nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedaudit.attacks.stats import ALPHA
from fedaudit.audit.accounting.accountants.exact import Exact, gaussian
from fedaudit.audit.canaries import bayes, f_dp, one_run, one_shot, per_round, power, residuals, two_point
from fedaudit.audit.canaries.columns import Lower, Number
from fedaudit.audit.canaries.game import Played
from fedaudit.audit.canaries.residuals import Check
from fedaudit.audit.canaries.scores import Scored
from fedaudit.fl.ledger import Release

Observer = Literal["single uploads", "aggregate, informed", "aggregate, agnostic", "trained model"]
ADDITIVE = ("gaussian", "laplace", "discrete_laplace")
LOOKS = 7  # lower bounds of one panel, at most


@dataclass(frozen=True, kw_only=True)
class Shown:
    """One number, and to whom."""

    observer: Observer
    number: Number


@dataclass(frozen=True, kw_only=True)
class Panel:
    """What all audits of one game say together."""

    upper: float  # of the releases that the ledger lists for one canary
    single: float  # of one of them
    shown: tuple[Shown, ...]
    checks: tuple[Check, ...]
    alpha: float
    power: str = ""  # which of its audits would see noise that is missing, in words

    @property
    def refuting(self) -> list[Shown]:
        """Lower bounds above the upper bound."""
        return [s for s in self.bounds if s.number.epsilon > self.upper]

    @property
    def bounds(self) -> list[Shown]:
        return [s for s in self.shown if isinstance(s.number, Lower)]

    @property
    def failed(self) -> list[Check]:
        return [c for c in self.checks if not c.passed]

    @property
    def refuted(self) -> bool:
        return bool(self.refuting or self.failed)

    @property
    def best(self) -> Shown | None:
        """The largest lower bound; already paid for by the split of alpha."""
        return max(self.bounds, key=lambda s: s.number.epsilon, default=None)


def judge(
    played: Played,
    measured: float,
    delta: float,
    rng: np.random.Generator,
    alpha: float = ALPHA,
    certain: Sequence[Check] = (),
) -> Panel:
    """All audits of one game. `measured` is the sensitivity found by replay, `certain` its check."""
    said = played.declared
    tests = [*certain, listed(played)]
    if said.mechanism in ADDITIVE:  # the auditor reads single uploads, whoever else does not
        tests += residuals.checks(played.residuals, said.mechanism, said.noise_std, rng, alpha / 2)
    return Panel(
        upper=upper(played.releases, delta),
        single=upper([said], delta),
        shown=tuple(_shown(played, measured, delta, rng, alpha / 2 / LOOKS)),
        checks=tuple(tests),
        alpha=alpha,
        power=power.sentence(played, len(played.inside), delta, alpha / 2 / LOOKS),
    )


def upper(releases: Sequence[Release], delta: float) -> float:
    """The exact bound of noised releases of a client that takes part every time."""
    always = [replace(r, sampling="none", sample_rate=1.0) for r in releases if r.noise_multiplier]
    return Exact().epsilon(always, delta).epsilon


def listed(played: Played) -> Check:
    """Whether the ledger lists every release: a composition that leaves some out proves nothing."""
    found = sum(r.count for r in played.releases if r.noise_multiplier)
    return Check(
        name="releases in the ledger",
        passed=found >= played.rounds,
        statistic=found,
        limit=played.rounds,
        text=f"a client that sent {played.rounds} messages has {found} releases in the ledger",
        failure_rate=0.0,
    )


def _shown(played: Played, measured: float, delta: float, rng: np.random.Generator, alpha: float) -> list[Shown]:
    normal = played.declared.mechanism == "gaussian"
    found: list[Shown] = []

    def add(observer: Observer, *numbers: Number) -> None:
        found.extend(Shown(observer=observer, number=n) for n in numbers)

    def guessed(observer: Observer, scored: Scored) -> None:
        add(observer, one_run.lower(scored, delta, rng, alpha))
        if normal:
            add(observer, f_dp.lower(scored, delta, rng, alpha))
        if spread_of(scored) > 0:
            add(observer, one_shot.fitted(scored, delta))

    if not played.hidden:
        scored = played.single()
        errors = scored.errors(played.middle)
        add("single uploads", two_point.lower(errors, delta, alpha))
        add("single uploads", bayes.credible(errors, delta, 0.95))
        if normal:
            steps = played.steps().errors(played.middle / played.rounds)
            add("single uploads", per_round.lower(steps, delta, rounds=played.rounds, alpha=alpha))
            add("single uploads", from_residuals(played, measured, delta, alpha))
        guessed("single uploads", scored)
    else:
        guessed("aggregate, informed", played.aggregate(informed=True))
        if played.central and normal:
            add("aggregate, informed", from_residuals(played, measured, delta, alpha))
    guessed("aggregate, agnostic", played.aggregate(informed=False))
    return found


def from_residuals(played: Played, measured: float, delta: float, alpha: float) -> Lower:
    """The loss at the most noise that residuals allow and the least sensitivity that replay shows."""
    _, high = residuals.spread_interval(played.residuals, 2 * alpha)
    mu = math.inf if high == 0 else measured * math.sqrt(played.rounds) / high
    return Lower(
        audit="residuals and replay",
        epsilon=gaussian(mu, delta),
        delta=delta,
        confidence=1 - alpha,
        trials=played.residuals.size,
        ceiling=math.inf,
        assumes="Gaussian noise, independent between coordinates and rounds",
        note=f"noise of at most {high:.4g} over a sensitivity of at least {measured:.4g}",
    )


def spread_of(scored: Scored) -> float:
    """The smaller of the standard deviations of scores in and out."""
    parts = scored.score[scored.inside], scored.score[~scored.inside]
    return min((float(p.std()) if len(p) > 1 else 0.0) for p in parts)
