"""Planner: the least noise that keeps a budget over some rounds, for those who see who takes part
and for those who do not."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral, Real
from typing import Literal, NamedTuple

from fedaudit.audit.accounting.accountants import pld, wor_pld
from fedaudit.audit.accounting.accountants.exact import closed_form
from fedaudit.audit.accounting.child import Exceeded, call
from fedaudit.audit.accounting.terms import Term, merge_gaussians
from fedaudit.fl.ledger import Sampling
from fedaudit.fl.runtime.errors import UserError, suggest_name
from fedaudit.reports.bound import PrivacyBound, Reason, Status

How = Literal["poisson", "fixed"]
SAMPLING: dict[How, Sampling] = {"poisson": "poisson", "fixed": "fixed_without_replacement"}
SECONDS, GIGABYTES = 300.0, 8.0
PRECISION = 1e-4  # relative, of the multiplier; the answer is rounded towards more noise
GRID = 1e-4  # of losses, relative to the budget or to their spread; never downwards
RANGE = (2e-2, 1e7)  # of multipliers: at less noise nothing is gained, and losses are too far apart
MOST = 10**9
EXAMPLE = "fedaudit dp calibrate --epsilon 8 --rounds 200 --rate 0.1"
FIXED = "fa.calibrate(epsilon=8, rounds=200, sampling='fixed', clients=100, sampled=10)"


@dataclass(frozen=True, kw_only=True)
class NoiseQuestion:
    """What to plan for. Clients are the unit; each takes part with probability `rate` in a round.

    Of a fixed number, how many clients there are decides what is credited: who was not drawn itself knows that
    the others were drawn the likelier, so the ledger credits sampled / (clients - 1) (`central_dp`).
    """

    epsilon: float
    delta: float = 1e-5
    rounds: int = 100
    rate: float = 1.0
    how: How = "poisson"
    per_round: int = 1  # noised releases of one client in a round: a model, prototypes, ...
    replace: bool = False  # replace-one instead of add-or-remove; always so for a fixed number
    clients: int | None = None  # of the federation
    sampled: int | None = None  # of them in a round, which then is the rate
    contributors: int = 1  # clients that make the noise together (dp_gaussian under secure aggregation)
    colluders: int = 1  # of them, who put together what they know, the observing one among them

    def __post_init__(self) -> None:
        self._check_kinds()
        for name, good, what in (
            ("epsilon", 0 < self.epsilon < math.inf, "> 0"),
            ("delta", 0 < self.delta < 1, "between 0 and 1"),
            ("rounds", self.rounds >= 1, ">= 1"),
            ("rounds", self.rounds <= MOST, f"at most {MOST:,}"),
            ("rate", 0 < self.rate <= 1, "above 0 and at most 1"),
            ("per_round", self.per_round >= 1, ">= 1"),
            ("per_round", self.per_round <= MOST, f"at most {MOST:,}"),
            ("clients", self.clients is None or 2 <= self.clients <= MOST, f"from 2 to {MOST:,}"),
            ("sampled", self.sampled is None or self.sampled >= 1, ">= 1"),
            ("contributors", 1 <= self.contributors <= MOST, f"from 1 to {MOST:,}"),
            ("colluders", 1 <= self.colluders <= MOST, f"from 1 to {MOST:,}"),
        ):
            if not good:
                raise UserError(f"{name} must be {what}, got {getattr(self, name)}", hint=EXAMPLE)
        self._set_rate()

    def _check_kinds(self) -> None:
        """Raise UserError for a value of another kind, which Python takes: text, 1.5 rounds, "Poisson"."""
        for name, kind, what in (
            *((name, Real, "a number") for name in ("epsilon", "delta", "rate")),
            *(
                (name, Integral, "a whole number")
                for name in ("rounds", "per_round", "contributors", "colluders")
            ),
            *(
                (name, Integral, "a whole number")
                for name in ("clients", "sampled")
                if getattr(self, name) is not None
            ),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, kind):
                raise UserError(f"{name} must be {what}, got {value!r}", hint=EXAMPLE)
        if self.how not in SAMPLING:
            raise UserError(
                f"sampling must be 'poisson' or 'fixed', got {self.how!r}",
                hint=suggest_name(self.how, SAMPLING, FIXED),
            )

    def _set_rate(self) -> None:
        if (self.clients is None) != (self.sampled is None):
            raise UserError("clients and sampled need each other", hint=FIXED)
        if self.clients is None or self.sampled is None:
            if self.how == "fixed" and self.rate < 1:
                raise UserError(
                    "rate alone does not say what a fixed number earns, but how many clients there are does",
                    hint=FIXED,
                )
            return
        if self.sampled > self.clients:
            raise UserError(f"sampled, {self.sampled:,}, is more than clients, {self.clients:,}", hint=FIXED)
        share = self.sampled / self.clients
        if self.rate not in (1.0, share):
            raise UserError(
                f"rate {self.rate:g} contradicts sampled {self.sampled:,} of clients {self.clients:,}",
                hint="leave out rate",
            )
        object.__setattr__(self, "rate", share)

    @property
    def credited(self) -> float:
        """The rate that the ledger credits towards whoever cannot see who takes part."""
        if self.how != "fixed" or self.clients is None or self.sampled is None:
            return self.rate
        return min(1.0, self.sampled / (self.clients - 1))

    @property
    def subtracted(self) -> float:
        """How much more noise it takes where some of those who make it subtract theirs."""
        return math.sqrt(self.contributors / max(1, self.contributors - self.colluders))

    @property
    def doubled(self) -> bool:
        return self.replace or (self.rate < 1 and self.how == "fixed")


class PlannedNoise(NamedTuple):
    observer: str
    counted: str  # what is added up, in words
    noise: float  # standard deviation / clip norm
    curve: dict[int, float]  # rounds -> epsilon at that noise
    engine: str


def answers(question: NoiseQuestion) -> list[PlannedNoise]:
    """For each kind of observer the noise, relative to the clip, that keeps the budget."""
    everyone = _plan_fixed_cohort(
        question,
        "whoever sees who takes part (the server), at worst",
        f"a client that takes part in all {question.rounds:,} rounds",
    )
    if question.contributors > 1:
        return _plan_joint_noise(question, everyone)
    if question.rate == 1:
        return [everyone._replace(observer="everyone")]
    return [everyone, _plan_hidden_cohort(question, everyone)]


def _plan_joint_noise(question: NoiseQuestion, everyone: PlannedNoise) -> list[PlannedNoise]:
    """Noise that clients make together: a client subtracts what it and its colluders made."""
    n, c = question.contributors, question.colluders
    counted = f"{everyone.counted}, {n:,} clients making the noise in each"
    noise = _round_up(everyone.noise * question.subtracted)
    who = f"another client, with {c:,} colluder{'' if c == 1 else 's'}"
    return [
        everyone._replace(observer=who, noise=noise, counted=counted),
        everyone._replace(observer="the server and the public, with no colluders", counted=counted),
    ]


def bound_plan(question: NoiseQuestion, answer: PlannedNoise) -> dict[int, PrivacyBound]:
    """The bound after so many rounds at that noise: planned, since nothing ran."""
    who = "the clients"
    if question.clients is not None:
        who = f"{question.clients:,} clients, of whom {question.sampled:,} are drawn a round"
    elif question.rate < 1:
        who = f"clients that are drawn with probability {question.rate:g}"
    together = question.colluders if "colluder" in answer.observer and question.contributors > 1 else 0
    return {
        rounds: PrivacyBound(
            observer=answer.observer,
            unit="client",
            adjacency="replace_one" if question.doubled else "add_or_remove_one",
            delta=question.delta,
            epsilon=epsilon,
            status=Status.DECLARED,
            reasons=[Reason(source="plan", sentence="nothing ran")],
            declared_by="the plan",
            accountant=answer.engine,
            releases=rounds * question.per_round,
            colluders=together,
            population=who,
            assumes=answer.counted,
        )
        for rounds, epsilon in answer.curve.items()
    }


def _choose_points(rounds: int) -> list[int]:
    return sorted({max(1, round(rounds * share / 8)) for share in range(1, 9)})


def _plan_fixed_cohort(question: NoiseQuestion, observer: str, counted: str) -> PlannedNoise:
    import dp_accounting
    import numpy as np

    try:
        with np.errstate(divide="ignore", invalid="ignore"):  # of probabilities that are 0 in double precision
            one = float(dp_accounting.get_sigma_gaussian(question.epsilon, question.delta))
        z = _round_up(one * math.sqrt(question.rounds * question.per_round))
        if _compute_in_full(question, z, question.rounds) > question.epsilon:  # by a last digit of the formula
            z = _round_up(z * (1 + 10 * PRECISION))
        curve = {r: _compute_in_full(question, z, r) for r in _choose_points(question.rounds)}
        enough = curve[question.rounds] <= question.epsilon and math.isfinite(z)
    except (ArithmeticError, ValueError, RuntimeError) as error:
        raise out_of_range(question) from error
    if not enough:
        raise out_of_range(question)
    return PlannedNoise(observer, counted, z * (2 if question.doubled else 1), curve, "exact")


def _compute_in_full(question: NoiseQuestion, z: float, rounds: int) -> float:
    count = rounds * question.per_round
    return closed_form(merge_gaussians({Term("gaussian", z, "none", 1.0): count}), question.delta)


def out_of_range(question: NoiseQuestion) -> UserError:
    """What is asked for is outside of what numbers can hold."""
    return UserError(
        f"no noise can be computed for epsilon {question.epsilon:g} at delta {question.delta:g} "
        f"over {question.rounds:,} rounds",
        hint="ask for an epsilon from 0.001 to 1,000 and a delta from 1e-15 to 0.1",
    )


def _plan_hidden_cohort(question: NoiseQuestion, everyone: PlannedNoise) -> PlannedNoise:
    """Amplified by sampling where that can be computed, and never more noise than without.

    Poisson amplification needs add-or-remove neighbours.
    """
    if question.replace and question.how == "poisson":
        raise UserError(
            "Poisson sampling is credited for add-or-remove neighbours only",
            hint="ask for add-or-remove, or for sampling of a fixed number",
        )
    try:
        z, curve = call(search, SECONDS, GIGABYTES, question)
    except Exceeded as reason:
        raise UserError(
            f"no answer for those who do not see who takes part: {reason}",
            hint="ask for a smaller epsilon or fewer rounds",
        ) from None
    observer = "whoever cannot see who takes part (public, other clients)"
    z *= 2 if question.doubled else 1
    if (
        z >= everyone.noise or curve[question.rounds] > question.epsilon
    ):  # a delta that its grid cannot tell from 0
        counted = f"all {question.rounds:,} rounds, each in full: no less noise can be computed at this delta"
        return everyone._replace(observer=observer, counted=counted)
    drawn = "on coins of their own" if question.how == "poisson" else "in a fixed number"
    credited = f", which counts as {question.credited:.4g}" if question.credited != question.rate else ""
    return PlannedNoise(
        observer,
        f"all {question.rounds:,} rounds, clients drawn {drawn} with probability {question.rate:g}{credited}",
        z,
        curve,
        "PLD" if question.how == "poisson" else "WOR-PLD",
    )


def search(question: NoiseQuestion) -> tuple[float, dict[int, float]]:
    """The multiplier and the curve; runs in a child."""
    # the curve composes one distribution several times
    of = lru_cache(maxsize=1)(pld.distribution if question.how == "poisson" else wor_pld.distribution)

    def spent(z: float, rounds: int) -> float:
        # what one round releases shares the round's draw: one release of less noise
        # a rate of 1 earns nothing
        how: Sampling = SAMPLING[question.how] if question.credited < 1 else "none"
        term = Term("gaussian", z / math.sqrt(question.per_round), how, question.credited)
        # losses may lie far further apart than the budget where delta is large
        wide = math.sqrt(rounds) * pld.estimate_spread(term)
        step = max(pld.choose_finest({term: rounds}), GRID * question.epsilon, GRID * wide)
        return pld.on_grid({term: rounds}, question.delta, step, of)

    z = _round_up(_find_least(lambda z: spent(z, question.rounds), question.epsilon))
    return z, {r: spent(z, r) for r in _choose_points(question.rounds)}


def _find_least(cost: Callable[[float], float], most: float) -> float:
    """The least multiplier that costs at most so much, to PRECISION and never less.

    Logarithms of cost and multiplier are nearly on a line, so Brent's method needs few costs, each of which
    composes all rounds. The bracket is widened from 1 first.
    """
    from scipy.optimize import brentq

    known: dict[float, float] = {}

    def over(log_z: float) -> float:
        if log_z not in known:
            known[log_z] = math.log(max(cost(math.exp(log_z)), 1e-300) / most)
        return known[log_z]

    low = high = 0.0
    while over(high) > 0 and math.exp(high) < RANGE[1]:
        low, high = high, high + math.log(2)
    while over(low) <= 0 and math.exp(low) > RANGE[0]:
        low, high = low - math.log(2), low
    found = float(brentq(over, low, high, xtol=PRECISION / 4)) if over(low) > 0 >= over(high) else high
    enough = [log_z for log_z, excess in known.items() if excess <= 0 and log_z <= found + PRECISION]
    return math.exp(min(enough, default=found + PRECISION / 2))


def _round_up(z: float) -> float:
    """More noise, in the fourth digit."""
    scale = 10.0 ** (3 - math.floor(math.log10(z)))
    return math.ceil(z * scale - 1e-9) / scale
